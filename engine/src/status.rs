//! How the server is, for four-letter words, metrics and `zoolet status`.

mod alarm;
mod disk;
mod flash;

pub use alarm::{Alarm, alarms};
pub use disk::{DATA_DIRECTORY_GONE, DiskTrouble, DiskTroubles};
pub use flash::FlashStatus;

use crate::budget::Part;
use crate::event::{ConnId, Shortage};
use crate::peer::Health;
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
    /// For how long it has lacked one of them, milliseconds.
    pub behind_ms: u64,
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
    /// Why writes would be refused if this server led; the same while it leads.
    pub refusal: Option<Refusal>,
    /// How the other servers are, each in its own words.
    pub said: Vec<MemberStatus>,
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
    /// Sessions there may be; 0 is not known.
    pub sessions_max: u64,
    /// Sessions that were not begun since start, because there were `sessions_max`.
    pub sessions_refused: u64,
    /// Sessions that were not begun since start, because clients of their address had their share.
    pub sessions_refused_of_address: u64,
    /// Wrong proofs of the super user since start, and those that were not looked at because there had been too many.
    pub super_guesses: u64,
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
    /// For how long it has lacked one of them, milliseconds; 0 while it catches up after it joined.
    pub behind_ms: u64,
}

/// Another server, in its own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Who.
    pub id: ServerId,
    /// What it said last on the link that there is.
    pub health: Health,
    /// How long ago, milliseconds. It says so again only when something changes.
    pub said_ms: u64,
}

/// Why a server refuses writes, or would if it led.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// There is too little room for more than deletions.
    Shortage(Shortage),
    /// The disk is mounted to be read only.
    ReadOnly,
    /// The log cannot be written.
    Log,
    /// The last checkpoint failed, and what waits for it fills log or memory.
    Checkpoint,
    /// A reason of a later release.
    Other,
}

impl Refusal {
    /// For an operator.
    pub fn why(self) -> &'static str {
        match self {
            Self::Shortage(shortage) => shortage.why(),
            Self::ReadOnly => "the disk is read-only",
            Self::Log => "the log cannot be written",
            Self::Checkpoint => "the last checkpoint failed, and there is no room for more without it",
            Self::Other => "it gives a reason that this release does not know",
        }
    }
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
    /// For how long nothing came on its link, milliseconds; `None` without one. Half a second more than it is at most.
    pub heard_ms: Option<u64>,
    /// Round trip as the link measures it, microseconds; 0 without one.
    pub round_trip_us: u64,
    /// Why there is none, and what helps, if that is known.
    pub refusal: Option<String>,
}

/// A peer on whose link nothing came for this long is silent, milliseconds: an idle leader and its learners exchange three heartbeats a second.
const SILENT_MS: u64 = 2_000;
/// The same between two learners, whose idle link says something every 2 s.
const SILENT_LEARNER_MS: u64 = 3_500;
/// While a leader is looked for, everyone that is there says something ten times a second.
const SILENT_LOOKING_MS: u64 = 1_500;

impl Status {
    /// For how long this peer has been silent, milliseconds, if that is longer than a peer that is well is.
    pub(crate) fn silent_ms(&self, peer: &PeerStatus) -> Option<u64> {
        let Some(heard_ms) = peer.heard_ms.filter(|_| peer.is_linked) else {
            return (!peer.is_linked).then_some(peer.missing_ms).filter(|ms| *ms > SILENT_MS);
        };
        let most_ms = match self.role {
            "" => SILENT_LOOKING_MS,
            "leader" => SILENT_MS,
            _ if self.leader == Some(peer.id) => SILENT_MS,
            _ => SILENT_LEARNER_MS,
        };
        (heard_ms > most_ms).then_some(heard_ms)
    }

    /// Whether this peer is there: it has a link and was heard lately.
    pub(crate) fn hears(&self, peer: &PeerStatus) -> bool {
        peer.is_linked && self.silent_ms(peer).is_none()
    }

    /// How its leader says that it is.
    pub(crate) fn leaders_health(&self) -> Option<(ServerId, &Health)> {
        let leader = self.leader.filter(|leader| Some(*leader) != self.id)?;
        self.said.iter().find(|member| member.id == leader).map(|member| (leader, &member.health))
    }
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
