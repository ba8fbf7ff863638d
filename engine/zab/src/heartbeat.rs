//! Failure detection by heartbeats.
//!
//! Heartbeats never wait for a disk; they carry how long the disk has made no progress.

use crate::discovery::Prospect;
use crate::peer::{Learner, Peer};
use crate::synchronization::{Learning, Step};
use crate::zab::State;
use crate::{Attempt, Epoch, Fault, Mutation, Notification, ServerId, Stance, Zab, mutation};

/// Missed heartbeat intervals before the sender is suspected: two may be lost.
pub(crate) const MISSED_MAX: u64 = 3;
/// Busy intervals of suspicion or of being unheard before a learner counts as cut off.
///
/// A quorum that misses the leader too has elected another one by then.
const ALONE: u64 = 3;
/// Busy intervals by which the ping that precedes an answer may be late.
const LATE: u64 = 2;
/// Unanswered pings at the busy pace before a leader counts a learner as silent.
///
/// More than [`MISSED_MAX`]: a leader that steps down stops everybody's writes, and a learner may
/// suspect its leader without leaving it.
const UNANSWERED_MAX: u64 = 5;
/// Allowance for a late pong, in mean delays of the learner's pongs; also for a late answer of the
/// leader, in the shortest delay of its answers.
const DELAYS: u64 = 4;

impl Zab {
    pub(crate) fn interval_ms(&self) -> u32 {
        if self.is_busy { self.timing.heartbeat_busy_ms } else { self.timing.heartbeat_idle_ms }
    }

    pub(crate) fn on_ping(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        round: u64,
        (interval_ms, quorum_age_ms): (u32, u32),
    ) -> Result<(), Fault> {
        let Some(learning) = self.learning(now, from, attempt) else { return Ok(()) };
        if let Some(pinged) = learning.pinged_ms {
            let gap_ms = now.saturating_sub(pinged);
            // Only lateness says something about the link. A leader sends its questions, and its
            // first announcements of the idle interval, early on purpose. An early gap also follows
            // each late heartbeat: counted as 0, it would halve the mean on a link with jitter.
            if let Some(late_ms) = gap_ms.checked_sub(u64::from(learning.interval_ms)) {
                // A smoothed mean, as in TCP: each new sample weighs one eighth.
                learning.lateness_8ms = (learning.lateness_8ms * 7 + late_ms.min(1000) * 8) / 8;
            }
        }
        learning.pinged_ms = Some(now);
        // The leader has no quorum at `u32::MAX`, and tells nothing.
        let age_ms = Some(quorum_age_ms).filter(|&age_ms| age_ms != u32::MAX);
        // The ping's travel time is not known, so this time is too late by it.
        let heard_ms = age_ms.and_then(|age_ms| now.checked_sub(age_ms.into()));
        learning.quorum_heard_ms = learning.quorum_heard_ms.max(heard_ms);
        learning.interval_ms = interval_ms.clamp(1, 60_000);
        if learning.epoch == epoch {
            learning.owes_pong = Some(learning.owes_pong.map_or(round, |owed| owed.max(round)));
        }
        learning.suspects = false;
        Ok(())
    }

    pub(crate) fn on_pong(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        round: u64,
        (disk_age_ms, has_room): (u32, bool),
    ) -> Result<(), Fault> {
        let asked = self.asked;
        let is_known =
            matches!(&self.state, State::Leading(prospect) if prospect.epoch.unwrap_or(Epoch::ZERO) == epoch);
        if is_known
            && let Some(learner) = self.learner(from)
            && (learner.attempt == attempt || mutation::is_on(Mutation::StaleAttemptCounts))
        {
            learner.note_delay(now);
            learner.ponged = learner.ponged.max(round.min(asked));
            (learner.disk_age_ms, learner.has_room) = (disk_age_ms, has_room);
            self.hear_learner(now, from);
        }
        Ok(())
    }

    /// Command: lets a leader ping three times at the busy pace, from now on.
    ///
    /// For each request of a learner, because the learner judges its leader by whether it answers.
    /// Whether the request can be served does not matter. Two of the pings may be lost.
    pub fn answer_learners(&mut self, now: u64) {
        let busy_ms = u64::from(self.timing.heartbeat_busy_ms);
        if let State::Leading(prospect) = &mut self.state {
            prospect.ping_at_ms = prospect.ping_at_ms.min(now.max(prospect.pinged_ms + busy_ms));
            prospect.idle_pings = 0;
        }
    }

    /// Command: sends a leader's pings that are due, while messages are still unread.
    ///
    /// [`Zab::handle_deadline`] comes only after every readable message, and learners would suspect a
    /// leader that reads for long. Nothing is judged here: the learners' answers may be unread.
    pub fn ping_on_time(&mut self, now: u64) {
        let busy_ms = u64::from(self.timing.heartbeat_busy_ms);
        let State::Leading(prospect) = &mut self.state else { return };
        // The planned time stays, so the next deadline notices that it comes late.
        if prospect.ping_at_ms <= now && prospect.pinged_ms + busy_ms <= now {
            prospect.pinged_ms = now;
            let learners = self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut());
            learners.for_each(|learner| learner.owes_ping = true);
        }
    }

    /// Makes planned pings go out with the next poll.
    pub(crate) fn hasten_pings(&mut self, now: u64) {
        if let State::Leading(prospect) = &mut self.state {
            prospect.ping_at_ms = now;
        }
    }

    /// Handles a notification from this learner's leader.
    pub(crate) fn meet_leader(&mut self, now: u64, said: &Notification) {
        let State::Learning(learning) = &mut self.state else { return };
        learning.hear(now);
        let is_heard = said.hears.contains(self.id);
        learning.unheard_ms = if is_heard { None } else { learning.unheard_ms.or(Some(now)) };
        if !is_heard {
            // The leader may have said so before the link recovered, and its next ping may be far
            // off. Round 0 confirms no question.
            learning.owes_pong.get_or_insert(0);
        }
        let is_settled = learning.epoch != Epoch::ZERO;
        let leads = matches!(said.stance, Stance::Leading { .. });
        // A leader that stopped and leads again has another epoch and knows nothing of the attempt
        // that this server began in the former one.
        if !leads || (is_settled && said.epoch != learning.epoch) {
            self.become_looking(now);
        }
    }

    /// Excludes this server's own pauses from the silence of its peers.
    ///
    /// If its deadline was handled more than `late_ms` late, it heard no peer in that time.
    pub(crate) fn excuse_lateness(&mut self, now: u64) {
        let Some(late_ms) = self.heartbeat_deadline().and_then(|due| now.checked_sub(due)) else { return };
        if late_ms <= u64::from(self.timing.late_ms) {
            return;
        }
        let excuse = |heard_ms: &mut u64| *heard_ms = heard_ms.saturating_add(late_ms).min(now);
        match &mut self.state {
            State::Looking { .. } => {}
            State::Leading(prospect) => {
                prospect.give_up_at_ms = prospect.give_up_at_ms.saturating_add(late_ms);
                prospect.patient_until_ms = now + u64::from(self.timing.quorum_ms);
                let learners = self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut());
                learners.for_each(|learner| excuse(&mut learner.heard_ms));
            }
            State::Learning(learning) => {
                excuse(&mut learning.heard_ms);
                // The answer may have arrived in the pause, and is read next.
                learning.awaits_ms.iter_mut().for_each(|since_ms| *since_ms = now);
            }
        }
    }

    /// Judges the silence of peers, after everything readable was handled.
    pub(crate) fn judge_silence(&mut self, now: u64) {
        self.repeat_notification(now);
        match &self.state {
            State::Looking { .. } => {}
            State::Leading(_) => self.judge_as_leader(now),
            State::Learning(_) => self.judge_leader(now),
        }
    }

    fn judge_as_leader(&mut self, now: u64) {
        // Datagrams may be lost, so open questions are repeated at the busy pace.
        let is_asking = self.answered < self.asked;
        let (is_busy, timing) = (self.is_busy, self.timing);
        let State::Leading(prospect) = &self.state else { return };
        let is_doubting = self.doubt_at_ms(prospect).is_some_and(|at_ms| at_ms <= now);
        let State::Leading(prospect) = &mut self.state else { return };
        prospect.commit_hold.judge(now);
        if prospect.ping_at_ms <= now || is_doubting {
            prospect.pinged_ms = now;
            prospect.idle_pings = if is_busy { 0 } else { prospect.idle_pings.saturating_add(1) };
            // The idle interval is announced several times at the busy pace. A learner that misses
            // the first announcement hears another one before it suspects the leader.
            let is_announcing = prospect.idle_pings < MISSED_MAX;
            let is_hurried = is_busy || is_asking || is_announcing || is_doubting;
            let interval_ms = if is_hurried { timing.heartbeat_busy_ms } else { timing.heartbeat_idle_ms };
            prospect.ping_at_ms = now + u64::from(interval_ms);
            let learners = self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut());
            learners.for_each(|learner| learner.owes_ping = true);
        }
        if !prospect.is_established {
            let is_receiving = self.peers.iter().any(|peer| peer.learner.as_ref().is_some_and(Learner::is_snapping));
            if prospect.give_up_at_ms <= now {
                if is_receiving && self.hears_quorum_of_learners(now) {
                    self.note_progress(now);
                } else {
                    self.become_looking(now);
                }
            }
            return;
        }
        if !self.hears_quorum_of_learners(now) {
            return self.become_looking(now);
        }
        self.tell_missed(now);
        let age_ms = self.appends.age_ms(now);
        if age_ms >= u64::from(self.timing.disk_stall_ms)
            && let Some(faster) = self.successor(now, age_ms / 4)
        {
            return self.hand_over_to(now, faster);
        }
        // If no voter has room, this server keeps leading: another leader would refuse the same
        // writes.
        let is_full = self.appends.lacks_room_ms(now).is_some_and(|ms| ms >= u64::from(self.timing.disk_stall_ms));
        if is_full && let Some(roomy) = self.successor_with_room(now) {
            self.hand_over_to(now, roomy);
        }
    }

    /// Returns for how long this leader has not heard a quorum, in milliseconds; `u32::MAX` if it is not
    /// established, or has no quorum of learners.
    pub(crate) fn quorum_age_ms(&self, now: u64) -> u32 {
        let age_ms = self.quorum_heard_ms(now).map(|heard_ms| now.saturating_sub(heard_ms));
        age_ms.and_then(|age_ms| u32::try_from(age_ms).ok()).unwrap_or(u32::MAX)
    }

    fn hears_quorum_of_learners(&self, now: u64) -> bool {
        self.is_quorum(true, |peer| peer.learner.as_ref().is_some_and(|learner| !self.is_silent(now, learner)))
    }

    /// Returns whether the leader has heard a learner neither lately nor in answer to its pings.
    fn is_silent(&self, now: u64, learner: &Learner) -> bool {
        let State::Leading(prospect) = &self.state else { return false };
        if now.saturating_sub(learner.heard_ms) > u64::from(self.timing.quorum_ms) {
            return true;
        }
        let busy_ms = u64::from(self.timing.heartbeat_busy_ms);
        let patience_ms = UNANSWERED_MAX * busy_ms + DELAYS * learner.delay_8ms / 8;
        let is_unanswered = learner.pinged_ms.is_some_and(|pinged_ms| now.saturating_sub(pinged_ms) >= patience_ms);
        prospect.is_established && prospect.patient_until_ms <= now && is_unanswered
    }

    /// Tells each learner when this leader begins to miss its pongs.
    ///
    /// A learner that hears its leader cannot know otherwise that its own messages are lost.
    fn tell_missed(&mut self, now: u64) {
        for at in 0..self.peers.len() {
            let is_missed = self.peers[at].learner.as_ref().is_some_and(|learner| self.is_silent(now, learner));
            let Peer { learner, owes_notification, .. } = &mut self.peers[at];
            if is_missed && let Some(learner) = learner {
                *owes_notification |= !core::mem::replace(&mut learner.is_missed, true);
            }
        }
    }

    /// Notes a message of a learner's attempt; tells the learner if this leader had missed it.
    pub(crate) fn hear_learner(&mut self, now: u64, from: ServerId) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == from) else { return };
        if let Some(learner) = &mut peer.learner {
            (learner.heard_ms, learner.pinged_ms) = (now, None);
            peer.owes_notification |= core::mem::take(&mut learner.is_missed);
        }
    }

    /// Returns when this leader begins to doubt that a quorum hears it; `None` once one answered.
    ///
    /// It then pings at the busy pace, and soon knows whether a quorum is silent.
    fn doubt_at_ms(&self, prospect: &Prospect) -> Option<u64> {
        let has_answered = |peer: &Peer| peer.learner.as_ref().is_some_and(|learner| learner.pinged_ms.is_none());
        let is_sure = !prospect.is_established || self.is_quorum(true, has_answered);
        (!is_sure).then(|| prospect.pinged_ms + u64::from(self.timing.heartbeat_busy_ms))
    }

    fn judge_leader(&mut self, now: u64) {
        let retry_ms = u64::from(self.timing.retry_ms);
        let is_settled = self.is_settled();
        let (suspect_at_ms, grace_ms) = (self.suspect_at_ms(), self.grace_ms());
        let State::Learning(learning) = &mut self.state else { return };
        if now < suspect_at_ms {
            learning.suspects = false;
            return;
        }
        if !is_settled || mutation::is_on(Mutation::LeaveAlone) {
            // This server has not settled yet, so returning to the election loses nothing but a
            // snapshot that is on its way.
            return self.leave_silent_leader(now);
        }
        if !learning.suspects || learning.retry_at_ms <= now {
            if !core::mem::replace(&mut learning.suspects, true) {
                (learning.suspected_ms, learning.grace_ms) = (now, grace_ms);
            }
            learning.retry_at_ms = now + retry_ms;
            self.tell_everybody();
        }
        self.maybe_leave(now);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.role != crate::Role::Looking
    }

    /// Returns when the leader's silence becomes suspect.
    ///
    /// Late heartbeats extend the patience, because this server's own link may be the cause. A second
    /// follower's suspicion ends that extension. Otherwise the followers would suspect a dead leader
    /// one after the other, and the election would be late. It also ends the longer patience of a
    /// follower that is still joining, unless that one receives a snapshot: it would begin anew.
    ///
    /// A leader answers a request at once. So a follower also suspects it if the answer is late.
    fn suspect_at_ms(&self) -> u64 {
        let State::Learning(learning) = &self.state else { return u64::MAX };
        let alone_at_ms = learning.silent_at_ms() + learning.allowance_ms();
        let alone_at_ms = if self.is_settled() {
            let unanswered_at_ms = learning.awaits_ms.zip(self.answer_ms()).map(|(since_ms, ms)| since_ms + ms);
            unanswered_at_ms.map_or(alone_at_ms, |at_ms| alone_at_ms.min(at_ms))
        } else {
            alone_at_ms.max(learning.heard_ms + u64::from(self.timing.join_ms))
        };
        let is_receiving = matches!(learning.step, Step::Snapping { .. });
        // A suspicion from before the last heartbeat tells nothing about the silence since then.
        let others_ms = self.peers.iter().filter_map(|peer| peer.suspects_since_ms(learning.leader));
        let second_ms = others_ms.filter(|&since_ms| since_ms > learning.heard_ms && !is_receiving).min();
        second_ms.map_or(alone_at_ms, |since_ms| alone_at_ms.min(since_ms.max(learning.silent_at_ms())))
    }

    /// Returns how long an answer of the leader may take before this voter suspects it.
    ///
    /// `None` if that would reach an idle interval, because an early suspicion then gains little.
    /// Also `None` for an observer, which leaves a leader as soon as it suspects it.
    fn answer_ms(&self) -> Option<u64> {
        let State::Learning(learning) = &self.state else { return None };
        let busy_ms = u64::from(self.timing.heartbeat_busy_ms);
        let answer_ms = MISSED_MAX * busy_ms + DELAYS * learning.answer_ms? + learning.allowance_ms();
        (answer_ms < u64::from(self.timing.heartbeat_idle_ms) && self.is_voter()).then_some(answer_ms)
    }

    /// Returns how much later the other learners may suspect a dead leader than this one.
    ///
    /// At the idle pace they ask the leader once this learner suspects it, and each waits for the answer
    /// about as long as this learner would. A learner that does not ask may have heard one heartbeat
    /// more, and then suspects the leader one interval later.
    fn grace_ms(&self) -> u64 {
        let State::Learning(learning) = &self.state else { return 0 };
        let is_idle = learning.interval_ms > self.timing.heartbeat_busy_ms;
        if is_idle { self.answer_ms().unwrap_or(learning.interval_ms.into()) } else { 0 }
    }

    /// Asks the leader for a heartbeat when another learner begins to suspect it.
    ///
    /// At the idle pace this server would otherwise notice a dead leader much later.
    pub(crate) fn make_sure(&mut self, now: u64, other: ServerId) {
        let (busy_ms, is_judging) = (self.timing.heartbeat_busy_ms, self.answer_ms().is_some());
        let State::Learning(learning) = &mut self.state else { return };
        let leader = learning.leader;
        let since_ms = self.peers.iter().find(|peer| peer.id == other).and_then(|peer| peer.suspects_since_ms(leader));
        let is_news = since_ms.is_some_and(|since_ms| since_ms > learning.heard_ms);
        if !is_news || !is_judging || learning.interval_ms <= busy_ms || learning.awaits_ms.is_some() {
            return;
        }
        learning.awaits_ms = Some(now);
        self.peers.iter_mut().filter(|peer| peer.id == leader).for_each(|peer| peer.owes_notification = true);
    }

    /// Tells a learner that suspects this server's leader that this server hears it.
    ///
    /// So the other learner may know that a quorum follows the leader, see [`Zab::cut_off_at_ms`]. A
    /// server that is still joining does not know whether the leader is alive.
    pub(crate) fn tell_heard(&mut self, other: ServerId) {
        let State::Learning(learning) = &self.state else { return };
        if learning.suspects || !self.is_settled() {
            return;
        }
        let leader = learning.leader;
        let suspecting =
            self.peers.iter_mut().filter(|peer| peer.id == other && peer.suspects_since_ms(leader).is_some());
        suspecting.for_each(|peer| peer.owes_notification = true);
    }

    /// Returns whether a quorum still follows the leader that this learner suspects.
    fn is_followed(&self, learning: &Learning) -> bool {
        self.is_quorum(false, |peer| {
            peer.id == learning.leader || peer.hears_since(learning.suspected_ms, learning.leader, learning.epoch)
        })
    }

    /// Returns since when this learner suspects its leader, in milliseconds, while no quorum is known to
    /// follow it.
    ///
    /// The leader may be dead, or this server may be cut off from all others. Its clients wait as
    /// they wait for a new leader.
    pub fn doubts_since_ms(&self) -> Option<u64> {
        let State::Learning(learning) = &self.state else { return None };
        let is_doubtful = learning.suspects && self.is_settled() && !self.is_followed(learning);
        is_doubtful.then_some(learning.suspected_ms)
    }

    /// Returns from when on this learner counts as cut off from its leader, in milliseconds.
    ///
    /// `None` while both hear each other, or if the leader is silent and no quorum is known to follow
    /// it. A learner that is cut off follows its leader until a quorum misses the leader too, or the
    /// link is lost. Its clients should not wait for the leader's answers.
    pub fn cut_off_at_ms(&self) -> Option<u64> {
        let State::Learning(learning) = &self.state else { return None };
        let (busy_ms, idle_ms) = (u64::from(self.timing.heartbeat_busy_ms), u64::from(self.timing.heartbeat_idle_ms));
        // A leader that got the request also pings at the busy pace. The other learners ask it when
        // this server begins to suspect it, and wait as long. A request that does not make this learner
        // suspect its leader earlier must not cut it off earlier: it would send clients away from a
        // leader that it does not suspect yet.
        let patience_ms = idle_ms + LATE * busy_ms + learning.allowance_ms();
        let asked_ms = learning.awaits_ms.zip(self.answer_ms());
        let answer_at_ms = asked_ms.map(|(since_ms, ms)| since_ms + patience_ms.max(2 * ms + ALONE * busy_ms));
        let silent_at_ms = learning.suspected_ms + learning.grace_ms + ALONE * busy_ms;
        let silent_at_ms = answer_at_ms.map_or(silent_at_ms, |at_ms| silent_at_ms.min(at_ms));
        let silent_at_ms = Some(silent_at_ms).filter(|_| learning.suspects && self.is_followed(learning));
        let unheard_at_ms = learning.unheard_ms.map(|since_ms| since_ms + ALONE * busy_ms);
        silent_at_ms.into_iter().chain(unheard_at_ms).min().filter(|_| self.is_settled())
    }

    /// Command: tells that a request went to the leader, whose answer a client awaits.
    ///
    /// The leader pings at once, see [`Zab::answer_learners`]. So without a ping this learner soon
    /// suspects its leader, and counts as cut off a little later.
    pub fn expect_leader(&mut self, now: u64) {
        if let State::Learning(learning) = &mut self.state {
            learning.awaits_ms.get_or_insert(now);
        }
    }

    /// Leaves a suspected leader if a quorum misses it too.
    ///
    /// So a follower whose own link is bad does not disturb the others.
    pub(crate) fn maybe_leave(&mut self, now: u64) {
        let State::Learning(learning) = &self.state else { return };
        if !learning.suspects {
            return;
        }
        let (leader, fresh_ms) = (learning.leader, self.timing.fresh_ms);
        let misses = |peer: &Peer| {
            peer.id != leader
                && peer.fresh(now, fresh_ms).is_some_and(|said| match said.stance {
                    Stance::Looking { .. } => true,
                    Stance::Following { suspects, .. } => suspects,
                    Stance::Leading { .. } => true,
                })
        };
        // A follower also leaves for another established leader; a server that does not vote leaves
        // at once.
        let is_led_elsewhere = self.peers.iter().any(|peer| {
            let said = peer.fresh(now, fresh_ms);
            peer.id != leader && said.is_some_and(|said| said.stance == Stance::Leading { established: true })
        });
        if is_led_elsewhere || self.is_quorum(true, misses) || !self.is_voter() {
            self.leave_silent_leader(now);
        }
    }

    /// Returns to the election, and joins the silent leader again only after its next notification.
    ///
    /// What a leader said shortly before it died is still fresh.
    fn leave_silent_leader(&mut self, now: u64) {
        if let State::Learning(learning) = &self.state {
            let leader = learning.leader;
            self.peers.iter_mut().filter(|peer| peer.id == leader).for_each(|peer| peer.said = None);
        }
        self.become_looking(now);
    }

    /// Returns when to call [`Zab::handle_deadline`]; `None` if only other events matter.
    pub fn next_deadline(&self) -> Option<u64> {
        let held_until_ms = self.holds_commits_until_ms();
        self.heartbeat_deadline().map(|at| held_until_ms.map_or(at, |until_ms| at.min(until_ms)))
    }

    fn heartbeat_deadline(&self) -> Option<u64> {
        if !self.is_started {
            return None;
        }
        Some(match &self.state {
            State::Looking { stand_at_ms, retry_at_ms } => {
                if self.peers.is_empty() && *stand_at_ms == 0 {
                    return None;
                } else {
                    *retry_at_ms
                }
            }
            State::Leading(_) if self.peers.is_empty() && self.is_quorum(true, |_| false) => return None,
            State::Leading(prospect) => {
                let mut at = prospect.ping_at_ms;
                if !prospect.is_established {
                    at = at.min(prospect.give_up_at_ms);
                }
                at = at.min(self.doubt_at_ms(prospect).unwrap_or(u64::MAX));
                if let Some((_, until_ms)) = prospect.handing_over {
                    at = at.min(until_ms);
                }
                at
            }
            State::Learning(learning) => {
                let suspect_at_ms = self.suspect_at_ms();
                if learning.suspects { learning.retry_at_ms.max(suspect_at_ms) } else { suspect_at_ms }
            }
        })
    }
}
