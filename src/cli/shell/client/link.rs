//! One connection: its handshake, its buffers, and the order of its answers.

use super::Connect;
use super::pulse::{Due, Pulse};
use super::servers::Server;
use bytes::{Bytes, BytesMut};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::select;
use tokio::time::{Instant, sleep_until, timeout};
use zoolet_model::{ConnectRequest, Request, SessionId};
use zoolet_transport::wire::client_side::{Header, decode_connect_reply, encode_connect, encode_request};
use zoolet_transport::wire::{XID_PING, split_frame};

/// Maximum frame of a server, in bytes; a list of a million children takes 20 MB.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// A session as its server knows it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: i64,
    pub(super) password: Bytes,
    pub(super) is_read_only: bool,
}

/// A connection behind its handshake.
pub(super) struct Link {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    input: BytesMut,
    pub(super) out: BytesMut,
    pulse: Pulse,
    /// The address of the server.
    pub(super) peer: SocketAddr,
}

/// The answer to a handshake.
pub(super) enum Greeted {
    Session(Box<Link>, Held),
    /// The session to continue has ended.
    Expired,
}

impl Link {
    /// Connects to one server, and opens or continues a session.
    ///
    /// # Errors
    /// The server does not answer, or does not speak the protocol.
    pub(super) async fn open(
        server: &Server,
        connect: &Connect,
        session: Option<&Held>,
        last_zxid: i64,
    ) -> Result<Greeted> {
        let greeting = greet(server.address, connect, session, last_zxid);
        timeout(server.patience, greeting).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::TimedOut, format!("no answer in {:.0} s", server.patience.as_secs_f64())))
        })
    }

    /// Sends and receives until a frame is there.
    ///
    /// Cancel-safe. Meanwhile it pings the server and notices its silence, as [`Pulse::next`] says.
    ///
    /// # Errors
    /// The connection is broken, or silent for two thirds of the session timeout.
    pub(super) async fn frame(&mut self) -> Result<Bytes> {
        loop {
            if let Some(frame) = split_frame(&mut self.input, FRAME_BYTES_MAX).map_err(invalid)? {
                return Ok(frame);
            }
            let (due_at, due) = self.pulse.next(!self.out.is_empty());
            // A blocked write must not prevent reads: the server may be waiting for us to read. Time comes last:
            // after a suspension of this process, the bytes that arrived meanwhile show that the server is alive.
            select! {
                biased;
                written = self.writer.write_buf(&mut self.out), if !self.out.is_empty() => {
                    written?;
                    self.pulse.note_spoken(Instant::now());
                }
                read = self.reader.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
                    }
                    self.pulse.note_heard(Instant::now());
                }
                () = sleep_until(due_at) => match due {
                    Due::Ping => encode_request(XID_PING, &Request::Ping, &mut self.out),
                    Due::Leave => {
                        return Err(Error::new(ErrorKind::TimedOut, "silent for two thirds of the session timeout"));
                    }
                },
            }
        }
    }
}

async fn greet(peer: SocketAddr, connect: &Connect, session: Option<&Held>, last_zxid: i64) -> Result<Greeted> {
    let stream = TcpStream::connect(peer).await?;
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = stream.into_split();
    let mut out = BytesMut::new();
    let request = ConnectRequest {
        last_zxid_seen: last_zxid,
        timeout_ms: i32::try_from(connect.timeout.as_millis()).unwrap_or(i32::MAX),
        session: SessionId(session.map_or(0, |session| session.id)),
        password: Some(session.map_or_else(|| Bytes::from_static(&[0; 16]), |session| session.password.clone())),
        read_only: Some(connect.read_only),
    };
    encode_connect(&request, &mut out);
    writer.write_all(&out).await?;
    let mut input = BytesMut::new();
    let frame = loop {
        if let Some(frame) = split_frame(&mut input, FRAME_BYTES_MAX).map_err(invalid)? {
            break frame;
        }
        if reader.read_buf(&mut input).await? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "it closes the connection without a session"));
        }
    };
    // A read-only server may answer with the refusal of a write instead of a session.
    if frame.len() == Header::BYTES {
        return Err(Error::other("it has no quorum, and gives no new session; wait, or name another with --server"));
    }
    let reply = decode_connect_reply(frame.clone()).map_err(invalid)?;
    let Some(negotiated) = u64::try_from(reply.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis) else {
        return Ok(Greeted::Expired);
    };
    let pulse = Pulse::new(negotiated, Instant::now());
    let link = Link { reader, writer, input, out: BytesMut::new(), pulse, peer };
    let held = Held {
        id: reply.session.0,
        password: Bytes::copy_from_slice(&reply.secret.0),
        is_read_only: reply.read_only_byte && frame.last() == Some(&1),
    };
    Ok(Greeted::Session(Box::new(link), held))
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, Seen, connect};
    use super::*;

    #[tokio::test]
    async fn mute_server_gets_one_ping_and_is_left() {
        let mut fake = Fake { timeout_ms: 300, ..Fake::default() }.start().await;
        let connect = connect(&[&fake]);
        let server = Server { name: fake.name.clone(), address: fake.address, patience: Duration::from_secs(10) };
        let Ok(Greeted::Session(mut link, _)) = Link::open(&server, &connect, None, 0).await else {
            panic!("no session")
        };
        assert_eq!(link.frame().await.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(link);
        assert_eq!(fake.next().await, Seen::Session(0));
        assert_eq!(fake.next().await, Seen::Request(XID_PING));
        assert_eq!(fake.next().await, Seen::End);
    }
}
