//! Phase 1: the prospective leader picks an epoch that a quorum promises.
//!
//! It gives up if a voter that promised has more history.

use crate::commit_hold::CommitHold;
use crate::peer::{Learner, Stage};
use crate::sent_by_disk::SentByDisk;
use crate::zab::{State, Todo};
use crate::{
    AppendSeq, Attempt, Config, Credentials, EnsembleId, Epoch, Fault, Incarnation, Member, Mutation, ServerId, Spans,
    Zab, Zxid, mutation,
};

/// An elected server.
#[derive(Debug)]
pub(crate) struct Prospect {
    /// Chosen epoch; `None` before a quorum has reported its promises.
    pub(crate) epoch: Option<Epoch>,
    /// A quorum promised the epoch, and no server of it has more history than this one.
    ///
    /// So the epoch's initial history is this server's.
    pub(crate) is_closed: bool,
    /// The epoch's first entry is committed.
    pub(crate) is_established: bool,
    /// When this server gives up, unless there is progress.
    pub(crate) give_up_at_ms: u64,
    pub(crate) ping_at_ms: u64,
    /// When the last ping was planned or sent.
    pub(crate) pinged_ms: u64,
    /// Until when only `quorum_ms` of silence ends this leadership.
    ///
    /// A server that was paused, or just began to lead, hears pongs late.
    pub(crate) patient_until_ms: u64,
    /// Number of heartbeats in a row that announced the idle interval.
    pub(crate) idle_pings: u64,
    /// Whether Commits wait for the next Proposal.
    pub(crate) commit_hold: CommitHold,
    /// The voter that should lead next, and when the hand-over times out.
    pub(crate) handing_over: Option<(ServerId, u64)>,
    /// That voter has every entry, and the learners are being told.
    pub(crate) is_handed_over: bool,
}

/// A learner's report in AckEpoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) credentials: Credentials,
    pub(crate) committed: Zxid,
    pub(crate) is_damaged: bool,
}

/// Returns whether phase 1 compares histories again.
///
/// While it does, an election in the wrong order costs only time. So a mutation of the election's
/// order disables this check too.
pub(crate) fn compares_histories() -> bool {
    let broken = [Mutation::IgnoreBetterHistory, Mutation::ElectionByLengthAlone, Mutation::ElectionByIdAlone];
    !broken.into_iter().any(mutation::is_on)
}

impl Zab {
    pub(crate) fn become_leading(&mut self, now: u64) {
        let give_up_at_ms = self.give_up_at(now);
        self.sent_by_disk = SentByDisk::default();
        self.state = State::Leading(Prospect {
            epoch: None,
            is_closed: false,
            is_established: false,
            give_up_at_ms,
            ping_at_ms: now,
            pinged_ms: now,
            patient_until_ms: now + u64::from(self.timing.quorum_ms),
            idle_pings: 0,
            commit_hold: CommitHold::default(),
            handing_over: None,
            is_handed_over: false,
        });
        self.tell_everybody();
    }

    pub(crate) fn give_up_at(&self, now: u64) -> u64 {
        now + u64::from(self.timing.give_up_ms) + u64::from(self.backoff_ms)
    }

    /// Leader: handles a learner's request to join.
    pub(crate) fn on_follower_info(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        accepted: Epoch,
    ) -> Result<(), Fault> {
        let busy_ms = u64::from(self.timing.heartbeat_busy_ms);
        let State::Leading(prospect) = &mut self.state else {
            // The learner heard of a leadership that is over.
            self.owe_notification(from);
            return Ok(());
        };
        let is_behind_promise = prospect.epoch.is_some_and(|epoch| accepted > epoch);
        if is_behind_promise && !mutation::is_on(Mutation::FollowOlderEpoch) {
            // The learner promised a newer epoch to a server that did not establish it. It can
            // never follow this epoch.
            self.become_looking(now);
            return Ok(());
        }
        // This learner does not know the idle interval yet, and a heartbeat that announces it may
        // be lost.
        prospect.idle_pings = 0;
        prospect.ping_at_ms = prospect.ping_at_ms.min(now + busy_ms);
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == from) {
            peer.learner = Some(Learner::new(attempt, accepted, now));
        }
        Ok(())
    }

    pub(crate) fn owe_notification(&mut self, to: ServerId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == to) {
            peer.owes_notification = true;
        }
    }

    /// Leader: handles a learner's promise.
    pub(crate) fn on_ack_epoch(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        promise: Promise,
        tail: &Spans,
    ) -> Result<(), Fault> {
        let Promise { credentials, committed, is_damaged } = promise;
        if !self.is_my_learner(now, from, attempt, epoch) {
            return Ok(());
        }
        let common = self.common(committed, tail);
        let Some(learner) = self.learner(from) else { return Ok(()) };
        let Stage::Invited { counts } = learner.stage else {
            return Err(Fault::Protocol("AckEpoch without LeaderInfo"));
        };
        learner.stage = Stage::Promised { counts: counts && !is_damaged, credentials, committed, common, is_damaged };
        self.note_progress(now);
        Ok(())
    }

    /// Returns the last entry that this history and a learner's share.
    ///
    /// It lies in the tail that the learner sent. Otherwise it is the learner's last known commit,
    /// which every later leader has. `None` if this server does not remember that far back.
    fn common(&self, committed: Zxid, tail: &Spans) -> Option<Zxid> {
        if let Some(common) = self.history.last_common(tail) {
            return Some(common.max(committed));
        }
        let is_remembered = committed == Zxid::ZERO || self.history.contains(committed);
        is_remembered.then_some(committed)
    }

    /// Returns whether a message belongs to the learner's current attempt and this epoch.
    ///
    /// If so, the learner counts as heard.
    pub(crate) fn is_my_learner(&mut self, now: u64, from: ServerId, attempt: Attempt, epoch: Epoch) -> bool {
        let State::Leading(prospect) = &self.state else { return false };
        let is_epoch = prospect.epoch == Some(epoch);
        let Some(learner) = self.learner(from) else { return false };
        let is_mine = is_epoch && (learner.attempt == attempt || mutation::is_on(Mutation::StaleAttemptCounts));
        if is_mine {
            self.hear_learner(now, from);
        }
        is_mine
    }

    pub(crate) fn note_progress(&mut self, now: u64) {
        let give_up_at_ms = self.give_up_at(now);
        if let State::Leading(prospect) = &mut self.state {
            prospect.give_up_at_ms = give_up_at_ms;
        }
    }

    /// Takes the leader's next step; called after every change.
    pub(crate) fn lead(&mut self, now: u64) {
        let State::Leading(prospect) = &self.state else { return };
        match (prospect.epoch, prospect.is_closed) {
            (None, _) => self.maybe_choose_epoch(now),
            (Some(epoch), false) => self.maybe_close_discovery(now, epoch),
            (Some(_), true) => {
                self.begin_streams();
                self.maybe_commit(now);
                self.maybe_readmit(now);
                self.maybe_hand_over(now);
                self.confirm_rounds();
            }
        }
    }

    /// Picks an epoch above every promise, once a quorum has reported its promises.
    fn maybe_choose_epoch(&mut self, now: u64) {
        let asked = |peer: &crate::peer::Peer| peer.learner.as_ref().map(|learner| learner.stage);
        let is_quorum = self.is_quorum(true, |peer| asked(peer).is_some())
            || (mutation::is_on(Mutation::BirthByMajority) && !self.config().is_born());
        if !is_quorum {
            return;
        }
        let promises = self.peers.iter().filter_map(|peer| match asked(peer)? {
            Stage::Asked { accepted } => Some(accepted),
            Stage::Invited { .. } | Stage::Promised { .. } | Stage::Snapping { .. } | Stage::Streaming(_) => None,
        });
        let Some(epoch) = promises.max().max(Some(self.accepted)).and_then(Epoch::next) else {
            // All 2^23 epochs are used.
            return self.look_from(now, u64::MAX);
        };
        self.promise(now, epoch);
        if let State::Leading(prospect) = &mut self.state {
            prospect.epoch = Some(epoch);
        }
        self.maybe_close_discovery(now, epoch);
    }

    fn maybe_close_discovery(&mut self, now: u64, epoch: Epoch) {
        let is_promised = self.is_promise_durable();
        let promised = |peer: &crate::peer::Peer| match peer.learner.as_ref()?.stage {
            Stage::Promised { counts, credentials, .. } => {
                (counts || mutation::is_on(Mutation::CountOldPromise)).then_some(credentials)
            }
            Stage::Asked { .. } | Stage::Invited { .. } | Stage::Snapping { .. } | Stage::Streaming(_) => None,
        };
        // A lone voter may continue before its promise is durable, because no peer waits for it.
        // Promise, epoch and first entry form one batch.
        let is_alone = self.is_quorum(true, |_| false);
        let is_quorum = is_alone
            || is_promised && self.is_quorum(true, |peer| promised(peer).is_some())
            || is_promised && mutation::is_on(Mutation::BirthByMajority) && !self.config().is_born();
        let mine = Credentials { current: self.current, last: self.history.last() };
        let is_less = self.peers.iter().any(|peer| self.counts(peer) && promised(peer).is_some_and(|c| c > mine));
        let is_born = |peer: &crate::peer::Peer| peer.said.is_some_and(|(said, _)| said.ensemble != EnsembleId::UNBORN);
        if self.ensemble == EnsembleId::UNBORN
            && self.peers.iter().any(|peer| promised(peer).is_some() && is_born(peer))
        {
            // This server does not know of an ensemble that was born; a server that knows it can
            // lead.
            return self.become_looking(now);
        }
        if is_less && compares_histories() {
            // Adopting the longer history would take a transfer; a server that holds it can lead.
            return self.become_looking(now);
        }
        if !is_quorum {
            return;
        }
        if let State::Leading(prospect) = &mut self.state {
            prospect.is_closed = true;
        }
        self.enter_epoch(now, epoch);
        // A crash during a birth may leave its record without the entry. The birth is then proposed
        // again under the same name. A lone server's history may predate membership entries. No
        // other server can know that ensemble under another name.
        if self.history == Spans::EMPTY || (is_alone && !self.config().is_born()) {
            self.give_birth(now, epoch);
        }
        let first = Zxid::first_of(epoch);
        self.append(now, first, first);
        self.note_progress(now);
        self.begin_streams();
        self.maybe_commit(now);
    }

    /// Adopts the configuration that becomes the ensemble's first entry.
    ///
    /// It names the ensemble and every disk, and is committed at once. Every voter was asked and is
    /// empty, so no other ensemble can be born while a disk holds this entry.
    fn give_birth(&mut self, now: u64, epoch: Epoch) {
        let halves = [self.random_below(u32::MAX), self.random_below(u32::MAX), self.random_below(u32::MAX)];
        let minted = halves.iter().fold(self.disk.0, |id, &half| (id ^ u128::from(half)).rotate_left(32));
        let is_named = self.ensemble != EnsembleId::UNBORN;
        let ensemble = if is_named { self.ensemble } else { EnsembleId(minted.max(1)) };
        let mut members: heapless::Vec<Member, { crate::MEMBERS_MAX }> = heapless::Vec::new();
        for member in self.config().members() {
            let live = if member.id == self.id { Some(self.disk) } else { self.peer(member.id).map(|peer| peer.disk) };
            let known = Some(member.disk).filter(|disk| *disk != Incarnation(0));
            let member = Member { disk: known.or(live).unwrap_or(Incarnation(0)), ..*member };
            let pushed = members.push(member);
            debug_assert!(pushed.is_ok(), "as many as there were");
        }
        if let Some(config) = Config::new(ensemble, Zxid::first_of(epoch), &members) {
            self.adopt(now, config);
        }
    }

    /// Adopts a committed configuration and the ensemble id that it names.
    pub(crate) fn adopt(&mut self, now: u64, config: Config) {
        if self.ensemble == EnsembleId::UNBORN {
            self.ensemble = config.ensemble;
            let seq: AppendSeq = self.appends.fact(now);
            self.push(Todo::Birth(seq, config.ensemble));
        }
        self.voters.commit(config);
        self.record_configs(now);
    }
}
