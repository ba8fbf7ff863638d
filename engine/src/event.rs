//! What goes into the machine.

use crate::action::{FetchId, Generation};
use crate::peer::{
    Incarnation, LinkId, LogRange, LogReadFailure, NotReceived, PeerMessage, ReadId, ReceivedSnapshot, TransferId,
};
use crate::status::DiskTroubles;
use crate::store::key::Key;
use crate::watch::{ListedBy, Mark};
use bytes::Bytes;
use std::net::IpAddr;
use zoolet_model::{ConnectRequest, Request, ServerId, SessionId, Zxid};
use zoolet_zab::AppendSeq;

/// A connection, numbered by whoever drives the machine; never reused in one process. Embedded sessions have one too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// The time an event is handled at. The machine reads no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// A clock that never goes back and counts suspended time, milliseconds.
    pub mono_ms: u64,
    /// Milliseconds since 1970; only ever shown.
    pub wall_ms: i64,
}

/// Where there is too little room for more znodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shortage {
    /// On the disk.
    Disk,
    /// Under the bound of what may be taken of the disk ([`Limits::disk_bytes_max`](crate::Limits::disk_bytes_max)).
    Bound,
    /// Of memory, for the checksums of the base's file, which grow with it (half of
    /// [`Limits::base_cache_bytes`](crate::Limits::base_cache_bytes), 1 MiB at least for each GiB of it).
    Memory,
}

impl Shortage {
    /// Why writes are refused meanwhile, for an operator.
    pub fn why(self) -> &'static str {
        match self {
            Self::Disk => "the disk is full",
            Self::Bound => "the data directory takes as much of the disk as it may",
            Self::Memory => "the tree is as large as the memory for it allows",
        }
    }
}

/// Something that happened outside the machine.
#[derive(Debug)]
pub enum Event {
    /// The first message of a connection.
    Connect {
        /// A number not used before.
        conn: ConnId,
        /// The address that `ip` ACLs see; `None` for an embedded session.
        peer: Option<IpAddr>,
        /// What it asks for.
        request: ConnectRequest,
    },
    /// A later message of it.
    Request {
        /// Which connection.
        conn: ConnId,
        /// Echoed in the reply.
        xid: i32,
        /// What it asks for.
        request: Request,
    },
    /// The connection is gone, whoever closed it. Always the last event of a connection that sent Connect.
    Disconnected {
        /// Which connection.
        conn: ConnId,
    },
    /// Everything appended up to and including `seq` is durable.
    Persisted {
        /// The newest durable append.
        seq: AppendSeq,
        /// Log bytes in use by entries above `checkpoint`.
        log_bytes_used: u64,
        /// The durable checkpoint up to which the log has recycled. After each one this event comes again, with the same `seq` if nothing
        /// else was appended.
        checkpoint: Zxid,
    },
    /// A completion was carried out, or dropped because its connection is gone.
    Completed {
        /// Its [`Completion::bytes`](crate::action::Completion::bytes).
        bytes: u64,
    },
    /// The log cannot write (disk full or read-only) and keeps trying, or waits for a restart; nothing is lost.
    LogStalled {
        /// Whether the disk takes nothing at all, however much room there is.
        is_read_only: bool,
    },
    /// The log writes again.
    LogResumed,
    /// An answer to a fetch.
    Fetched {
        /// Which fetch.
        id: FetchId,
        /// What the base holds.
        result: Result<Fetched, BaseFailure>,
    },
    /// The checkpoint is durable and is what the base now serves.
    Checkpointed {
        /// The generation that readers pin from now on.
        generation: Generation,
    },
    /// The checkpoint did not happen; the base serves what it served.
    CheckpointFailed {
        /// Why, for people.
        reason: String,
    },
    /// Something in the base is not what was written: whoever carried out a completion, a checkpoint, a merge, a look at all of it or the sending of a
    /// snapshot found that. Of fetches [`Event::Fetched`] says it.
    BaseDamaged {
        /// For people.
        what: String,
    },
    /// The disk has too little room for more than deletions, or has room again.
    Space {
        /// What is too small; `None` when there is room.
        shortage: Option<Shortage>,
    },
    /// What is wrong with the disk has changed. Only told to the other servers.
    DiskTroubles(DiskTroubles),
    /// An entry read back from the log at start, committed or not, in order.
    Recovered {
        /// Its place.
        zxid: Zxid,
        /// Its bytes as they were appended.
        payload: Bytes,
    },
    /// Somebody wants to see how the server is.
    Status {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// Somebody wants to see a part of what would be too much for a status. The answer is a status that has nothing else.
    List {
        /// Comes back with the answer.
        ticket: u64,
        /// Which part.
        list: List,
    },
    /// A peer proved who it is, on a link that can be written to. It replaces an older link to that peer, whose PeerDown may come later.
    PeerUp {
        /// Who.
        peer: ServerId,
        /// A number not used before.
        link: LinkId,
        /// Its disk.
        disk: Incarnation,
    },
    /// A link is gone, whoever closed it. What was sent on it may or may not have arrived.
    PeerDown {
        /// Whose.
        peer: ServerId,
        /// Which.
        link: LinkId,
    },
    /// A peer said something.
    PeerMessage {
        /// Who.
        peer: ServerId,
        /// On which link.
        link: LinkId,
        /// What.
        message: PeerMessage,
    },
    /// The answer to [`Action::ReadLog`](crate::Action::ReadLog).
    LogRead {
        /// Which question.
        id: ReadId,
        /// The entries.
        result: Result<LogRange, LogReadFailure>,
    },
    /// The log has recycled entries: those above `floor` can still be read.
    LogFloor {
        /// The last entry that is gone; of a new log [`Zxid::ZERO`].
        floor: Zxid,
    },
    /// The last byte of a snapshot was taken by the link, or the transfer has failed. Its generation is not read any more.
    SnapshotSent {
        /// Of [`Action::SendSnapshot`](crate::Action::SendSnapshot).
        transfer: TransferId,
        /// Why it failed, for people.
        result: Result<(), String>,
    },
    /// A snapshot is here, whole, verified and durable, or will not come.
    SnapshotReceived {
        /// From whom.
        peer: ServerId,
        /// Of [`Action::ReceiveSnapshot`](crate::Action::ReceiveSnapshot).
        transfer: TransferId,
        /// What came, or why nothing did.
        result: Result<ReceivedSnapshot, NotReceived>,
    },
    /// The base is now the one that a snapshot came in.
    SnapshotInstalled {
        /// The generation that readers pin from now on; greater than all before.
        generation: Generation,
    },
}

/// What is too much for a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    /// A page of the watches on data.
    Watches {
        /// By what they are listed.
        by: ListedBy,
        /// Where the last page ended.
        from: Mark,
        /// How many it may have; [`watch::ROWS_MAX`](crate::watch::ROWS_MAX) is the most.
        rows_max: usize,
    },
    /// When silence ends each session.
    Deadlines,
    /// What one session owns. No answer when the base cannot be read.
    Ephemerals(SessionId),
}

/// What a fetch found in the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// The record, or its absence.
    Record(Option<Bytes>),
    /// Every key that begins with the prefix, in order.
    Keys(Vec<Key>),
}

/// The base could not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseFailure {
    /// Stored bytes do not match their checksum: nothing read from them may be served.
    Damaged(String),
    /// The device said no.
    Io(String),
}
