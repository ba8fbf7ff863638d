//! Liveness of sessions: signs of life, expiry, and the effects of losing a leader.

use super::Server;
use super::admission::{Admission, Need};
use super::history::Origin;
use crate::limits::Settings;
use crate::seam::event::Now;
use crate::seam::ids::ConnId;
use crate::seam::peer::{CLAIMS_MAX, Claim, PeerMessage};
use crate::sessions::{Connection, Phase, Place};
use crate::txn::Txn;
use std::collections::BTreeSet;
use zoolet_model::{ServerId, SessionId, Zxid};
use zoolet_zab::{self as zab, Mutation, Round, mutation};

/// Maximum delay before a learner relays a sign of life, in milliseconds. The leader adds this
/// delay to the deadline of each session on a learner.
const TELL_MS: u64 = 200;
/// Longest time for which a server keeps connections while it serves nobody, in milliseconds.
pub(super) const KEPT_MS: u64 = 2000;
/// Lateness of a deadline that counts as a pause of this server, in milliseconds.
const LATE_MS: u64 = 200;

/// Maximum delay before the leader learns that a follower's session is alive, in milliseconds.
///
/// A learner answers clients until `staleness_max_ms` after its leader last heard a quorum. A deposed
/// leader answers until it has missed its quorum for `quorum_ms`. Signs of life relayed before such
/// an outage have arrived.
pub fn liveness_delay_max_ms(settings: &Settings, timing: &zab::Timing) -> u64 {
    u64::from(settings.staleness_max_ms.max(timing.quorum_ms)) + TELL_MS
}

/// Ensemble time stands still once entries wait for a disk, a base or a quorum and none has been
/// applied for this long, in milliseconds: renewals may wait behind them. A slow disk applies some.
const STALL_MS: u64 = 1000;

/// A leader's suspicion that some session was silent for its whole timeout.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// Quorum confirmation requested after the silence was noticed.
    round: Round,
    noticed_ms: u64,
    /// A quorum confirmed that this server still leads. So no other server ends or continues
    /// sessions.
    is_confirmed: bool,
}

/// Liveness state of this server.
#[derive(Debug, Default)]
pub(super) struct Touches {
    /// Learner: when to relay signs of life to the leader, in milliseconds.
    tell_at_ms: Option<u64>,
    /// Leader: the suspicion in progress.
    silence: Option<Silence>,
    /// When this server lost its leader, or began the hand-over before that, in milliseconds. Set
    /// until it serves again.
    pub(super) lost_at_ms: Option<u64>,
    /// Until when it keeps the connection that it closes next, in milliseconds.
    pub(super) keep_until_ms: Option<u64>,
    /// Set after a pause of this server. State received from the leader may be as old as the pause.
    /// If this server led, another leader may have been elected meanwhile.
    paused: Option<Pause>,
    /// Learner: when it may next look for clients that wait for a silent leader.
    pub(super) send_on_at_ms: u64,
    /// Learner: since when it suspects its leader, while no quorum is known to follow the leader, in
    /// milliseconds.
    pub(super) doubts_since_ms: Option<u64>,
    /// Learner: connections with pending work, held back while the leader has been silent for too
    /// long.
    pub(super) held_back: BTreeSet<ConnId>,
    /// Leader: since when requests wait because it hands over, in milliseconds.
    pub(super) hands_over_ms: Option<u64>,
}

/// A pause of this server that is not over. It ends once a quorum has confirmed the leader and its
/// commits are applied.
///
/// Requests that arrived after the pause wait until a quorum confirms the leader again. Requests
/// from before the pause proceed: the state known when they were sent is fresh enough for them, and
/// entries ready to be applied may wait for them.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// Number of the last request accepted before the pause.
    last: u64,
    waits_for: Answer,
}

/// The condition that ends a pause.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// A quorum must answer this confirmation round.
    Asked(Round),
    /// The round is answered. Everything committed by then, up to this zxid, must be applied.
    Behind(Zxid),
}

impl Touches {
    /// Schedules a report to the leader within `TELL_MS` of a sign of life.
    pub(super) fn tell_soon(&mut self, now_ms: u64) {
        self.tell_at_ms.get_or_insert(now_ms + TELL_MS);
    }

    /// Returns whether this request arrived after a pause that has not ended.
    pub(super) fn is_after_pause(&self, number: u64) -> bool {
        self.paused.is_some_and(|pause| number > pause.last)
    }
}

/// On every server.
impl Server {
    /// Returns whether this server leads and may propose.
    pub fn leads(&self) -> bool {
        self.zab.role() == zab::Role::Leading
    }

    /// Returns whether this server decides alone: it is the only member and has no peers.
    pub(super) fn is_alone(&self) -> bool {
        let only = self.zab.config().members();
        let is_this = only.len() == 1 && only[0].id == self.zab.id() && self.zab.pending_config().is_none();
        // A removed member may still be linked, and serve clients.
        is_this && self.peers.len() == 0
    }

    /// Advances the clock. A gap longer than any wait of this server counts as a pause.
    pub(super) fn on_time(&mut self, now: Now) {
        let gap_ms = now.mono_ms.saturating_sub(self.now.mono_ms);
        // Most events of a busy server arrive within the same millisecond, and nothing passes then.
        let has_passed = gap_ms > 0;
        if has_passed && self.refuses_renewals() {
            self.history.skip_time(gap_ms, self.now, now);
        } else if gap_ms > LATE_MS {
            self.skip_pause(now, gap_ms);
        }
        // The rule that the switch OutageCounts breaks would catch the same outages.
        let is_broken = mutation::is_on(Mutation::StallCounts) || mutation::is_on(Mutation::OutageCounts);
        if has_passed && self.leads() && !is_broken {
            self.history.wait_for_progress(STALL_MS, self.now, now);
        }
        self.now = now;
        // The present event may end the role, and the protocol then no longer knows.
        self.touches.doubts_since_ms = self.zab.doubts_since_ms();
        if has_passed {
            self.note_hearing();
        }
        if gap_ms > LATE_MS && !self.failed {
            self.on_gap(gap_ms);
        }
    }

    /// Notes what this server heard before the present event, which may end its role.
    fn note_hearing(&mut self) {
        self.note_current();
        self.note_locals();
    }

    /// Returns whether this leader accepts no write that renews a TTL znode.
    ///
    /// Ensemble time stands still meanwhile, so that no TTL znode is deleted early. A renewal that
    /// waits for a checkpoint counts too: it may wait longer than a time to live.
    pub(super) fn refuses_renewals(&self) -> bool {
        self.leads()
            && (!self.is_serving()
                || self.is_full(Need::Write)
                || self.admission(Need::Write) == Admission::Refuse
                || self.lacks_quorum())
    }

    /// Returns whether this leader has missed its quorum's heartbeats, so that it commits nothing.
    fn lacks_quorum(&self) -> bool {
        let silent_ms = || self.now.mono_ms.saturating_sub(self.leaderless.current_ms().unwrap_or(self.now.mono_ms));
        !self.is_alone() && silent_ms() > u64::from(self.zab.timing().heartbeat_idle_ms) + LATE_MS
    }

    /// Leaves a pause out of ensemble time, so that no TTL znode is deleted early.
    ///
    /// The clients could not write meanwhile. If the clock stood still while the server worked, it
    /// has stamped entries with a time in the past.
    fn skip_pause(&mut self, now: Now, gap_ms: u64) {
        // A standalone server may sleep until its next deadline, however long.
        let paused_ms = if self.is_alone() {
            // A deadline from before its last turn was not missed by a pause.
            let due_ms = self.next_deadline().map(|due_ms| due_ms.max(self.now.mono_ms));
            due_ms.map_or(0, |due_ms| now.mono_ms.saturating_sub(due_ms))
        } else {
            gap_ms.saturating_sub(u64::from(self.zab.timing().heartbeat_idle_ms))
        };
        if paused_ms > LATE_MS {
            let skipped_ms = if self.is_alone() { paused_ms } else { gap_ms };
            self.history.skip_time(skipped_ms, self.now, now);
        }
    }

    /// Handles a pause of `gap_ms`, during which this server heard from no client or peer.
    ///
    /// In normal operation a leader wakes for each heartbeat, and a learner wakes before its
    /// leader's silence becomes too long.
    fn on_gap(&mut self, gap_ms: u64) {
        if self.is_alone() {
            return;
        }
        if self.leads() && gap_ms > u64::from(self.zab.timing().heartbeat_idle_ms) + LATE_MS {
            self.touches.silence = None;
            self.sessions.touch_all(self.now.mono_ms);
        }
        // Without a leader, grace periods may have ended during the pause. Close those connections
        // before their pending requests are handled.
        self.keep_connections();
        if gap_ms > u64::from(self.settings.staleness_max_ms) {
            // An earlier pause may be unresolved. Requests that arrived after it still need a fresh
            // answer.
            let last = self.touches.paused.map_or(self.requests, |pause| pause.last);
            let round = self.confirm();
            self.touches.paused = round.map(|round| Pause { last, waits_for: Answer::Asked(round) });
            if round.is_some_and(|round| self.zab.is_answered(round)) {
                self.follow_zab();
            }
        }
    }

    /// Handles a change of the protocol's role. Runs before any other work in the new role.
    ///
    /// A learner keeps its clients' requests: when it serves again, it knows which of them are in
    /// the history, and asks the new leader for the others. What a former leader (`led`) has
    /// proposed has an unknown outcome. It closes those connections, because any reply could be
    /// false.
    pub(super) fn on_role(&mut self, role: zab::Role, led: bool) {
        let has_unknown = |connection: &Connection| {
            let is_asked = matches!(connection.phase, Phase::Joining | Phase::Leaving) && connection.newcomer.is_none();
            led && (is_asked || !connection.proposed.is_empty())
        };
        // The state of a paused server may be as old as the pause, and the leader that could
        // confirm it is lost.
        let all = self.touches.paused.is_some();
        let unknown = self.connections.iter().filter(|(_, connection)| all || has_unknown(connection));
        let unknown: Vec<_> = unknown.map(|(&conn, _)| conn).collect();
        if led {
            self.forwards.clear();
            self.owners.clear();
            self.history.forget_origins();
            self.lose_following();
            self.joining.lose_all(&mut self.sessions);
        } else {
            self.forwards.forget_learners();
            self.owners.forget_leadership();
            if role == zab::Role::Looking {
                self.forwards.keep_all();
            }
        }
        self.history.waits_for_requests_of = None;
        // A learner that begins or ceases to vote keeps its leader, and what it asked of it.
        let is_lost = led || role == zab::Role::Looking || self.touches.lost_at_ms.is_some();
        if is_lost {
            self.await_all_again();
        }
        self.sessions.forget_leadership();
        // Clients of a leader that handed over have waited since the hand-over began.
        // Those of a learner that knew of no quorum have waited since it suspected its leader.
        let Touches { lost_at_ms, hands_over_ms, doubts_since_ms, .. } = self.touches;
        let lost_at_ms = lost_at_ms.or(hands_over_ms).or(doubts_since_ms.filter(|_| role == zab::Role::Looking));
        self.touches = Touches { lost_at_ms, ..Touches::default() };
        unknown.into_iter().for_each(|conn| self.close(conn));
        if role == zab::Role::Looking {
            self.touches.lost_at_ms.get_or_insert(self.now.mono_ms);
        }
        self.note_leader(role);
        self.keep_connections();
    }

    /// Starts to serve clients once the first entry of the current leader's epoch is applied.
    pub(super) fn on_serving(&mut self) {
        // A learner that begins or ceases to vote goes on with its leader.
        let was_lost = self.leaderless.lost_at_ms().is_some();
        (self.touches.lost_at_ms, self.touches.keep_until_ms) = (None, None);
        self.note_serving();
        if was_lost {
            self.settle_upgrades();
        }
        if self.leads() {
            // Entries of a former epoch may be stamped ahead of this server's clock.
            self.history.continue_time(self.state.totals().ensemble_ms, self.now);
            if !mutation::is_on(Mutation::NoFullTimeout) {
                self.sessions.touch_all(self.now.mono_ms);
            }
        } else {
            // A new leader does not know which connections hold the sessions: report all of them.
            self.connections.iter_mut().for_each(|(_, connection)| connection.heard = true);
            self.tell_leader(was_lost.then(|| self.owners.of_this_process.iter().copied().collect()));
        }
        if self.leads() {
            self.end_all_orphans();
        }
        if was_lost {
            self.ask_again();
            self.ask_after_sessions_again();
        }
        self.admit_newcomers();
        self.ready.extend(self.connections.keys());
    }

    /// Returns whether the applied state may be too old for new clients.
    pub(super) fn is_stale(&self) -> bool {
        self.touches.paused.is_some() || self.is_outdated()
    }

    /// Returns whether this learner's state is too old to serve.
    ///
    /// The state is too old once the leader was silent, or its commits stayed unapplied, for too
    /// long.
    pub(super) fn is_outdated(&self) -> bool {
        self.stale_at_ms().is_some_and(|at_ms| at_ms <= self.now.mono_ms)
    }

    /// Returns when the learner's state becomes too old, in milliseconds. `None` unless it follows
    /// a leader.
    ///
    /// A disk that refuses writes or hangs keeps committed entries from being applied. The
    /// learner's state then ages although it hears its leader. It stays current while the ensemble
    /// commits nothing.
    fn stale_at_ms(&self) -> Option<u64> {
        Some(self.current_ms()? + u64::from(self.settings.staleness_max_ms) + 1)
    }

    /// Returns until when the learner's state is known to be current, in milliseconds.
    pub(super) fn current_ms(&self) -> Option<u64> {
        self.leader()?;
        let heard_ms = self.zab.quorum_heard_ms(self.now.mono_ms)?;
        let stalled_ms = self.upkeep.log_stalled.filter(|_| self.behind() > 0).map(|stall| stall.since_ms);
        Some([stalled_ms, self.healths.lacks_since_ms()].into_iter().flatten().fold(heard_ms, u64::min))
    }

    /// Forgets a peer whose link is gone.
    pub(super) fn on_peer_lost(&mut self, peer: ServerId) {
        self.forwards.forget_learner(peer);
        self.owners.forget_learner(peer);
    }

    /// Resets session state after a snapshot replaced the tree and all connections were closed.
    pub(super) fn on_state_replaced(&mut self) {
        self.forwards.clear();
        self.owners.clear();
        self.joining.lose_all(&mut self.sessions);
    }

    /// Returns whether some session has a short timeout, which keeps heartbeats frequent.
    pub(super) fn has_short_sessions(&self) -> bool {
        self.sessions.has_short()
    }

    /// Returns when [`Server::on_sessions_due`] must run, in milliseconds.
    ///
    /// Only a serving leader judges silence. A deadline without effect would wake the machine
    /// forever.
    pub(super) fn sessions_deadline(&self) -> Option<u64> {
        let Touches { tell_at_ms, silence, keep_until_ms, .. } = self.touches;
        let silent = match silence {
            _ if !self.leads() || !self.is_serving() => None,
            None => self.sessions.next_deadline(),
            Some(Silence { is_confirmed: true, .. }) => Some(self.now.mono_ms),
            Some(Silence { is_confirmed: false, .. }) => None,
        };
        // A closed connection stays in the table until the caller reports it disconnected.
        let is_open = |connection: &Connection| connection.phase != Phase::Closed && !connection.is_reader;
        let stale = self.stale_at_ms().filter(|_| self.connections.values().any(is_open));
        [silent, self.locals_deadline(), tell_at_ms, keep_until_ms, stale].into_iter().flatten().min()
    }

    /// Handles elapsed deadlines, after everything readable was handled.
    pub(super) fn on_sessions_due(&mut self) {
        let now_ms = self.now.mono_ms;
        if self.touches.keep_until_ms.is_some_and(|at| at <= now_ms) {
            self.keep_connections();
        }
        if self.touches.tell_at_ms.is_some_and(|at| at <= now_ms) {
            self.tell_leader(None);
        }
        if self.stale_at_ms().is_some_and(|at| at <= now_ms) {
            let all = self.connections.iter().filter(|(_, connection)| !connection.is_reader);
            let all: Vec<_> = all.map(|(&conn, _)| conn).collect();
            all.into_iter().for_each(|conn| self.close(conn));
        }
        self.expire_locals();
        if self.leads() && self.is_serving() {
            self.judge_silence();
        }
    }

    /// Notes a sign of life on this connection. On a learner, schedules the report to the leader.
    pub(super) fn heard_of(&mut self, conn: ConnId) {
        if self.leads() {
            return;
        }
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.heard = true;
            self.touches.tell_soon(self.now.mono_ms);
        }
    }
}

/// On a learner.
impl Server {
    /// Relays unreported signs of life before a connection ends.
    ///
    /// No connection claims the session afterwards. Without this report the session would expire
    /// early, by up to one ping interval.
    pub(super) fn tell_before_end(&mut self, conn: ConnId) {
        let is_untold = |connection: &Connection| connection.phase == Phase::Open && connection.heard;
        if self.connections.get(&conn).is_some_and(is_untold) && self.leader().is_some() {
            self.tell_leader(None);
        }
    }

    /// Reports live sessions to the leader. A client that waits for an answer counts as alive in
    /// each report.
    fn tell_leader(&mut self, mut of_this_process: Option<Vec<SessionId>>) {
        self.touches.tell_at_ms = None;
        let (Some(leader), epoch) = (self.leader(), self.zab.epoch()) else { return };
        let mut heard = Vec::new();
        let mut is_waited_for = false;
        for (&conn, connection) in self.connections.iter_mut().filter(|(_, c)| c.phase == Phase::Open) {
            if self.locals.contains(connection.session) || connection.is_reader {
                continue;
            }
            let waits = connection.outstanding() > 0;
            if std::mem::take(&mut connection.heard) || waits {
                let session = connection.session;
                heard.push(Claim { session, conn, since: self.sessions.since(session) });
            }
            is_waited_for |= waits;
        }
        if is_waited_for {
            self.touches.tell_at_ms = Some(self.now.mono_ms + TELL_MS);
        }
        if heard.is_empty() && of_this_process.is_none() {
            return;
        }
        let mut chunks = heard.chunks(CLAIMS_MAX);
        for sessions in std::iter::once(chunks.next().unwrap_or_default()).chain(chunks) {
            let of_this_process = of_this_process.take();
            self.send_to(leader, PeerMessage::Touch { epoch, sessions: sessions.to_vec(), of_this_process });
        }
    }
}

/// On every server.
impl Server {
    /// Tells the leader about a sync that replaces a ping. Returns false if the session is over.
    ///
    /// The answer to such a sync proves to the session's owner that the leader counted its sign of
    /// life. So the leader must hear of it before it is asked. If this returns false, the sync gets
    /// no answer.
    pub(super) fn tell_before_sync(&mut self, conn: ConnId) -> bool {
        let Some(session) = self.connections.get(&conn).map(|connection| connection.session) else { return false };
        if self.locals.contains(session) {
            return true;
        }
        let Some(leader) = self.leader() else {
            return self.sessions.lookup(session).is_some_and(|live| !live.closing);
        };
        let claim = Claim { session, conn, since: self.sessions.since(session) };
        self.send_to(leader, PeerMessage::Alive { epoch: self.zab.epoch(), claim })
    }
}

/// On the leader.
impl Server {
    /// Handles a sign of life that a learner reports just before its Sync.
    ///
    /// If the session is closing, or belongs to another connection, the learner is told to close
    /// this connection. That message precedes the answer to the Sync. A session unknown here falls
    /// under one of two cases:
    /// - It ended before the state that the answer will name.
    /// - It is still being created, and gets its full timeout on creation.
    pub(super) fn on_alive(&mut self, peer: ServerId, claim: Claim) {
        if self.is_owner(peer, claim) {
            self.touch_from(claim.session);
        } else if self.sessions.lookup(claim.session).is_some() {
            self.evict(claim.session, Place::There(peer, claim.conn));
        }
    }

    /// Handles a learner's report of live sessions.
    pub(super) fn on_touch(&mut self, peer: ServerId, sessions: &[Claim], of_this_process: Option<Vec<SessionId>>) {
        if let Some(living) = of_this_process {
            self.on_living(peer, living.into_iter().collect());
        }
        for &claim in sessions {
            let Claim { session, conn, .. } = claim;
            if self.is_owner(peer, claim) {
                self.touch_from(session);
            } else if self.sessions.lookup(session).is_some_and(|live| !live.closing) {
                self.evict(session, Place::There(peer, conn));
            }
        }
    }

    /// Touches a session on a learner's word, with `TELL_MS` added for the relay delay.
    pub(super) fn touch_from(&mut self, session: SessionId) {
        self.sessions.touch(session, self.now.mono_ms + TELL_MS);
    }

    /// Expires silent sessions. Runs only after everything readable was handled.
    fn judge_silence(&mut self) {
        let now_ms = self.now.mono_ms;
        if mutation::is_on(Mutation::ExpireWithoutQuorum) {
            return self.expire_silent_at(now_ms);
        }
        if self.is_alone() {
            let late = self.sessions.next_deadline().is_some_and(|due_ms| now_ms.saturating_sub(due_ms) > LATE_MS);
            if late {
                // A server that slept or was paused heard no client meanwhile: every session gets a
                // full timeout.
                self.sessions.touch_all(now_ms);
            }
            return self.expire_silent_at(now_ms);
        }
        match self.touches.silence {
            None if self.sessions.expired(now_ms).is_some() => {
                // A leader that was deposed without noticing may have missed every sign of life
                // since.
                let round = self.confirm();
                self.touches.silence = round.map(|round| Silence { round, noticed_ms: now_ms, is_confirmed: false });
                self.follow_zab();
            }
            Some(Silence { is_confirmed: true, noticed_ms, .. }) => {
                self.touches.silence = None;
                self.expire_silent_at(noticed_ms);
            }
            None | Some(Silence { is_confirmed: false, .. }) => {}
        }
    }

    /// Ends the sessions whose timeout had elapsed at `then_ms`.
    fn expire_silent_at(&mut self, then_ms: u64) {
        while let Some(session) = self.sessions.expired(then_ms) {
            let conn = self.sessions.lookup(session).and_then(|live| live.conn());
            let busy =
                conn.and_then(|conn| self.connections.get(&conn)).is_some_and(|carrier| carrier.outstanding() > 0);
            if busy || !self.propose(&Txn::CloseSession { session }, Origin::None) {
                // The owner waits for an answer of this server, or no entry can be proposed now:
                // try again after another timeout.
                self.sessions.touch(session, self.now.mono_ms);
                continue;
            }
            self.sessions.close(session);
            self.upkeep.sessions_expired += 1;
        }
    }

    /// Ends a pause once this server has caught up.
    pub(super) fn maybe_resume(&mut self) {
        if let Some(Pause { waits_for: Answer::Behind(up_to), .. }) = self.touches.paused
            && self.state.applied() >= up_to
        {
            self.touches.paused = None;
            self.ready.extend(self.connections.keys());
        }
    }

    /// Handles the answer to a [`Server::confirm`] round and to all earlier rounds.
    ///
    /// `up_to` is `None` if the leader was lost before it answered.
    pub(super) fn on_confirmed(&mut self, round: Round, up_to: Option<Zxid>) {
        if let Some(silence) = self.touches.silence.as_mut().filter(|silence| silence.round <= round) {
            silence.is_confirmed = up_to.is_some();
        }
        if let (Some(pause), Some(up_to)) = (&mut self.touches.paused, up_to)
            && matches!(pause.waits_for, Answer::Asked(asked) if asked <= round)
        {
            pause.waits_for = Answer::Behind(up_to);
            self.maybe_resume();
        }
        self.on_syncs_confirmed(round, up_to);
        self.on_questions_confirmed(round, up_to);
    }
}
