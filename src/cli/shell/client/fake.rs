//! A server for tests, which gives sessions and answers nothing else by itself.

use super::Connect;
use crate::cli::Address;
use bytes::{BufMut, Bytes, BytesMut};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc};

/// How a server behaves.
#[derive(Clone, Copy)]
pub(super) struct Fake {
    pub(super) is_read_only: bool,
    /// The answer to `isro`.
    pub(super) isro: &'static str,
    /// The session timeout that it grants.
    pub(super) timeout_ms: i32,
}

/// What a server receives.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Probe,
    /// A handshake, with the session that it asks for; 0 asks for a new one.
    Session(i64),
    /// A request, by its xid.
    Request(i32),
    /// The end of a connection with a session.
    End,
}

pub(super) struct Running {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    seen: mpsc::UnboundedReceiver<Seen>,
    answers: broadcast::Sender<Bytes>,
}

/// Returns how a session with these servers connects, with read-only sessions allowed.
pub(super) fn connect(servers: &[&Running]) -> Connect {
    let servers = servers.iter().map(|server| server.name.clone()).collect();
    let address = Address { text: String::new(), servers, root: String::new() };
    Connect { address, timeout: Duration::from_secs(30), read_only: true, asks_role: false }
}

impl Default for Fake {
    fn default() -> Self {
        Self { is_read_only: false, isro: "null", timeout_ms: 30_000 }
    }
}

impl Fake {
    pub(super) async fn start(self) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (notes, seen) = mpsc::unbounded_channel();
        let (answers, _) = broadcast::channel(16);
        let sender = answers.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.serve(stream, notes.clone(), sender.subscribe()));
            }
        });
        Running { name: address.to_string(), address, seen, answers }
    }

    async fn serve(
        self,
        mut stream: TcpStream,
        notes: mpsc::UnboundedSender<Seen>,
        mut answers: broadcast::Receiver<Bytes>,
    ) -> Result<()> {
        let gone = |_| Error::from(ErrorKind::BrokenPipe);
        let length = stream.read_u32().await?;
        if length == u32::from_be_bytes(*b"isro") {
            notes.send(Seen::Probe).map_err(gone)?;
            return stream.write_all(self.isro.as_bytes()).await;
        }
        let handshake = body(&mut stream, length).await?;
        // Behind the version, the last zxid and the timeout.
        let session = handshake[16..24].try_into().map(i64::from_be_bytes).unwrap();
        notes.send(Seen::Session(session)).map_err(gone)?;
        stream.write_all(&self.greeting()).await?;
        let (mut reader, mut writer) = stream.split();
        let answering = async {
            while let Ok(answer) = answers.recv().await {
                writer.write_all(&answer).await?;
            }
            Ok(())
        };
        let reading = async {
            while let Ok(length) = reader.read_u32().await {
                let request = body(&mut reader, length).await?;
                let xid = request[..4].try_into().map(i32::from_be_bytes).unwrap();
                notes.send(Seen::Request(xid)).map_err(gone)?;
            }
            notes.send(Seen::End).map_err(gone)
        };
        tokio::select! {
            done = answering => done,
            done = reading => done,
        }
    }

    fn greeting(self) -> BytesMut {
        let mut reply = BytesMut::new();
        reply.put_u32(37);
        reply.put_i32(0);
        reply.put_i32(self.timeout_ms);
        reply.put_i64(7);
        reply.put_u32(16);
        reply.put_bytes(1, 16);
        reply.put_u8(self.is_read_only.into());
        reply
    }
}

async fn body(stream: &mut (impl AsyncReadExt + Unpin), length: u32) -> Result<Vec<u8>> {
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

impl Running {
    /// Returns what the server receives next.
    pub(super) async fn next(&mut self) -> Seen {
        self.seen.recv().await.unwrap()
    }

    /// Refuses a request on each connection with a session.
    pub(super) fn refuse(&self, xid: i32, code: i32) {
        let mut answer = BytesMut::new();
        answer.put_u32(16);
        answer.put_i32(xid);
        answer.put_i64(1);
        answer.put_i32(code);
        self.answers.send(answer.freeze()).unwrap();
    }
}
