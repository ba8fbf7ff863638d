//! How the server is, for four-letter words, metrics and `zoolet status`.

use crate::budget::Part;
use crate::event::ConnId;
use crate::watch::Mark;
use zoolet_model::{Epoch, ServerId, SessionId, Text, Zxid};

/// The machine's part of what an operator asks; the transport adds its own (packets, latency, connections' addresses).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// `standalone`, `leader`, `follower`, `observer`, or empty while none of them.
    pub role: &'static str,
    /// The newest epoch whose initial history it holds.
    pub epoch: Epoch,
    /// Whom it follows, or is joining; itself when it leads.
    pub leader: Option<ServerId>,
    /// Entries that its leader said are committed and that it has not applied.
    pub behind: u64,
    /// The first place where a peer's state was not this one's: one of the two is wrong.
    pub differs: Option<(ServerId, Zxid)>,
    /// The last applied entry.
    pub zxid: Zxid,
    /// The digest of the state after it (`store::digest`).
    pub digest: u128,
    /// Why writes are refused now, if they are.
    pub refusing_writes: Option<&'static str>,
    /// Znodes, ZooKeeper's four built-in ones included.
    pub znodes: u64,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Ephemerals.
    pub ephemerals: u64,
    /// Sessions, connected or not.
    pub sessions: u64,
    /// Connections with a session, and the session's timeout in milliseconds.
    pub connections: Vec<(ConnId, SessionId, u32)>,
    /// Registered watches.
    pub watches: u64,
    /// Watched paths.
    pub watched_paths: u64,
    /// Connections with a watch.
    pub watching_connections: u64,
    /// Requests read and not yet answered.
    pub outstanding: u64,
    /// Entries appended and not yet applied.
    pub unapplied: u64,
    /// What it holds of each part of the [`Budget`](crate::Budget) that it holds.
    pub held: Vec<(Part, u64)>,
    /// Durable checkpoints since start.
    pub checkpoints: u64,
    /// Failed ones.
    pub checkpoints_failed: u64,
    /// Fetches sent to the base since start.
    pub fetches: u64,
    /// Acknowledged writes since start.
    pub writes_acknowledged: u64,
    /// Sessions that expired since start.
    pub sessions_expired: u64,
    /// Sessions that were not begun since start, because there were `sessions_max`.
    pub sessions_refused: u64,
    /// [`List::Watches`](crate::event::List): sessions and paths they watch. [`List::Ephemerals`](crate::event::List): the session and what it owns.
    pub listed: Vec<(SessionId, Text)>,
    /// Where the next page begins, if there is one.
    pub next: Option<Mark>,
    /// [`List::Deadlines`](crate::event::List): sessions and in how many milliseconds they end if nothing is heard of them, soonest first.
    pub deadlines: Vec<(u64, SessionId)>,
    /// What whoever drives the machine counts of the disk; the machine itself leaves it empty. Name with its unit, number.
    pub disk: Vec<(&'static str, u64)>,
}
