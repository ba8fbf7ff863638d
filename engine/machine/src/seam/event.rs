//! Events: the machine's input.

pub use super::health::Shortage;
pub use super::ids::ConnId;

use crate::record::key::Key;
use crate::seam::health::DiskTroubles;
use crate::seam::ids::{FetchId, Generation};
use crate::seam::ids::{Incarnation, LinkId, ReadId, TransferId};
use crate::seam::peer::{LogRange, LogReadFailure, NotReceived, NotSent, PeerMessage, ReceivedSnapshot};
use crate::watch::{ListedBy, Mark};
use bytes::Bytes;
use std::net::IpAddr;
use zoolet_model::{ConnectRequest, Request, ServerId, SessionId, Zxid};
use zoolet_zab::AppendSeq;

/// The time at which an event is handled. The machine reads no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Monotonic clock that counts suspended time, milliseconds.
    pub mono_ms: u64,
    /// Milliseconds since 1970; only displayed.
    pub wall_ms: i64,
}

/// Something that happened outside the machine.
#[derive(Debug)]
pub enum Event {
    /// The first message of a connection.
    Connect {
        /// A number not used before.
        conn: ConnId,
        /// Address that `ip` ACLs see; `None` for an embedded session.
        peer: Option<IpAddr>,
        /// The request.
        request: ConnectRequest,
    },
    /// A later message of the connection.
    Request {
        /// Connection that sent it.
        conn: ConnId,
        /// Echoed in the reply.
        xid: i32,
        /// The request.
        request: Request,
    },
    /// The connection is gone, whichever side closed it.
    ///
    /// Always the last event of a connection that sent Connect.
    Disconnected {
        /// Connection that ended.
        conn: ConnId,
    },
    /// Every append up to and including `seq` is durable.
    Persisted {
        /// Number of the newest durable record.
        seq: AppendSeq,
        /// Log bytes used by entries above `checkpoint`.
        log_bytes_used: u64,
        /// The durable checkpoint up to which the log has recycled its segments.
        ///
        /// The event repeats after each checkpoint, with the same `seq` if nothing else was
        /// appended.
        checkpoint: Zxid,
    },
    /// A completion ran, or was dropped because its connection is gone.
    Completed {
        /// Its [`Completion::bytes`](crate::seam::action::Completion::bytes).
        bytes: u64,
    },
    /// The log cannot write because the disk is full or read-only; nothing is lost.
    ///
    /// It retries, or waits for a restart.
    LogStalled {
        /// Whether the disk rejects every write, however much room it has.
        is_read_only: bool,
    },
    /// The log writes again.
    LogResumed,
    /// Answers a fetch.
    Fetched {
        /// Fetch that is answered.
        id: FetchId,
        /// The contents, or why the base could not be read.
        result: Result<Fetched, BaseFailure>,
    },
    /// The checkpoint is durable, and the base serves it now.
    Checkpointed {
        /// Generation that readers pin from now on.
        generation: Generation,
    },
    /// The checkpoint failed; the base serves its former state.
    CheckpointFailed {
        /// Reason, for people.
        reason: String,
    },
    /// The base holds bytes that differ from those written.
    ///
    /// A completion, a checkpoint, a merge, a scrub or a snapshot transfer found the damage. A
    /// fetch reports damage in [`Event::Fetched`].
    BaseDamaged {
        /// Description, for people.
        what: String,
    },
    /// The disk has room only for deletions, or has room again.
    Space {
        /// The scarce resource; `None` when there is room.
        shortage: Option<Shortage>,
    },
    /// The disk's troubles have changed. The machine only forwards them to other servers.
    DiskTroubles(DiskTroubles),
    /// An entry read back from the log at start, committed or not, in order.
    Recovered {
        /// Zxid of the entry.
        zxid: Zxid,
        /// Its bytes, unchanged since they were appended.
        payload: Bytes,
    },
    /// An operator asks for the server's status.
    Status {
        /// Returned with the answer.
        ticket: u64,
    },
    /// An operator asks for a list that is too long for a status.
    ///
    /// The answer is a status without other contents.
    List {
        /// Returned with the answer.
        ticket: u64,
        /// The requested list.
        list: List,
    },
    /// A peer authenticated on a new, writable link.
    ///
    /// The link replaces an older one to that peer, whose PeerDown may come later.
    PeerUp {
        /// The peer.
        peer: ServerId,
        /// A number not used before.
        link: LinkId,
        /// Identifies the peer's disk.
        disk: Incarnation,
    },
    /// A link is gone, whichever side closed it. Messages sent on it may or may not have arrived.
    PeerDown {
        /// Peer at the other end.
        peer: ServerId,
        /// Link that ended.
        link: LinkId,
    },
    /// A peer sent a message.
    PeerMessage {
        /// Sender.
        peer: ServerId,
        /// Link that it came on.
        link: LinkId,
        /// The message.
        message: PeerMessage,
    },
    /// Answers [`Action::ReadLog`](crate::Action::ReadLog).
    LogRead {
        /// Read that is answered.
        id: ReadId,
        /// The entries, or why there are none.
        result: Result<LogRange, LogReadFailure>,
    },
    /// The log has recycled entries. Those above `floor` are still readable.
    LogFloor {
        /// The last recycled entry; [`Zxid::ZERO`] in a new log.
        floor: Zxid,
    },
    /// The link took a snapshot's last byte, or the transfer failed.
    ///
    /// Either way, the transfer no longer reads its generation.
    SnapshotSent {
        /// Number from [`Action::SendSnapshot`](crate::Action::SendSnapshot).
        transfer: TransferId,
        /// Why it was not sent.
        result: Result<(), NotSent>,
    },
    /// A snapshot arrived whole, verified and durable, or its transfer failed.
    SnapshotReceived {
        /// Sender.
        peer: ServerId,
        /// Number from [`Action::ReceiveSnapshot`](crate::Action::ReceiveSnapshot).
        transfer: TransferId,
        /// The received snapshot, or why it failed.
        result: Result<ReceivedSnapshot, NotReceived>,
    },
    /// The received snapshot is now the base.
    SnapshotInstalled {
        /// Generation that readers pin from now on; greater than all before.
        generation: Generation,
    },
}

/// A list too long for a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    /// A page of the data watches.
    Watches {
        /// Grouping of the list.
        by: ListedBy,
        /// End of the previous page.
        from: Mark,
        /// Maximum rows of the page, at most [`watch::ROWS_MAX`](crate::watch::ROWS_MAX).
        rows_max: usize,
    },
    /// When each session expires if it stays silent, or its timeout where that is not known.
    Deadlines,
    /// The ephemerals of one session. Has no answer when the base cannot be read.
    Ephemerals(SessionId),
}

/// The result of a fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// The record; `None` when it does not exist.
    Record(Option<Bytes>),
    /// Every key with the prefix, in order.
    Keys(Vec<Key>),
    /// The first keys, in order, and whether more may follow.
    FirstKeys {
        /// The keys.
        keys: Vec<Key>,
        /// Whether the answer ended before the last key of the tag.
        is_cut: bool,
    },
    /// The first znodes of the range, with the length of their data, and whether it has no more.
    Weights(Vec<(Key, u32)>, bool),
}

/// Why the base could not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseFailure {
    /// Stored bytes do not match their checksum; nothing read from them may be served.
    Damaged(String),
    /// The device reported an error.
    Io(String),
}
