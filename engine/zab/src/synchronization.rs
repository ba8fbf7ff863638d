//! Phase 2: a learner's history becomes the leader's.
//!
//! Diff, catch-up and live stream use one cursor per learner, so no entry is lost between them.

use crate::broadcast::WINDOW;
use crate::heartbeat::MISSED_MAX;
use crate::peer::{Opening, Stage, Stream};
use crate::zab::{State, Todo};
use crate::{
    AppendSeq, Attempt, CANNOT_LEAD_MS, Config, EnsembleId, Epoch, Fault, LinkId, Message, Mutation, Role, ServerId,
    Spans, Zab, Zxid, mutation,
};

/// A server that is joining a leader or has joined it.
#[derive(Debug)]
pub(crate) struct Learning {
    pub(crate) leader: ServerId,
    pub(crate) link: LinkId,
    pub(crate) attempt: Attempt,
    /// The leader's epoch; [`Epoch::ZERO`] before LeaderInfo.
    pub(crate) epoch: Epoch,
    pub(crate) step: Step,
    /// When the leader was last heard in this attempt.
    pub(crate) heard_ms: u64,
    /// When the leader last pinged, and its announced interval to the next ping.
    pub(crate) pinged_ms: Option<u64>,
    pub(crate) interval_ms: u32,
    /// When the leader last heard a quorum, from its pings; `None` before the first.
    pub(crate) quorum_heard_ms: Option<u64>,
    /// Mean lateness of heartbeats that were not early, in eighths of a millisecond.
    pub(crate) lateness_8ms: u64,
    /// The leader has been silent for too long.
    pub(crate) suspects: bool,
    /// Since when this server suspects the leader.
    pub(crate) suspected_ms: u64,
    /// How much later other learners may suspect it.
    pub(crate) grace_ms: u64,
    /// Since when this server waits for the leader's answer, without having heard it.
    pub(crate) awaits_ms: Option<u64>,
    /// When this server sent the joining message that the leader has not answered yet.
    pub(crate) asked_ms: Option<u64>,
    /// Shortest delay of the leader's answers to those messages: at least one round trip.
    pub(crate) answer_ms: Option<u64>,
    /// Since when the leader says that it does not hear this server.
    pub(crate) unheard_ms: Option<u64>,
    /// When this server repeats that it suspects the leader.
    pub(crate) retry_at_ms: u64,
    /// Last entry acknowledged.
    pub(crate) reported: Zxid,
    /// This learner serves once its commit watermark reaches this entry.
    ///
    /// NewLeader names it, and it is at least the epoch's first entry. Before that, this server's
    /// state may be as old as its absence was long.
    pub(crate) settles_at: Zxid,
    /// Append that must be durable before any acknowledgement.
    ///
    /// It is the last append when LeaderInfo came, the promise included; later the snapshot that
    /// replaced the history.
    pub(crate) ack_after: AppendSeq,
    /// Round of the ping to answer.
    pub(crate) owes_pong: Option<u64>,
    /// Newest question sent to the leader.
    pub(crate) sync_sent: u64,
}

/// Delay of a heartbeat that is allowed, in mean latenesses of late heartbeats.
const LATENESSES: u64 = 4;

impl Learning {
    /// Notes that the leader was heard.
    pub(crate) fn hear(&mut self, now: u64) {
        (self.heard_ms, self.awaits_ms) = (now, None);
    }

    /// Notes the answer to a message of joining.
    ///
    /// The leader may have waited for a quorum, so the shortest delay says most about the path.
    fn note_answer(&mut self, now: u64) {
        let Some(asked_ms) = self.asked_ms.take() else { return };
        let delay_ms = now.saturating_sub(asked_ms);
        self.answer_ms = Some(self.answer_ms.map_or(delay_ms, |shortest_ms| shortest_ms.min(delay_ms)));
    }

    /// Returns when the leader has missed [`MISSED_MAX`] heartbeats.
    pub(crate) fn silent_at_ms(&self) -> u64 {
        self.heard_ms + MISSED_MAX * u64::from(self.interval_ms)
    }

    /// Returns by how much heartbeats may be late, from how late they were.
    pub(crate) fn allowance_ms(&self) -> u64 {
        LATENESSES * self.lateness_8ms / 8
    }
}

/// A learner's progress in joining.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "nothing is allocated, so nothing is boxed")]
pub(crate) enum Step {
    /// FollowerInfo has been sent if `is_sent`, else it is due.
    Asking { is_sent: bool },
    /// AckEpoch goes out when the promise is durable.
    Promising { is_sent: bool },
    /// Receiving a snapshot that must hold everything up to `at_least`.
    Snapping { at_least: Zxid, config: Config },
    /// Receiving the initial history.
    Syncing,
    /// On the live stream, with the whole initial history.
    Led,
}

/// Leader.
impl Zab {
    /// Puts learners that promised on the stream, or refuses them.
    ///
    /// A learner is refused if it knows of a commit that this history lacks. It is also refused if
    /// it has entries of this epoch that this leader did not give it. A stream that begins after
    /// such entries would count them as this leader's; one that begins before them would undo
    /// committed entries.
    pub(crate) fn begin_streams(&mut self) {
        let mut at = 0;
        while let Some(peer) = self.peers.get(at) {
            let stage = peer.learner.as_ref().map(|learner| learner.stage);
            let Some(Stage::Promised { credentials, committed, common, is_damaged, .. }) = stage else {
                at += 1;
                continue;
            };
            let (id, link) = (peer.id, peer.link);
            let is_refused = self.lacks(committed) || !self.can_have(at, credentials.last);
            self.note_refusal(id, is_refused);
            if is_refused {
                self.peers.swap_remove(at);
                self.push(Todo::Close(id, link, Fault::WentBack));
                continue;
            }
            let stage = self.first_stage(credentials.last, common, is_damaged);
            if let Some(learner) = &mut self.peers[at].learner {
                learner.stage = stage;
            }
            at += 1;
        }
    }

    fn first_stage(&self, last: Zxid, common: Option<Zxid>, is_damaged: bool) -> Stage {
        let snap = |at_least| Stage::Snapping { at_least, is_sent: false };
        if is_damaged {
            // The learner may have lost entries that it acknowledged to this very leader. It is
            // whole again only with all of them.
            return snap(self.history.last());
        }
        let Some(common) = common else {
            // The learner's entries are all of epochs that this server no longer remembers.
            return snap(self.history.oldest().unwrap_or(Zxid::ZERO));
        };
        if common < self.diff_floor() && !mutation::is_on(Mutation::DiffBelowFloor) {
            return snap(common);
        }
        let opening = if last > common { Opening::Trunc } else { Opening::Diff };
        Stage::Streaming(Stream {
            opening: Some(opening),
            sent: common,
            acked: common,
            reported: Zxid::ZERO,
            is_led: false,
        })
    }

    /// Returns the lowest zxid from which the stream can start.
    ///
    /// Below it, the log or the remembered epochs are incomplete, so a learner needs a snapshot.
    pub(crate) fn diff_floor(&self) -> Zxid {
        self.floor.max(self.history.forgotten())
    }

    pub(crate) fn message_to_learner(&mut self, now: u64, at: usize) -> Option<Message> {
        let owes_ping = self.peers[at].learner.as_ref().is_some_and(|learner| learner.owes_ping);
        let quorum_age_ms = if owes_ping { self.quorum_age_ms(now) } else { 0 };
        let State::Leading(prospect) = &mut self.state else { return None };
        if owes_ping {
            prospect.pinged_ms = now;
        }
        let (epoch, is_closed) = (prospect.epoch, prospect.is_closed);
        let interval_ms = self.interval_ms();
        let (round, last, committed) = (self.asked, self.history.last(), self.committed);
        let is_announced = self.is_promise_durable() || mutation::is_on(Mutation::LeaderInfoBeforePromise);
        let gets_all = self.counts(&self.peers[at]);
        let snap_floor = if mutation::is_on(Mutation::SnapBelowFloor) { Zxid::ZERO } else { self.diff_floor() };
        let learner = self.peers[at].learner.as_mut()?;
        let attempt = learner.attempt;
        if core::mem::take(&mut learner.owes_ping) {
            learner.pinged_ms.get_or_insert(now);
            let epoch = epoch.unwrap_or(Epoch::ZERO);
            return Some(Message::Ping { attempt, epoch, round, interval_ms, quorum_age_ms });
        }
        let epoch = epoch?;
        match learner.stage {
            Stage::Asked { accepted } => is_announced.then(|| {
                learner.stage = Stage::Invited { counts: accepted < epoch };
                Message::LeaderInfo { attempt, epoch }
            }),
            Stage::Invited { .. } | Stage::Promised { .. } => None,
            Stage::Snapping { is_sent: true, .. } => None,
            // A snapshot is made from applied state, so `at_least` and the committed configuration
            // must be applied. It must also reach the log's floor, or the learner would need
            // snapshots without end.
            Stage::Snapping { at_least, .. }
                if self.applied < at_least.max(snap_floor).max(self.voters.committed().version) =>
            {
                None
            }
            Stage::Snapping { at_least, .. } => {
                debug_assert!(is_closed, "nobody is synchronized before discovery is closed");
                let at_least = at_least.max(snap_floor);
                learner.stage = Stage::Snapping { at_least, is_sent: true };
                self.note_sent(at, None);
                let config = self.voters.committed().clone();
                Some(Message::Snap { attempt, epoch, at_least, config })
            }
            Stage::Streaming(_) => {
                let goal = if gets_all { last } else { committed };
                let said = self.next_on_stream(at, attempt, epoch, goal);
                if let Some(Message::Proposal { to, .. }) = said {
                    self.note_sent(at, Some(to));
                }
                said
            }
        }
    }

    fn next_on_stream(&mut self, at: usize, attempt: Attempt, epoch: Epoch, goal: Zxid) -> Option<Message> {
        let (history, committed) = (&self.history, self.committed);
        let holds_commits = self.holds_commits_until_ms().is_some();
        let learner = self.peers[at].learner.as_mut()?;
        let Stage::Streaming(stream) = &mut learner.stage else { return None };
        match stream.opening.take() {
            Some(Opening::Diff) => return Some(Message::Diff { attempt, epoch, from: stream.sent }),
            Some(Opening::Trunc) if mutation::is_on(Mutation::NoTrunc) => {
                return Some(Message::Diff { attempt, epoch, from: stream.sent });
            }
            Some(Opening::Trunc) => return Some(Message::Trunc { attempt, epoch, to: stream.sent }),
            None => {}
        }
        // NewLeader precedes the epoch's first entry sent to this learner. If the learner already
        // has entries of the epoch, NewLeader follows them.
        let next = history.after(stream.sent);
        let is_complete = stream.sent.epoch() == epoch || (stream.sent < goal && next == Some(Zxid::first_of(epoch)));
        if is_complete && !core::mem::replace(&mut stream.is_led, true) {
            // A learner that comes back within the epoch may have forwarded writes that are not
            // committed yet. It must not serve their clients without them.
            let returns = stream.sent.epoch() == epoch && !mutation::is_on(Mutation::ServesTooEarly);
            let serves_from = if returns { history.last() } else { committed };
            learner.expects = learner.expects.max(serves_from).max(Zxid::first_of(epoch));
            return Some(Message::NewLeader { attempt, epoch, serves_from });
        }
        let room = WINDOW.saturating_sub(history.distance(stream.acked, stream.sent));
        if stream.sent < goal
            && room > 0
            && let Some(from) = next
        {
            let upper = Zxid::from_bits(from.to_bits() + room - 1).unwrap_or(from);
            let to = history.last_of_epoch(from).unwrap_or(from).min(goal).min(upper);
            (stream.sent, stream.reported) = (to, committed);
            return Some(Message::Proposal { attempt, epoch, from, to, committed });
        }
        let may_wait = holds_commits && stream.reported >= learner.expects && learner.owes_synced.is_none();
        if stream.reported < committed && stream.sent >= goal && !may_wait {
            stream.reported = committed;
            return Some(Message::Commit { attempt, epoch, to: committed });
        }
        if let Some(round) = learner.owes_synced.take() {
            return Some(Message::Synced { attempt, epoch, round, up_to: committed });
        }
        if core::mem::take(&mut learner.owes_hand_over)
            && let State::Leading(prospect) = &self.state
            && let Some((to, _)) = prospect.handing_over
        {
            return Some(Message::HandOver { attempt, epoch, to, last: self.history.last() });
        }
        None
    }
}

/// Learner.
impl Zab {
    pub(crate) fn join(&mut self, now: u64, leader: ServerId) {
        let Some(link) = self.peer(leader).map(|peer| peer.link) else { return };
        self.attempt += 1;
        self.peers.iter_mut().for_each(|peer| peer.learner = None);
        self.state = State::Learning(Learning {
            leader,
            link,
            attempt: Attempt(self.attempt),
            epoch: Epoch::ZERO,
            step: Step::Asking { is_sent: false },
            heard_ms: now,
            pinged_ms: None,
            interval_ms: self.timing.heartbeat_busy_ms,
            quorum_heard_ms: None,
            lateness_8ms: 0,
            suspects: false,
            suspected_ms: now,
            grace_ms: 0,
            awaits_ms: None,
            asked_ms: None,
            answer_ms: None,
            unheard_ms: None,
            retry_at_ms: now,
            reported: Zxid::ZERO,
            settles_at: Zxid::ZERO,
            ack_after: AppendSeq(0),
            owes_pong: None,
            sync_sent: self.asked,
        });
    }

    /// Returns the current attempt to join, if a message belongs to it.
    ///
    /// If so, the leader counts as heard.
    pub(crate) fn learning(&mut self, now: u64, from: ServerId, attempt: Attempt) -> Option<&mut Learning> {
        match &mut self.state {
            State::Learning(learning)
                if learning.leader == from
                    && (learning.attempt == attempt || mutation::is_on(Mutation::StaleAttemptCounts)) =>
            {
                learning.hear(now);
                Some(learning)
            }
            State::Learning(_) | State::Looking { .. } | State::Leading(_) => None,
        }
    }

    /// Like `learning`, for a message that names the epoch.
    pub(crate) fn learning_in(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
    ) -> Option<&mut Learning> {
        self.learning(now, from, attempt).filter(|learning| learning.epoch == epoch)
    }

    /// Returns whether a Proposal starting at `first` continues this history.
    ///
    /// The Proposal must belong to the current attempt. If so, its chain hash must match this
    /// history.
    pub fn is_awaited(&self, from: ServerId, attempt: Attempt, epoch: Epoch, first: Zxid) -> bool {
        let State::Learning(learning) = &self.state else { return false };
        let is_mine = learning.leader == from && learning.attempt == attempt && learning.epoch == epoch;
        is_mine && matches!(learning.step, Step::Syncing | Step::Led) && self.history.is_next(first)
    }

    pub(crate) fn message_to_leader(&mut self, now: u64) -> Option<Message> {
        let (accepted, credentials) = (self.accepted, self.credentials());
        let is_promised = self.is_promise_durable() || mutation::is_on(Mutation::AckEpochBeforePromise);
        let disk_age_ms = u32::try_from(self.appends.age_ms(now)).unwrap_or(u32::MAX);
        let disk_age_ms = if self.is_installing { CANNOT_LEAD_MS } else { disk_age_ms };
        let durable =
            if mutation::is_on(Mutation::AckBeforePersist) { self.history.last() } else { self.appends.persisted };
        let has_room = self.appends.has_lasting_room(now, self.timing.room_ms);
        let (asked, is_whole) = (self.asked, self.is_whole);
        let log_durable = self.appends.durable;
        let State::Learning(learning) = &mut self.state else { return None };
        let is_ackable = log_durable >= learning.ack_after;
        let (attempt, epoch) = (learning.attempt, learning.epoch);
        if let Some(round) = learning.owes_pong.take() {
            return Some(Message::Pong { attempt, epoch, round, disk_age_ms, has_room });
        }
        match &mut learning.step {
            Step::Asking { is_sent: true } => None,
            Step::Asking { is_sent } => {
                *is_sent = true;
                learning.asked_ms = Some(now);
                Some(Message::FollowerInfo { attempt, accepted, credentials })
            }
            Step::Promising { is_sent } => {
                let is_reportable = is_ackable || mutation::is_on(Mutation::AckEpochBeforePromise);
                if !is_promised || !is_reportable || core::mem::replace(is_sent, true) {
                    return None;
                }
                // The promise was appended after all entries, so the whole history is durable too
                // (D3).
                learning.asked_ms = Some(now);
                let (committed, tail) = (self.committed, self.history.above(self.committed));
                Some(Message::AckEpoch { attempt, epoch, credentials, committed, tail, is_damaged: !is_whole })
            }
            Step::Snapping { .. } => None,
            Step::Syncing | Step::Led => {
                if learning.reported < durable && is_ackable {
                    learning.reported = durable;
                    return Some(Message::Ack { attempt, epoch, to: durable });
                }
                if learning.sync_sent < asked {
                    learning.sync_sent = asked;
                    return Some(Message::Sync { attempt, epoch, round: asked });
                }
                None
            }
        }
    }

    pub(crate) fn on_leader_info(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
    ) -> Result<(), Fault> {
        let accepted = self.accepted;
        let Some(learning) = self.learning(now, from, attempt) else { return Ok(()) };
        if !matches!(learning.step, Step::Asking { .. }) {
            return Err(Fault::Protocol("LeaderInfo twice"));
        }
        learning.note_answer(now);
        if epoch < accepted && !mutation::is_on(Mutation::FollowOlderEpoch) {
            self.become_looking(now);
            return Ok(());
        }
        learning.epoch = epoch;
        learning.step = Step::Promising { is_sent: false };
        if epoch > accepted {
            self.promise(now, epoch);
        }
        // The leader counts the history in AckEpoch as acknowledged. So the history must be durable
        // first, even if the promise was durable before.
        let appended = self.appends.last;
        if let State::Learning(learning) = &mut self.state {
            learning.ack_after = appended;
        }
        Ok(())
    }

    pub(crate) fn on_diff(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        at: Zxid,
    ) -> Result<(), Fault> {
        let last = self.history.last();
        let Some(learning) = self.learning_in(now, from, attempt, epoch) else { return Ok(()) };
        if !matches!(learning.step, Step::Promising { is_sent: true }) {
            return Err(Fault::Protocol("Diff without AckEpoch"));
        }
        if at != last && !mutation::is_on(Mutation::NoTrunc) {
            return Err(Fault::Protocol("Diff that does not start where this history ends"));
        }
        learning.note_answer(now);
        learning.step = Step::Syncing;
        learning.reported = last;
        if mutation::is_on(Mutation::EpochBeforeHistory) {
            self.enter_epoch(now, epoch);
        }
        Ok(())
    }

    pub(crate) fn on_trunc(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        to: Zxid,
    ) -> Result<(), Fault> {
        let is_mine = to == Zxid::ZERO || self.history.contains(to) || to == self.committed;
        let is_committed = to < self.committed;
        let Some(learning) = self.learning_in(now, from, attempt, epoch) else { return Ok(()) };
        if !matches!(learning.step, Step::Promising { is_sent: true }) {
            return Err(Fault::Protocol("Trunc without AckEpoch"));
        }
        if !is_mine || is_committed {
            return Err(Fault::Protocol("Trunc of committed entries, or to one that is not here"));
        }
        learning.note_answer(now);
        learning.step = Step::Syncing;
        learning.reported = to;
        if mutation::is_on(Mutation::EpochBeforeHistory) {
            self.enter_epoch(now, epoch);
        }
        self.truncate(now, to);
        Ok(())
    }

    fn truncate(&mut self, now: u64, to: Zxid) {
        self.history.truncate(to);
        if !mutation::is_on(Mutation::CompletionAba) {
            self.appends.truncate(to);
        }
        let seq = self.appends.fact(now);
        self.push(Todo::Truncate(seq, to));
        // The configuration is withdrawn after the truncation. In the other order, a crash in
        // between would leave a membership change in the history without a record of it.
        if self.voters.pending().is_some_and(|pending| pending.version > to) {
            self.voters.withdraw();
            self.record_configs(now);
        }
    }

    pub(crate) fn on_snap(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        at_least: Zxid,
        config: Config,
    ) -> Result<(), Fault> {
        let Some(learning) = self.learning_in(now, from, attempt, epoch) else { return Ok(()) };
        if matches!(learning.step, Step::Asking { .. } | Step::Promising { is_sent: false }) {
            return Err(Fault::Protocol("Snap without AckEpoch"));
        }
        learning.note_answer(now);
        learning.step = Step::Snapping { at_least, config };
        Ok(())
    }

    /// Returns whether this learner waits for a snapshot of this attempt.
    pub fn awaits_snapshot(&self, from: ServerId, attempt: Attempt) -> bool {
        let State::Learning(learning) = &self.state else { return false };
        learning.leader == from && learning.attempt == attempt && matches!(learning.step, Step::Snapping { .. })
    }

    /// Reports that the announced snapshot is received, verified and durable.
    ///
    /// It becomes the history.
    pub fn handle_snapshot(&mut self, now: u64, zxid: Zxid) {
        let State::Learning(learning) = &mut self.state else { return };
        let Step::Snapping { at_least, config } = &learning.step else { return };
        let (leader, link, at_least, config) = (learning.leader, learning.link, *at_least, config.clone());
        if zxid < self.committed.max(at_least) {
            self.push(Todo::Close(leader, link, Fault::Protocol("a snapshot older than it has to be")));
            self.handle_link_down(now, leader, link);
            return;
        }
        learning.step = Step::Syncing;
        learning.reported = Zxid::ZERO;
        // After a crash, the history must not contain a membership change that the log has no
        // record of. So a committed configuration is recorded before the new history, and a
        // withdrawn one after it (poll_action). A birth in progress is learned from its entry
        // instead.
        let is_born = config.version <= zxid || self.ensemble != EnsembleId::UNBORN;
        if config.version > self.config().version && is_born {
            self.adopt(now, config);
        }
        self.history = Spans::snapshot(zxid);
        let seq = self.appends.fact(now);
        // Until the SnapEnd is durable, a crash brings the old history back; both contain the
        // committed entries.
        self.appends.replace(seq, zxid, self.committed);
        self.floor = self.floor.max(zxid);
        self.committed = self.committed.max(zxid);
        self.applied = zxid;
        self.is_whole = true;
        self.push(Todo::SnapEnd(seq, zxid));
        if let State::Learning(learning) = &mut self.state {
            learning.ack_after = seq;
        }
        self.reconsider(now);
    }

    /// Reports that the announced snapshot did not arrive or was invalid.
    pub fn handle_snapshot_failed(&mut self, now: u64) {
        if let State::Learning(Learning { leader, link, step: Step::Snapping { .. }, .. }) = self.state {
            self.push(Todo::Close(leader, link, Fault::Protocol("its snapshot could not be received")));
            self.handle_link_down(now, leader, link);
        }
    }

    /// Reports that a Proposal's chain hash does not match this history.
    ///
    /// This server and its leader differ where they should be equal. So this server counts in no
    /// quorum until it has a snapshot, and asks for one on a new link.
    pub fn handle_diverged(&mut self, now: u64) {
        if let State::Learning(Learning { leader, link, .. }) = self.state {
            if core::mem::replace(&mut self.is_whole, false) {
                // Durable: otherwise, after a restart, this server would vote with this history and
                // might lead.
                let seq = self.appends.fact(now);
                self.push(Todo::Damaged(seq));
            }
            self.push(Todo::Close(leader, link, Fault::Protocol("its history differs from this one")));
            self.handle_link_down(now, leader, link);
        }
    }

    /// Reports that the applied state can no longer be read.
    ///
    /// The history is intact, but nothing more can be applied, so clients of this server would wait
    /// for ever. It counts in no quorum until it has a snapshot. A learner asks for the snapshot on
    /// a new link; a leader steps down first.
    pub fn handle_state_lost(&mut self, now: u64) {
        self.is_whole = false;
        match self.state {
            State::Learning(Learning { leader, link, .. }) => {
                self.push(Todo::Close(leader, link, Fault::Behind));
                self.handle_link_down(now, leader, link);
            }
            State::Leading(_) => self.become_looking(now),
            State::Looking { .. } => {}
        }
        self.reconsider(now);
    }

    pub(crate) fn on_new_leader(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        serves_from: Zxid,
    ) -> Result<(), Fault> {
        let Some(learning) = self.learning_in(now, from, attempt, epoch) else { return Ok(()) };
        if learning.step != Step::Syncing {
            return Err(Fault::Protocol("NewLeader outside synchronization"));
        }
        learning.step = Step::Led;
        learning.settles_at = serves_from.max(Zxid::first_of(epoch));
        // History first, epoch after it: a crash in between leaves a server that claims less than
        // it has.
        if self.current != epoch {
            self.enter_epoch(now, epoch);
        }
        self.maybe_settle();
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn on_proposal(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        (first, to): (Zxid, Zxid),
        committed: Zxid,
        config: Option<Config>,
    ) -> Result<(), Fault> {
        let is_next = self.history.is_next(first) && first <= to && first.epoch() == to.epoch();
        let Some(learning) = self.learning_in(now, from, attempt, epoch) else { return Ok(()) };
        let is_led = learning.step == Step::Led;
        if !is_led && learning.step != Step::Syncing {
            return Err(Fault::Protocol("Proposal before synchronization"));
        }
        if !is_next || first.epoch() > epoch || (first.epoch() == epoch) != is_led {
            return Err(Fault::Protocol("Proposal that does not follow"));
        }
        if let Some(config) = config {
            if config.version != first || first != to {
                return Err(Fault::Protocol("a configuration that is not its entry"));
            }
            self.see_config(now, config);
        }
        self.append(now, first, to);
        self.commit(now, committed.min(to));
        self.maybe_settle();
        Ok(())
    }

    /// Records a configuration before its entry is appended (D9).
    fn see_config(&mut self, now: u64, config: Config) {
        if config.version <= self.config().version {
            // Already learned with a snapshot.
        } else if self.ensemble == EnsembleId::UNBORN {
            self.adopt(now, config);
        } else {
            self.voters.propose(config);
            self.record_configs(now);
        }
    }

    pub(crate) fn on_commit(
        &mut self,
        now: u64,
        from: ServerId,
        attempt: Attempt,
        epoch: Epoch,
        to: Zxid,
    ) -> Result<(), Fault> {
        let last = self.history.last();
        let Some(learning) = self.learning_in(now, from, attempt, epoch) else { return Ok(()) };
        if !matches!(learning.step, Step::Syncing | Step::Led) {
            return Err(Fault::Protocol("Commit before synchronization"));
        }
        self.commit(now, to.min(last));
        self.maybe_settle();
        Ok(())
    }

    /// Starts serving when both its conditions are met (UPTODATE).
    ///
    /// This server must know that the epoch's first entry is committed, and have caught up with the
    /// commits at the time it joined.
    pub(crate) fn maybe_settle(&mut self) {
        let State::Learning(learning) = &mut self.state else { return };
        if learning.step == Step::Led && self.committed >= learning.settles_at {
            let leader = learning.leader;
            if self.role == Role::Looking {
                // Notifications from before this server joined do not count.
                learning.unheard_ms = None;
            }
            let is_voter = self.is_voter();
            self.set_role(if is_voter { Role::Following(leader) } else { Role::Observing(leader) });
        }
    }
}
