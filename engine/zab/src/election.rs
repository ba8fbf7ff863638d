//! Phase 0: selects the server that should lead.
//!
//! Safety does not depend on it; phase 1 checks again.
//!
//! There are no rounds: a peer's last notification on its live link counts while it is fresh. A
//! server gets a vote under three conditions, so no voter waits for a leader it cannot reach:
//! - the voter hears it directly;
//! - it hears the voter;
//! - it hears a quorum, and that quorum hears it.
//!
//! A server with the votes of a quorum leads, provisionally. The others join a server when they
//! hear *from it* that it leads.

use crate::discovery::compares_histories;
use crate::peer::Peer;
use crate::zab::State;
use crate::{Credentials, EnsembleId, Epoch, Fault, Mutation, Notification, Role, ServerId, Stance, Zab, mutation};
use core::cmp::Ordering;

impl Zab {
    /// Returns this server's notification to its peers.
    pub(crate) fn notification(&self, now: u64) -> Notification {
        let (stance, epoch) = match &self.state {
            // A server that cannot lead gives no vote. Otherwise the others would wait for its
            // history, the best one, on a disk that hangs or is damaged.
            State::Looking { .. } => {
                (Stance::Looking { vote: self.vote(now).filter(|_| self.is_fit(now)) }, self.accepted)
            }
            State::Leading(prospect) => {
                (Stance::Leading { established: prospect.is_established }, prospect.epoch.unwrap_or(Epoch::ZERO))
            }
            State::Learning(learning) => {
                (Stance::Following { leader: learning.leader, suspects: learning.suspects }, learning.epoch)
            }
        };
        let (ensemble, credentials) = (self.ensemble, self.credentials());
        Notification { ensemble, stance, epoch, credentials, config: self.config().version, hears: self.hears(now) }
    }

    /// Returns the best of the servers that stand, possibly this one.
    ///
    /// Only peers heard directly qualify. Each peer decides by its own configuration whether it may
    /// stand, because that configuration may be newer than the one here. So a server that does not
    /// know yet that it was promoted, re-admitted or born can still vote for a server that knows.
    pub(crate) fn vote(&self, now: u64) -> Option<ServerId> {
        let stands = |peer: &Peer| {
            let said = peer.fresh(now, self.timing.fresh_ms)?;
            let stands = said.stance == Stance::Looking { vote: Some(peer.id) } && said.hears.contains(self.id);
            stands.then_some((said.credentials, peer.id))
        };
        let myself = self.can_stand(now).then(|| (self.credentials(), self.id));
        let best = self.peers.iter().filter_map(stands).chain(myself).max_by(|a, b| better(*a, *b))?;
        // A new leader gives up if a voter that promised has more history.
        let has_enough = !self.is_installing || best.0 >= self.credentials();
        has_enough.then_some(best.1)
    }

    /// Returns whether this server may stand for election.
    ///
    /// It must be a voter, be fit, have a state to serve from, and hear a quorum that hears it.
    fn can_stand(&self, now: u64) -> bool {
        let hears_me =
            |peer: &Peer| peer.fresh(now, self.timing.fresh_ms).is_some_and(|said| said.hears.contains(self.id));
        // A server without an ensemble does not lead while it hears one that has an ensemble.
        let is_born =
            |peer: &Peer| peer.fresh(now, self.timing.fresh_ms).is_some_and(|said| said.ensemble != EnsembleId::UNBORN);
        let may_lead = self.ensemble != EnsembleId::UNBORN || !self.peers.iter().any(is_born);
        self.is_voter() && self.is_fit(now) && !self.is_installing && may_lead && self.is_quorum(true, hears_me)
    }

    fn is_fit(&self, now: u64) -> bool {
        let is_stalled = self.appends.age_ms(now) >= u64::from(self.timing.disk_stall_ms);
        self.is_whole && !is_stalled && self.accepted < Epoch::MAX
    }

    pub(crate) fn on_notification(&mut self, now: u64, from: ServerId, said: Notification) -> Result<(), Fault> {
        let is_stranger = said.ensemble != self.ensemble
            && said.ensemble != EnsembleId::UNBORN
            && self.ensemble != EnsembleId::UNBORN;
        if is_stranger {
            return Err(Fault::WrongEnsemble);
        }
        // Otherwise this server might wait for a quorum of servers that know they are no longer
        // members.
        if let Some(pending) = self.voters.pending().filter(|pending| pending.version == said.config).cloned() {
            self.voters.commit(pending);
            self.record_configs(now);
        }
        let hears_me = said.hears.contains(self.id);
        let is_looking = matches!(self.state, State::Looking { .. });
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == from) {
            peer.note_said(now, said);
            // A server that is not looking tells a looking peer where to go. A looking peer that has
            // not heard this server yet gets a notification in any case.
            let looks = matches!(said.stance, Stance::Looking { .. });
            peer.owes_notification |= looks && (!is_looking || !hears_me);
        }
        match &self.state {
            State::Looking { .. } => {}
            State::Leading(_) => self.meet_as_leader(now, from, &said),
            State::Learning(learning) if learning.leader == from => self.meet_leader(now, &said),
            // A quorum promised the newer epoch, so this learner's leader can commit nothing more.
            State::Learning(learning)
                if self.is_settled()
                    && said.stance == (Stance::Leading { established: true })
                    && said.epoch > learning.epoch =>
            {
                self.become_looking(now);
            }
            State::Learning(_) => {
                self.make_sure(now, from);
                self.maybe_leave(now);
                self.tell_heard(from);
            }
        }
        Ok(())
    }

    /// Leader: handles another server's notification.
    fn meet_as_leader(&mut self, now: u64, from: ServerId, said: &Notification) {
        let State::Leading(prospect) = &self.state else { return };
        let is_newer = said.epoch > prospect.epoch.unwrap_or(self.accepted);
        match said.stance {
            // The learner left; if it comes back, it asks again.
            Stance::Looking { .. } => self.drop_learner(from),
            // A quorum promised a newer epoch: this one is over.
            Stance::Leading { established: true } if is_newer => self.become_looking(now),
            Stance::Following { leader, .. } if leader != self.id => {
                self.drop_learner(from);
                if is_newer && !matches!(&self.state, State::Leading(prospect) if !prospect.is_established) {
                    self.become_looking(now);
                }
            }
            // A learner's notification may ask for a heartbeat, see `Zab::make_sure`.
            Stance::Following { .. } if prospect.is_established => self.answer_learners(now),
            Stance::Leading { .. } | Stance::Following { .. } => {}
        }
    }

    fn drop_learner(&mut self, id: ServerId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) {
            peer.learner = None;
        }
    }

    /// Draws the consequences of the current state; called after every event.
    pub(crate) fn reconsider(&mut self, now: u64) {
        if !self.is_started {
            return;
        }
        if matches!(self.state, State::Looking { .. }) {
            self.look(now);
        }
        if matches!(self.state, State::Leading(_)) {
            self.lead(now);
        }
        let says = self.notification(now);
        if self.stood != Some(says) {
            // A settled server's set of heard peers matters only to looking servers, and those ask
            // for it.
            let is_news = match (self.stood, &self.state) {
                (Some(said), State::Leading(_) | State::Learning(_)) => {
                    (said.stance, said.epoch, said.ensemble) != (says.stance, says.epoch, says.ensemble)
                }
                (None, _) | (_, State::Looking { .. }) => true,
            };
            self.stood = Some(says);
            if is_news {
                self.tell_everybody();
            }
        }
    }

    fn look(&mut self, now: u64) {
        if let Some(leader) = self.leader_to_join(now) {
            return self.join(now, leader);
        }
        let State::Looking { stand_at_ms, .. } = self.state else { return };
        if now >= stand_at_ms && self.vote(now) == Some(self.id) {
            let fresh_ms = self.timing.fresh_ms;
            let elected = self.is_quorum(true, |peer| {
                let said = peer.fresh(now, fresh_ms);
                said.is_some_and(|said| said.stance == Stance::Looking { vote: Some(self.id) })
            });
            let by_majority = mutation::is_on(Mutation::BirthByMajority) && !self.config().is_born() && {
                let votes = self.peers.iter().filter(|peer| peer.fresh(now, fresh_ms).is_some()).count() + 1;
                votes > self.config().voters().count() / 2
            };
            if elected || by_majority {
                self.become_leading(now);
            }
        }
    }

    /// Returns a peer that says it leads and that this server may follow.
    fn leader_to_join(&self, now: u64) -> Option<ServerId> {
        let mine = self.credentials();
        let fresh_ms = self.timing.fresh_ms;
        let leaders = self.peers.iter().filter_map(|peer| {
            let said = peer.fresh(now, fresh_ms)?;
            match said.stance {
                Stance::Leading { established: true } => Some((said.epoch, peer.id)),
                // A learner with more history would only make the leader give up. The leader's
                // configuration decides whether this server counts, because it may be newer than
                // the one here.
                Stance::Leading { established: false } => {
                    let has_enough = said.credentials >= mine || !compares_histories();
                    (has_enough && self.is_whole).then_some((said.epoch, peer.id))
                }
                Stance::Looking { .. } | Stance::Following { .. } => None,
            }
        });
        leaders.max().map(|(_, id)| id)
    }

    /// Returns to the election.
    ///
    /// A prospective leader whose epoch committed nothing backs off before it stands again.
    pub(crate) fn become_looking(&mut self, now: u64) {
        let mut stand_at_ms = now;
        if let State::Leading(prospect) = &self.state
            && !prospect.is_established
        {
            let backoff_ms = self.backoff_ms;
            stand_at_ms = now + u64::from(backoff_ms) + self.random_below(backoff_ms);
            self.backoff_ms = (backoff_ms * 2).min(self.timing.backoff_max_ms);
        }
        self.look_from(now, stand_at_ms);
    }

    pub(crate) fn look_from(&mut self, now: u64, stand_at_ms: u64) {
        self.peers.iter_mut().for_each(|peer| peer.learner = None);
        self.state = State::Looking { stand_at_ms, retry_at_ms: now + u64::from(self.timing.retry_ms) };
        self.set_role(Role::Looking);
    }

    /// Repeats the notification while looking: its receiver may have missed it.
    pub(crate) fn repeat_notification(&mut self, now: u64) {
        if let State::Looking { retry_at_ms, .. } = &mut self.state
            && *retry_at_ms <= now
        {
            *retry_at_ms = now + u64::from(self.timing.retry_ms);
            self.tell_everybody();
        }
    }
}

/// Election order: newest epoch, then longest history, then greatest id.
fn better(a: (Credentials, ServerId), b: (Credentials, ServerId)) -> Ordering {
    if mutation::is_on(Mutation::ElectionByIdAlone) {
        return a.1.cmp(&b.1);
    }
    if mutation::is_on(Mutation::ElectionByLengthAlone) {
        return (a.0.last.counter(), a.1).cmp(&(b.0.last.counter(), b.1));
    }
    a.cmp(&b)
}
