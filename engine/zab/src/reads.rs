//! Linearizable reads by quorum confirmation.
//!
//! The caller gets a commit watermark once a quorum has confirmed that the leader still leads. Only
//! confirmations sent after the question count.

use crate::zab::{State, Todo};
use crate::{Attempt, Epoch, Fault, Mutation, Refused, Role, Round, ServerId, Zab, Zxid, mutation};

impl Zab {
    /// Command: asks whether the leader still leads, and for its commit watermark.
    ///
    /// The leader is this server or the one it follows. [`crate::Action::Confirmed`] answers this
    /// question and every earlier one.
    ///
    /// # Errors
    /// [`Refused::NotLeading`] without an established leader.
    pub fn confirm(&mut self, now: u64) -> Result<Round, Refused> {
        if self.role == Role::Looking {
            return Err(Refused::NotLeading);
        }
        if mutation::is_on(Mutation::RoundReused) && self.asked > 0 && self.asked > self.answered {
            return Ok(Round(self.asked));
        }
        self.asked += 1;
        self.expect_leader(now);
        if matches!(self.state, State::Leading(_)) {
            self.confirm_rounds();
            if self.answered < self.asked {
                self.ask_now(now);
            }
        }
        Ok(Round(self.asked))
    }

    /// Returns whether a question of [`Zab::confirm`] has its answer.
    ///
    /// [`crate::Action::Confirmed`] has delivered the answer or is about to. A lone voter answers
    /// at once.
    pub fn is_answered(&self, round: Round) -> bool {
        round.0 <= self.answered
    }

    fn ask_now(&mut self, now: u64) {
        self.hasten_pings(now);
        let learners = self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut());
        learners.for_each(|learner| learner.owes_ping = true);
    }

    /// Leader: handles a learner's question.
    ///
    /// The question gets a new round, so an answer given before it does not count.
    pub(crate) fn on_sync(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        round: u64,
    ) -> Result<(), Fault> {
        let is_established = matches!(&self.state, State::Leading(prospect) if prospect.is_established);
        if !is_established || !self.is_my_learner(now, from, attempt, epoch) {
            return Ok(());
        }
        self.asked += 1;
        let asked = self.asked;
        if let Some(learner) = self.learner(from) {
            let next = if learner.sync.is_none() { &mut learner.sync } else { &mut learner.sync_next };
            *next = Some((round, asked));
        }
        self.ask_now(now);
        self.confirm_rounds();
        Ok(())
    }

    /// Leader: answers all questions up to the newest round that a quorum answered.
    pub(crate) fn confirm_rounds(&mut self) {
        let State::Leading(prospect) = &self.state else { return };
        if !prospect.is_established || self.answered == self.asked {
            return;
        }
        let ponged = |peer: &crate::peer::Peer| peer.learner.as_ref().map_or(0, |learner| learner.ponged);
        let rounds = self.peers.iter().map(ponged).chain([self.asked]).filter(|&round| round > self.answered);
        let is_confirmed = |&round: &u64| {
            self.is_quorum(true, |peer| ponged(peer) >= round) || mutation::is_on(Mutation::ConfirmWithoutQuorum)
        };
        let Some(confirmed) = rounds.filter(is_confirmed).max() else { return };
        self.answered = confirmed;
        let up_to = self.committed;
        for learner in self.peers.iter_mut().filter_map(|peer| peer.learner.as_mut()) {
            while let Some((round, asked)) = learner.sync
                && asked <= confirmed
            {
                learner.sync = learner.sync_next.take();
                learner.owes_synced = Some(round);
            }
        }
        self.push(Todo::Confirmed(confirmed, Some(up_to)));
    }

    pub(crate) fn on_synced(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        round: u64,
        up_to: Zxid,
    ) -> Result<(), Fault> {
        if self.learning_in(now, from, attempt, epoch).is_none() {
            return Ok(());
        }
        if round > self.asked {
            return Err(Fault::Protocol("an answer to what was not asked"));
        }
        if round > self.answered {
            self.answered = round;
            self.push(Todo::Confirmed(round, Some(up_to)));
        }
        Ok(())
    }
}
