//! Clients that drive one server to every bound of its memory at once.
//!
//! They are impolite: they stay until the server closes their connections, and then come back. They
//! send parts of requests, leave answers unread, register watches until the server refuses, and
//! write the largest values allowed.

use crate::{Outcome, said};
use bytes::{Bytes, BytesMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use zoolet_model::{
    AddWatchMode, ConnectRequest, Create, CreateKind, CreateMode, Request, RequestedAcl, SessionId, WriteOp,
};
use zoolet_powercut::random::Random;
use zoolet_transport::wire::client_side::{encode_connect, encode_request};

/// Parent of every znode that a siege writes.
pub const TOP: &str = "/siege";
/// Size of the large values, in bytes.
const LARGE: usize = 900_000;
/// Children of one znode, whose names fill about half a frame.
const WIDE: usize = 5_000;
/// Delay before a client that was refused or closed tries again.
const RETRY: Duration = Duration::from_millis(200);
/// Bound on each step of a client.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections left to other clients, such as those that populate or read figures.
const LEFT_FREE: u64 = 24;
/// Requests in flight of a client that reads its answers.
const WINDOW: usize = 32;
const SESSION_TIMEOUT_MS: i32 = 20_000;
/// Size of the pieces in which answers are read and discarded.
const PIECE: usize = 16 << 10;

/// Bounds of the besieged server, and the znodes to read.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections in total.
    pub connections: u64,
    /// Connections from one address.
    pub connections_per_address: u64,
    /// Watches.
    pub watches: u64,
    /// Znodes that may be read, by [`znode`].
    pub znodes: u64,
}

/// Totals of a siege.
#[derive(Debug, Default)]
pub struct Taken {
    /// Handshakes that gave a session.
    pub sessions: AtomicU64,
    /// Connections that were closed, not answered or not accepted.
    pub closed: AtomicU64,
    /// Watches requested.
    pub watches: AtomicU64,
    /// Bytes of answers that clients read.
    pub read: AtomicU64,
}

/// Clients that besiege one server until [`Siege::end`].
pub struct Siege {
    /// Totals so far.
    pub taken: Arc<Taken>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<()>>,
}

impl Siege {
    /// Begins a siege of the server at this address.
    ///
    /// The address is in a loopback network with 256 addresses. The znodes of [`prepare`] have to
    /// exist.
    pub fn begin(server: SocketAddr, bounds: Bounds) -> Self {
        let (taken, is_over) = (Arc::new(Taken::default()), Arc::new(AtomicBool::new(false)));
        let (its, over) = (taken.clone(), is_over.clone());
        let thread = std::thread::spawn(move || run(server, bounds, &its, &over));
        Self { taken, is_over, thread }
    }

    /// Ends all clients.
    ///
    /// # Errors
    /// The clients could not begin, or panicked.
    pub fn end(self) -> Outcome<()> {
        self.is_over.store(true, Relaxed);
        self.thread.join().map_err(|_| "a siege panicked".to_owned())?
    }
}

/// Returns the path of a populated znode. A thousand znodes share one parent.
pub fn znode(number: u64) -> String {
    format!("{}/znode-{number:08}", directory(number))
}

/// Returns the parent of such a znode.
pub fn directory(number: u64) -> String {
    format!("{TOP}/d{:05}", number / 1000)
}

/// Returns the write that creates a persistent znode.
pub fn create(path: &str, data: Bytes) -> WriteOp {
    WriteOp::Create(Create {
        path: path.into(),
        data: Some(data),
        acl: Some(RequestedAcl::open()),
        mode: CreateMode::Valid { kind: CreateKind::Persistent, sequential: false },
        with_stat: false,
    })
}

/// Returns the transactions that a siege needs beforehand. Each fits a frame.
pub fn prepare() -> Vec<Vec<WriteOp>> {
    let name = |number: usize| format!("{TOP}/wide/{number:080}");
    let top = vec![
        create(TOP, Bytes::new()),
        create(&format!("{TOP}/wide"), Bytes::new()),
        create(&format!("{TOP}/large"), vec![b'l'; LARGE].into()),
    ];
    let numbers: Vec<usize> = (0..WIDE).collect();
    let wide =
        numbers.chunks(1000).map(|some| some.iter().map(|number| create(&name(*number), Bytes::new())).collect());
    std::iter::once(top).chain(wide).collect()
}

fn run(server: SocketAddr, bounds: Bounds, taken: &Arc<Taken>, is_over: &Arc<AtomicBool>) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said("runtime"))?;
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        let crowd = bounds.connections.saturating_sub(LEFT_FREE);
        for number in 0..crowd {
            let what = match number {
                0..12 => Habit::Deaf,
                12..18 => Habit::Half,
                18..22 => Habit::WritesLarge,
                22..28 => Habit::ReadsZnodes,
                28..32 => Habit::ReadsWide,
                32..36 => Habit::LeavesSessions,
                36..40 => Habit::ProvesMuch,
                _ => Habit::Watches(bounds.watches * 2 / crowd + 1),
            };
            let client = Besieger { server, bounds, number, what, taken: taken.clone(), random: Random::new(number) };
            tasks.spawn(client.go_on());
        }
        for word in ["wchc", "wchp", "dump", "cons", "mntr"] {
            tasks.spawn(ask_again_and_again(server, word));
        }
        while !is_over.load(Relaxed) {
            sleep(Duration::from_millis(20)).await;
        }
        tasks.abort_all();
    });
    Ok(())
}

async fn ask_again_and_again(server: SocketAddr, word: &'static str) {
    loop {
        let asked = async {
            let mut stream = TcpStream::connect(server).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut piece = [0; PIECE];
            while stream.read(&mut piece).await? > 0 {}
            std::io::Result::Ok(())
        };
        let _ = timeout(PATIENCE, asked).await;
        sleep(Duration::from_millis(500)).await;
    }
}

/// Behaviour of a client on its connection.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Requests large values and reads no answer.
    Deaf,
    /// Sends the beginning of a large request.
    Half,
    /// Sets large values as fast as possible.
    WritesLarge,
    /// Reads random znodes as fast as possible.
    ReadsZnodes,
    /// Reads the names of many children as fast as possible.
    ReadsWide,
    /// Opens sessions and leaves them to their timeout.
    LeavesSessions,
    /// Authenticates with many identities.
    ProvesMuch,
    /// Registers this many watches, then only pings. Every seventh client neither pings nor reads.
    Watches(u64),
}

struct Besieger {
    server: SocketAddr,
    bounds: Bounds,
    number: u64,
    what: Habit,
    taken: Arc<Taken>,
    random: Random,
}

impl Besieger {
    async fn go_on(mut self) {
        loop {
            // The server closed the connection or did not answer. Try again.
            let _ = self.once().await;
            self.taken.closed.fetch_add(1, Relaxed);
            sleep(RETRY).await;
        }
    }

    /// Runs one connection until it is closed.
    async fn once(&mut self) -> std::io::Result<()> {
        let mut stream = self.join().await?;
        self.taken.sessions.fetch_add(1, Relaxed);
        let mut out = BytesMut::new();
        match self.what {
            Habit::Deaf => {
                let request = Request::GetData { path: format!("{TOP}/large").into(), watch: false };
                (1..=30).for_each(|xid| encode_request(xid, &request, &mut out));
                stream.write_all(&out).await?;
                until_closed(&stream).await
            }
            Habit::Half => {
                let mut half = (LARGE as i32).to_be_bytes().to_vec();
                half.resize(LARGE * 9 / 10, 7);
                let _ = timeout(PATIENCE, stream.write_all(&half)).await;
                until_closed(&stream).await
            }
            Habit::LeavesSessions => Ok(()),
            Habit::WritesLarge => {
                let path = format!("{TOP}/large-{}", self.number);
                encode_request(1, &Request::Write(create(&path, Bytes::new())), &mut out);
                let data = Bytes::from(vec![b'w'; LARGE]);
                let set =
                    Request::Write(WriteOp::SetData { path: path.as_str().into(), data: Some(data), version: -1 });
                self.pipeline(&mut stream, out, move |_, out| encode_request(2, &set, out), 4).await
            }
            Habit::ReadsZnodes => {
                let znodes = self.bounds.znodes;
                let read = move |random: &mut Random, out: &mut BytesMut| {
                    let path = znode(random.below(znodes)).into();
                    encode_request(1, &Request::GetData { path, watch: false }, out);
                };
                self.pipeline(&mut stream, out, read, WINDOW).await
            }
            Habit::ReadsWide => {
                let path = format!("{TOP}/wide").into();
                let read = Request::GetChildren { path, watch: false, with_stat: true };
                self.pipeline(&mut stream, out, move |_, out| encode_request(1, &read, out), 4).await
            }
            Habit::ProvesMuch => {
                for number in 0..400 {
                    let proof = format!("{:0>500}-{number}:x", self.number).into_bytes().into();
                    let auth = Request::Auth { scheme: Some("digest".into()), auth: Some(proof) };
                    encode_request(-4, &auth, &mut out);
                }
                stream.write_all(&out).await?;
                self.linger(stream).await
            }
            Habit::Watches(watches) => {
                for number in 0..watches {
                    let path = znode(self.random.below(self.bounds.znodes));
                    let watch = match number % 4 {
                        0 => Request::Exists { path: format!("{path}-absent").into(), watch: true },
                        1 => Request::GetData { path: path.into(), watch: true },
                        2 => Request::AddWatch { path: path.into(), mode: AddWatchMode::Persistent },
                        _ => Request::AddWatch { path: path.into(), mode: AddWatchMode::PersistentRecursive },
                    };
                    encode_request(1, &watch, &mut out);
                }
                stream.write_all(&out).await?;
                self.taken.watches.fetch_add(watches, Relaxed);
                if self.number.is_multiple_of(7) { until_closed(&stream).await } else { self.linger(stream).await }
            }
        }
    }

    /// Connects from one of many addresses, and asks for a session.
    ///
    /// The bound on connections of one address is therefore not the first one to be met.
    async fn join(&self) -> std::io::Result<TcpStream> {
        let own = match self.server.ip() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                let share = (self.bounds.connections_per_address / 2).max(1);
                // Servers have the first addresses of their network, and address 250 marks the
                // network as taken.
                Ipv4Addr::new(a, b, c, 10 + (self.number / share % 200) as u8)
            }
            IpAddr::V6(_) => return Err(std::io::Error::other("no loopback network")),
        };
        let socket = TcpSocket::new_v4()?;
        socket.bind((own, 0).into())?;
        let mut stream = timeout(PATIENCE, socket.connect(self.server)).await??;
        let mut out = BytesMut::new();
        let ask = ConnectRequest {
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session: SessionId(0),
            password: None,
            read_only: Some(false),
        };
        encode_connect(&ask, &mut out);
        stream.write_all(&out).await?;
        let mut answer = [0; 40];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await??;
        Ok(stream)
    }

    /// Keeps up to `window` requests in flight until the connection is closed.
    async fn pipeline(
        &mut self,
        stream: &mut TcpStream,
        first: BytesMut,
        mut next: impl FnMut(&mut Random, &mut BytesMut),
        window: usize,
    ) -> std::io::Result<()> {
        let (mut reader, mut writer) = stream.split();
        writer.write_all(&first).await?;
        let room = tokio::sync::Semaphore::new(window);
        let random = &mut self.random;
        let write = async {
            let mut out = BytesMut::new();
            loop {
                let Ok(place) = room.acquire().await else { return Ok(()) };
                place.forget();
                next(random, &mut out);
                writer.write_all(&out).await?;
                out.clear();
            }
        };
        let read = async {
            let mut piece = vec![0; PIECE];
            loop {
                let mut length = [0; 4];
                timeout(PATIENCE, reader.read_exact(&mut length)).await??;
                let mut left = u32::from_be_bytes(length) as usize;
                while left > 0 {
                    let most = left.min(PIECE);
                    let got = reader.read(&mut piece[..most]).await?;
                    if got == 0 {
                        return Ok(());
                    }
                    left -= got;
                    self.taken.read.fetch_add(got as u64, Relaxed);
                }
                room.add_permits(1);
            }
        };
        tokio::select! {
            result = write => result,
            result = read => result,
        }
    }

    /// Pings, and reads every answer.
    async fn linger(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut ping = BytesMut::new();
        encode_request(-2, &Request::Ping, &mut ping);
        let (mut reader, mut writer) = stream.split();
        let pings = async {
            loop {
                sleep(Duration::from_millis(SESSION_TIMEOUT_MS as u64 / 3)).await;
                writer.write_all(&ping).await?;
            }
        };
        let read = async {
            let mut piece = [0; 1024];
            loop {
                match reader.read(&mut piece).await? {
                    0 => return Ok(()),
                    bytes => self.taken.read.fetch_add(bytes as u64, Relaxed),
                };
            }
        };
        tokio::select! {
            result = pings => result,
            result = read => result,
        }
    }
}

/// Neither reads nor pings, until the server closes the connection.
async fn until_closed(stream: &TcpStream) -> std::io::Result<()> {
    loop {
        sleep(Duration::from_millis(500)).await;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        if stream.ready(tokio::io::Interest::READABLE).await?.is_read_closed() {
            return Ok(());
        }
    }
}
