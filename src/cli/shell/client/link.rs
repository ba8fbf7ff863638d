//! One connection: its handshake, its buffers, and the order of its answers.

use super::Connect;
use super::servers::Server;
use bytes::{Bytes, BytesMut};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::select;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
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
    beat: Interval,
    beats_unheard: u32,
    has_spoken: bool,
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
    /// Cancel-safe. Meanwhile it pings the server and notices its silence.
    ///
    /// # Errors
    /// The connection is broken, or silent for two thirds of the session timeout.
    pub(super) async fn frame(&mut self) -> Result<Bytes> {
        loop {
            if let Some(frame) = split_frame(&mut self.input, FRAME_BYTES_MAX).map_err(invalid)? {
                return Ok(frame);
            }
            // A blocked write must not prevent reads: the server may be waiting for us to read.
            select! {
                written = self.writer.write_buf(&mut self.out), if !self.out.is_empty() => {
                    written?;
                    self.has_spoken = true;
                }
                read = self.reader.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
                    }
                    self.beats_unheard = 0;
                }
                _ = self.beat.tick() => self.on_beat()?,
            }
        }
    }

    fn on_beat(&mut self) -> Result<()> {
        self.beats_unheard += 1;
        if self.beats_unheard > 2 {
            return Err(Error::new(ErrorKind::TimedOut, "silent for two thirds of the session timeout"));
        }
        if !std::mem::take(&mut self.has_spoken) {
            encode_request(XID_PING, &Request::Ping, &mut self.out);
        }
        Ok(())
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
    let mut beat = interval(negotiated / 3);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat.reset();
    let link = Link { reader, writer, input, out: BytesMut::new(), beat, beats_unheard: 0, has_spoken: true, peer };
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
