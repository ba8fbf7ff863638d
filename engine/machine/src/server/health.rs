//! Health reports between servers, so that an operator may ask any of them.
//!
//! Zab does not depend on these reports. A leader's admission of writes does: see
//! `quorum_lacks_room`.

use super::Server;
use crate::seam::health::Health;
use crate::seam::health::{DiskTroubles, Refusal, Shortage};
use crate::seam::peer::PeerMessage;
use crate::status::{MemberStatus, SILENT_MS};
use std::collections::BTreeMap;
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::Role;

/// Minimum interval between reports of mere progress, in milliseconds. Any other change is reported
/// at once, and an idle ensemble reports nothing.
const PROGRESS_MS: u64 = 5_000;
/// Time a server must have lacked an entry to count as lagging, in milliseconds.
const LAG_MS: u64 = 10_000;
/// Time in which the learners of a new leader join it one after the other, in milliseconds.
const JOINING_MS: u64 = 1_000;

/// Health of this server and of its peers.
#[derive(Debug, Default)]
pub(super) struct Healths {
    /// Last report of each linked peer, and when it arrived.
    heard: BTreeMap<ServerId, (Health, u64)>,
    /// Last report of this server, and when it was sent.
    said: Health,
    said_ms: u64,
    /// Leader: lag of each learner.
    learners: BTreeMap<ServerId, Lag>,
    /// Leader: when each member was last heard.
    members: BTreeMap<ServerId, u64>,
    /// Lag of this server behind the known commits. `None` if all are applied.
    own: Option<Lag>,
    /// Problems of this server's disk.
    disk: DiskTroubles,
}

/// Lag of a server: a learner's durable entries, or this server's applied commits.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// The newest entry at `since_ms`. A server that keeps up under load reaches each mark soon.
    mark: Zxid,
    /// Since when an entry up to the mark has been missing, in milliseconds.
    since_ms: u64,
    /// When the first entry after the mark arrived, in milliseconds.
    next_ms: Option<u64>,
}

impl Lag {
    /// Returns the lag of a server at `at` when the newest entry is `last`. `None` if it has all.
    fn note(before: Option<Self>, now_ms: u64, at: Zxid, last: Zxid) -> Option<Self> {
        if at >= last {
            return None;
        }
        let since = |since_ms| Self { mark: last, since_ms, next_ms: None };
        Some(match before {
            None => since(now_ms),
            Some(lag) if at >= lag.mark => since(lag.next_ms.unwrap_or(now_ms)),
            Some(lag) if last > lag.mark => Self { next_ms: lag.next_ms.or(Some(now_ms)), ..lag },
            Some(lag) => lag,
        })
    }

    /// Returns the duration of the lag in milliseconds. It is 0 if the server has reached the mark.
    fn ms(self, now_ms: u64, at: Zxid) -> u64 {
        if at >= self.mark { 0 } else { now_ms.saturating_sub(self.since_ms) }
    }
}

impl Healths {
    /// Returns since when this server has known an unapplied commit, in milliseconds.
    ///
    /// The result may be too early, never too late.
    pub(super) fn lacks_since_ms(&self) -> Option<u64> {
        self.own.map(|lag| lag.since_ms)
    }

    pub(super) fn forget(&mut self, peer: ServerId) {
        self.heard.remove(&peer);
    }

    /// Returns how long a learner has lacked an entry, in milliseconds.
    pub(super) fn behind_ms(&self, now_ms: u64, learner: ServerId, acked: Zxid) -> u64 {
        self.learners.get(&learner).map_or(0, |lag| lag.ms(now_ms, acked))
    }

    /// Returns how long this server has had unapplied commits, in milliseconds.
    pub(super) fn own_behind_ms(&self, now_ms: u64, applied: Zxid) -> u64 {
        self.own.map_or(0, |lag| lag.ms(now_ms, applied))
    }

    /// Returns the last report of each peer.
    pub(super) fn members(&self, now_ms: u64) -> Vec<MemberStatus> {
        let member = |(&id, (health, at_ms)): (&ServerId, &(Health, u64))| MemberStatus {
            id,
            health: health.clone(),
            said_ms: now_ms.saturating_sub(*at_ms),
        };
        self.heard.iter().map(member).collect()
    }
}

impl Server {
    pub(super) fn on_health(&mut self, peer: ServerId, health: Health) {
        self.healths.heard.insert(peer, (health, self.now.mono_ms));
    }

    /// Updates this server's lag. Called when a commit may be known or an entry was applied.
    pub(super) fn note_own_lag(&mut self) {
        let (applied, committed) = (self.state.applied(), self.zab.committed());
        self.healths.own = Lag::note(self.healths.own, self.now.mono_ms, applied, committed);
    }

    pub(super) fn on_disk_troubles(&mut self, troubles: DiskTroubles) {
        self.healths.disk = troubles;
        self.note_health();
    }

    /// Sends this server's health to a newly linked peer.
    pub(super) fn tell_health(&mut self, peer: ServerId) {
        let health = self.health();
        self.send_to(peer, PeerMessage::Health(health));
    }

    /// Tells the protocol whether the disk has room, and reports changes to the peers.
    ///
    /// Called with every heartbeat and whenever the disk reports something.
    pub(super) fn note_health(&mut self) {
        let now_ms = self.now.mono_ms;
        self.zab.set_has_room(now_ms, self.refusal().is_none());
        if self.peers.len() == 0 {
            return;
        }
        self.note_lags();
        let health = self.health();
        let is_due = now_ms.saturating_sub(self.healths.said_ms) >= PROGRESS_MS && health != self.healths.said;
        if !is_due && !health.is_news_after(&self.healths.said) {
            return;
        }
        (self.healths.said, self.healths.said_ms) = (health.clone(), now_ms);
        for peer in self.peers.ids() {
            self.send_to(peer, PeerMessage::Health(health.clone()));
        }
    }

    fn note_lags(&mut self) {
        let now_ms = self.now.mono_ms;
        if !self.leads() {
            self.healths.learners.clear();
            self.healths.members.clear();
            return;
        }
        let last = self.zab.last();
        let synced = self.zab.learners().filter(|&(_, _, is_synced)| is_synced).map(|(id, acked, _)| (id, acked));
        let before = std::mem::take(&mut self.healths.learners);
        let lag = |(id, acked)| Some((id, Lag::note(before.get(&id).copied(), now_ms, acked, last)?));
        self.healths.learners = synced.filter_map(lag).collect();
        for member in self.zab.config().members() {
            let heard_ms = self.zab.heard_ms(member.id).unwrap_or(0);
            // A member that was never heard counts from the start of this leadership.
            let last_ms = self.healths.members.entry(member.id).or_insert(now_ms);
            *last_ms = heard_ms.max(*last_ms);
        }
    }

    fn health(&self) -> Health {
        let now_ms = self.now.mono_ms;
        let applied = self.state.applied();
        let lags = |(&id, lag): (&ServerId, &Lag)| (lag.ms(now_ms, self.acked(id)) >= LAG_MS).then_some(id);
        let is_silent = |(&id, heard_ms): (&ServerId, &u64)| {
            let is_other_member = id != self.zab.id() && self.zab.config().member(id).is_some();
            (is_other_member && now_ms.saturating_sub(*heard_ms) > SILENT_MS).then_some(id)
        };
        Health {
            role: if self.is_serving() { self.zab.role() } else { Role::Looking },
            applied,
            behind: self.behind(),
            refusal: self.refusal(),
            disk: self.healths.disk,
            lags: self.healths.own_behind_ms(now_ms, applied) >= LAG_MS,
            silent: self.healths.members.iter().filter_map(is_silent).collect(),
            lagging: self.healths.learners.iter().filter_map(lags).collect(),
        }
    }

    fn acked(&self, learner: ServerId) -> Zxid {
        self.zab.learners().find(|(id, ..)| *id == learner).map_or(Zxid::ZERO, |(_, acked, _)| acked)
    }

    /// Returns whether fewer than a quorum of the voters have room, as far as this leader knows.
    ///
    /// Without a quorum, no entry is committed. A follower persists every proposal, on a full disk
    /// too, and takes the space from its reserve. Once that is used up it acknowledges nothing, not
    /// even the deletes that would free space. So a leader refuses writes whose quorum would need a
    /// server without room. A follower reports a shortage when its own writes would be
    /// refused if it led: its reserve is still there then, and has room for entries in flight.
    ///
    /// A voter that is down, silent or not synchronized, or whose disk hangs, acknowledges nothing, so
    /// it counts as one without room. As long as no voter reports a lack of room, there is nothing to
    /// protect. Nor is anything refused while learners may still be joining a new leader.
    pub(super) fn quorum_lacks_room(&self) -> bool {
        let is_voter = |id: ServerId| self.zab.config().voters().any(|voter| voter.id == id);
        let lacks_room = |(health, _): &(Health, u64)| health.refusal.is_some_and(Refusal::lacks_room);
        let has_room = |id| self.healths.heard.get(&id).is_some_and(|heard| !lacks_room(heard));
        self.healths.heard.iter().any(|(&id, heard)| lacks_room(heard) && is_voter(id))
            && self.peers.led_since_ms.is_some_and(|since_ms| since_ms + JOINING_MS <= self.now.mono_ms)
            && !self.zab.is_quorum_of_learners(has_room)
    }

    /// Returns why this server would refuse writes, or hold them for long, if it led.
    ///
    /// `None` means that it would accept writes, or let them wait for a while.
    pub fn refusal(&self) -> Option<Refusal> {
        if let Some(stall) = self.upkeep.log_stalled {
            return Some(match self.upkeep.shortage() {
                _ if stall.is_read_only => Refusal::ReadOnly,
                Some(Shortage::Disk) => Refusal::LogFull,
                Some(Shortage::Bound | Shortage::Memory) | None => Refusal::Log,
            });
        }
        if let Some(shortage) = self.upkeep.shortage() {
            return Some(Refusal::Shortage(shortage));
        }
        if self.upkeep.is_checkpoint_failing() && self.is_full(super::admission::Need::Write) {
            return Some(Refusal::Checkpoint);
        }
        self.upkeep.is_checkpoint_hanging(self.now.mono_ms).then_some(Refusal::CheckpointHangs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Epoch;

    fn zxid(counter: u64) -> Zxid {
        Zxid::new(Epoch::new(1).unwrap(), counter).unwrap()
    }

    #[test]
    fn lag_grows_only_for_a_server_that_falls_behind_under_load() {
        let worst_ms = |at: fn(u64) -> u64| {
            let (mut lag, mut worst_ms) = (None, 0);
            for second in 1..=60 {
                let (now_ms, at) = (second * 1000, zxid(at(second)));
                lag = Lag::note(lag, now_ms, at, zxid(second * 100));
                worst_ms = lag.map_or(0, |lag| lag.ms(now_ms, at)).max(worst_ms);
            }
            worst_ms
        };
        assert!(worst_ms(|second| (second - 1) * 100) <= 2000);
        assert!(worst_ms(|second| second) >= 50_000);
    }

    #[test]
    fn lag_never_understates_the_age_of_the_oldest_missing_entry() {
        let mut lag = None;
        let mut note = |now_ms, applied, committed| {
            lag = Lag::note(lag, now_ms, zxid(applied), zxid(committed));
            lag.map(|lag| lag.since_ms)
        };
        assert_eq!(note(10, 5, 5), None);
        assert_eq!(note(20, 5, 7), Some(20));
        assert_eq!(note(30, 5, 8), Some(20));
        assert_eq!(note(40, 6, 9), Some(20), "7 was heard of at 20");
        assert_eq!(note(50, 7, 9), Some(30), "8 was heard of at 30");
        assert_eq!(note(60, 8, 9), Some(30), "9 was heard of at 40, and told apart from 8 by nobody");
        assert_eq!(note(70, 9, 9), None);
    }

    #[test]
    fn caught_up_server_has_no_lag_however_old_its_last_entry() {
        assert!(Lag::note(None, 1000, zxid(5), zxid(5)).is_none());
        let lag = Lag::note(None, 90_000, zxid(5), zxid(9)).unwrap();
        assert_eq!((lag.ms(90_000, zxid(5)), lag.ms(95_000, zxid(8)), lag.ms(95_000, zxid(9))), (0, 5000, 0));
    }
}
