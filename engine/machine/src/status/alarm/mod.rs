//! Alarms: troubles that an operator should act on, each with a remedy.

mod kind;
mod not_serving;
mod refusing;

pub use kind::AlarmKind;

use super::{Lack, LearnerStatus, PeerStatus, SILENT_MS, Status, disk_trouble};
use crate::seam::health::Shortage;
use crate::status::{BaseTrouble, DeviceWear};
use crate::wear::shown_bytes;
use kind::AlarmKind as Kind;
use zoolet_model::ServerId;
use zoolet_zab::Kind as MemberKind;

/// One trouble.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Alarm {
    /// Kind of the trouble, for programs.
    pub kind: AlarmKind,
    /// The other server that has the trouble; `None`: this server, or the whole ensemble.
    pub server: Option<ServerId>,
    /// The trouble, in one line.
    pub what: String,
    /// What helps, in one line.
    pub remedy: String,
    /// Whether the ensemble lacks a server, or is about to, while the trouble lasts.
    ///
    /// A rolling restart waits until these alarms are gone. The other alarms may last for years.
    pub holds_up: bool,
}

impl Alarm {
    /// Returns an alarm about this server, which the ensemble lacks meanwhile.
    pub fn of_this_server(kind: AlarmKind, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind, server: None, what: what.into(), remedy: remedy.into(), holds_up: true }
    }

    /// Returns whether both report the same trouble with the same remedy.
    ///
    /// Their texts may differ in numbers, such as seconds, which change without any event.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let Self { kind, server, what: _, remedy, holds_up: _ } = self;
        (*kind, *server, remedy) == (other.kind, other.server, &other.remedy)
    }
}

/// Lag after which a server counts as lagging, milliseconds.
pub(super) const LAG_MS: u64 = 10_000;

/// Snapshots to one learner that raise an alarm.
///
/// A learner needs one to catch up. A second may follow a broken link.
const SNAPSHOTS: u32 = 3;

/// How a server begins anew; a configuration file's directory is filled only with `--create`.
///
/// Emptying it fully would also remove the keys and the id that a member needs.
macro_rules! anew {
    () => {
        "empty its data directory (keep myid and the .key files), and start it with --create"
    };
}

/// How a member moves to a new disk: its id and its keys are files of the data directory.
macro_rules! on_new_disk {
    () => {
        "replace the disk (copy myid and the .key files to the new one), and start it with --create"
    };
}

/// Returns every alarm of `status`, which is complete except for its alarms.
///
/// A pure function: all monitors of the same status see the same alarms.
pub fn alarms(status: &Status) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    for (source, holds_up) in [(of_a_server_less as Source, true), (of_what_lasts, false)] {
        source(status, &mut |Trouble(kind, server), what, remedy| {
            alarms.push(Alarm { kind, server, what, remedy: remedy.to_owned(), holds_up });
        });
    }
    alarms
}

/// A kind of trouble, and the other server that has it.
#[derive(Clone, Copy)]
struct Trouble(AlarmKind, Option<ServerId>);

/// Called with a trouble, its text and its remedy.
type Raise<'a> = dyn FnMut(Trouble, String, &str) + 'a;

/// Raises either the alarms that hold up a rolling restart, or the others.
type Source = fn(&Status, &mut Raise<'_>);

fn of_a_server_less(status: &Status, raise: &mut Raise<'_>) {
    if status.role.is_empty() && !status.is_read_only {
        let (what, remedy) = not_serving::why(status);
        raise(Kind::NotServing.here(), what, remedy);
    }
    if let Some(leader) = status.leader
        && !status.role.is_empty()
        && status.leader_silent_ms > SILENT_MS
    {
        let (id, seconds) = (leader.as_u8(), status.leader_silent_ms / 1000);
        raise(
            Kind::LeaderSilent.of(leader),
            format!("the leader, server {id}, has not been heard for {seconds} s, and no other was elected"),
            "start the servers that are down; if they run, check that UDP is open both ways",
        );
    }
    if let Some(refused) = status.went_back {
        raise(
            Kind::WentBack.of(refused),
            format!(
                "server {} is refused: it knows commits that this leader does not have, because an older copy of a data directory was put back",
                refused.as_u8()
            ),
            concat!(
                "do not empty a server that serves, or the ensemble stops. Stop the refused server, copy its data away (it may be the only copy), ",
                anew!()
            ),
        );
    }
    if let Some((learner, sent)) = status.snapshots.filter(|&(_, sent)| sent >= SNAPSHOTS) {
        raise(
            Kind::NotCatchingUp.of(learner),
            format!("server {} has not caught up after {sent} snapshots", learner.as_u8()),
            "if it rejects them, its own status says why. If its link breaks, mend that first. Otherwise the log must hold all writes during a transfer: write less for a while, raise log_segments, or use a faster link",
        );
    }
    if let Some((peer, zxid)) = status.differs {
        raise(
            Kind::StateDiffers.of(peer),
            format!("server {}'s state differed from this server's at {zxid}", peer.as_u8()),
            concat!(
                "one of the two is wrong: compare their digests with a third server's; stop the server that differs, ",
                anew!()
            ),
        );
    }
    if let Some(hangs_ms) = disk_trouble::hangs_ms(status) {
        raise(
            Kind::DiskHangs.here(),
            format!("the disk has not answered for {} s: writes here wait for it", hangs_ms / 1000),
            "see the kernel's log for the cause, most often a failing medium or cable; replace a medium that hangs repeatedly",
        );
    }
    if disk_trouble::is_gone(status) {
        raise(
            Kind::DataDirectoryGone.here(),
            disk_trouble::DATA_DIRECTORY_GONE.to_owned(),
            if status.members.len() > 1 {
                concat!(
                    "move the original back. If it is lost and the other servers serve, stop this server, ",
                    anew!(),
                    ": the others fill it again"
                )
            } else {
                "move the original back. If it is lost, copy the data out with a client before you stop this server: it holds the only copy"
            },
        );
    }
    raise_base(status, raise);
    refusing::raise_own(status, raise);
    refusing::raise_of_others(status, raise);
    raise_disks_of_others(status, true, raise);
    raise_lags(status, raise);
    if !status.is_counted && own_kind(status) == Some(MemberKind::Voter) {
        raise(
            Kind::DiskNotCounted.here(),
            "this server's disk does not count: it was emptied, was replaced or lost its log, and no leader has readmitted it"
                .to_owned(),
            "wait until it has caught up; that needs a leader with a quorum of the other servers",
        );
    }
    raise_missing(status, true, raise);
}

/// Raises what scrubs found in this server's base.
fn raise_base(status: &Status, raise: &mut Raise<'_>) {
    let is_alone = status.members.len() <= 1;
    match status.base_trouble {
        None => {}
        Some(BaseTrouble::Damaged) => raise(
            Kind::BaseDamaged.here(),
            "the base is damaged: a scrub found bytes that differ from those written".to_owned(),
            if is_alone {
                "copy the readable data out with a client, and start anew on another disk with --create: this server is standalone and holds the only copy"
            } else {
                concat!("stop this server, ", on_new_disk!(), ": the other servers fill it again")
            },
        ),
        Some(BaseTrouble::Unreadable) => raise(
            Kind::BaseUnreadable.here(),
            "the base cannot be read: consecutive scrubs met I/O errors".to_owned(),
            if is_alone {
                "copy the readable data out with a client before you stop this server: it is standalone and holds the only copy. Then see the kernel's log for the cause, most often a failing medium or cable"
            } else {
                concat!(
                    "see the kernel's log for the cause, most often a failing medium or cable. If the medium fails, stop this server, ",
                    on_new_disk!(),
                    ": the other servers fill it again"
                )
            },
        ),
    }
}

/// Formats the size of a shortage; empty when no size is known.
fn by(lack: Lack) -> String {
    let (free, missing) = (shown_bytes(lack.free_bytes), shown_bytes(lack.missing_bytes));
    match lack.of {
        // The file system reports enough room, which some only estimate, but the reserve could not
        // be made.
        _ if lack.missing_bytes == 0 => String::new(),
        Shortage::Disk => format!("; {free} are free, {missing} more are needed"),
        Shortage::Bound => format!("; {missing} must be freed"),
        Shortage::Memory => format!("; its file must shrink by {missing}"),
    }
}

fn of_what_lasts(status: &Status, raise: &mut Raise<'_>) {
    raise_missing(status, false, raise);
    if status.sessions_max > 0 && status.sessions >= status.sessions_max {
        raise(
            Kind::SessionsRefused.here(),
            format!(
                "new sessions are refused: {} of {} are open (sessions_max); {} were refused since the start",
                status.sessions, status.sessions_max, status.sessions_refused
            ),
            "see which clients open them (`cons`, `dump`): a client that leaves without closing keeps its session until the timeout; or raise sessions_max",
        );
    }
    if let Some(what) = stranger(status) {
        raise(
            Kind::NotAMember.here(),
            what,
            "no command changes the members yet: remove the server from the files, or leave it as an observer that serves clients",
        );
    }
    if let Some(p99_us) = disk_trouble::slow_us(status) {
        raise(
            Kind::DiskSlow.here(),
            format!("the disk is slow: one fdatasync in a hundred takes {} ms or more", p99_us / 1000),
            "move the data directory to another medium, or let fewer programs write to this one",
        );
    }
    if let Some(flash) = &status.flash {
        if flash.is_over_budget {
            raise(
                Kind::FlashOverBudget.here(),
                flash.over_budget(),
                "the server does not throttle: write less, or batch writes, which then share blocks; if this medium endures more, raise flash_bytes_per_day and endurance_bytes in a profile",
            );
        }
        if let Some(trouble) = flash.device.as_ref().and_then(DeviceWear::trouble) {
            raise(Kind::DeviceWorn.here(), trouble, replace_disk(status));
        }
    }
    raise_disks_of_others(status, false, raise);
    let voters = voters(status);
    if voters > 0 && voters.is_multiple_of(2) {
        raise(
            Kind::EvenVoters.here(),
            format!("{voters} voters survive no more failures than {}", voters - 1),
            "use an odd number of voters: add one, or make one of them an observer",
        );
    }
}

/// Raises other servers' disk troubles, except lack of room.
///
/// Raises either the troubles that cost the ensemble a server, or the others.
fn raise_disks_of_others(status: &Status, costs_a_server: bool, raise: &mut Raise<'_>) {
    for member in &status.said {
        let troubles = member.health.disk.iter().filter(|trouble| trouble.costs_a_server() == costs_a_server);
        for trouble in troubles {
            raise(
                Kind::OtherDisk(trouble).of(member.id),
                format!("server {}: {}", member.id.as_u8(), trouble.what()),
                "see its own zoolet status for details and the remedy",
            );
        }
    }
}

/// Raises lagging and silent servers, seen here or reported by the leader.
fn raise_lags(status: &Status, raise: &mut Raise<'_>) {
    const REMEDY: &str =
        "check its disk (fdatasync in its status), its processor and its link: one of them is too slow for the writes";
    for learner in status.learners.iter().filter(|learner| learner.is_synced && learner.behind_ms >= LAG_MS) {
        let &LearnerStatus { id, behind, behind_ms, .. } = learner;
        raise(
            Kind::Lags.of(id),
            format!("server {} lags by {behind} entries, for {} s", id.as_u8(), behind_ms / 1000),
            REMEDY,
        );
    }
    if status.behind_ms >= LAG_MS {
        let (behind, seconds) = (status.behind, status.behind_ms / 1000);
        raise(Kind::Lags.here(), format!("this server lags by {behind} committed entries, for {seconds} s"), REMEDY);
    }
    let Some((leader, health)) = status.leaders_health() else { return };
    let leader = leader.as_u8();
    for id in &health.lagging {
        match Some(*id) == status.id {
            true if status.behind_ms >= LAG_MS => {}
            true => raise(Kind::Lags.here(), format!("this server lags, reports its leader, server {leader}"), REMEDY),
            false => raise(
                Kind::Lags.of(*id),
                format!("server {} lags, reports its leader, server {leader}", id.as_u8()),
                REMEDY,
            ),
        }
    }
    let is_missed_here =
        |id: ServerId| status.peers.iter().any(|peer| peer.id == id && status.silent_ms(peer).is_some());
    for id in health.silent.iter().filter(|id| !is_missed_here(**id)) {
        let (trouble, what) = match Some(*id) == status.id {
            true => (Kind::NotHeardByLeader.here(), format!("the leader, server {leader}, does not hear this server")),
            false => (
                Kind::NotHeardByLeader.of(*id),
                format!("the leader, server {leader}, does not hear server {}", id.as_u8()),
            ),
        };
        raise(trouble, what, "check that it runs, and that UDP between the two is open both ways");
    }
}

/// Raises unreachable peers, either voters or others.
///
/// Without an observer the ensemble works as well.
fn raise_missing(status: &Status, votes: bool, raise: &mut Raise<'_>) {
    // The leader's silence has another alarm.
    let is_told = |peer: &PeerStatus| {
        Some(peer.id) == status.leader && !status.role.is_empty() && status.leader_silent_ms > SILENT_MS
    };
    for peer in status.peers.iter().filter(|peer| is_voter(status, peer.id) == votes && !is_told(peer)) {
        let Some(silent_ms) = status.silent_ms(peer) else { continue };
        let remedy = match peer.refusal {
            // The refusal names its own remedy; opening UDP does not help.
            Some(_) => "follow the reason in its line, and check that it runs",
            None => "check that it runs, and that UDP to it is open both ways",
        };
        raise(Kind::NotReached.of(peer.id), missing(peer, silent_ms), remedy);
    }
}

fn is_voter(status: &Status, id: ServerId) -> bool {
    status.members.contains(&(id, MemberKind::Voter))
}

/// Returns the remedy for a worn disk that still works.
fn replace_disk(status: &Status) -> &'static str {
    if status.members.len() > 1 {
        concat!("before this disk fails, stop the server, ", on_new_disk!(), ": the other servers fill it again")
    } else {
        "before this disk fails, stop the server, copy its data directory to another disk, and start it there"
    }
}

/// Returns the alarm for voters listed in a file but outside the ensemble.
///
/// The members are fixed when the ensemble is born. Later changes to a file add no member.
fn stranger(status: &Status) -> Option<String> {
    let is_member = |id: ServerId| status.members.iter().any(|(member, _)| *member == id);
    if !status.is_born || status.members.is_empty() {
        return None;
    }
    let members = list(status.members.iter().map(|(id, _)| *id));
    // A server named as an observer observes without being a member.
    let strangers = list(status.file_voters.iter().copied().filter(|&id| !is_member(id)));
    let is_meant_to_vote = status.id.is_some_and(|id| status.file_voters.contains(&id));
    match (own_kind(status).is_some(), strangers.is_empty()) {
        (false, _) if !is_meant_to_vote => None,
        (false, _) => Some(format!("this server is not one of the ensemble's members, {members}: it does not vote")),
        (true, false) => Some(format!(
            "this server's file names {strangers} as voters, and the ensemble's members are {members}: other servers do not vote"
        )),
        (true, true) => None,
    }
}

/// Returns this server's kind; `None` when it is no member.
fn own_kind(status: &Status) -> Option<MemberKind> {
    status.members.iter().find(|(member, _)| Some(*member) == status.id).map(|(_, kind)| *kind)
}

fn list(ids: impl Iterator<Item = ServerId>) -> String {
    ids.map(|id| id.as_u8().to_string()).collect::<Vec<_>>().join(", ")
}

fn voters(status: &Status) -> usize {
    status.members.iter().filter(|(_, kind)| *kind == MemberKind::Voter).count()
}

fn missing(peer: &PeerStatus, silent_ms: u64) -> String {
    let (id, seconds) = (peer.id.as_u8(), silent_ms / 1000);
    if peer.is_linked {
        return format!("server {id} has not been heard for {seconds} s");
    }
    let why = peer.refusal.as_ref().map_or(String::new(), |line| format!(": {line}"));
    format!("server {id} has not been reached for {seconds} s{why}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::seam::health::Health;
    use crate::status::{DiskTrouble, FlashStatus, MemberStatus, Refusal};
    use zoolet_model::Zxid;
    use zoolet_zab::Role;

    pub(in crate::status) fn healthy() -> Status {
        let id = |id| ServerId::new(id).unwrap();
        Status {
            id: Some(id(1)),
            role: "leader",
            members: vec![
                (id(1), MemberKind::Voter),
                (id(2), MemberKind::Voter),
                (id(3), MemberKind::Voter),
                (id(4), MemberKind::Observer),
            ],
            is_counted: true,
            is_born: true,
            file_voters: vec![id(1), id(2), id(3)],
            peers: vec![PeerStatus {
                id: id(2),
                address: "10.0.0.2:2888".to_owned(),
                is_linked: true,
                missing_ms: 0,
                heard_ms: Some(300),
                round_trip_us: 300,
                refusal: None,
            }],
            disk: vec![
                ("log_fdatasyncs", 1000),
                ("fdatasync_us_p99", 100_000),
                ("base_scrubs_failed", 3),
                ("disk_awaited_ms", 1_999),
            ],
            ..Status::default()
        }
    }

    pub(super) fn alarms_of(change: impl FnOnce(&mut Status)) -> Vec<Alarm> {
        let mut status = healthy();
        change(&mut status);
        alarms(&status)
    }

    fn raised(change: impl FnOnce(&mut Status)) -> Vec<String> {
        let alarms = alarms_of(change);
        assert!(alarms.iter().all(|alarm| !alarm.remedy.is_empty() && !alarm.what.contains('\n')));
        alarms.into_iter().map(|alarm| alarm.what).collect()
    }

    #[test]
    fn healthy_server_raises_no_alarm() {
        assert_eq!(raised(|_| ()), [""; 0]);
        let members = vec![healthy().members[0]];
        let (peers, file_voters) = (Vec::new(), Vec::new());
        let alone = Status { role: "standalone", members, peers, file_voters, ..healthy() };
        assert_eq!(alarms(&alone), []);
        let observer = Status { id: ServerId::new(4), is_counted: false, ..healthy() };
        assert_eq!(alarms(&observer), []);
        // A server named as an observer after the ensemble was born observes, as intended.
        let added = Status { id: ServerId::new(5), is_counted: false, ..healthy() };
        assert_eq!(alarms(&added), []);
    }

    fn worn(used_percent: u8) -> FlashStatus {
        let device = DeviceWear { device: "mmcblk0".to_owned(), used_percent: Some(used_percent), spare: None };
        FlashStatus { device: Some(device), ..FlashStatus::default() }
    }

    #[test]
    fn each_trouble_raises_exactly_its_alarm() {
        let [one, two] = [1, 2].map(|id| ServerId::new(id).unwrap());
        let five = ServerId::new(5);
        for (raised, expected) in [
            (
                raised(|s| (s.id, s.is_counted, s.file_voters) = (five, false, vec![one, five.unwrap()])),
                "this server is not one of the ensemble's members, 1, 2, 3, 4",
            ),
            (
                raised(|s| s.members.truncate(1)),
                "this server's file names 2, 3 as voters, and the ensemble's members are 1:",
            ),
            (
                raised(|s| (s.role, s.leader, s.leader_silent_ms) = ("follower", Some(two), 3_100)),
                "the leader, server 2, has not been heard for 3 s",
            ),
            (
                raised(|s| s.went_back = Some(two)),
                "server 2 is refused: it knows commits that this leader does not have",
            ),
            (raised(|s| s.snapshots = Some((two, 3))), "server 2 has not caught up after 3 snapshots"),
            (raised(|s| s.differs = Some((two, Zxid::ZERO))), "server 2's state differed from this server's at 0x0"),
            (raised(|s| s.base_trouble = Some(BaseTrouble::Damaged)), "the base is damaged"),
            (raised(|s| s.base_trouble = Some(BaseTrouble::Unreadable)), "the base cannot be read"),
            (raised(|s| s.refusing_writes = Some("the disk is full")), "writes are refused: the disk is full"),
            (
                raised(|s| (s.is_read_only, s.refusing_writes) = (true, Some("the disk is read-only"))),
                "disk read-only: this server does not vote, and serves reads until",
            ),
            (
                raised(|s| (s.is_read_only, s.role, s.leader) = (true, "", ServerId::new(2))),
                "disk read-only: this server does not vote, and serves at most clients that ask to read only",
            ),
            (
                raised(|s| (s.refusal, s.writes_held_ms) = (Some(Refusal::CheckpointHangs), 12_900)),
                "writes wait for a checkpoint, for 12 s",
            ),
            (raised(|s| s.is_counted = false), "this server's disk does not count"),
            (
                raised(|s| (s.sessions, s.sessions_max, s.sessions_refused) = (50, 50, 7)),
                "new sessions are refused: 50 of 50 are open (sessions_max); 7 were refused since the start",
            ),
            (raised(|s| s.disk[3].1 = 7_900), "the disk has not answered for 7 s: writes here wait for it"),
            (raised(|s| s.disk[1].1 = 600_000), "the disk is slow: one fdatasync in a hundred takes 600 ms or more"),
            (
                raised(|s| s.flash = Some(FlashStatus { is_over_budget: true, ..FlashStatus::default() })),
                "flash writes exceed the budget: 0 B in 0 s, budget 1.60 GB a day",
            ),
            (raised(|s| s.flash = Some(worn(80))), "mmcblk0 has used 80 to 90 % of its life"),
            (
                raised(|s| (s.members.truncate(2), s.file_voters.truncate(2)).0),
                "2 voters survive no more failures than 1",
            ),
        ] {
            assert!(raised.len() == 1 && raised[0].starts_with(expected), "{raised:?} is not {expected:?}");
        }
    }

    /// A rolling upgrade that waited for a lasting alarm would wait forever.
    #[test]
    fn only_alarms_about_a_missing_server_hold_up_a_rolling_restart() {
        let [two, observer] = [2, 4].map(|id| ServerId::new(id).unwrap());
        let holds_up = |change: &dyn Fn(&mut Status)| {
            let alarms = alarms_of(change);
            assert_eq!(alarms.len(), 1, "{alarms:?}");
            alarms[0].holds_up
        };
        let lasting: [&dyn Fn(&mut Status); 7] = [
            &|s| (s.sessions, s.sessions_max) = (50, 50),
            &|s| (s.peers[0].id, s.peers[0].is_linked, s.peers[0].missing_ms) = (observer, false, 20_000),
            &|s| s.members.truncate(1),
            &|s| s.disk[1].1 = 600_000,
            &|s| s.flash = Some(FlashStatus { is_over_budget: true, ..FlashStatus::default() }),
            &|s| s.flash = Some(worn(80)),
            &|s| (s.members.truncate(2), s.file_voters.truncate(2)).0,
        ];
        assert!(!lasting.into_iter().any(holds_up));
        let pressing: [&dyn Fn(&mut Status); 12] = [
            &|s| s.role = "",
            &|s| (s.role, s.leader, s.leader_silent_ms) = ("follower", Some(two), 3_100),
            &|s| s.went_back = Some(two),
            &|s| s.snapshots = Some((two, 3)),
            &|s| s.differs = Some((two, Zxid::ZERO)),
            &|s| s.base_trouble = Some(BaseTrouble::Damaged),
            &|s| s.base_trouble = Some(BaseTrouble::Unreadable),
            &|s| s.disk[3].1 = 2_000,
            &|s| s.refusing_writes = Some("the disk is full"),
            &|s| (s.refusal, s.writes_held_ms) = (Some(Refusal::CheckpointHangs), 10_000),
            &|s| s.is_counted = false,
            &|s| (s.peers[0].is_linked, s.peers[0].missing_ms) = (false, 20_000),
        ];
        assert!(pressing.into_iter().all(holds_up));
    }

    /// Regression: the remedies about a disk did not mention these files. Without them the server
    /// on the new disk does not know its id, or others refuse it.
    #[test]
    fn a_member_takes_its_id_and_its_keys_to_a_new_disk() {
        let failing: [&dyn Fn(&mut Status); 3] = [
            &|s| s.base_trouble = Some(BaseTrouble::Damaged),
            &|s| s.base_trouble = Some(BaseTrouble::Unreadable),
            &|s| s.flash = Some(worn(80)),
        ];
        for change in failing {
            let alarms = alarms_of(change);
            assert!(alarms[0].remedy.contains("(copy myid and the .key files to the new one)"), "{alarms:?}");
        }
    }

    /// Regression: these remedies said "start it again", and the start refused the empty directory.
    #[test]
    fn a_start_on_an_empty_directory_needs_create() {
        let two = ServerId::new(2).unwrap();
        let emptied: [&dyn Fn(&mut Status); 7] = [
            &|s| s.went_back = Some(two),
            &|s| s.differs = Some((two, Zxid::ZERO)),
            &|s| s.disk.push(("data_directory_gone", 1)),
            &|s| s.base_trouble = Some(BaseTrouble::Damaged),
            &|s| s.base_trouble = Some(BaseTrouble::Unreadable),
            &|s| {
                (s.base_trouble, s.members) = (Some(BaseTrouble::Damaged), vec![s.members[0]]);
                s.file_voters.clear();
            },
            &|s| s.flash = Some(worn(80)),
        ];
        for change in emptied {
            let alarms = alarms_of(change);
            assert!(alarms[0].remedy.contains("with --create"), "{alarms:?}");
        }
    }

    #[test]
    fn space_alarm_names_the_missing_bytes() {
        let refusing = |why: &'static str, of| {
            let lack = Some(Lack { of, free_bytes: 1_020_000, missing_bytes: 64_000_000 });
            alarms_of(|s| (s.refusing_writes, s.lack) = (Some(why), lack))[0].what.clone()
        };
        for (of, expected) in [
            (Shortage::Disk, "writes are refused: the disk is full; 1.02 MB are free, 64.0 MB more are needed"),
            (
                Shortage::Bound,
                "writes are refused: the data directory is as large as disk_bytes_max allows; 64.0 MB must be freed",
            ),
            (
                Shortage::Memory,
                "writes are refused: the tree is as large as its memory allows; its file must shrink by 64.0 MB",
            ),
        ] {
            assert_eq!(refusing(of.why(), of), expected);
        }
        let of_log = refusing("the log cannot be written", Shortage::Disk);
        assert_eq!(of_log, "writes are refused: the log cannot be written", "what is missing is not why");
    }

    #[test]
    fn unreachable_peer_alarms_after_2_s_with_the_link_error() {
        let lost = |status: &mut Status, missing_ms| {
            status.peers[0].is_linked = false;
            status.peers[0].missing_ms = missing_ms;
            status.peers[0].refusal = Some("no UDP reply".to_owned());
        };
        assert_eq!(raised(|s| lost(s, 1_900)), [""; 0]);
        assert_eq!(raised(|s| lost(s, 34_900)), ["server 2 has not been reached for 34 s: no UDP reply"]);
        // The link lasts for 1 to 4 s without a packet.
        assert_eq!(raised(|s| s.peers[0].heard_ms = Some(2_600)), ["server 2 has not been heard for 2 s"]);
        let between_learners = |heard_ms| {
            raised(|s| (s.role, s.leader, s.peers[0].heard_ms) = ("follower", ServerId::new(3), Some(heard_ms)))
        };
        assert_eq!(between_learners(2_600), [""; 0], "an idle link of two learners is quiet for 2 s");
        assert_eq!(between_learners(4_000), ["server 2 has not been heard for 4 s"]);
    }

    /// Server 1 follows server 2, which reports this health.
    fn follower(health: Health) -> Vec<String> {
        raised(|s| {
            (s.role, s.leader) = ("follower", ServerId::new(2));
            s.said = vec![MemberStatus { id: ServerId::new(2).unwrap(), health, said_ms: 0 }];
        })
    }

    #[test]
    fn health_reported_by_the_leader_raises_alarms_on_followers() {
        let [one, three] = [1, 3].map(|id| ServerId::new(id).unwrap());
        let leading = Health { role: Role::Leading, ..Health::default() };
        let full = Some(Refusal::Shortage(Shortage::Disk));
        assert_eq!(follower(leading.clone()), [""; 0]);
        for (health, expected) in [
            (
                Health { refusal: full, ..leading.clone() },
                "writes are refused: server 2 leads, the disk is full, and another voter is to lead",
            ),
            (
                Health { disk: [DiskTrouble::Slow].into_iter().collect(), ..leading.clone() },
                "server 2: its disk is slow",
            ),
            (
                Health { disk: [DiskTrouble::Damaged].into_iter().collect(), ..leading.clone() },
                "server 2: its base is damaged or unreadable",
            ),
            (Health { refusal: full, ..Health::default() }, "server 2 would refuse writes if it led: the disk is full"),
            (Health { lagging: vec![three], ..leading.clone() }, "server 3 lags, reports its leader, server 2"),
            (Health { lagging: vec![one], ..leading.clone() }, "this server lags, reports its leader, server 2"),
            (Health { silent: vec![three], ..leading.clone() }, "the leader, server 2, does not hear server 3"),
            (Health { silent: vec![one], ..leading }, "the leader, server 2, does not hear this server"),
        ] {
            assert_eq!(follower(health), [expected]);
        }
    }

    #[test]
    fn lagging_learner_and_follower_without_space_raise_alarms() {
        let lags = |behind_ms| {
            let two = ServerId::new(2).unwrap();
            raised(|s| {
                s.learners = vec![LearnerStatus { id: two, votes: true, is_synced: true, behind: 299, behind_ms }]
            })
        };
        assert_eq!(lags(9_000), [""; 0]);
        assert_eq!(lags(60_000), ["server 2 lags by 299 entries, for 60 s"]);
        assert_eq!(
            raised(|s| (s.behind, s.behind_ms) = (7, 12_000)),
            ["this server lags by 7 committed entries, for 12 s"]
        );
        let full = |s: &mut Status| {
            (s.role, s.leader) = ("follower", ServerId::new(2));
            s.refusal = Some(Refusal::Shortage(Shortage::Disk));
        };
        assert_eq!(raised(full), ["the disk is full: this server lets others lead, and refuses writes if it leads"]);
    }

    #[test]
    fn flash_wear_of_70_percent_raises_no_alarm() {
        assert_eq!(raised(|s| s.flash = Some(worn(70))), [""; 0]);
    }

    #[test]
    fn slow_disk_alarm_needs_enough_syncs() {
        let few = |status: &mut Status| {
            status.disk[0].1 = 3;
            status.disk[1].1 = 900_000;
        };
        assert_eq!(raised(few), [""; 0]);
    }
}
