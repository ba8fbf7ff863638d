//! Signs of life: who gave one, who must give one, and what the loss of a leader means to clients.

use super::Server;
use super::history::Origin;
use crate::event::{ConnId, Now};
use crate::limits::Settings;
use crate::peer::{CLAIMS_MAX, Claim, PeerMessage};
use crate::session::{Connection, Phase, Place};
use crate::txn::Txn;
use std::collections::BTreeSet;
use zoolet_model::{ServerId, SessionId, Zxid};
use zoolet_zab::{self as zab, Mutation, Round, mutation};

/// A learner tells its leader of a sign of life after so long at most, milliseconds. The leader waits so much longer for sessions of others.
const TELL_MS: u64 = 200;
/// Without a leader, connections are kept for so long at most, milliseconds.
const KEPT_MS: u64 = 2000;
/// Lateness of a deadline that is taken for a pause of this server, milliseconds.
const LATE_MS: u64 = 200;

/// By how much later than a server of an ensemble, which answers it, its leader may hear of a session's sign of life: a learner goes on answering until
/// its leader was silent for too long, and a leader that others have deposed until it has missed its quorum for too long. What was told before that has
/// arrived.
pub fn told_late_ms(settings: &Settings, timing: &zab::Timing) -> u64 {
    u64::from(settings.staleness_max_ms.max(timing.quorum_ms)) + TELL_MS
}

/// A leader's suspicion: some session was silent for its timeout.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// Asked after it was noticed.
    round: Round,
    noticed_ms: u64,
    /// A quorum has answered: nobody else ends or continues sessions.
    is_confirmed: bool,
}

/// What is known of signs of life.
#[derive(Debug, Default)]
pub(super) struct Touches {
    /// Learner: when the leader is told of sessions that were heard of.
    tell_at_ms: Option<u64>,
    /// Leader.
    silence: Option<Silence>,
    /// Since when there is no leader, while connections are kept all the same.
    lost_at_ms: Option<u64>,
    /// When the next of those goes.
    keep_until_ms: Option<u64>,
    /// This server was paused. What it then reads of its leader may be as old, and if it led, others may have elected another one.
    paused: Option<Pause>,
    /// Learner: connections that something happened to while the leader was silent for too long.
    pub(super) held_back: BTreeSet<ConnId>,
}

/// A server was paused. What it is asked since then is answered when a quorum was asked again who leads. What it was asked before goes on: it may be shown what
/// was known when it was asked, and entries that are to be applied wait for it.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// The last request that was taken before.
    last: u64,
    waits_for: Answer,
}

/// What a server that was paused waits for.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// The answer,
    Asked(Round),
    /// and then to have applied all that was committed.
    Behind(Zxid),
}

impl Touches {
    /// Somebody was heard of.
    pub(super) fn tell_soon(&mut self, now_ms: u64) {
        self.tell_at_ms.get_or_insert(now_ms + TELL_MS);
    }

    /// Whether the request of this number was taken after a pause whose end is not reached.
    pub(super) fn is_after_pause(&self, number: u64) -> bool {
        self.paused.is_some_and(|pause| number > pause.last)
    }
}

/// Every server.
impl Server {
    /// Whether this server leads, and may propose.
    pub fn leads(&self) -> bool {
        self.zab.role() == zab::Role::Leading
    }

    /// Whether nobody else decides.
    pub(super) fn is_alone(&self) -> bool {
        let only = self.zab.config().members();
        let is_this = only.len() == 1 && only[0].id == self.zab.id() && self.zab.pending_config().is_none();
        // Who was a member may still be there, and serve clients.
        is_this && self.peers.len() == 0
    }

    /// The clock has come here. A server that did nothing for longer than it ever waits was paused.
    pub(super) fn on_time(&mut self, now: Now) {
        let gap_ms = now.mono_ms.saturating_sub(self.now.mono_ms);
        self.now = now;
        if gap_ms > LATE_MS && !self.failed {
            self.on_gap(gap_ms);
        }
    }

    /// Nobody was heard in that time. A leader wakes for each heartbeat, a learner before its leader's silence is too long.
    fn on_gap(&mut self, gap_ms: u64) {
        if self.is_alone() {
            return;
        }
        if self.leads() && gap_ms > u64::from(self.zab.timing().heartbeat_idle_ms) + LATE_MS {
            self.touches.silence = None;
            self.sessions.touch_all(self.now.mono_ms);
        }
        // Without a leader their time may be over, and it is their requests that are read first.
        self.keep_connections();
        if gap_ms > u64::from(self.settings.staleness_max_ms) {
            // What came after an earlier one that is not over may be answered from nothing older either.
            let last = self.touches.paused.map_or(self.requests, |pause| pause.last);
            let round = self.confirm();
            self.touches.paused = round.map(|round| Pause { last, waits_for: Answer::Asked(round) });
            if round.is_some_and(|round| self.zab.is_answered(round)) {
                self.follow_zab();
            }
        }
    }

    /// The protocol's role changed. Called before anything else is done in the new one.
    ///
    /// Whatever was asked of the former leader, or by it, has an unknown outcome: those connections end, because nothing else would be true.
    pub(super) fn on_role(&mut self, role: zab::Role) {
        let has_unknown = |connection: &Connection| {
            !connection.proposed.is_empty() || matches!(connection.phase, Phase::Joining | Phase::Leaving)
        };
        // What a paused server knows may be as old as the pause, and the leader that could have told is gone.
        let all = self.touches.paused.is_some();
        let unknown = self.connections.iter().filter(|(_, connection)| all || has_unknown(connection));
        let unknown = unknown.map(|(&conn, _)| conn);
        let unknown: Vec<_> = unknown.chain(std::mem::take(&mut self.syncs).conns()).collect();
        self.forwards.clear();
        self.owners.clear();
        self.history.forget_origins();
        self.joining.lose_all(&mut self.sessions);
        self.sessions.forget_leadership();
        self.touches = Touches { lost_at_ms: self.touches.lost_at_ms, ..Touches::default() };
        unknown.into_iter().for_each(|conn| self.close(conn));
        if role == zab::Role::Looking {
            self.touches.lost_at_ms.get_or_insert(self.now.mono_ms);
        }
        self.keep_connections();
    }

    /// The first entry of the epoch that this server leads or follows in is applied: clients are served from now on.
    pub(super) fn on_serving(&mut self) {
        self.touches.lost_at_ms = None;
        self.touches.keep_until_ms = None;
        if self.leads() {
            if !mutation::is_on(Mutation::NoFullTimeout) {
                self.sessions.touch_all(self.now.mono_ms);
            }
        } else {
            // The leader does not know yet whose sessions they are.
            self.connections.values_mut().for_each(|connection| connection.heard = true);
            self.tell_leader(Some(self.owners.of_this_process.iter().copied().collect()));
        }
        if self.leads() {
            self.end_all_orphans();
        }
        self.ready.extend(self.connections.keys());
    }

    /// Without a leader every connection has its time.
    fn keep_connections(&mut self) {
        let Some(lost_at_ms) = self.touches.lost_at_ms else { return };
        let mut over = Vec::new();
        self.touches.keep_until_ms = None;
        for (&conn, connection) in self.connections.iter().filter(|(_, c)| c.phase != Phase::Closed) {
            let timeout_ms = self.sessions.lookup(connection.session).map_or(0, |live| live.timeout_ms);
            let until_ms = lost_at_ms + KEPT_MS.min(u64::from(timeout_ms) / 3);
            if until_ms <= self.now.mono_ms {
                over.push(conn);
            } else {
                self.touches.keep_until_ms = Some(self.touches.keep_until_ms.map_or(until_ms, |at| at.min(until_ms)));
            }
        }
        over.into_iter().for_each(|conn| self.close(conn));
    }

    /// Whether what this server knows may be too old to be shown to somebody new.
    pub(super) fn is_stale(&self) -> bool {
        self.touches.paused.is_some() || self.is_outdated()
    }

    /// Whether it follows, and has not heard its leader, or not applied what that said, for too long.
    pub(super) fn is_outdated(&self) -> bool {
        self.stale_at_ms().is_some_and(|at_ms| at_ms <= self.now.mono_ms)
    }

    /// A disk that refuses, or hangs, keeps entries from being applied that others have committed: what a learner shows gets old although it hears its
    /// leader. While nothing is written anywhere it may go on showing it.
    fn stale_at_ms(&self) -> Option<u64> {
        self.leader()?;
        let heard_ms = self.zab.leader_heard_ms(self.now.mono_ms)?;
        let stalled_ms = self.upkeep.log_stalled.filter(|_| self.behind() > 0).map(|stall| stall.since_ms);
        let current_ms = [stalled_ms, self.healths.lacks_since_ms()].into_iter().flatten().fold(heard_ms, u64::min);
        Some(current_ms + u64::from(self.settings.staleness_max_ms) + 1)
    }

    /// A link to a peer is gone.
    pub(super) fn on_peer_lost(&mut self, peer: ServerId) {
        self.forwards.forget_learner(peer);
    }

    /// Every session is another's now: a snapshot took the place of the state, and all connections are closed.
    pub(super) fn on_state_replaced(&mut self) {
        self.forwards.clear();
        self.owners.clear();
        self.joining.lose_all(&mut self.sessions);
    }

    /// Whether a session would end after a short silence: then heartbeats stay frequent.
    pub(super) fn has_short_sessions(&self) -> bool {
        self.sessions.has_short()
    }

    /// When [`Server::on_sessions_due`] wants to be called. Silence is judged only while serving; a deadline that nothing comes of would wake
    /// for ever.
    pub(super) fn sessions_deadline(&self) -> Option<u64> {
        let Touches { tell_at_ms, silence, keep_until_ms, .. } = self.touches;
        let silent = match silence {
            _ if !self.leads() || !self.is_serving() => None,
            None => self.sessions.next_deadline(),
            Some(Silence { is_confirmed: true, .. }) => Some(self.now.mono_ms),
            Some(Silence { is_confirmed: false, .. }) => None,
        };
        // Those that were closed are gone only when whoever drives this machine says so.
        let is_open = |connection: &Connection| connection.phase != Phase::Closed;
        let stale = self.stale_at_ms().filter(|_| self.connections.values().any(is_open));
        [silent, tell_at_ms, keep_until_ms, stale].into_iter().flatten().min()
    }

    /// Time has passed, and everything readable was handled.
    pub(super) fn on_sessions_due(&mut self) {
        let now_ms = self.now.mono_ms;
        if self.touches.keep_until_ms.is_some_and(|at| at <= now_ms) {
            self.keep_connections();
        }
        if self.touches.tell_at_ms.is_some_and(|at| at <= now_ms) {
            self.tell_leader(None);
        }
        if self.stale_at_ms().is_some_and(|at| at <= now_ms) {
            let all: Vec<_> = self.connections.keys().copied().collect();
            all.into_iter().for_each(|conn| self.close(conn));
        }
        if self.leads() && self.is_serving() {
            self.judge_silence();
        }
    }

    /// A session has come to this connection.
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

/// Learner.
impl Server {
    /// A connection ends. Nobody claims its session from then on, so what was heard of its owner since the leader was told last is told before: the
    /// session would end early otherwise, by as much as lies between two pings.
    pub(super) fn tell_before_end(&mut self, conn: ConnId) {
        let is_untold = |connection: &Connection| connection.phase == Phase::Open && connection.heard;
        if self.connections.get(&conn).is_some_and(is_untold) && self.leader().is_some() {
            self.tell_leader(None);
        }
    }

    /// Tells the leader whose owners were heard of. Who waits for an answer counts as heard of, as often as it is told.
    fn tell_leader(&mut self, mut of_this_process: Option<Vec<SessionId>>) {
        self.touches.tell_at_ms = None;
        let (Some(leader), epoch) = (self.leader(), self.zab.epoch()) else { return };
        let mut heard = Vec::new();
        let mut is_waited_for = false;
        for (&conn, connection) in self.connections.iter_mut().filter(|(_, c)| c.phase == Phase::Open) {
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

/// Every server.
impl Server {
    /// A sync that stands for a ping: its answer shows its owner that whoever ends sessions had heard of him after he sent it. So the leader is told before
    /// it is asked. False when the session is over, and nothing is to be answered.
    pub(super) fn tell_before_sync(&mut self, conn: ConnId) -> bool {
        let Some(session) = self.connections.get(&conn).map(|connection| connection.session) else { return false };
        let Some(leader) = self.leader() else {
            return self.sessions.lookup(session).is_some_and(|live| !live.closing);
        };
        let claim = Claim { session, conn, since: self.sessions.since(session) };
        self.send_to(leader, PeerMessage::Alive { epoch: self.zab.epoch(), claim })
    }
}

/// Leader.
impl Server {
    /// A learner heard of this session, and asks who leads next. Where the session is about to end, or is elsewhere, its connection ends before that is
    /// answered. One that is not known here ended before what will be answered, or begins, and has its whole time then.
    pub(super) fn on_alive(&mut self, peer: ServerId, claim: Claim) {
        if self.is_owner(peer, claim) {
            self.touch_from(claim.session);
        } else if self.sessions.lookup(claim.session).is_some() {
            self.evict(claim.session, Place::There(peer, claim.conn));
        }
    }

    /// Sessions that a learner heard of.
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

    /// Later than one's own: what a learner hears is told with a delay.
    pub(super) fn touch_from(&mut self, session: SessionId) {
        self.sessions.touch(session, self.now.mono_ms + TELL_MS);
    }

    /// Silence is judged here, and only here: after everything readable was handled.
    fn judge_silence(&mut self) {
        let now_ms = self.now.mono_ms;
        if mutation::is_on(Mutation::ExpireWithoutQuorum) {
            return self.expire_silent_at(now_ms);
        }
        if self.is_alone() {
            let late = self.sessions.next_deadline().is_some_and(|due_ms| now_ms.saturating_sub(due_ms) > LATE_MS);
            if late {
                // A server that slept or was paused heard nobody in that time: everybody gets a full timeout again.
                self.sessions.touch_all(now_ms);
            }
            return self.expire_silent_at(now_ms);
        }
        match self.touches.silence {
            None if self.sessions.expired(now_ms).is_some() => {
                // A leader that was deposed without knowing may have missed every sign of life since.
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

    /// Ends the sessions whose silence had lasted its time then.
    fn expire_silent_at(&mut self, then_ms: u64) {
        while let Some(session) = self.sessions.expired(then_ms) {
            let conn = self.sessions.lookup(session).and_then(|live| live.conn());
            let busy =
                conn.and_then(|conn| self.connections.get(&conn)).is_some_and(|carrier| carrier.outstanding() > 0);
            if busy || !self.propose(&Txn::CloseSession { session }, Origin::None) {
                // It asked for something and waits for this server.
                self.sessions.touch(session, self.now.mono_ms);
                continue;
            }
            self.sessions.close(session);
            self.upkeep.sessions_expired += 1;
        }
    }

    /// A server that was paused goes on when it has caught up.
    pub(super) fn maybe_resume(&mut self) {
        if let Some(Pause { waits_for: Answer::Behind(up_to), .. }) = self.touches.paused
            && self.state.applied() >= up_to
        {
            self.touches.paused = None;
            self.ready.extend(self.connections.keys());
        }
    }

    /// The answer to a question of [`Server::confirm`], and to all before it.
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
