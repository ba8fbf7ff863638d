//! Messages between servers: those of the protocol, and those about clients' sessions.
//!
//! A link has lanes ([`Lane`]). Each lane delivers in order, and no lane waits for another. The
//! bytes of a snapshot travel on a separate stream from disk to disk, outside the machine.

use super::checkpoint::CheckpointMeta;
use super::ids::ConnId;
use bytes::Bytes;
use zoolet_model::{ErrorCode, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Attempt, Epoch, Message};

pub use super::health::Health;
pub use super::ids::{Incarnation, LinkId, ReadId, TransferId};

/// Maximum bytes of one [`Entries`]; a larger entry travels alone.
///
/// Each entry counts its payload and `size_of::<PeerEntry>()`.
pub const ENTRIES_BYTES_MAX: usize = 256 << 10;
/// Maximum claims in one [`PeerMessage::Touch`].
pub const CLAIMS_MAX: usize = 4096;

/// Orders the connections that one session has been attached to.
///
/// Only the leader assigns attachments, when it answers a [`PeerMessage::Revalidate`]. Of two
/// connections of one session, the one with the later attachment owns the session, whether or not
/// the other is still open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attachment {
    /// Epoch of the leader that assigned it.
    pub epoch: Epoch,
    /// The leader's round that answered; 0 for the connection that began the session.
    pub round: u64,
}

impl Attachment {
    /// Returns the attachment of the connection that began the session with the entry `zxid`.
    pub const fn of_birth(zxid: Zxid) -> Self {
        Self { epoch: zxid.epoch(), round: 0 }
    }
}

/// A learner's statement that a session is on one of its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The session.
    pub session: SessionId,
    /// The learner's connection.
    pub conn: ConnId,
    /// The session's attachment to that connection.
    pub since: Attachment,
}

/// One entry sent to a learner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerEntry {
    /// Zxid of the entry.
    pub zxid: Zxid,
    /// Header and body, encoded by `txn`.
    pub payload: Bytes,
}

/// All or part of a Proposal, with its entries.
///
/// All entries are of one epoch and follow directly after those sent before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// The learner's attempt to join.
    pub attempt: Attempt,
    /// The leader's epoch, which may be newer than that of the entries.
    pub epoch: Epoch,
    /// First entry.
    pub from: Zxid,
    /// Last entry.
    pub to: Zxid,
    /// The leader's commit watermark.
    pub committed: Zxid,
    /// Chain hash before the first entry. The receiver's history must have the same hash there.
    pub chain_before: u128,
    /// In order, without gaps, at least one.
    pub entries: Vec<PeerEntry>,
}

/// A message from one server to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerMessage {
    /// A protocol message. Proposals travel as Entries, Snap as Snapshot.
    Zab(Box<Message>),
    /// Leader to learner: entries of the history.
    Entries(Entries),
    /// Leader to learner: a snapshot replaces the learner's history.
    Snapshot {
        /// The protocol's Snap.
        message: Box<Message>,
        /// Tag of the bytes on their own stream.
        transfer: TransferId,
        /// Contents of the snapshot.
        meta: CheckpointMeta,
        /// Chain hash after its last entry.
        chain: u128,
    },
    /// Learner to leader: a client requests this entry, which names the learner as its
    /// [forwarder](crate::txn::Forwarder).
    ///
    /// The leader fills in the two times of its header. The entry returns in the history, or
    /// [`PeerMessage::Refused`] does.
    Forward {
        /// The leader's epoch, as in every session message from a learner.
        ///
        /// The leader drops messages of an earlier epoch.
        epoch: Epoch,
        /// The learner's attempt to join that leader.
        ///
        /// The leader drops entries of an earlier attempt: the learner may have forwarded them again.
        attempt: Attempt,
        /// The learner's connection that requests it.
        ///
        /// The leader accepts entries of a session only from its owner's connection.
        conn: ConnId,
        /// The session's attachment to that connection.
        since: Attachment,
        /// Encoded by [`txn::encode`](crate::txn::encode).
        payload: Bytes,
    },
    /// Leader to learner: the forwarded entry is not proposed and never will be.
    Refused {
        /// The learner's number for the entry.
        number: u64,
        /// Error for the client.
        code: ErrorCode,
    },
    /// Learner to leader: asks whether the session of a returning client is alive.
    Revalidate {
        /// The leader's epoch.
        epoch: Epoch,
        /// The learner's connection that the client came to.
        conn: ConnId,
        /// The session.
        session: SessionId,
        /// The secret that the client showed; `None` when its length is wrong.
        secret: Option<SessionSecret>,
        /// The session's timeout from now on, milliseconds.
        timeout_ms: u32,
    },
    /// Leader to learner: answers Revalidate.
    Revalidated {
        /// The learner's connection.
        conn: ConnId,
        /// The session.
        session: SessionId,
        /// Zxid to apply before the learner answers the client; `None` refuses the client.
        ///
        /// It covers the session's earlier writes. `None` means that the secret is wrong or the
        /// session is over. The leader decides this in a state that includes everything committed
        /// when it was asked.
        up_to: Option<Zxid>,
        /// The session's attachment to that connection.
        since: Attachment,
    },
    /// Leader to learner: the session has moved to another connection.
    Moved {
        /// The session.
        session: SessionId,
        /// The receiver's connection that the session left.
        conn: ConnId,
    },
    /// Learner to leader: sessions with a sign of life since the last Touch.
    ///
    /// The first one after joining names every session on the learner's connections.
    Touch {
        /// The leader's epoch.
        epoch: Epoch,
        /// The sessions, with the learner's connection of each.
        sessions: Vec<Claim>,
        /// In the first message: every session begun in the learner's process, connected or not.
        ///
        /// The leader ends the sessions of the learner's former processes.
        of_this_process: Option<Vec<SessionId>>,
    },
    /// Learner to leader: the owner of a session asked for a sync.
    ///
    /// It travels before the protocol's Sync on the same lane. So the Sync's answer shows that the
    /// leader counted this sign of life.
    Alive {
        /// The leader's epoch.
        epoch: Epoch,
        /// The session, and its connection on the learner.
        claim: Claim,
    },
    /// Learner to leader: the digest of its state after an entry.
    ///
    /// The leader compares it with its own.
    Digest {
        /// The entry. Every server takes the digest at the same entries.
        zxid: Zxid,
        /// [`Server::digest`](crate::Server::digest) after the entry.
        digest: u128,
    },
    /// To every server: the sender's health.
    ///
    /// Sent when a link comes up and when something changes.
    Health(Health),
}

/// The order domain of a message on a link. No lane waits for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// May be lost, repeated or reordered.
    Datagram,
    /// Protocol messages both ways, and the leader's session messages.
    ///
    /// The leader's session messages are ordered against commits.
    Log,
    /// Requests of a learner's clients. Acks must not wait behind their megabytes.
    Forward,
}

impl PeerMessage {
    /// Returns the lane that the message travels on.
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

    /// Returns the estimated bytes that the message takes on the wire.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Forward { payload, .. } => 40 + payload.len(),
            Self::Entries(Entries { entries, .. }) => {
                64 + entries.iter().map(|entry| 16 + entry.payload.len()).sum::<usize>()
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

/// A range of entries read from the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRange {
    /// Chain hash before the first entry.
    pub chain_before: u128,
    /// In order, without gaps, at least one, up to the requested bytes.
    pub entries: Vec<(Zxid, Bytes)>,
}

/// Why the log returned no entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogReadFailure {
    /// A part of the range was recycled or truncated.
    Gone,
    /// The log cannot be read.
    Unreadable(String),
}

/// Why a snapshot was not sent completely.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotSent {
    /// The receiver does not want it any more, and has told the leader why.
    Cancelled,
    /// The transfer failed, with a reason for people.
    Failed(String),
}

/// Why a snapshot transfer failed, with a reason for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReceived {
    /// The link ended or the sender gave up.
    ///
    /// The received bytes may be kept, and the next transfer may resume there.
    BrokeOff(String),
    /// The snapshot could not be stored here, or is wrong.
    ///
    /// Its bytes are gone; the next transfer starts from the beginning.
    NotTaken(String),
}

/// A received snapshot: verified, and durable beside the current base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedSnapshot {
    /// Base file that holds it. The log must name it before it counts.
    pub base: u64,
    /// Contents of the snapshot.
    pub state: crate::BaseState,
}
