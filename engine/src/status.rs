//! How the server is, for four-letter words, metrics and `zoolet status`.

mod alarm;
mod flash;

pub use alarm::{Alarm, alarms};
pub use flash::FlashStatus;

use crate::budget::Part;
use crate::event::{ConnId, Shortage};
use crate::watch::Mark;
use zoolet_model::{Epoch, ServerId, SessionId, Text, Zxid};
use zoolet_zab::{Kind, Role};

/// The machine's part of what an operator asks; the transport adds its own (packets, latency, connections' addresses).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Which server this is; `None` of no server.
    pub id: Option<ServerId>,
    /// `standalone`, `leader`, `follower`, `observer`, or empty while none of them.
    pub role: &'static str,
    /// The newest epoch whose initial history it holds.
    pub epoch: Epoch,
    /// Whom it follows, or is joining; itself when it leads.
    pub leader: Option<ServerId>,
    /// How long nothing of the leader was heard, milliseconds; 0 when it leads itself, or has none.
    pub leader_silent_ms: u64,
    /// Entries that its leader said are committed and that it has not applied.
    pub behind: u64,
    /// The first place where a peer's state was not this one's: one of the two is wrong.
    pub differs: Option<(ServerId, Zxid)>,
    /// Whom this leader refuses, because of what each of the two knows to be committed: an older copy of a data directory was put back.
    pub went_back: Option<ServerId>,
    /// Who belongs to the ensemble, and whether they vote; of a server alone itself. The newest configuration that it knows to be committed.
    pub members: Vec<(ServerId, Kind)>,
    /// The entry that made it so; [`Zxid::ZERO`] when a file did.
    pub members_since: Zxid,
    /// Whether this server's own disk counts: a member whose disk was wiped or replaced does not vote before a leader has taken it in again.
    pub is_counted: bool,
    /// Whether an ensemble is known here. Before, `members` is what a file says, and nothing begins without all voters.
    pub is_born: bool,
    /// Whether a server that is heard belongs to an ensemble, born or not as this one may be.
    pub meets_born: bool,
    /// Other voters whose disks, as far as they are heard, are not those that count.
    pub uncounted: Vec<ServerId>,
    /// Who follows or observes this server; of a leader alone.
    pub learners: Vec<LearnerStatus>,
    /// Of a leader: to which learner most snapshots were sent since it last had the initial history of an epoch, and how many.
    pub snapshots: Option<(ServerId, u32)>,
    /// Why the last snapshot that came in was not taken, until one is or this server serves: it is asked for again, at the most 32 s later.
    pub snapshot_not_taken: Option<String>,
    /// How long it has led, milliseconds; `None` when it does not.
    pub led_ms: Option<u64>,
    /// Sizes of what it proposed since its start.
    pub proposals: ProposalBytes,
    /// Linearizable reads that wait for a quorum.
    pub pending_syncs: u64,
    /// The voters that this server's file names. Whoever drives the machine knows them; the machine itself leaves it empty.
    pub file_voters: Vec<ServerId>,
    /// The links to other servers. Whoever drives the machine knows them; the machine itself leaves it empty.
    pub peers: Vec<PeerStatus>,
    /// What an operator should do something about. Whoever drives the machine has it made, by [`alarms`], when all else is filled in.
    pub alarms: Vec<Alarm>,
    /// The last applied entry.
    pub zxid: Zxid,
    /// The digest of the state after it (`store::digest`).
    pub digest: u128,
    /// Why writes are refused now, if they are.
    pub refusing_writes: Option<&'static str>,
    /// What there is too little of, and by how much. Whoever drives the machine knows it; the machine itself leaves it empty.
    pub lack: Option<Lack>,
    /// Whether that is because the disk takes nothing at all.
    pub is_read_only: bool,
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
    /// What is written to the medium. Whoever drives the machine knows it; the machine itself leaves it empty.
    pub flash: Option<FlashStatus>,
}

/// Too little room for more than deletions, as it was found when that was looked at last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lack {
    /// Where.
    pub of: Shortage,
    /// Bytes that are free on the disk.
    pub free_bytes: u64,
    /// How many bytes more there must be before every write is admitted.
    pub missing_bytes: u64,
}

/// A learner as its leader sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LearnerStatus {
    /// Who.
    pub id: ServerId,
    /// Whether it is a voter, and its disk the one that counts.
    pub votes: bool,
    /// Whether it has what was committed when it joined, and gets everything since.
    pub is_synced: bool,
    /// Entries of the leader's history that it is not known to have durably.
    pub behind: u64,
}

/// A link to another server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// To whom.
    pub id: ServerId,
    /// The address of the link, or the one that is dialled, for people; empty when there is none.
    pub address: String,
    /// Whether there is a link.
    pub is_linked: bool,
    /// For how long there has been none, milliseconds; 0 when there is one.
    pub missing_ms: u64,
    /// Round trip as the link measures it, microseconds; 0 without one.
    pub round_trip_us: u64,
    /// Why there is none, and what helps, if that is known.
    pub refusal: Option<String>,
}

/// Bytes of proposals: the last, the smallest and the largest. `None` before the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProposalBytes(pub Option<[u64; 3]>);

impl ProposalBytes {
    pub(crate) fn note(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        let [_, min, max] = self.0.unwrap_or([bytes; 3]);
        self.0 = Some([bytes, min.min(bytes), max.max(bytes)]);
    }
}

/// What a server is called: `leader`, `follower`, `observer`, `standalone`, or empty while it looks for a leader.
pub(crate) fn role_name(role: Role, is_only_member: bool) -> &'static str {
    match role {
        Role::Looking => "",
        Role::Leading if is_only_member => "standalone",
        Role::Leading => "leader",
        Role::Following(_) => "follower",
        Role::Observing(_) => "observer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_the_smallest_and_the_largest_proposal_are_known() {
        let mut proposals = ProposalBytes::default();
        assert_eq!(proposals.0, None);
        [7, 3, 9, 5].into_iter().for_each(|bytes| proposals.note(bytes));
        assert_eq!(proposals.0, Some([5, 3, 9]));
    }
}
