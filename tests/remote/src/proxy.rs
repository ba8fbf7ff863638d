//! A proxy that can cut connections, also at a chosen frame.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy between clients and their server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rules: Mutex<Rules>,
    /// Notified after every change of the rules.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Rules {
    is_down: bool,
    /// Number of cuts so far. A cut ends all earlier connections.
    cuts: u64,
    /// Opcode whose next reply is lost together with its connection.
    lose: Option<i32>,
    lost: u64,
    /// Opcode whose next request is dropped, and the error that answers it.
    refuse: Option<(i32, i32)>,
    /// Whether replies are held back.
    is_held: bool,
    /// Opcodes of all requests so far.
    requests: Vec<i32>,
}

impl Proxy {
    /// Starts a proxy in front of `server`.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { rules: Mutex::default(), changed: watch::channel(()).0 });
        tokio::spawn(accept(listener, server, Arc::clone(&shared)));
        Self { address, shared }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections. New ones are accepted.
    pub fn cut(&self) {
        self.change(|rules| rules.cuts += 1);
    }

    /// Ends all connections, and every new one.
    pub fn down(&self) {
        self.change(|rules| {
            rules.cuts += 1;
            rules.is_down = true;
        });
    }

    /// Accepts new connections again.
    pub fn up(&self) {
        self.change(|rules| rules.is_down = false);
    }

    /// Forwards the next request with this opcode, and ends its connection before the reply.
    pub fn lose_reply(&self, opcode: i32) {
        self.change(|rules| rules.lose = Some(opcode));
    }

    /// Drops the next request with this opcode, as an overloaded server does.
    pub fn throttle(&self, opcode: i32) {
        self.refuse(opcode, THROTTLED);
    }

    /// Drops the next request with this opcode, and answers it with this error.
    pub fn refuse(&self, opcode: i32, error: i32) {
        self.change(|rules| rules.refuse = Some((opcode, error)));
    }

    /// Returns the number of replies that were lost.
    pub fn lost(&self) -> u64 {
        self.rules().lost
    }

    /// Sets whether replies are held back.
    pub fn hold(&self, is_held: bool) {
        self.change(|rules| rules.is_held = is_held);
    }

    /// Returns the number of requests with this opcode.
    pub fn requests(&self, opcode: i32) -> usize {
        self.rules().requests.iter().filter(|seen| **seen == opcode).count()
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.shared.rules()
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules());
        self.shared.changed.send_replace(());
    }
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap()
    }

    async fn wait(&self, mut is_so: impl FnMut(&Rules) -> bool) {
        let mut changed = self.changed.subscribe();
        while !is_so(&self.rules()) {
            let _ = changed.changed().await;
        }
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let (is_down, cuts) = {
            let rules = shared.rules();
            (rules.is_down, rules.cuts)
        };
        if is_down {
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            tokio::select! {
                _ = join(client, server, &shared) => {}
                () = shared.wait(|rules| rules.cuts > cuts) => {}
            }
        });
    }
}

async fn join(client: TcpStream, server: SocketAddr, shared: &Shared) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let marked = Marked::default();
    tokio::select! {
        result = requests(from_client, to_server, shared, &marked) => result,
        result = replies(from_server, to_client, shared, &marked) => result,
    }
}

/// Xids of requests whose replies are not forwarded unchanged.
#[derive(Default)]
struct Marked {
    doomed: Mutex<Option<i32>>,
    /// Also the error with which to answer it.
    refused: Mutex<Option<(i32, i32)>>,
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, marked: &Marked) -> io::Result<()> {
    let handshake = frame(&mut from).await?;
    to.write_all(&handshake).await?;
    loop {
        let mut request = frame(&mut from).await?;
        let opcode = number(&request[8..12]);
        {
            let mut rules = shared.rules();
            rules.requests.push(opcode);
            if rules.lose == Some(opcode) {
                rules.lose = None;
                *marked.doomed.lock().unwrap() = Some(number(&request[4..8]));
            }
            if let Some((_, error)) = rules.refuse.take_if(|(refused, _)| *refused == opcode) {
                *marked.refused.lock().unwrap() = Some((number(&request[4..8]), error));
                // The server gets a harmless request instead, and answers it in its turn.
                request = [&request[..8], &EXISTS.to_be_bytes(), &1i32.to_be_bytes(), b"/\0"].concat();
                request[..4].copy_from_slice(&14i32.to_be_bytes());
            }
        }
        to.write_all(&request).await?;
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, marked: &Marked) -> io::Result<()> {
    let handshake = frame(&mut from).await?;
    to.write_all(&handshake).await?;
    loop {
        let mut reply = frame(&mut from).await?;
        shared.wait(|rules| !rules.is_held).await;
        if *marked.doomed.lock().unwrap() == Some(number(&reply[4..8])) {
            shared.rules().lost += 1;
            return Ok(());
        }
        let refused = marked.refused.lock().unwrap().take_if(|(xid, _)| *xid == number(&reply[4..8]));
        if let Some((_, error)) = refused {
            reply.truncate(20);
            reply[..4].copy_from_slice(&16i32.to_be_bytes());
            reply[16..].copy_from_slice(&error.to_be_bytes());
        }
        to.write_all(&reply).await?;
    }
}

const EXISTS: i32 = 3;
/// ZooKeeper's THROTTLEDOP.
const THROTTLED: i32 = -127;

/// Reads a frame, and returns it with its length prefix.
async fn frame(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let mut frame = vec![0; 4 + u32::from_be_bytes(length) as usize];
    frame[..4].copy_from_slice(&length);
    from.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}

fn number(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().unwrap())
}
