//! Actions: the machine's output, which its driver carries out in order.
//!
//! An action that says "answer X" asks the driver for event X in return, as in
//! [`Event::Persisted`](crate::Event::Persisted).

pub use super::checkpoint::{Checkpoint, CheckpointMeta};
pub use super::ids::{FetchId, Generation};

use crate::record::key::Key;
use crate::seam::event::{BaseFailure, Fetched};
use crate::seam::ids::ConnId;
use crate::seam::ids::{LinkId, ReadId, TransferId};
use crate::seam::peer::PeerMessage;
use crate::state::Changes;
use crate::status::Status;
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};
use zoolet_model::{ConnectReply, ErrorCode, Reply, ServerId, Stat, Text, WatchEvent, Zxid};
use zoolet_zab::{AppendSeq, Epoch};

/// Work for the driver, outside the machine.
#[derive(Debug)]
pub enum Action {
    /// Append to the log, sync it, answer Persisted. Appends must keep their order.
    Append(Append),
    /// Read from the base, answer Fetched.
    Fetch(Fetch),
    /// Write these changes to the base in one durable transaction, answer Checkpointed or
    /// CheckpointFailed.
    Checkpoint(Checkpoint),
    /// Release the generations that no read needs any more.
    ReleaseGenerations {
        /// Oldest generation still in use.
        below: Generation,
        /// Changes that the base holds now. Dropping them takes milliseconds, so the driver must
        /// not do that on the core thread.
        garbage: Option<Arc<Changes>>,
    },
    /// Answers Connect.
    Connected {
        /// Connection to answer.
        conn: ConnId,
        /// Its timeout is 0 when the session is refused; a Close follows.
        reply: ConnectReply,
    },
    /// Answers a request.
    Reply {
        /// Connection to answer.
        conn: ConnId,
        /// The request's xid.
        xid: i32,
        /// Zxid for the reply header.
        zxid: i64,
        /// The body, or the error.
        result: Result<Reply, ErrorCode>,
    },
    /// Answers a request whose outcome stands but whose bytes are still to be read.
    ///
    /// Run the completion off the core thread and send its result in this place. Later output for
    /// the same connection waits behind it.
    Complete(Box<Completion>),
    /// Delivers a watch event.
    Notify {
        /// Connection that registered the watch.
        conn: ConnId,
        /// The event.
        event: WatchEvent,
    },
    /// Send the queued output, then close the connection.
    Close {
        /// Connection to close.
        conn: ConnId,
    },
    /// Answers Status and List.
    Status {
        /// Ticket of the question.
        ticket: u64,
        /// The status.
        status: Box<Status>,
    },
    /// Stop the server: continuing could break a promise. The text is the reason.
    Fail(String),
    /// Send a message to a peer. Drop it when the link is gone.
    ///
    /// Messages on one lane of a link keep their order; datagrams have no order.
    PeerSend {
        /// Destination.
        peer: ServerId,
        /// Link to send on.
        link: LinkId,
        /// The message.
        message: PeerMessage,
    },
    /// Close this link without sending more; answer PeerDown.
    PeerClose {
        /// Peer at the other end.
        peer: ServerId,
        /// Link to close.
        link: LinkId,
        /// Reason, for people.
        reason: &'static str,
    },
    /// Read entries back from the log, answer LogRead. Only durable entries are requested.
    ReadLog(ReadLog),
    /// Keep log entries that snapshot receivers need, while the log has room.
    HoldLog {
        /// Keep every entry above this zxid; `None` ends the obligation.
        above: Option<Zxid>,
    },
    /// Stream this generation of the base to a peer, answer SnapshotSent.
    ///
    /// The bytes travel on their own stream, tagged with `transfer`. The generation stays readable
    /// until the answer.
    SendSnapshot {
        /// Receiver.
        peer: ServerId,
        /// Link to send on. The transfer fails when the link ends.
        link: LinkId,
        /// A number that was not used before.
        transfer: TransferId,
        /// Generation to send.
        generation: Generation,
        /// Chain hash after the generation's last entry; the receiver needs it.
        chain: u128,
        /// Earlier snapshots to this peer that arrived too old to catch it up.
        ///
        /// A snapshot is too old when the log no longer reaches back to it. The higher this count,
        /// the faster this transfer must go.
        too_late: u32,
    },
    /// Receive the peer's snapshot `transfer` into a second base, answer SnapshotReceived.
    ///
    /// Write it beside the present base, verify it and make it durable. Bytes that arrived before
    /// this action wait.
    ReceiveSnapshot {
        /// Sender.
        peer: ServerId,
        /// Link to receive on. The transfer fails when the link ends.
        link: LinkId,
        /// The sender's number.
        transfer: TransferId,
        /// Contents that the snapshot must have.
        meta: CheckpointMeta,
    },
    /// Cancel an incoming snapshot and discard its received bytes. Has no answer.
    DropSnapshot {
        /// Sender.
        peer: ServerId,
        /// The sender's number.
        transfer: TransferId,
    },
    /// Make this base the current one, answer SnapshotInstalled. The log already names it durably.
    InstallSnapshot {
        /// Number from [`ReceivedSnapshot`](crate::seam::peer::ReceivedSnapshot).
        base: u64,
    },
}

/// A request to read a range of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLog {
    /// Returned with the answer.
    pub id: ReadId,
    /// Entry before the first requested one.
    pub after: Zxid,
    /// Last requested entry.
    pub to: Zxid,
    /// Maximum payload bytes of the answer. The first entry is returned whatever its size.
    pub bytes_max: usize,
}

/// Records for the log, appended in at most one call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Append {
    /// Number of the last of `records`. Each record takes one number, without gaps.
    ///
    /// Persisted reports this number once all records are durable.
    pub seq: AppendSeq,
    /// In append order.
    pub records: LogRecords,
    /// Entries up to this zxid are committed; goes into the batch header.
    pub watermark: Zxid,
    /// Chain hash that the log must have before `records`; `None` skips the check.
    ///
    /// When the log's hash differs, the records continue another history and none of them is
    /// written. The hash itself is never written.
    pub expect: Option<u128>,
}

/// Records of the log, in order. A single record needs no allocation.
#[derive(Clone)]
pub struct LogRecords(Held);

#[derive(Clone)]
enum Held {
    One(LogRecord),
    Many(Vec<LogRecord>),
}

impl LogRecords {
    /// Drains `records`, which keeps its allocation when it held a single record.
    pub(crate) fn drain(records: &mut Vec<LogRecord>) -> Self {
        match records.pop() {
            Some(record) if records.is_empty() => Self(Held::One(record)),
            last => {
                records.extend(last);
                Self(Held::Many(std::mem::take(records)))
            }
        }
    }
}

impl std::ops::Deref for LogRecords {
    type Target = [LogRecord];

    fn deref(&self) -> &[LogRecord] {
        match &self.0 {
            Held::One(record) => std::slice::from_ref(record),
            Held::Many(records) => records,
        }
    }
}

impl Default for LogRecords {
    fn default() -> Self {
        Self(Held::Many(Vec::new()))
    }
}

impl From<Vec<LogRecord>> for LogRecords {
    fn from(records: Vec<LogRecord>) -> Self {
        Self(Held::Many(records))
    }
}

impl From<LogRecords> for Vec<LogRecord> {
    fn from(records: LogRecords) -> Self {
        match records.0 {
            Held::One(record) => vec![record],
            Held::Many(records) => records,
        }
    }
}

/// Compares the records, regardless of representation.
impl PartialEq for LogRecords {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for LogRecords {}

impl std::fmt::Debug for LogRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a LogRecords {
    type Item = &'a LogRecord;
    type IntoIter = std::slice::Iter<'a, LogRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One record of the log.
///
/// A standalone server needs only the first three variants. All variants are part of the format
/// because each log must be readable by the previous and the next release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRecord {
    /// An entry of the history.
    Entry {
        /// Zxid of the entry.
        zxid: Zxid,
        /// Header and body, encoded by `txn`.
        payload: Bytes,
    },
    /// This server follows no leader of an older epoch (Zab's f.p).
    Promise(Epoch),
    /// This server holds the initial history of this epoch (Zab's f.a). Follows the records of that
    /// history.
    Epoch(Epoch),
    /// The history ends at `to`: later entries were never committed.
    Truncate {
        /// Last entry that stays; [`Zxid::ZERO`] when none stays.
        to: Zxid,
    },
    /// The configurations that this server knows, encoded by the membership.
    Config {
        /// The newest one known to be committed.
        committed: Bytes,
        /// The newest one seen, committed or not.
        last_seen: Bytes,
    },
    /// A snapshot transfer begins. The old history and base remain valid until its SnapEnd.
    SnapBegin {
        /// Last entry in the snapshot.
        zxid: Zxid,
        /// Base file that receives it.
        base: u64,
    },
    /// The snapshot is complete, verified and durable.
    ///
    /// From now on it is the history up to `zxid`, and the base.
    SnapEnd {
        /// Base file that holds it.
        base: u64,
        /// Last entry in the snapshot.
        zxid: Zxid,
        /// Chain hash after that entry.
        chain: u128,
    },
    /// The ensemble that this disk belongs to from now on.
    Birth {
        /// The ensemble's id, minted by its first entry.
        ensemble: u128,
    },
    /// This disk's contents are wrong. The server counts in no quorum until a SnapEnd, even after
    /// restarts.
    Damaged,
}

/// One read of the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Returned with the answer.
    pub id: FetchId,
    /// The object to read.
    pub what: FetchWhat,
    /// State to read from.
    pub generation: Generation,
}

/// The object of a fetch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FetchWhat {
    /// One record.
    Record(Key),
    /// Every key with this prefix, without values.
    KeysUnder(Key),
    /// The first keys from this one on that have the same tag, without values.
    ///
    /// They end with the first key that fills `FIRST_KEYS_MAX` or `FIRST_KEYS_BYTES_MAX`.
    FirstKeys(Key),
    /// The first znodes in a range of keys, with the length of their data.
    ///
    /// They end with the znode that fills [`WEIGHTS_MAX`] or [`WEIGHTS_BYTES_MAX`].
    Weights {
        /// First key of the range.
        from: Key,
        /// End of the range, which it does not include.
        to: Key,
    },
}

/// Maximum keys in the answer to [`FetchWhat::FirstKeys`].
pub const FIRST_KEYS_MAX: usize = 64;
/// Bytes of keys after which the answer to [`FetchWhat::FirstKeys`] ends.
pub const FIRST_KEYS_BYTES_MAX: usize = 64 << 10;

/// Collects the answer to [`FetchWhat::FirstKeys`].
#[derive(Debug, Default)]
pub struct FirstKeys {
    keys: Vec<Key>,
    bytes: usize,
}

impl FirstKeys {
    /// Returns the answer from these keys, which are all keys from the fetched one on, in order.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Fetched {
        let mut first = Self::default();
        keys.into_iter().all(|key| first.push(key));
        first.finish()
    }

    /// Adds the next key; returns whether there is room for another.
    pub fn push(&mut self, key: &[u8]) -> bool {
        self.bytes += key.len();
        self.keys.push(key.into());
        self.keys.len() < FIRST_KEYS_MAX && self.bytes < FIRST_KEYS_BYTES_MAX
    }

    /// Returns the answer.
    pub fn finish(self) -> Fetched {
        let is_cut = self.keys.len() >= FIRST_KEYS_MAX || self.bytes >= FIRST_KEYS_BYTES_MAX;
        Fetched::FirstKeys { keys: self.keys, is_cut }
    }
}

/// Maximum znodes in the answer to [`FetchWhat::Weights`].
pub const WEIGHTS_MAX: usize = 1024;
/// Bytes of keys after which the answer to [`FetchWhat::Weights`] ends.
pub const WEIGHTS_BYTES_MAX: usize = 64 << 10;

/// Collects the answer to [`FetchWhat::Weights`].
#[derive(Debug, Default)]
pub struct Weighed {
    found: Vec<(Key, u32)>,
    bytes: usize,
    is_cut: bool,
}

impl Weighed {
    /// Returns whether there is room for another znode. If not, the answer ends before it.
    pub fn has_room(&mut self) -> bool {
        self.is_cut = self.found.len() >= WEIGHTS_MAX || self.bytes >= WEIGHTS_BYTES_MAX;
        !self.is_cut
    }

    /// Adds the next znode of the range.
    pub fn push(&mut self, key: &[u8], length: u32) {
        self.bytes += key.len();
        self.found.push((key.into(), length));
    }

    /// Returns the answer.
    pub fn finish(self) -> Fetched {
        Fetched::Weights(self.found, !self.is_cut)
    }
}

/// Reads one state of the base.
pub trait BaseRead {
    /// Returns one record; `None` when it does not exist.
    ///
    /// # Errors
    /// [`BaseFailure`] when the base cannot be read. Damage is an error, never reported as absence.
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure>;

    /// Calls `visit` with each key in `from..to`, in order, until it returns false.
    ///
    /// With `to` = `None` the range has no end.
    ///
    /// # Errors
    /// [`BaseFailure`] when the base cannot be read. Damage is an error, never a gap.
    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure>;
}

/// A reply whose outcome stands and whose bytes are still in the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Connection to answer.
    pub conn: ConnId,
    /// The request's xid.
    pub xid: i32,
    /// Zxid for the reply header.
    pub zxid: i64,
    /// State to read from.
    pub generation: Generation,
    /// Estimated bytes of this completion and its reply.
    ///
    /// The driver returns them with [`Event::Completed`](crate::Event::Completed).
    pub bytes: u64,
    /// The reads that remain.
    pub(crate) pending: Pending,
}

/// The reads that a completion still has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    Data { key: Key, stat: Stat },
    Children { listing: Listing, stat: Option<Stat> },
    Paths { listing: Listing },
    Count { listings: Vec<Listing> },
    Many { reads: Vec<PendingRead>, broken: bool },
}

/// One read of a multiRead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PendingRead {
    Ready(zoolet_model::ReadResult),
    Data { key: Key, stat: Stat },
    Children { listing: Listing },
}

/// The keys under a prefix: the base's keys, overlaid with newer changes in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Listing {
    /// Maximum number of names in the reply, to estimate its size; 0 for counts.
    pub(crate) expected: u32,
    pub(crate) prefix: Key,
    /// Keeps only keys that continue with this text after the prefix.
    pub(crate) filter: Text,
    /// Changes newer than the base: key suffix, and whether the key exists.
    pub(crate) newer: BTreeMap<Key, bool>,
}
