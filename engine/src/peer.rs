//! What servers say to each other: the protocol's messages with the bytes they stand for, and what clients' sessions need across servers.
//!
//! A link has lanes ([`Lane`]): each is first in, first out, and none waits for another. The bytes of a snapshot travel on a lane of their own, from disk to
//! disk, and never come through the machine.

use crate::action::CheckpointMeta;
use crate::event::ConnId;
use crate::status::{DiskTroubles, Refusal};
use bytes::Bytes;
use zoolet_model::{ErrorCode, ServerId, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Attempt, Epoch, Message, Role};

pub use zoolet_zab::{Incarnation, LinkId};

/// Bytes of entries in one [`Entries`], `size_of::<PeerEntry>()` of each beside its payload; an entry that is larger goes alone.
pub const ENTRIES_BYTES_MAX: usize = 256 << 10;
/// Claims in one [`PeerMessage::Touch`].
pub const CLAIMS_MAX: usize = 4096;

/// A snapshot on its way, numbered by its sender; never reused in one process of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransferId(pub u64);

/// A question to the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReadId(pub u64);

/// When a session came to a connection. Only a leader says so, by the question that it answered: of two connections of one session the one with the later
/// attachment has it, whatever became of the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attachment {
    /// In which epoch.
    pub epoch: Epoch,
    /// Which of that leader's questions; 0 of the connection that the session was begun on.
    pub round: u64,
}

impl Attachment {
    /// Of the connection that the session was begun on.
    pub fn of_birth(session: SessionId) -> Self {
        let epoch = Zxid::from_bits(session.0 as u64).map_or(Epoch::ZERO, Zxid::epoch);
        Self { epoch, round: 0 }
    }
}

/// A learner's word that a session is on one of its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Which session.
    pub session: SessionId,
    /// The learner's connection.
    pub conn: ConnId,
    /// Since when.
    pub since: Attachment,
}

/// One entry on its way to a learner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerEntry {
    /// Its place.
    pub zxid: Zxid,
    /// Header and body, as txn encodes them.
    pub payload: Bytes,
    /// The number under which the receiver forwarded it on this very link ([`PeerMessage::Forward`]); 0 when it is another's.
    pub origin: u64,
}

/// A Proposal of the protocol with its entries, or a part of one: all of one epoch, directly after what was sent before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// As begun.
    pub attempt: Attempt,
    /// The leader's epoch, not that of the entries.
    pub epoch: Epoch,
    /// The first of them.
    pub from: Zxid,
    /// The last of them.
    pub to: Zxid,
    /// The leader's commit watermark.
    pub committed: Zxid,
    /// The chain hash before the first: the receiver's history must have the same.
    pub chain_before: u128,
    /// In order, without gaps, at least one.
    pub entries: Vec<PeerEntry>,
}

/// A server's own report of its health; for display only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// What it is; looking while it does not serve.
    pub role: Role,
    /// The last entry it applied.
    pub applied: Zxid,
    /// Entries that it knows to be committed and has not applied.
    pub behind: u64,
    /// Why it would refuse writes if it led.
    pub refusal: Option<Refusal>,
    /// What is wrong with its disk and does not stop its writes.
    pub disk: DiskTroubles,
    /// It has not applied for a long time what it knows to be committed.
    pub lags: bool,
    /// Of a leader: members that it does not hear, [`MEMBERS_MAX`](zoolet_zab::MEMBERS_MAX) at most.
    pub silent: Vec<ServerId>,
    /// Of a leader: learners that stay behind, at most [`MEMBERS_MAX`](zoolet_zab::MEMBERS_MAX).
    pub lagging: Vec<ServerId>,
}

impl Health {
    /// Whether more than progress is different.
    pub(crate) fn is_news_after(&self, before: &Self) -> bool {
        let Self { role, applied: _, behind: _, refusal, disk, lags, silent, lagging } = self;
        (role, refusal, disk, lags, silent, lagging)
            != (&before.role, &before.refusal, &before.disk, &before.lags, &before.silent, &before.lagging)
    }
}

/// What one server says to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerMessage {
    /// The protocol's own; Proposals go as Entries, Snap as Snapshot.
    Zab(Box<Message>),
    /// Leader to learner: entries of the history.
    Entries(Entries),
    /// Leader to learner: a snapshot takes the place of its history.
    Snapshot {
        /// The protocol's Snap.
        message: Box<Message>,
        /// What its bytes are tagged with, on their own stream.
        transfer: TransferId,
        /// What it holds.
        meta: CheckpointMeta,
        /// The chain hash after its last entry.
        chain: u128,
    },
    /// Learner to leader: a client of this server wants this entry. The leader fills in the two times of its header.
    Forward {
        /// The leader's epoch, as of every message about sessions that a learner sends: what an earlier epoch left on the way is dropped.
        epoch: Epoch,
        /// Numbered by the learner, from 1, never used twice in one process. The entry comes back with it, or [`PeerMessage::Refused`] does.
        seq: u64,
        /// The learner's connection that asks: the leader takes an entry of a session from its owner's connection only.
        conn: ConnId,
        /// Since when its session is on it.
        since: Attachment,
        /// As [`txn::encode`](crate::txn::encode) wrote it.
        payload: Bytes,
    },
    /// Leader to learner: what was forwarded under this number is not proposed and never will be.
    Refused {
        /// Its number.
        seq: u64,
        /// What its client is told.
        code: ErrorCode,
    },
    /// Learner to leader: the owner of this session has come to this connection. Does it live?
    Revalidate {
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's connection.
        conn: ConnId,
        /// Which session.
        session: SessionId,
        /// What the client showed; `None` when it is no secret at all.
        secret: Option<SessionSecret>,
        /// The timeout it gets from now on, milliseconds.
        timeout_ms: u32,
    },
    /// Leader to learner: the answer.
    Revalidated {
        /// As asked.
        conn: ConnId,
        /// As asked.
        session: SessionId,
        /// What this server must have applied before the client is answered, its earlier writes among it; `None`: the session is over in a
        /// state that has everything committed when this was asked, or the secret is not its.
        up_to: Option<Zxid>,
        /// From when on the session is on this connection.
        since: Attachment,
    },
    /// Leader to learner: this session's owner has come to another connection.
    Moved {
        /// Which session.
        session: SessionId,
        /// The connection it left, of the server that is told.
        conn: ConnId,
    },
    /// Learner to leader: the owners of these sessions gave signs of life since the last such message. The first after it joined names
    /// every session that is on one of its connections.
    Touch {
        /// The leader's epoch.
        epoch: Epoch,
        /// Which, and the learner's connection that each is on.
        sessions: Vec<Claim>,
        /// In the first message: every session that was begun in the learner's own process, connected or not. Those of its former processes end.
        of_this_process: Option<Vec<SessionId>>,
    },
    /// Learner to leader, before a Sync of the protocol: the owner of this session asked for it. On the same lane, so that the answer to the Sync shows that
    /// the leader had heard of him.
    Alive {
        /// The leader's epoch.
        epoch: Epoch,
        /// Which session, and the learner's connection that it is on.
        claim: Claim,
    },
    /// Learner to leader: the digest of its state after this entry. The leader compares it with its own.
    Digest {
        /// The entry: one that every server takes the digest at.
        zxid: Zxid,
        /// [`Server::digest`](crate::Server::digest) after it.
        digest: u128,
    },
    /// To every server: how the sender is. Sent when a link comes up and when something changes.
    Health(Health),
}

/// What a message travels on. Nothing that is on one lane waits for what is on another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// May be lost, repeated and overtaken.
    Datagram,
    /// The protocol's own, both ways; of a leader also everything that is ordered against commits: its whole side of sessions.
    Log,
    /// What a learner's clients want. Megabytes may wait here, and acks must not wait behind them.
    Forward,
}

impl PeerMessage {
    /// The lane that it travels on.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Zab(message) if message.is_datagram() => Lane::Datagram,
            Self::Zab(_)
            | Self::Entries(_)
            | Self::Snapshot { .. }
            | Self::Refused { .. }
            | Self::Revalidated { .. }
            | Self::Moved { .. }
            | Self::Alive { .. }
            | Self::Health(_) => Lane::Log,
            Self::Forward { .. } | Self::Revalidate { .. } | Self::Touch { .. } | Self::Digest { .. } => Lane::Forward,
        }
    }

    /// Bytes it takes on the way, about.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Forward { payload, .. } => 48 + payload.len(),
            Self::Entries(Entries { entries, .. }) => {
                64 + entries.iter().map(|entry| 24 + entry.payload.len()).sum::<usize>()
            }
            Self::Touch { sessions, of_this_process, .. } => {
                16 + 32 * sessions.len() + 8 * of_this_process.as_ref().map_or(0, Vec::len)
            }
            Self::Health(Health { silent, lagging, .. }) => 32 + silent.len() + lagging.len(),
            Self::Zab(_) | Self::Snapshot { .. } => 128,
            Self::Refused { .. }
            | Self::Revalidate { .. }
            | Self::Revalidated { .. }
            | Self::Moved { .. }
            | Self::Alive { .. }
            | Self::Digest { .. } => 64,
        }
    }
}

/// What the log holds of a range that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRange {
    /// The chain hash before the first of the entries.
    pub chain_before: u128,
    /// In order, without gaps, at least one; as many as fit the bytes that were allowed.
    pub entries: Vec<(Zxid, Bytes)>,
}

/// Why the log gives nothing of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogReadFailure {
    /// A part of it was recycled, or cut off.
    Gone,
    /// It cannot be read.
    Unreadable(String),
}

/// Why a snapshot did not come in; for people what was the matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReceived {
    /// Its link went, or its sender gave up. What came of it may be kept, and the next transfer go on from there.
    BrokeOff(String),
    /// It could not be stored here, or is not right. What came of it is gone: the next transfer writes all of it again.
    NotTaken(String),
}

/// A snapshot that came in: verified, and durable beside what is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedSnapshot {
    /// The base file it is in. The log has to name it before it counts.
    pub base: u64,
    /// What it holds.
    pub state: crate::BaseState,
}
