//! Phase 3: entries in order, each committed when a quorum holds it durably.
//!
//! Also the other duties of an established leader: membership changes and hand-overs.

use crate::peer::{Learner, Peer, Stage, Stream};
use crate::zab::State;
use crate::{
    Attempt, CANNOT_LEAD_MS, Config, Epoch, Fault, Member, Mutation, Refused, Role, ServerId, Zab, Zxid, mutation,
};

/// Maximum entries sent to a learner beyond its last acknowledged one.
pub(crate) const WINDOW: u64 = 4096;

/// Maximum lag of a caught-up learner, in entries; only such a learner can become a voter.
const CAUGHT_UP: u64 = 64;

/// Commands of a leader.
impl Zab {
    /// Command: proposes the next entry and returns its zxid.
    ///
    /// The driver applies the entry when [`crate::Action::Commit`] says so. The entry goes to the
    /// learners before it is durable here.
    ///
    /// # Errors
    /// - [`Refused::NotLeading`] before the epoch's first entry is committed.
    /// - [`Refused::HandingOver`] during a hand-over.
    /// - [`Refused::EpochFull`] after 2^40 entries.
    pub fn propose(&mut self, now: u64) -> Result<Zxid, Refused> {
        let State::Leading(prospect) = &mut self.state else { return Err(Refused::NotLeading) };
        if !prospect.is_established {
            return Err(Refused::NotLeading);
        }
        if prospect.handing_over.is_some() {
            return Err(Refused::HandingOver);
        }
        let zxid = self.history.last().next().ok_or(Refused::EpochFull)?;
        prospect.commit_hold.propose(now);
        self.append(now, zxid, zxid);
        Ok(zxid)
    }

    /// Command: proposes another membership and returns its entry's zxid.
    ///
    /// The driver makes the entry from [`Zab::pending_config`]. Until the entry is committed, every
    /// decision needs a quorum of the old and one of the new configuration.
    ///
    /// # Errors
    /// - [`Refused::NotLeading`], [`Refused::HandingOver`] and [`Refused::EpochFull`] as for
    ///   [`Zab::propose`].
    /// - [`Refused::ConfigPending`]: another change is in progress.
    /// - [`Refused::ConfigInvalid`]: the members form no configuration.
    /// - [`Refused::NotCaughtUp`]: a new voter is not caught up.
    /// - [`Refused::NoQuorum`]: no majority of the new voters is caught up.
    pub fn reconfigure(&mut self, now: u64, members: &[Member]) -> Result<Zxid, Refused> {
        let State::Leading(prospect) = &self.state else { return Err(Refused::NotLeading) };
        if !prospect.is_established {
            return Err(Refused::NotLeading);
        }
        if prospect.handing_over.is_some() {
            return Err(Refused::HandingOver);
        }
        if self.voters.pending().is_some() {
            return Err(Refused::ConfigPending);
        }
        let zxid = self.history.last().next().ok_or(Refused::EpochFull)?;
        let config = Config::new(self.ensemble, zxid, members).ok_or(Refused::ConfigInvalid)?;
        let is_here = |member: &Member| {
            if member.id == self.id { member.disk == self.disk } else { self.is_caught_up(now, member) }
        };
        let mut here = 0;
        for voter in config.voters() {
            let is_new = !self.config().counts(voter.id, voter.disk);
            let is_here = is_here(voter);
            if is_new && !is_here {
                return Err(Refused::NotCaughtUp(voter.id));
            }
            here += usize::from(is_here);
        }
        if here <= config.voters().count() / 2 {
            return Err(Refused::NoQuorum);
        }
        self.voters.propose(config);
        self.record_configs(now);
        self.append(now, zxid, zxid);
        self.hasten_commit(zxid);
        Ok(zxid)
    }

    /// Returns whether this member is on the stream, caught up, and heard lately.
    ///
    /// Being heard matters: a server that just died still has a link, and its entries may be gone.
    fn is_caught_up(&self, now: u64, member: &Member) -> bool {
        let live = self.peer(member.id).filter(|peer| peer.disk == member.disk);
        let is_heard = |learner: &&Learner| now.saturating_sub(learner.heard_ms) <= u64::from(self.timing.fresh_ms);
        let learner = live.and_then(|peer| peer.learner.as_ref()).filter(is_heard);
        learner.is_some_and(|learner| match learner.stage {
            Stage::Streaming(Stream { acked, opening: None, is_led: true, .. }) => {
                self.history.distance(acked, self.history.last()) <= CAUGHT_UP
            }
            _ => false,
        })
    }

    /// Command: lets another voter lead before this server stops.
    ///
    /// Proposals are refused until that voter leads or the hand-over times out
    /// ([`Zab::is_handing_over`]). Without a suitable voter nothing happens.
    pub fn hand_over(&mut self, now: u64) {
        let Some(target) = self.successor(now, u64::MAX) else { return };
        self.hand_over_to(now, target);
    }

    /// Returns whether this leader refuses proposals because it is handing over.
    pub fn is_handing_over(&self) -> bool {
        matches!(&self.state, State::Leading(prospect) if prospect.handing_over.is_some())
    }

    pub(crate) fn hand_over_to(&mut self, now: u64, target: ServerId) {
        let until_ms = now + u64::from(self.timing.hand_over_ms);
        if let State::Leading(prospect) = &mut self.state
            && prospect.is_established
        {
            prospect.handing_over.get_or_insert((target, until_ms));
        }
        self.reconsider(now);
    }

    /// Returns the voter that should lead next.
    ///
    /// Its log must have made progress within `disk_age_max_ms`. Caught-up voters with disk room
    /// come first, then the voter with the most entries.
    pub(crate) fn successor(&self, now: u64, disk_age_max_ms: u64) -> Option<ServerId> {
        self.next_leader(now, disk_age_max_ms).map(|(id, _)| id)
    }

    /// Returns the next leader if it has room, makes progress and is caught up.
    pub(crate) fn successor_with_room(&self, now: u64) -> Option<ServerId> {
        let disk_age_max_ms = u64::from(self.timing.disk_stall_ms) / 4;
        self.next_leader(now, disk_age_max_ms).filter(|(_, has_room)| *has_room).map(|(id, _)| id)
    }

    fn next_leader(&self, now: u64, disk_age_max_ms: u64) -> Option<(ServerId, bool)> {
        let fits = |peer: &&Peer| {
            let learner = peer.learner.as_ref();
            let lives = |learner: &Learner| {
                now.saturating_sub(learner.heard_ms) <= u64::from(self.timing.fresh_ms)
                    && u64::from(learner.disk_age_ms) <= disk_age_max_ms
                    && learner.disk_age_ms < CANNOT_LEAD_MS
                    && matches!(learner.stage, Stage::Streaming(Stream { is_led: true, .. }))
            };
            self.counts(peer) && learner.is_some_and(lives)
        };
        let merit = |peer: &Peer| {
            let learner = peer.learner.as_ref()?;
            // A lagging successor would need time to catch up, and no write is accepted until it
            // has.
            let lags = self.history.distance(learner.acked(), self.history.last()) > CAUGHT_UP;
            Some((learner.has_room && !lags, learner.acked(), peer.id))
        };
        let best = self.peers.iter().filter(fits).filter_map(merit).max();
        best.map(|(has_room, _, id)| (id, has_room))
    }
}

/// Leader.
impl Zab {
    pub(crate) fn on_ack(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        to: Zxid,
    ) -> Result<(), Fault> {
        if !self.is_my_learner(now, from, attempt, epoch) {
            return Ok(());
        }
        let (is_mine, committed, floor) = (self.history.contains(to), self.committed, self.diff_floor());
        let Some(learner) = self.learner(from) else { return Ok(()) };
        match &mut learner.stage {
            Stage::Streaming(stream) if to <= stream.sent => stream.acked = stream.acked.max(to),
            Stage::Snapping { at_least, is_sent: true } => {
                let at_least = *at_least;
                if to < at_least || to > committed {
                    return Err(Fault::Protocol("a snapshot that this leader did not send"));
                }
                learner.stage = if !is_mine || to < floor {
                    // The log's floor has passed the snapshot, so the learner needs another one.
                    Stage::Snapping { at_least: to, is_sent: false }
                } else {
                    Stage::Streaming(Stream { opening: None, sent: to, acked: to, reported: Zxid::ZERO, is_led: false })
                };
            }
            Stage::Asked { .. } | Stage::Invited { .. } | Stage::Promised { .. } | Stage::Snapping { .. } => {
                return Err(Fault::Protocol("Ack before synchronization"));
            }
            Stage::Streaming(_) => return Err(Fault::Protocol("Ack of what was not sent")),
        }
        self.note_progress(now);
        Ok(())
    }

    /// Commits everything up to the newest entry of this epoch that a quorum holds durably.
    ///
    /// Entries of older epochs are committed only together with this epoch's first entry.
    pub(crate) fn maybe_commit(&mut self, now: u64) {
        let State::Leading(prospect) = &self.state else { return };
        let Some(epoch) = prospect.epoch.filter(|_| prospect.is_closed) else { return };
        let mine = if mutation::is_on(Mutation::LeaderCountsUnpersisted) {
            self.history.last()
        } else {
            self.appends.persisted
        };
        let acked = |peer: &Peer| peer.learner.as_ref().map_or(Zxid::ZERO, Learner::acked);
        let counted = self.peers.iter().map(acked).chain([mine]);
        let held = counted.filter(|&zxid| zxid > self.committed && self.may_count(zxid, epoch)).filter(|&zxid| {
            self.is_quorum(mine >= zxid, |peer| acked(peer) >= zxid) || self.is_almost_quorum(mine, zxid, &acked)
        });
        if let Some(held) = held.max() {
            self.commit(now, held);
            if let State::Leading(prospect) = &mut self.state {
                prospect.commit_hold.commit(now, self.timing.commit_hold_entries);
            }
        } else {
            // This server's log may just have reached entries that the others committed.
            self.commit(now, self.committed);
        }
        if self.committed >= Zxid::first_of(epoch) {
            self.establish();
        }
        self.maybe_retire(now);
    }

    fn may_count(&self, zxid: Zxid, epoch: Epoch) -> bool {
        zxid.epoch() == epoch || mutation::is_on(Mutation::CommitOldEpoch)
    }

    fn is_almost_quorum(&self, mine: Zxid, zxid: Zxid, acked: &impl Fn(&Peer) -> Zxid) -> bool {
        mutation::is_on(Mutation::CommitWithoutQuorum) && {
            let holders = self.peers.iter().filter(|peer| acked(peer) >= zxid).count() + usize::from(mine >= zxid);
            holders + 1 > self.config().voters().count() / 2
        }
    }

    fn establish(&mut self) {
        let State::Leading(prospect) = &mut self.state else { return };
        if !core::mem::replace(&mut prospect.is_established, true) {
            self.backoff_ms = self.timing.backoff_ms;
            self.set_role(Role::Leading);
        }
    }

    /// Hands over once a committed configuration no longer makes this leader a voter.
    fn maybe_retire(&mut self, now: u64) {
        let is_retired = self.voters.pending().is_none() && !self.voters.counts(self.id, self.disk);
        let is_led = matches!(&self.state, State::Leading(prospect) if prospect.is_established);
        if is_retired
            && is_led
            && let Some(target) = self.successor(now, u64::MAX)
        {
            let until_ms = now + u64::from(self.timing.hand_over_ms);
            if let State::Leading(prospect) = &mut self.state {
                prospect.handing_over.get_or_insert((target, until_ms));
            }
        }
    }

    /// Re-admits a member that came back with another disk and has caught up.
    ///
    /// This is safe: the leader has a quorum without that member, and the old disk is gone.
    pub(crate) fn maybe_readmit(&mut self, now: u64) {
        let State::Leading(prospect) = &self.state else { return };
        if !prospect.is_established || prospect.handing_over.is_some() || self.voters.pending().is_some() {
            return;
        }
        let config = self.config();
        let back = config.members().iter().find_map(|member| {
            let peer = self.peer(member.id)?;
            let renewed = Member { disk: peer.disk, ..*member };
            (peer.disk != member.disk && self.is_caught_up(now, &renewed)).then_some(renewed)
        });
        let Some(back) = back else { return };
        let mut members: heapless::Vec<Member, { crate::MEMBERS_MAX }> = heapless::Vec::new();
        for member in config.members() {
            let member = if member.id == back.id { back } else { *member };
            let pushed = members.push(member);
            debug_assert!(pushed.is_ok(), "as many as there were");
        }
        // Only a temporary condition refuses this; the next event tries again.
        let _ = self.reconfigure(now, &members);
    }

    /// Sends HandOver to all learners on the stream once the successor has every entry.
    ///
    /// Ends the hand-over if the successor's link is lost or time runs out.
    pub(crate) fn maybe_hand_over(&mut self, now: u64) {
        let State::Leading(prospect) = &self.state else { return };
        let Some((target, until_ms)) = prospect.handing_over else { return };
        let last = self.history.last();
        let acked = self.peer(target).and_then(|peer| peer.learner.as_ref()).map(Learner::acked);
        let is_lost = acked.is_none();
        if is_lost || now >= until_ms {
            if let State::Leading(prospect) = &mut self.state {
                (prospect.handing_over, prospect.is_handed_over) = (None, false);
            }
            return;
        }
        let State::Leading(prospect) = &mut self.state else { return };
        if acked == Some(last) && !core::mem::replace(&mut prospect.is_handed_over, true) {
            let learners = self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut());
            learners
                .filter(|learner| matches!(learner.stage, Stage::Streaming(_)))
                .for_each(|l| l.owes_hand_over = true);
        }
    }

    /// Stops leading after the last HandOver message; returns whether it did.
    ///
    /// Called when no message is left to poll. This server then looks for a leader, and does not
    /// stand for `fresh_ms`.
    pub(crate) fn maybe_step_aside(&mut self, now: u64) -> bool {
        let is_done = matches!(&self.state, State::Leading(prospect) if prospect.is_handed_over);
        if is_done {
            let stand_at_ms = now + u64::from(self.timing.fresh_ms);
            self.look_from(now, stand_at_ms);
        }
        is_done
    }
}

/// Learner.
impl Zab {
    /// Handles the leader's hand-over.
    ///
    /// The successor leads without an election, but phase 1 is not skipped.
    pub(crate) fn on_hand_over(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        to: ServerId,
        last: Zxid,
    ) -> Result<(), Fault> {
        if self.learning_in(now, from, attempt, epoch).is_none() {
            return Ok(());
        }
        let is_mine = to == self.id && self.appends.persisted >= last && self.is_voter() && !self.is_installing;
        let stand_at_ms = if is_mine { now } else { now + u64::from(self.timing.fresh_ms) };
        self.look_from(now, stand_at_ms);
        if is_mine {
            self.become_leading(now);
        }
        Ok(())
    }

    pub(crate) fn on_persisted(&mut self, now: u64) {
        match &self.state {
            State::Leading(_) => {
                self.note_progress(now);
                self.lead(now);
            }
            State::Looking { .. } | State::Learning(_) => self.commit(now, self.committed),
        }
    }
}
