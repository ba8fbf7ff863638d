//! The server's status for four-letter words, metrics and `zoolet status`.

mod alarm;
mod device_wear;
mod disk_trouble;
mod flash;
mod summary;
mod written;

pub use crate::seam::health::{DiskTrouble, DiskTroubles, Refusal};
pub use alarm::{Alarm, AlarmKind, alarms};
pub use device_wear::{DeviceWear, SpareBlocks};
pub use disk_trouble::{BaseTrouble, DATA_DIRECTORY_GONE, disk_troubles};
pub use flash::FlashStatus;
pub use summary::{DiskSummary, Lag, Quorum, ServerRole, Summary};
pub use written::{Cause, Written};

use crate::budget::Part;
use crate::seam::health::{Health, Shortage};
use crate::seam::ids::ConnId;
use crate::server::QuotaRefusals;
use crate::watch::Mark;
use zoolet_model::{Epoch, ServerId, SessionId, Text, Zxid};
use zoolet_zab::{Kind, Role};

/// The machine's part of a status answer.
///
/// The transport adds packets, latency and connections' addresses. Fields marked "set by the
/// driver" are empty when the machine returns the status.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// This server; `None` only in a list answer or a default value.
    pub id: Option<ServerId>,
    /// `standalone`, `leader`, `follower` or `observer`; empty while it does not serve.
    pub role: &'static str,
    /// Newest epoch whose initial history it holds.
    pub epoch: Epoch,
    /// Server that it follows or is joining; itself when it leads.
    pub leader: Option<ServerId>,
    /// Milliseconds since the leader was last heard; 0 without another leader.
    pub leader_silent_ms: u64,
    /// Entries known to be committed and not yet applied.
    pub behind: u64,
    /// How long it has lacked one of these entries, milliseconds.
    pub behind_ms: u64,
    /// From a leader: a learner whose state differed, and the first such entry; one of the two is
    /// wrong.
    pub differs: Option<(ServerId, Zxid)>,
    /// From a leader: a peer that it refuses because their histories contradict each other.
    ///
    /// An older copy of a data directory was restored on one of the two servers.
    pub went_back: Option<ServerId>,
    /// Members of the ensemble and their kinds, from the newest configuration known committed.
    ///
    /// A standalone server lists itself.
    pub members: Vec<(ServerId, Kind)>,
    /// Entry that made this configuration; [`Zxid::ZERO`] when it comes from a file.
    pub members_since: Zxid,
    /// Whether this server counts as a voter.
    ///
    /// A member whose disk was wiped, replaced or damaged does not vote until a leader has taken it
    /// in again.
    pub is_counted: bool,
    /// Whether this server knows an ensemble.
    ///
    /// Before that, `members` comes from a file, and the ensemble begins only when all voters have
    /// met.
    pub is_born: bool,
    /// Whether a connected peer belongs to an ensemble, even if this server knows none.
    pub meets_born: bool,
    /// Connected voters whose disks do not count; without this server.
    pub uncounted: Vec<ServerId>,
    /// From a leader: its followers and observers.
    pub learners: Vec<LearnerStatus>,
    /// From a leader: the learner that was sent most snapshots, and their number.
    ///
    /// The count restarts when the learner has the initial history of an epoch.
    pub snapshots: Option<(ServerId, u32)>,
    /// Why the last incoming snapshot was not taken.
    ///
    /// Cleared when one is taken or this server serves. The server retries after at most 32 s.
    pub snapshot_not_taken: Option<String>,
    /// How long it has led, milliseconds; `None` when it does not lead.
    pub led_ms: Option<u64>,
    /// Sizes of the entries that it proposed since its start.
    pub proposals: ProposalBytes,
    /// Linearizable reads waiting for a quorum.
    pub pending_syncs: u64,
    /// Voters named in this server's file. Set by the driver.
    pub file_voters: Vec<ServerId>,
    /// Links to other servers. Set by the driver.
    pub peers: Vec<PeerStatus>,
    /// Troubles that an operator should act on. Set by the driver, last, with [`alarms`].
    pub alarms: Vec<Alarm>,
    /// Last applied entry.
    pub zxid: Zxid,
    /// Digest of the state after that entry (`store::digest`).
    pub digest: u128,
    /// Why writes are refused now; `None` when they are admitted.
    pub refusing_writes: Option<&'static str>,
    /// Why writes would be refused, or held for long, if this server led; also set while it leads.
    pub refusal: Option<Refusal>,
    /// How long writes have had no room because a checkpoint has not ended, milliseconds.
    pub writes_held_ms: u64,
    /// Other servers' own health reports.
    pub said: Vec<MemberStatus>,
    /// The scarce resource and the missing bytes. Set by the driver.
    pub lack: Option<Lack>,
    /// Whether the log is stalled because the disk rejects every write.
    pub is_read_only: bool,
    /// Znodes, including ZooKeeper's four built-in ones.
    pub znodes: u64,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Ephemerals.
    pub ephemerals: u64,
    /// Sessions, connected or not; local ones included.
    pub sessions: u64,
    /// How old the state that readers see may be, milliseconds; `None` unless it serves readers.
    ///
    /// Such a server has no leader, or its disk accepts nothing.
    pub read_only_ms: Option<u64>,
    /// Local sessions of this server, connected or not.
    pub local_sessions: u64,
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
    /// Amount held of each [`Budget`](crate::Budget) part that the machine counts.
    pub held: Vec<(Part, u64)>,
    /// Durable checkpoints since start.
    pub checkpoints: u64,
    /// Failed checkpoints since start.
    pub checkpoints_failed: u64,
    /// Fetches sent to the base since start.
    pub fetches: u64,
    /// Acknowledged writes since start.
    pub writes_acknowledged: u64,
    /// Sessions that expired since start.
    pub sessions_expired: u64,
    /// Maximum number of sessions; 0 when not known.
    pub sessions_max: u64,
    /// Sessions refused since start because `sessions_max` was reached.
    pub sessions_refused: u64,
    /// Sessions refused since start because their address had used up its share.
    pub sessions_refused_of_address: u64,
    /// Local sessions ended since start because global ones took their places under `sessions_max`.
    pub local_sessions_displaced: u64,
    /// Rejected super user proofs since start: wrong ones, and ones over the rate limit.
    pub super_guesses: u64,
    /// Subtrees whose usage is known or being counted.
    pub quotas: u64,
    /// Those of them whose usage is still being counted.
    pub quotas_counting: u64,
    /// Writes refused since start because of a hard limit.
    pub quota_refusals: QuotaRefusals,
    /// The answer to a list.
    ///
    /// For [`List::Watches`](crate::seam::event::List): sessions and the paths that they watch. For
    /// [`List::Ephemerals`](crate::seam::event::List): the session and its ephemerals.
    pub listed: Vec<(SessionId, Text)>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Mark>,
    /// For [`List::Deadlines`](crate::seam::event::List): milliseconds until each silent session
    /// expires.
    ///
    /// Sorted, soonest first. A server that does not lead lists only the sessions on its own
    /// connections, because it hears no other clients.
    pub deadlines: Vec<(u64, SessionId)>,
    /// The timeout in milliseconds of every session, by id; `None` on a server that leads.
    pub timeouts: Option<Vec<(SessionId, u32)>>,
    /// As `deadlines`, for local sessions; `None` on a server that has none.
    pub local_deadlines: Option<Vec<(u64, SessionId)>>,
    /// Counters of the disk: name with unit, and number. Set by the driver.
    pub disk: Vec<(&'static str, u64)>,
    /// Trouble of the base. Set by the driver.
    pub base_trouble: Option<BaseTrouble>,
    /// Wear of the storage medium. Set by the driver.
    pub flash: Option<FlashStatus>,
}

/// A shortage that leaves room only for deletions, as last measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lack {
    /// The scarce resource.
    pub of: Shortage,
    /// Bytes free on the disk.
    pub free_bytes: u64,
    /// Additional bytes needed before every write is admitted.
    pub missing_bytes: u64,
}

/// A learner as its leader sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LearnerStatus {
    /// The learner.
    pub id: ServerId,
    /// Whether it is a voter with the disk that counts.
    pub votes: bool,
    /// Whether it has caught up and receives new entries as they come.
    pub is_synced: bool,
    /// Entries of the leader's history that it has not acked as durable.
    pub behind: u64,
    /// How long it has lacked one of these entries, milliseconds; 0 while it joins.
    pub behind_ms: u64,
}

/// Another server's own report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The server.
    pub id: ServerId,
    /// Its last report on the current link.
    pub health: Health,
    /// Age of the report, milliseconds. The server sends a new one only when something changes.
    pub said_ms: u64,
}

/// A link to another server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Server at the other end.
    pub id: ServerId,
    /// Address of the link, or the last one dialled; empty when unknown.
    pub address: String,
    /// Whether the link is up.
    pub is_linked: bool,
    /// How long the link has been down, milliseconds; 0 while it is up.
    pub missing_ms: u64,
    /// Milliseconds since the link last received data; `None` without a link.
    ///
    /// The link is polled, so the peer may have been silent for up to 500 ms longer.
    pub heard_ms: Option<u64>,
    /// Round trip measured by the link, microseconds; 0 without a link.
    pub round_trip_us: u64,
    /// Why the link is down and what helps; `None` when unknown.
    pub refusal: Option<String>,
}

/// Silence after which a leader, or a member for its leader, counts as silent, milliseconds.
///
/// An idle leader and its learners exchange three heartbeats a second. By then, a majority that
/// misses the leader would have elected another one.
pub(crate) const SILENT_MS: u64 = 2_000;
/// The same between two learners, whose idle link is used every 2 s.
const SILENT_LEARNER_MS: u64 = 3_500;
/// The same during an election, when every live server sends ten messages a second.
const SILENT_LOOKING_MS: u64 = 1_500;

impl Status {
    /// Returns how long the peer has been silent or unlinked, milliseconds; `None` while normal.
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

    /// Returns whether the peer has a link and was heard lately.
    pub(crate) fn hears(&self, peer: &PeerStatus) -> bool {
        peer.is_linked && self.silent_ms(peer).is_none()
    }

    /// Returns the leader and its report; `None` while leading or without a report.
    pub(crate) fn leaders_health(&self) -> Option<(ServerId, &Health)> {
        let leader = self.leader.filter(|leader| Some(*leader) != self.id)?;
        self.said.iter().find(|member| member.id == leader).map(|member| (leader, &member.health))
    }
}

/// Proposal sizes in bytes: last, smallest, largest. `None` before the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProposalBytes(pub Option<[u64; 3]>);

impl ProposalBytes {
    pub(crate) fn note(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        let [_, min, max] = self.0.unwrap_or([bytes; 3]);
        self.0 = Some([bytes, min.min(bytes), max.max(bytes)]);
    }
}

/// Returns the role's name; empty while the server looks for a leader.
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
    fn status_keeps_the_last_smallest_and_largest_proposal_size() {
        let mut proposals = ProposalBytes::default();
        assert_eq!(proposals.0, None);
        [7, 3, 9, 5].into_iter().for_each(|bytes| proposals.note(bytes));
        assert_eq!(proposals.0, Some([5, 3, 9]));
    }
}
