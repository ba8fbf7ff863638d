//! Mutual authentication on a new connection.
//!
//! ```text
//! dialler                          acceptor
//!    | -- Hello, its proof ---------> |   judges; has said nothing yet
//!    | <--------- Hello, its proof -- |   takes it, if there is no reason against
//!    | -- GO -----------------------> |
//!   link                             link
//! ```
//! All of it is on one stream. The link later uses that stream to probe whether the peer is alive.

use super::{Links, quic};
use crate::peer::codec::{CodecError, Hello, MINOR_VERSION, Opening};
use crate::peer::trust::{Guest, PublicKey, RefusalReason, Refused};
use bytes::{Bytes, BytesMut};
use quinn::{Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, WriteError};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zoolet_model::ServerId;

/// Sent by the dialler when it accepts the acceptor's Hello.
const GO: u8 = 0;

/// Maximum bytes of one read from an unproved peer.
const READ_BYTES: usize = 4 << 10;

/// A connection whose peer has proved its identity.
#[derive(Debug)]
pub(super) struct Proven {
    pub(super) connection: Connection,
    pub(super) say: SendStream,
    pub(super) hear: RecvStream,
    pub(super) guest: Guest,
    pub(super) hello: Hello,
    pub(super) remote: SocketAddr,
    /// When the peer's Hello arrived.
    pub(super) heard: Instant,
}

impl Proven {
    pub(super) fn key(&self) -> PublicKey {
        self.guest.key()
    }

    /// Returns the latest time at which the peer's process can have started.
    ///
    /// The process aged while its Hello was in flight, so the true start is earlier. `None`: too
    /// long ago for [`Instant`].
    pub(super) fn began(&self) -> Option<Instant> {
        self.heard.checked_sub(Duration::from_millis(self.hello.process_age_ms))
    }
}

/// Why a greeting failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection ended.
    Over(ConnectionError),
    /// This server refuses the peer.
    Refused(Refused),
}

impl From<ConnectionError> for Failed {
    fn from(error: ConnectionError) -> Self {
        Self::Over(error)
    }
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Why no Hello was received.
enum Unheard {
    Over(ConnectionError),
    /// The peer sent something other than a Hello.
    Nonsense,
}

impl From<ReadError> for Unheard {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::ConnectionLost(error) => Self::Over(error),
            _ => Self::Nonsense,
        }
    }
}

impl From<CodecError> for Unheard {
    fn from(_: CodecError) -> Self {
        Self::Nonsense
    }
}

impl Unheard {
    fn by(self, guest: &Guest) -> Failed {
        match self {
            Self::Over(error) => Failed::Over(error),
            Self::Nonsense => Failed::Refused(guest.refuse(None, RefusalReason::NotUnderstood)),
        }
    }
}

impl Links {
    /// Runs the dialler's side, until both servers have proved themselves.
    pub(super) async fn greet(&self, connection: Connection, who: &str, to: ServerId) -> Result<Proven, Failed> {
        let guest = self.gate.meet(&connection, who, Some(to))?;
        let (mut say, mut hear) = connection.open_bi().await?;
        write(&mut say, &self.hello(&guest, to)).await?;
        let hello = read(&mut hear).await.map_err(|unheard| unheard.by(&guest))?;
        self.judge(&guest, &hello)?;
        Ok(proven(connection, self.settings.window_bytes, (say, hear), guest, hello))
    }

    /// Runs the acceptor's side, until the dialler has proved itself. Sends nothing.
    pub(super) async fn hear(&self, connection: Connection, who: &str) -> Result<Proven, Failed> {
        let guest = self.gate.meet(&connection, who, None)?;
        let (say, mut hear) = connection.accept_bi().await?;
        let hello = read(&mut hear).await.map_err(|unheard| unheard.by(&guest))?;
        self.judge(&guest, &hello)?;
        Ok(proven(connection, self.settings.window_bytes, (say, hear), guest, hello))
    }

    /// Sends the acceptor's Hello and waits for the dialler's `GO`.
    pub(super) async fn answer(&self, proven: &mut Proven) -> Result<(), Failed> {
        write(&mut proven.say, &self.hello(&proven.guest, proven.hello.from)).await?;
        let mut word = [0; 1];
        let refused =
            |proven: &Proven| proven.guest.refuse(Some(proven.hello.from), RefusalReason::NotUnderstood).into();
        match proven.hear.read_exact(&mut word).await {
            Ok(()) if word[0] == GO => Ok(()),
            Err(ReadExactError::ReadError(ReadError::ConnectionLost(error))) => Err(error.into()),
            Ok(()) | Err(_) => Err(refused(proven)),
        }
    }

    /// Builds this server's Hello.
    fn hello(&self, guest: &Guest, to: ServerId) -> Hello {
        let settings = &self.settings;
        let own = settings.members.iter().find(|member| member.id == settings.id);
        let mut hello = Hello {
            minor_version: MINOR_VERSION,
            site: settings.site.clone(),
            from: settings.id,
            to,
            process: settings.process,
            process_age_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            disk: settings.disk,
            addresses: own.map(|own| own.addresses.clone()).unwrap_or_default(),
            proof: None,
            extension: Bytes::new(),
        };
        hello.proof = self.gate.prove(guest, &unproved(&hello));
        hello
    }

    fn judge(&self, guest: &Guest, hello: &Hello) -> Result<(), Refused> {
        self.gate.judge(guest, hello.from, &unproved(hello), hello.proof.as_ref())?;
        if hello.site != self.settings.site {
            let site = hello.site.clone();
            return Err(
                guest.refuse(Some(hello.from), RefusalReason::AnotherSite { site, own: self.settings.site.clone() })
            );
        }
        if hello.from == self.settings.id {
            return Err(guest.refuse(Some(hello.from), RefusalReason::OwnId));
        }
        Ok(())
    }
}

/// Accepts the acceptor's Hello.
pub(super) async fn go(proven: &mut Proven) -> Result<(), Failed> {
    proven.say.write_all(&[GO]).await.map_err(|error| unwritten(&error))
}

fn proven(
    connection: Connection,
    window_bytes: u32,
    (say, hear): (SendStream, RecvStream),
    guest: Guest,
    hello: Hello,
) -> Proven {
    quic::open_windows(&connection, window_bytes);
    let remote = crate::canonical(connection.remote_address());
    Proven { connection, say, hear, guest, hello, remote, heard: Instant::now() }
}

/// Returns the bytes that the proof covers: the Hello without its proof.
fn unproved(hello: &Hello) -> BytesMut {
    let mut bytes = BytesMut::new();
    Opening::Hello(Hello { proof: None, ..hello.clone() }).encode(&mut bytes);
    bytes
}

async fn write(stream: &mut SendStream, hello: &Hello) -> Result<(), Failed> {
    let mut bytes = BytesMut::new();
    Opening::Hello(hello.clone()).encode(&mut bytes);
    stream.write_all(&bytes).await.map_err(|error| unwritten(&error))
}

async fn read(stream: &mut RecvStream) -> Result<Hello, Unheard> {
    let mut received = BytesMut::new();
    while let Some(chunk) = stream.read_chunk(READ_BYTES, true).await? {
        received.extend_from_slice(&chunk.bytes);
        match Opening::take(&mut received)? {
            // A peer must not send more before it has an answer.
            Some(Opening::Hello(hello)) if received.is_empty() => return Ok(hello),
            Some(_) => return Err(Unheard::Nonsense),
            None => {}
        }
    }
    Err(Unheard::Nonsense)
}

fn unwritten(error: &WriteError) -> Failed {
    match error {
        WriteError::ConnectionLost(error) => Failed::Over(error.clone()),
        // The peer stopped a stream that the link needs.
        _ => Failed::Over(ConnectionError::LocallyClosed),
    }
}
