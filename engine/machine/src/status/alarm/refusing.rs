//! Refused writes, of this server and of others: each cause has a remedy of its own.

use super::{AlarmKind, Raise, by};
use crate::seam::health::{DiskTrouble, QUORUM_LACKS_ROOM, Shortage};
use crate::status::{Refusal, Status};
use zoolet_model::ServerId;
use zoolet_zab::{Kind, Role};

/// Raises the write refusals of this server.
pub(super) fn raise_own(status: &Status, raise: &mut Raise<'_>) {
    let is_why = |of: Shortage, why| of.why() == why || of == Shortage::Disk && why == Refusal::LogFull.why();
    let lack = |why| status.lack.filter(|lack| is_why(lack.of, why)).map_or_else(String::new, by);
    if status.is_read_only {
        let what = match status.members.len() {
            _ if status.role.is_empty() => {
                "disk read-only: this server does not vote, and serves at most clients that ask to read only"
            }
            0 | 1 => "disk read-only: reads go on, writes and new sessions are refused",
            _ => "disk read-only: this server does not vote, and serves reads until another server commits a write",
        };
        raise(AlarmKind::DiskReadOnly.here(), what.to_owned(), remedy_here(Refusal::ReadOnly));
    } else if status.refusing_writes == Some(QUORUM_LACKS_ROOM) {
        let Room { has, lacks, remedy } = Room::of(status);
        raise(AlarmKind::WritesRefused.here(), format!("writes are refused: {has}; {lacks}"), &remedy);
    } else if let Some(why) = status.refusing_writes {
        let refusal = status.refusal.filter(|refusal| refusal.why() == why).unwrap_or(Refusal::Checkpoint);
        raise(AlarmKind::WritesRefused.here(), format!("writes are refused: {why}{}", lack(why)), remedy_here(refusal));
    } else if let (Some(Refusal::CheckpointHangs), held_ms @ 1..) = (status.refusal, status.writes_held_ms) {
        raise(AlarmKind::WritesWait.here(), held(status, held_ms / 1000), CHECKPOINT_HANGS);
    } else if let Some(refusal) = status.refusal {
        let why = refusal.why();
        raise(
            AlarmKind::CannotLead.here(),
            format!("{why}{}: this server lets others lead, and refuses writes if it leads", lack(why)),
            remedy_here(refusal),
        );
    }
}

/// Returns the alarm about a checkpoint that has held writes for `seconds`.
fn held(status: &Status, seconds: u64) -> String {
    match status.leader.filter(|leader| Some(*leader) != status.id) {
        None => format!("writes wait for a checkpoint, for {seconds} s"),
        Some(_) => format!(
            "a checkpoint has not ended, and log or memory has been full without it for {seconds} s: this server lets others lead"
        ),
    }
}

/// Raises the write refusals that other servers report.
pub(super) fn raise_of_others(status: &Status, raise: &mut Raise<'_>) {
    if let Some((leader, health)) = status.leaders_health()
        && health.refusal.is_none()
        && Room::is_refused(status)
    {
        let (id, Room { has, lacks, remedy }) = (leader.as_u8(), Room::of(status));
        raise(
            AlarmKind::WritesRefused.of(leader),
            format!("writes are refused: server {id} leads, {has}; {lacks}"),
            &remedy,
        );
    }
    for member in &status.said {
        let Some(refusal) = member.health.refusal else { continue };
        let (id, why) = (member.id.as_u8(), refusal.why());
        if member.health.role == Role::Leading {
            let (others, remedy) = of_voters(all_voters_refuse(status).as_deref());
            raise(
                AlarmKind::WritesRefused.of(member.id),
                format!("writes are refused: server {id} leads, {why}, {others}"),
                remedy,
            );
        } else {
            raise(
                AlarmKind::CannotLead.of(member.id),
                format!("server {id} would refuse writes if it led: {why}"),
                remedy_there(refusal),
            );
        }
    }
}

/// Voters with and without room, for the alarm about a leader that refuses writes.
struct Room {
    /// Number of voters with room, and the number that writes need.
    has: String,
    /// The voters without room, with their reasons.
    lacks: String,
    remedy: String,
}

impl Room {
    fn of(status: &Status) -> Self {
        let (voters, lacking) = Self::lacking(status);
        let needed = voters / 2 + 1;
        let has = voters - lacking.len();
        let reason = |refusal: &Option<Refusal>| refusal.map_or("it cannot acknowledge writes now", Refusal::why);
        let lacks: Vec<_> =
            lacking.iter().map(|(id, refusal)| format!("server {}: {}", id.as_u8(), reason(refusal))).collect();
        let is_disk =
            |refusal: &Option<Refusal>| matches!(refusal, Some(Refusal::Shortage(Shortage::Disk) | Refusal::LogFull));
        let unable = lacking.iter().filter(|(_, refusal)| *refusal == Some(Refusal::LogFull)).count();
        let remedy = if lacking.iter().all(|(_, refusal)| is_disk(refusal)) {
            // Deletes are committed only if a majority can log them.
            let delete = if voters - unable >= needed { ", or delete znodes" } else { "" };
            format!("free space on the disks of these servers until {needed} voters have room{delete}")
        } else {
            format!(
                "zoolet status of each of these servers names its remedy; writes go on once {needed} voters have room"
            )
        };
        let verb = if has == 1 { "has" } else { "have" };
        Self {
            has: format!("{has} of {voters} voters {verb} room, and writes need {needed}"),
            lacks: lacks.join("; "),
            remedy,
        }
    }

    /// Returns whether a leader refuses writes for the lack of room, as far as this server knows.
    ///
    /// The leader's own rule is `Server::quorum_lacks_room`.
    fn is_refused(status: &Status) -> bool {
        let (voters, lacking) = Self::lacking(status);
        voters - lacking.len() <= voters / 2 && lacking.iter().any(|(_, refusal)| refusal.is_some())
    }

    /// Returns the number of voters, and the voters without room.
    ///
    /// A voter that is not linked, not synchronized or not counted, or whose disk hangs, cannot
    /// acknowledge writes. It is in the list with no reason.
    fn lacking(status: &Status) -> (usize, Vec<(ServerId, Option<Refusal>)>) {
        let voters = || status.members.iter().filter(|(_, kind)| *kind == Kind::Voter).map(|(id, _)| *id);
        let lacking = |id: ServerId| {
            if Some(id) == status.id {
                return status.refusal.filter(|refusal| refusal.lacks_room()).map(|refusal| (id, Some(refusal)));
            }
            let Some(member) = status.said.iter().find(|member| member.id == id) else { return Some((id, None)) };
            let is_late = status.uncounted.contains(&id)
                || member.health.disk.contains(DiskTrouble::Hangs)
                || status.learners.iter().any(|learner| learner.id == id && !learner.is_synced);
            match member.health.refusal.filter(|refusal| refusal.lacks_room()) {
                None if is_late => Some((id, None)),
                refusal => refusal.map(|refusal| (id, Some(refusal))),
            }
        };
        (voters().count(), voters().filter_map(lacking).collect())
    }
}

/// Returns what a leader that refuses writes means for the ensemble, and the remedy.
///
/// `all` holds the reasons of all voters, if each has one.
fn of_voters(all: Option<&[Refusal]>) -> (&'static str, &'static str) {
    const MEMORY: Refusal = Refusal::Shortage(Shortage::Memory);
    let Some(all) = all else {
        return ("and another voter is to lead", "wait 10 s; then run zoolet status on the other voters");
    };
    let is_all = |is: fn(&Refusal) -> bool| all.iter().all(is);
    if is_all(|&refusal| refusal == MEMORY) {
        ("and no voter has room", remedy_here(MEMORY))
    } else if is_all(|&refusal| matches!(refusal, Refusal::Shortage(Shortage::Disk))) {
        (
            "and no voter has room",
            "free space on the disks of a majority of the voters, or delete znodes; zoolet status of each server shows how much is missing",
        )
    } else {
        (
            if is_all(|refusal| matches!(refusal, Refusal::Shortage(_))) {
                "and no voter has room"
            } else {
                "and no voter accepts writes"
            },
            "zoolet status of each voter names the remedy; writes go on once a majority of the voters has room",
        )
    }
}

/// Returns every voter's refusal; `None` if a voter accepts writes, as far as this server knows.
fn all_voters_refuse(status: &Status) -> Option<Vec<Refusal>> {
    let refusal = |id: ServerId| match Some(id) == status.id {
        true => status.refusal,
        false => status.said.iter().find(|member| member.id == id)?.health.refusal,
    };
    status.members.iter().filter(|(_, kind)| *kind == Kind::Voter).map(|&(id, _)| refusal(id)).collect()
}

/// Remedy for a checkpoint that neither ends nor fails.
const CHECKPOINT_HANGS: &str = "see the kernel's log for the cause, most often a failing medium or cable; if the checkpoint does not end, restart the machine. If the kernel logs nothing, the disk is too slow for these writes: write less";

/// Returns the remedy for the refusal of this server.
fn remedy_here(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Shortage(Shortage::Disk) => "free space on the disk, or delete znodes",
        Refusal::Shortage(Shortage::Bound) => "delete znodes, or raise disk_bytes_max and restart this server",
        Refusal::Shortage(Shortage::Memory) => "delete znodes, or raise base_cache_bytes on every server",
        Refusal::ReadOnly => {
            "see the kernel's log for the cause, most often a failing medium: stop the server, check the file system, mount it, start the server"
        }
        // The log thread and the checkpoints retry without a restart.
        Refusal::Log => {
            "see this server's log for the error of the disk, and mend that; the server then goes on by itself"
        }
        Refusal::LogFull => {
            "free space on the disk; deleting znodes does not help this server, because it cannot log the deletes"
        }
        Refusal::Checkpoint => {
            "see this server's log for the error of the checkpoint, and mend that; the server repeats it at least every 30 s"
        }
        Refusal::CheckpointHangs => CHECKPOINT_HANGS,
        Refusal::Other => "see this server's log for the cause",
    }
}

/// Returns the remedy for the refusal of another server.
fn remedy_there(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Shortage(Shortage::Disk) => {
            "free space there before it has to lead; its own zoolet status shows how much is missing"
        }
        Refusal::Shortage(Shortage::Bound) => {
            "delete znodes, or raise disk_bytes_max there and restart it, before it has to lead; its own zoolet status shows how much is missing"
        }
        Refusal::Shortage(Shortage::Memory) => remedy_here(refusal),
        Refusal::ReadOnly => {
            "see the kernel's log there for the cause, most often a failing medium: stop that server, check its file system, mount it, start the server"
        }
        Refusal::Log => {
            "see that server's log for the error of the disk, and mend that; the server then goes on by itself"
        }
        Refusal::LogFull => {
            "free space there; until then that server falls behind, and deleting znodes does not help it"
        }
        Refusal::Checkpoint => {
            "see that server's log for the error of the checkpoint, and mend that; the server repeats it at least every 30 s"
        }
        Refusal::CheckpointHangs => {
            "see the kernel's log there for the cause, most often a failing medium or cable; if the checkpoint does not end, restart that machine"
        }
        Refusal::Other => "run zoolet status there: it names the reason and the remedy",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::alarms_of;
    use super::*;
    use crate::seam::health::Health;
    use crate::status::MemberStatus;

    const ALL: [Refusal; 9] = [
        Refusal::Shortage(Shortage::Disk),
        Refusal::Shortage(Shortage::Bound),
        Refusal::Shortage(Shortage::Memory),
        Refusal::ReadOnly,
        Refusal::Log,
        Refusal::LogFull,
        Refusal::Checkpoint,
        Refusal::CheckpointHangs,
        Refusal::Other,
    ];

    fn said(id: u8, role: Role, refusal: Refusal) -> MemberStatus {
        let health = Health { role, refusal: Some(refusal), ..Health::default() };
        MemberStatus { id: ServerId::new(id).unwrap(), health, said_ms: 0 }
    }

    /// Returns the alarm and the remedy of a server that is told of a follower's refusal.
    fn of_another(refusal: Refusal) -> (String, String) {
        let follows = Role::Following(ServerId::new(1).unwrap());
        let alarm = alarms_of(|s| s.said = vec![said(2, follows, refusal)]).remove(0);
        assert_eq!(alarm.what, format!("server 2 would refuse writes if it led: {}", refusal.why()));
        (alarm.what, alarm.remedy)
    }

    /// Returns the remedies of a refusal of this server: while it leads, and while it follows.
    fn own(refusal: Refusal) -> [String; 2] {
        let leads = alarms_of(|s| (s.refusal, s.refusing_writes) = (Some(refusal), Some(refusal.why())));
        let follows = alarms_of(|s| s.refusal = Some(refusal));
        [leads, follows].map(|mut alarms| alarms.remove(0).remedy)
    }

    /// Regression: each alarm about another server advised to free space, also for a read-only disk.
    #[test]
    fn only_alarms_about_a_full_disk_advise_to_free_space() {
        for refusal in ALL {
            let remedies = own(refusal).into_iter().chain([of_another(refusal).1]);
            for remedy in remedies {
                let is_full = matches!(refusal, Refusal::Shortage(Shortage::Disk) | Refusal::LogFull);
                assert_eq!(remedy.contains("free space"), is_full, "{refusal:?}: {remedy}");
                let is_bounded = refusal == Refusal::Shortage(Shortage::Bound);
                assert_eq!(remedy.contains("disk_bytes_max"), is_bounded, "{refusal:?}: {remedy}");
            }
        }
    }

    #[test]
    fn each_cause_on_another_server_has_its_own_remedy() {
        let mut remedies: Vec<String> = ALL.into_iter().map(|refusal| of_another(refusal).1).collect();
        assert!(of_another(Refusal::ReadOnly).1.contains("mount it"));
        remedies.sort();
        remedies.dedup();
        assert_eq!(remedies.len(), ALL.len());
    }

    /// Returns the end of the alarm, and the remedy, when the three voters refuse for these reasons.
    fn refused([own, leader, third]: [Refusal; 3]) -> (String, String) {
        let leads = |s: &mut Status| {
            (s.role, s.leader, s.refusal) = ("follower", ServerId::new(2), Some(own));
            s.said = vec![said(2, Role::Leading, leader), said(3, Role::Following(ServerId::new(2).unwrap()), third)];
        };
        let alarms = alarms_of(leads);
        let alarm = alarms.into_iter().find(|alarm| alarm.what.contains("server 2 leads")).unwrap();
        (alarm.what.rsplit(", ").next().unwrap().to_owned(), alarm.remedy)
    }

    #[test]
    fn alarm_says_no_voter_has_room_only_if_all_lack_it() {
        let full = Refusal::Shortage(Shortage::Disk);
        let (what, remedy) = refused([full; 3]);
        assert_eq!(what, "and no voter has room");
        assert!(remedy.starts_with("free space on the disks of a majority of the voters"), "{remedy}");
        let (what, remedy) = refused([Refusal::Shortage(Shortage::Memory); 3]);
        assert!(what == "and no voter has room" && remedy.contains("base_cache_bytes"), "{remedy}");
        for reasons in [[Refusal::Log; 3], [full, full, Refusal::ReadOnly]] {
            let (what, remedy) = refused(reasons);
            assert!(what == "and no voter accepts writes" && !remedy.contains("free space"), "{remedy}");
        }
    }

    /// Returns the alarm about refused writes of server `own`; of three, server 1 leads and has room.
    fn short_of_room(own: u8, followers: [Option<Refusal>; 2]) -> Option<(String, String)> {
        let alarms = alarms_of(|s| {
            (s.id, s.leader) = (ServerId::new(own), ServerId::new(1));
            s.role = if own == 1 { "leader" } else { "follower" };
            s.refusing_writes = (own == 1).then_some(QUORUM_LACKS_ROOM);
            let follows = Role::Following(ServerId::new(1).unwrap());
            let healths = [(1, Role::Leading, None), (2, follows, followers[0]), (3, follows, followers[1])];
            s.refusal = healths[usize::from(own) - 1].2;
            let others = healths.into_iter().filter(|(id, ..)| *id != own);
            s.said = others
                .map(|(id, role, refusal)| MemberStatus {
                    id: ServerId::new(id).unwrap(),
                    health: Health { role, refusal, ..Health::default() },
                    said_ms: 0,
                })
                .collect();
        });
        let alarm = alarms.into_iter().find(|alarm| alarm.kind == AlarmKind::WritesRefused)?;
        Some((alarm.what, alarm.remedy))
    }

    #[test]
    fn every_server_names_the_voters_without_room_that_writes_need() {
        let full = Some(Refusal::Shortage(Shortage::Disk));
        let lacks = "1 of 3 voters has room, and writes need 2; server 2: the disk is full; server 3: the disk is full, and the log cannot grow";
        let remedy = "free space on the disks of these servers until 2 voters have room, or delete znodes";
        let reasons = [full, Some(Refusal::LogFull)];
        assert_eq!(short_of_room(1, reasons), Some((format!("writes are refused: {lacks}"), remedy.to_owned())));
        for follower in [2, 3] {
            let what = format!("writes are refused: server 1 leads, {lacks}");
            assert_eq!(short_of_room(follower, reasons), Some((what, remedy.to_owned())));
        }
        let (_, remedy) = short_of_room(1, [Some(Refusal::LogFull); 2]).unwrap();
        assert_eq!(remedy, "free space on the disks of these servers until 2 voters have room", "no delete is logged");
        for reason in [Refusal::ReadOnly, Refusal::Shortage(Shortage::Bound)] {
            let (_, remedy) = short_of_room(1, [full, Some(reason)]).unwrap();
            assert!(remedy.starts_with("zoolet status of each of these servers"), "{remedy}");
        }
        assert_eq!(short_of_room(2, [full, None]), None, "two voters have room");
        assert_eq!(short_of_room(2, [full, Some(Refusal::CheckpointHangs)]), None, "a slow checkpoint refuses nothing");
    }
}
