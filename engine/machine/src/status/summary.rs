//! A server's state in short, and the changes of it that matter to a daemon on its box.

use super::alarm::LAG_MS;
use super::{Alarm, DiskTrouble, DiskTroubles, FlashStatus, Lack, Refusal, Status};
use std::time::Duration;
use zoolet_model::ServerId;
use zoolet_zab::Kind;

/// A server's state, without the figures that change with each request.
///
/// Made by [`Status::summary`]. [`Summary::is_news_after`] defines which differences count as a
/// change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The server's role.
    pub role: ServerRole,
    /// Server that it follows or is joining; itself when it leads.
    pub leader: Option<ServerId>,
    /// The voters, and those that this server hears.
    pub quorum: Quorum,
    /// Committed entries that it has not applied.
    pub lag: Lag,
    /// Whether the disk takes writes, and its troubles.
    pub disk: DiskSummary,
    /// Wear of the medium; `None` if nothing measures it.
    pub flash: Option<FlashStatus>,
    /// Every trouble that an operator should act on, with its remedy.
    pub alarms: Vec<Alarm>,
}

/// Role of a server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ServerRole {
    /// It serves no client: it has no leader, or has not caught up with its leader.
    Looking,
    /// It serves alone, without an ensemble.
    Standalone,
    /// It leads its ensemble.
    Leader,
    /// It follows the leader and votes.
    Follower,
    /// It follows the leader and does not vote.
    Observer,
}

/// The voters of an ensemble, as one server hears them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Quorum {
    /// All voters.
    pub voters: Vec<ServerId>,
    /// Voters that this server has heard within seconds. It hears itself if it votes.
    pub heard: Vec<ServerId>,
}

/// How far a server is behind the commits that it knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Lag {
    /// Committed entries that are not applied.
    pub entries: u64,
    /// Time since it has lacked one of these entries.
    pub lasted: Duration,
}

/// State of a server's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DiskSummary {
    /// Why writes are refused, or would be if this server led.
    pub refusal: Option<Refusal>,
    /// Free and missing space while only deletions are admitted, which use the reserve.
    pub lack: Option<Lack>,
    /// All other troubles.
    pub troubles: DiskTroubles,
}

impl Summary {
    /// Returns whether clients are served.
    pub fn is_serving(&self) -> bool {
        self.role != ServerRole::Looking
    }

    /// Returns the alarms raised since the state `before`. With `None`, returns all.
    ///
    /// An alarm is the same if its kind and its server are. For the alarms that have ended, swap the
    /// two states.
    pub fn alarms_since<'a>(&'a self, before: Option<&'a Self>) -> impl Iterator<Item = &'a Alarm> {
        let before = before.map_or(&[][..], |before| &before.alarms);
        let is_in = |alarm: &Alarm| before.iter().any(|other| (other.kind, other.server) == (alarm.kind, alarm.server));
        self.alarms.iter().filter(move |alarm| !is_in(alarm))
    }

    /// Returns whether the two differ in more than progress.
    ///
    /// A change is another
    /// - role or leader,
    /// - set of voters, or of voters heard,
    /// - answer of [`Lag::is_long`],
    /// - refusal of writes, trouble of the disk, or resource that is scarce,
    /// - answer to whether the flash budget is exceeded, or wear that the device reports,
    /// - set of alarms, as [`Alarm::is_same_as`] compares them.
    ///
    /// Bytes, entries and seconds alone are no change.
    pub fn is_news_after(&self, before: &Self) -> bool {
        let Self { role, leader, quorum, lag, disk, flash, alarms } = self;
        let scarce = |disk: &DiskSummary| (disk.refusal, disk.troubles, disk.lack.map(|lack| lack.of));
        let wear =
            |flash: &Option<FlashStatus>| flash.as_ref().map(|flash| (flash.is_over_budget, flash.device.clone()));
        let is_in = |alarm: &Alarm, others: &[Alarm]| others.iter().any(|other| alarm.is_same_as(other));
        (*role, *leader, quorum) != (before.role, before.leader, &before.quorum)
            || lag.is_long() != before.lag.is_long()
            || scarce(disk) != scarce(&before.disk)
            || wear(flash) != wear(&before.flash)
            || !alarms.iter().all(|alarm| is_in(alarm, &before.alarms))
            || !before.alarms.iter().all(|alarm| is_in(alarm, alarms))
    }
}

impl Quorum {
    fn of(status: &Status) -> Self {
        let is_heard =
            |id: ServerId| status.id == Some(id) || status.peers.iter().any(|peer| peer.id == id && status.hears(peer));
        let voters = status.members.iter().filter(|(_, kind)| *kind == Kind::Voter);
        let voters: Vec<_> = voters.map(|(id, _)| *id).collect();
        let heard = voters.iter().copied().filter(|&id| is_heard(id)).collect();
        Self { voters, heard }
    }

    /// Returns the number of voters that a leader needs, itself included.
    pub fn needed(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// Returns whether this server hears a majority of the voters.
    pub fn is_heard(&self) -> bool {
        self.heard.len() >= self.needed()
    }
}

impl Lag {
    /// Returns whether the server has been behind for 10 s or longer.
    pub fn is_long(self) -> bool {
        self.lasted >= Duration::from_millis(LAG_MS)
    }
}

impl DiskSummary {
    /// Returns whether a resource is used up to its reserve: no new znode is admitted.
    pub fn is_full(self) -> bool {
        self.lack.is_some() || matches!(self.refusal, Some(Refusal::Shortage(_) | Refusal::LogFull))
    }

    /// Returns whether the disk cannot be relied on.
    ///
    /// It takes no writes for another reason than a shortage, does not answer, lost the data
    /// directory, or has damaged data.
    pub fn is_failing(self) -> bool {
        let refuses = matches!(
            self.refusal,
            Some(Refusal::ReadOnly | Refusal::Log | Refusal::Checkpoint | Refusal::CheckpointHangs)
        );
        refuses || self.troubles.iter().any(DiskTrouble::costs_a_server)
    }
}

impl Status {
    /// Returns the state in short, of a status whose fields of the driver are set.
    pub fn summary(&self) -> Summary {
        Summary {
            role: match self.role {
                "standalone" => ServerRole::Standalone,
                "leader" => ServerRole::Leader,
                "follower" => ServerRole::Follower,
                "observer" => ServerRole::Observer,
                _ => ServerRole::Looking,
            },
            leader: self.leader,
            quorum: Quorum::of(self),
            lag: Lag { entries: self.behind, lasted: Duration::from_millis(self.behind_ms) },
            disk: DiskSummary { refusal: self.refusal, lack: self.lack, troubles: super::disk_troubles(self) },
            flash: self.flash.clone(),
            alarms: self.alarms.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::health::Shortage;
    use crate::status::alarm::tests::healthy;
    use crate::status::{DeviceWear, alarms};

    fn id(id: u8) -> ServerId {
        ServerId::new(id).unwrap()
    }

    fn summary(change: impl FnOnce(&mut Status)) -> Summary {
        let mut status = Status { flash: Some(FlashStatus::default()), ..healthy() };
        change(&mut status);
        status.alarms = alarms(&status);
        status.summary()
    }

    #[test]
    fn alarms_since_a_state_are_those_raised_after_it() {
        let whole = summary(|_| ());
        let full = summary(|s| s.refusal = Some(Refusal::Shortage(Shortage::Disk)));
        let what = |alarms: &mut dyn Iterator<Item = &Alarm>| alarms.map(|alarm| alarm.kind).collect::<Vec<_>>();
        let raised = what(&mut full.alarms_since(Some(&whole)));
        assert!(!raised.is_empty());
        assert_eq!(what(&mut full.alarms_since(None)), raised);
        assert_eq!(what(&mut full.alarms_since(Some(&full))), []);
        assert_eq!(what(&mut whole.alarms_since(Some(&full))), []);
    }

    #[test]
    fn summary_shows_role_voters_heard_and_disk() {
        let whole = summary(|_| ());
        assert_eq!((whole.role, whole.is_serving(), whole.alarms.len()), (ServerRole::Leader, true, 0));
        assert_eq!((whole.quorum.voters, whole.quorum.heard), ([1, 2, 3].map(id).to_vec(), [1, 2].map(id).to_vec()));
        let cut = summary(|s| (s.role, s.peers[0].heard_ms) = ("", Some(9_000)));
        assert_eq!((cut.role, cut.is_serving()), (ServerRole::Looking, false));
        assert_eq!((cut.quorum.heard.len(), cut.quorum.needed(), cut.quorum.is_heard()), (1, 2, false));
        let full = summary(|s| s.refusal = Some(Refusal::Shortage(Shortage::Disk))).disk;
        assert_eq!((full.is_full(), full.is_failing()), (true, false));
        let failing = summary(|s| s.refusal = Some(Refusal::Log)).disk;
        assert_eq!((failing.is_full(), failing.is_failing()), (false, true));
        let hangs = summary(|s| s.disk = vec![("disk_awaited_ms", 9_000)]).disk;
        assert!(hangs.is_failing() && hangs.troubles.contains(DiskTrouble::Hangs));
    }

    #[test]
    fn progress_is_no_news() {
        let progress: [fn(&mut Status); 4] = [
            |s| (s.znodes, s.writes_acknowledged) = (9, 9),
            |s| (s.behind, s.behind_ms) = (900, 9_999),
            |s| s.peers[0].heard_ms = Some(1_900),
            |s| s.flash.as_mut().unwrap().entry_bytes = 1 << 30,
        ];
        for change in progress {
            assert!(!summary(change).is_news_after(&summary(|_| ())));
        }
        // An alarm counts, and its seconds do not.
        let silent = |ms| summary(move |s| (s.peers[0].is_linked, s.peers[0].missing_ms) = (false, ms));
        assert!(silent(9_000).is_news_after(&summary(|_| ())));
        assert!(!silent(99_000).is_news_after(&silent(9_000)));
        assert_ne!(silent(99_000).alarms, silent(9_000).alarms);
    }

    #[test]
    fn each_change_that_matters_is_news_in_both_directions() {
        let changes: [fn(&mut Status); 11] = [
            |s| s.role = "follower",
            |s| s.leader = ServerId::new(3),
            |s| s.members.truncate(2),
            |s| s.peers[0].is_linked = false,
            |s| s.behind_ms = LAG_MS,
            |s| s.refusal = Some(Refusal::ReadOnly),
            |s| s.lack = Some(Lack { of: Shortage::Memory, free_bytes: 0, missing_bytes: 1 }),
            |s| s.disk = vec![("disk_awaited_ms", 2_000)],
            |s| s.flash.as_mut().unwrap().is_over_budget = true,
            |s| {
                let device = DeviceWear { device: "mmcblk0".to_owned(), used_percent: Some(10), spare: None };
                s.flash.as_mut().unwrap().device = Some(device);
            },
            |s| s.went_back = ServerId::new(2),
        ];
        let before = summary(|_| ());
        for (place, change) in changes.into_iter().enumerate() {
            let after = summary(change);
            assert!(after.is_news_after(&before) && before.is_news_after(&after), "{place}");
        }
    }

    #[test]
    fn another_trouble_of_the_same_kind_is_news() {
        let differs = |server| summary(move |s| s.differs = Some((id(server), zoolet_model::Zxid::ZERO)));
        assert!(differs(2).is_news_after(&differs(3)));
        // The remedy of a refusal depends on its cause.
        let refuses = |refusal: Refusal| {
            summary(move |s| (s.refusal, s.refusing_writes) = (Some(refusal), Some(refusal.why()))).alarms
        };
        assert!(!refuses(Refusal::Log)[0].is_same_as(&refuses(Refusal::Shortage(Shortage::Disk))[0]));
    }
}
