//! What comes out of the machine. Whoever drives it carries the actions out in order.

use crate::event::{BaseFailure, ConnId};
use crate::peer::{LinkId, PeerMessage, ReadId, TransferId};
use crate::status::Status;
use crate::store::key::Key;
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};
use zoolet_model::{ConnectReply, ErrorCode, Reply, ServerId, Stat, Text, WatchEvent, Zxid};
use zoolet_zab::{AppendSeq, Epoch};

/// The number of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(pub u64);

/// A state of the base: the first is the one found at start, each checkpoint makes the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// Something to be done outside the machine.
#[derive(Debug)]
pub enum Action {
    /// Append to the log, make it durable, answer Persisted. Order is everything.
    Append(Append),
    /// Read from the base, answer Fetched.
    Fetch(Fetch),
    /// Write this to the base in one durable transaction, answer Checkpointed or CheckpointFailed.
    Checkpoint(Checkpoint),
    /// Nothing reads a generation below this one any more.
    ReleaseGenerations {
        /// The oldest one still in use.
        below: Generation,
        /// Memory that is in the base now; dropping it takes milliseconds, so do that anywhere but on the core.
        garbage: Option<Arc<Changes>>,
    },
    /// The answer to Connect.
    Connected {
        /// To whom.
        conn: ConnId,
        /// Timeout 0 when refused; a Close follows.
        reply: ConnectReply,
    },
    /// The answer to a request.
    Reply {
        /// To whom.
        conn: ConnId,
        /// As asked.
        xid: i32,
        /// What the reply header carries.
        zxid: i64,
        /// The body, or why not.
        result: Result<Reply, ErrorCode>,
    },
    /// The answer to a request, decided but not yet put together: run it off the core, and send what it gives in
    /// this place. Whatever comes later for the same connection waits behind it.
    Complete(Box<Completion>),
    /// A watch fired.
    Notify {
        /// For whom.
        conn: ConnId,
        /// What happened.
        event: WatchEvent,
    },
    /// Send what is queued, then close.
    Close {
        /// Which connection.
        conn: ConnId,
    },
    /// The answer to Status.
    Status {
        /// Which question.
        ticket: u64,
        /// How the server is.
        status: Box<Status>,
    },
    /// The server must stop: going on could break a promise.
    Fail(String),
    /// Say this to a peer: in order with everything else on this link that is no datagram. Dropped when the link is gone.
    PeerSend {
        /// To whom.
        peer: ServerId,
        /// On which link.
        link: LinkId,
        /// What.
        message: PeerMessage,
    },
    /// Send nothing more on this link and close it; PeerDown follows.
    PeerClose {
        /// Whose.
        peer: ServerId,
        /// Which.
        link: LinkId,
        /// Why, for people.
        reason: &'static str,
    },
    /// Read entries back from the log, answer LogRead. What is not durable yet is not asked for.
    ReadLog(ReadLog),
    /// The log keeps every entry above this one, as long as it has room without them; `None`: it need not.
    HoldLog {
        /// The entry before the first.
        above: Option<Zxid>,
    },
    /// Send this generation of the base to a peer, on a stream of its own, tagged with `transfer`; answer SnapshotSent. The generation stays
    /// readable until then.
    SendSnapshot {
        /// To whom.
        peer: ServerId,
        /// On which link; without it the transfer has failed.
        link: LinkId,
        /// Not used before.
        transfer: TransferId,
        /// What to send.
        generation: Generation,
        /// The chain hash after its last entry, for whoever receives it.
        chain: u128,
        /// How many before it went out and did not bring the peer up to date: meanwhile the log had gone on for longer than it reaches back. The more, the faster
        /// this one has to be.
        too_late: u32,
    },
    /// Write the snapshot that a peer sends under `transfer` into a base of its own beside the present one, verify it, make it durable, answer
    /// SnapshotReceived. Its bytes may have come before this, and wait.
    ReceiveSnapshot {
        /// From whom.
        peer: ServerId,
        /// On which link; without it the transfer has failed.
        link: LinkId,
        /// The sender's number.
        transfer: TransferId,
        /// What it must hold.
        meta: CheckpointMeta,
    },
    /// A snapshot that comes in is not wanted any more, nor what was received of it. No answer.
    DropSnapshot {
        /// From whom.
        peer: ServerId,
        /// The sender's number.
        transfer: TransferId,
    },
    /// The log names this base now, durably: it replaces the present one, answer SnapshotInstalled.
    InstallSnapshot {
        /// Of [`ReceivedSnapshot`](crate::peer::ReceivedSnapshot).
        base: u64,
    },
}

/// A question to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLog {
    /// Comes back with the answer.
    pub id: ReadId,
    /// The entry before the first.
    pub after: Zxid,
    /// The last that is wanted.
    pub to: Zxid,
    /// Bytes of payload that the answer may have; one entry it has whatever its size.
    pub bytes_max: usize,
}

/// Records for the log: one call of the log's append, at most.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Append {
    /// The number of the last of `records`: each takes one, without gaps. Persisted reports it once all of this is durable.
    pub seq: AppendSeq,
    /// In order.
    pub records: LogRecords,
    /// Entries up to here are committed, for the batch header.
    pub watermark: Zxid,
    /// The chain hash that the history must have before `records`, as whoever sends them says: where it is another, they continue
    /// another history and none of them is written. Never written itself.
    pub expect: Option<u128>,
}

/// Records of the log, in order. One alone, as whoever writes one thing at a time makes it, needs no memory of its own.
#[derive(Clone)]
pub struct LogRecords(Held);

#[derive(Clone)]
enum Held {
    One(LogRecord),
    Many(Vec<LogRecord>),
}

impl LogRecords {
    /// Takes all of them out; the memory for one stays where it is.
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

/// However they are held.
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

/// One record of the log. An ensemble of one server needs only the first three; the rest is written down now because a
/// log must be readable by the release before and after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRecord {
    /// An entry of the history.
    Entry {
        /// Its place.
        zxid: Zxid,
        /// Header and body, as txn encodes them.
        payload: Bytes,
    },
    /// This server will follow no leader of an older epoch (Zab's f.p).
    Promise(Epoch),
    /// This server holds the initial history of this epoch (Zab's f.a). Follows the records that made it so.
    Epoch(Epoch),
    /// The history ends at `to`: what came after it was never committed.
    Truncate {
        /// The last entry that stays, [`Zxid::ZERO`] when none does.
        to: Zxid,
    },
    /// The configurations this server knows, as the membership encodes them.
    Config {
        /// The newest one known to be committed.
        committed: Bytes,
        /// The newest one seen, committed or not.
        last_seen: Bytes,
    },
    /// A snapshot starts to come in. Until its SnapEnd the old history and the old base stand.
    SnapBegin {
        /// The last entry in it.
        zxid: Zxid,
        /// The base file it is written to.
        base: u64,
    },
    /// The snapshot is complete, verified and durable: it is the history up to `zxid`, and the base from now on.
    SnapEnd {
        /// The base file.
        base: u64,
        /// The last entry in it.
        zxid: Zxid,
        /// The chain hash after that entry.
        chain: u128,
    },
    /// The ensemble this disk belongs to from now on.
    Birth {
        /// Its id, minted by its first entry.
        ensemble: u128,
    },
    /// What is here is not what it should be: this server counts nowhere until a SnapEnd, through restarts too.
    Damaged,
}

/// One question to the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Comes back with the answer.
    pub id: FetchId,
    /// What to read.
    pub what: FetchWhat,
    /// The state to read it from.
    pub generation: Generation,
}

/// What a fetch reads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FetchWhat {
    /// One record.
    Record(Key),
    /// Every key that begins with this, without values.
    KeysUnder(Key),
}

pub use crate::store::Changes;

/// What one durable base transaction must make true.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The changes since the last checkpoint.
    pub changes: Arc<Changes>,
    /// The state they lead to.
    pub meta: CheckpointMeta,
}

/// What the base knows of the state it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointMeta {
    /// The last entry in it.
    pub zxid: Zxid,
    /// Wrapping sum of the 128-bit hashes of all records (`store::digest`).
    pub digest: u128,
    /// The replicated totals, as the tree encodes them.
    pub totals: Bytes,
}

/// Reads one state of the base.
pub trait BaseRead {
    /// One record.
    ///
    /// # Errors
    /// Damage is an error, never absence.
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure>;

    /// Calls `visit` with every key from `from` up to, not including, `to` (`None`: to the end), in order, until it says false.
    ///
    /// # Errors
    /// Damage is an error, never a gap.
    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure>;
}

/// A reply whose outcome stands and whose bytes are still in the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// To whom.
    pub conn: ConnId,
    /// As asked.
    pub xid: i32,
    /// What the reply header carries.
    pub zxid: i64,
    /// The state to read from.
    pub generation: Generation,
    /// What it holds and what its answer will take, about; to be given back as [`Event::Completed`](crate::Event::Completed).
    pub bytes: u64,
    /// What is left to do.
    pub(crate) pending: Pending,
}

/// What a completion still has to read.
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

/// The keys under a prefix: the base's, with what memory knows better laid over them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Listing {
    /// About how many there are in all, if they are to be named.
    pub(crate) expected: u32,
    pub(crate) prefix: Key,
    /// Only keys that go on with this after the prefix.
    pub(crate) filter: Text,
    /// Suffix of the key, and whether it is there.
    pub(crate) newer: BTreeMap<Key, bool>,
}
