//! Session ownership: the leader decides which connection of which server holds a session.
//!
//! A returning client presents its session and secret to any server. The leader decides after a
//! quorum has confirmed that it leads, from a state that contains everything committed by then. So
//! a live session is never reported as expired, and a session that a newer leader ended is never
//! reported as alive.

use super::Server;
use super::admission::{Admission, Need};
use super::history::Origin;
use super::syncs::Awaits;
use crate::seam::ids::ConnId;
use crate::seam::peer::{Attachment, PeerMessage};
use crate::sessions::{Phase, Place};
use crate::txn::Txn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoolet_model::{ConnectReply, ConnectRequest, ServerId, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Epoch, Mutation, Round, mutation};

/// A returning client of this server whose session the leader is checking.
#[derive(Clone, Copy, Debug)]
struct Returning {
    session: SessionId,
    secret: Option<SessionSecret>,
    timeout_ms: u32,
    read_only_byte: bool,
    /// Attachment of this connection; the default value until the leader has answered.
    since: Attachment,
}

/// A server's list of the sessions whose owners live in its current process.
#[derive(Clone, Debug)]
struct Living {
    /// Last entry proposed when the list arrived. Sessions of former processes were created at or
    /// before it.
    up_to: Zxid,
    sessions: BTreeSet<SessionId>,
}

/// Leader: a request to move a session to another connection.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The new place of the owner, if the session is alive.
    place: Place,
    session: SessionId,
    secret: Option<SessionSecret>,
    timeout_ms: u32,
    round: Round,
}

/// All pending questions.
///
/// Thousands arrive at once when a server is lost, so each is examined only when its turn comes. A
/// question whose connection has closed also stays queued until then.
#[derive(Debug, Default)]
struct Questions {
    /// Not yet confirmed by a quorum, in the order of their rounds.
    asked: VecDeque<Question>,
    /// Confirmed questions with the zxid that must be applied before the answer. Zxids never
    /// decrease.
    confirmed: VecDeque<(Zxid, Question)>,
    /// Questions about sessions whose end is proposed and may never commit. They wait for the
    /// outcome.
    ending: BTreeMap<SessionId, Vec<(Zxid, Question)>>,
}

impl Questions {
    fn len(&self) -> usize {
        self.asked.len() + self.confirmed.len() + self.ending.values().map(Vec::len).sum::<usize>()
    }

    fn confirm(&mut self, round: Round, up_to: Zxid) {
        let count = self.asked.partition_point(|question| question.round <= round);
        self.confirmed.extend(self.asked.drain(..count).map(|question| (up_to, question)));
    }

    /// Drops the questions of a learner, whose place is one of its connections.
    fn forget_learner(&mut self, learner: ServerId) {
        let stays = |question: &Question| !matches!(question.place, Place::There(peer, _) if peer == learner);
        self.asked.retain(stays);
        self.confirmed.retain(|(_, question)| stays(question));
        self.ending.retain(|_, waiting| {
            waiting.retain(|(_, question)| stays(question));
            !waiting.is_empty()
        });
    }

    fn next(&mut self, applied: Zxid) -> Option<(Zxid, Question)> {
        let is_ready = self.confirmed.front().is_some_and(|(up_to, _)| *up_to <= applied);
        if is_ready { self.confirmed.pop_front() } else { None }
    }
}

/// Sessions that move between connections.
#[derive(Debug, Default)]
pub(super) struct Owners {
    returning: BTreeMap<ConnId, Returning>,
    questions: Questions,
    /// Sessions whose owners live in this process, connected or not. Owners in former processes are
    /// gone.
    pub(super) of_this_process: BTreeSet<SessionId>,
    /// Leader: each server's list of the sessions of its current process.
    ///
    /// A list stays until this leader has applied every session that the list can cover, and has
    /// ended the sessions missing from it.
    said_to_live: BTreeMap<ServerId, Living>,
}

impl Owners {
    /// Returns the number of pending items.
    pub(super) fn len(&self) -> usize {
        self.returning.len() + self.questions.len() + self.said_to_live.len()
    }

    /// Forgets what only a leader knows.
    pub(super) fn forget_leadership(&mut self) {
        self.questions = Questions::default();
        self.said_to_live.clear();
    }

    pub(super) fn clear(&mut self) {
        self.returning.clear();
        self.forget_leadership();
    }

    pub(super) fn forget_connection(&mut self, conn: ConnId) {
        self.returning.remove(&conn);
    }

    /// Drops the questions that a learner asked over a link that is lost.
    ///
    /// The learner asks again if it still has these clients. If it has restarted, its connections have
    /// the same numbers again, and an answer would let another client in.
    pub(super) fn forget_learner(&mut self, learner: ServerId) {
        self.questions.forget_learner(learner);
    }

    /// Requeues the questions that waited for this session's end.
    pub(super) fn ended(&mut self, session: SessionId) {
        for question in self.questions.ending.remove(&session).into_iter().flatten().rev() {
            self.questions.confirmed.push_front(question);
        }
    }
}

/// On every server.
impl Server {
    /// Asks the leader about a client's former session; [`Server::on_revalidated`] answers the
    /// client.
    pub(super) fn ask_after_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        let ConnectRequest { session, ref password, .. } = *request;
        let timeout_ms = self.negotiate(request.timeout_ms);
        let secret = password.as_deref().and_then(|password| <[u8; 16]>::try_from(password).ok()).map(SessionSecret);
        let read_only_byte = request.read_only.is_some();
        let since = Attachment::default();
        self.owners.returning.insert(conn, Returning { session, secret, timeout_ms, read_only_byte, since });
        if !self.ask_leader_after(conn) {
            self.close(conn);
        }
    }

    /// Asks a new leader about the clients whose sessions its predecessor was checking.
    pub(super) fn ask_after_sessions_again(&mut self) {
        let returning: Vec<_> = self.owners.returning.keys().copied().collect();
        for conn in returning {
            if !self.ask_leader_after(conn) {
                self.close(conn);
            }
        }
    }

    fn ask_leader_after(&mut self, conn: ConnId) -> bool {
        let Some(&Returning { session, secret, timeout_ms, .. }) = self.owners.returning.get(&conn) else {
            return false;
        };
        match self.leader() {
            Some(leader) => {
                let epoch = self.zab.epoch();
                self.zab.expect_leader(self.now.mono_ms);
                self.send_to(leader, PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms })
            }
            None => self.ask(Place::Here(conn), session, secret, timeout_ms),
        }
    }

    /// Handles the leader's answer about a returning session. This server may itself lead.
    ///
    /// [`Server::answer_syncs`] continues once the state is applied far enough.
    pub(super) fn on_revalidated(&mut self, conn: ConnId, session: SessionId, up_to: Option<Zxid>, since: Attachment) {
        let returning = self.owners.returning.get_mut(&conn).filter(|returning| returning.session == session);
        let Some(returning) = returning else {
            // The connection closed meanwhile.
            return;
        };
        returning.since = since;
        let Some(up_to) = up_to else {
            let read_only_byte = returning.read_only_byte;
            self.refused(conn, read_only_byte);
            return self.close(conn);
        };
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.session = session;
        }
        let up_to = if mutation::is_on(Mutation::ReadBeforeOwnWrites) { Zxid::ZERO } else { up_to };
        self.syncs.wait(conn, Awaits::Session, up_to);
    }

    /// Completes a session's return. Everything its client may have seen or done is applied here.
    pub(super) fn take_in(&mut self, conn: ConnId) {
        let Some(returning) = self.owners.returning.remove(&conn) else { return };
        let Returning { session, read_only_byte, since, .. } = returning;
        // Use the timeout that all servers have applied, not the requested one. A leader without
        // room for the renewal entry leaves the timeout unchanged.
        let Some((secret, timeout_ms)) = self.sessions.lookup(session).map(|live| (live.secret, live.timeout_ms))
        else {
            // The session ended meanwhile. The leader reports it as expired when the client
            // reconnects.
            return self.close(conn);
        };
        let place = Place::Here(conn);
        match self.sessions.attach(session, place, since) {
            Place::Here(old) if old != conn => self.close(old),
            Place::Here(_) | Place::There(..) | Place::Nowhere | Place::Left => {}
        }
        self.sessions.touch(session, self.now.mono_ms);
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.phase = Phase::Open;
        }
        let timeout_ms = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        self.connected(conn, ConnectReply { timeout_ms, session, secret, read_only_byte, read_only_ms: None });
        self.heard_of(conn);
        self.ready.push_back(conn);
    }
}

/// On a learner.
impl Server {
    /// Closes a connection because its session belongs to a connection on another server.
    pub(super) fn on_moved(&mut self, session: SessionId, conn: ConnId) {
        if self.connections.get(&conn).is_some_and(|connection| connection.session == session) {
            self.close(conn);
        }
    }
}

/// On the leader.
impl Server {
    /// Handles a learner's question whether a returning client's session is alive.
    pub(super) fn on_revalidate(
        &mut self,
        peer: ServerId,
        conn: ConnId,
        session: SessionId,
        secret: Option<SessionSecret>,
        timeout_ms: u32,
    ) {
        self.ask(Place::There(peer, conn), session, secret, timeout_ms);
    }

    fn ask(&mut self, place: Place, session: SessionId, secret: Option<SessionSecret>, timeout_ms: u32) -> bool {
        let Some(round) = self.confirm() else { return false };
        self.owners.questions.asked.push_back(Question { place, session, secret, timeout_ms, round });
        if mutation::is_on(Mutation::ExpireWithoutQuorum) {
            self.on_questions_confirmed(round, Some(self.state.applied()));
        }
        if self.zab.is_answered(round) {
            // The leader is a quorum by itself and has observers. Thousands may ask before anything
            // else runs.
            self.follow_zab();
        }
        true
    }

    pub(super) fn on_questions_confirmed(&mut self, round: Round, up_to: Option<Zxid>) {
        if let Some(up_to) = up_to {
            self.owners.questions.confirm(round, up_to);
        }
        self.answer_syncs();
    }

    /// Answers the questions that the applied state allows. Returns false if it answered none.
    pub(super) fn answer_questions(&mut self) -> bool {
        let mut is_any = false;
        while let Some((up_to, question)) = self.owners.questions.next(self.state.applied()) {
            if self.sessions.lookup(question.session).is_some_and(|live| live.closing) {
                self.owners.questions.ending.entry(question.session).or_default().push((up_to, question));
            } else {
                self.answer_question(up_to, question);
                is_any = true;
            }
        }
        is_any
    }

    fn answer_question(&mut self, up_to: Zxid, question: Question) {
        let Question { place, session, secret, timeout_ms, round } = question;
        if let Place::Here(conn) = place
            && !self.owners.returning.contains_key(&conn)
        {
            // The connection closed meanwhile.
            return;
        }
        let proved = self
            .sessions
            .lookup(session)
            .filter(|live| secret.is_some_and(|secret| super::connect::constant_time_eq(&secret.0, &live.secret.0)));
        // Writes requested on the old connection and not yet committed must not follow writes from
        // the new one.
        let up_to = if mutation::is_on(Mutation::ClientAheadTaken) { Zxid::ZERO } else { up_to };
        let up_to = proved.map(|live| up_to.max(live.last_write));
        let since = Attachment { epoch: self.zab.epoch(), round: round.0 };
        let up_to = up_to.map(|up_to| {
            let old = self.sessions.attach(session, place, since);
            if old != place {
                self.evict(session, old);
            }
            self.renew_session(session, timeout_ms).unwrap_or(up_to)
        });
        match place {
            Place::Here(conn) => self.on_revalidated(conn, session, up_to, since),
            Place::There(peer, conn) => {
                self.zab.expect_commit(peer, up_to.unwrap_or_default());
                self.send_to(peer, PeerMessage::Revalidated { conn, session, up_to, since });
            }
            Place::Nowhere | Place::Left => {}
        }
    }

    /// Applies the timeout that a returning owner requested. Returns the entry that the client
    /// waits for.
    ///
    /// A changed timeout becomes an entry. Otherwise the next leader, or this server after a
    /// restart, would grant the former one.
    fn renew_session(&mut self, session: SessionId, timeout_ms: u32) -> Option<Zxid> {
        let now_ms = self.now.mono_ms;
        if mutation::is_on(Mutation::RenewalNotReplicated) {
            self.sessions.renew(session, timeout_ms, now_ms);
            return None;
        }
        self.sessions.touch(session, now_ms);
        let changes = self.sessions.lookup(session).is_some_and(|live| live.next_timeout_ms != timeout_ms);
        // Without room for the entry the session keeps its timeout, and the client is told that
        // one. So a session can return while the disk does not accept writes.
        let txn = Txn::RenewSession { session, timeout_ms };
        if !changes || self.admission(Need::Session) != Admission::Go || !self.propose(&txn, Origin::None) {
            return None;
        }
        let zxid = self.zab.last();
        self.sessions.begin_renewal(session, timeout_ms, zxid, now_ms);
        Some(zxid)
    }

    /// Ends the sessions that a server's former processes left behind.
    ///
    /// A learner sends its list of live sessions once per epoch, and its disk may be faster than
    /// this leader's. The list waits until the leader has applied every session proposed before it
    /// arrived. A session applied later would be missed, and live on for its whole timeout.
    pub(super) fn on_living(&mut self, server: ServerId, sessions: BTreeSet<SessionId>) {
        let up_to = self.zab.last();
        self.owners.said_to_live.insert(server, Living { up_to, sessions });
        self.end_known_orphans();
    }

    /// Ends the sessions of this server's former processes, when it begins to lead.
    ///
    /// All sessions from before this leadership are applied by then, and no session has begun
    /// since.
    pub(super) fn end_all_orphans(&mut self) {
        let sessions = self.owners.of_this_process.clone();
        self.on_living(self.zab.id(), sessions);
    }

    /// Processes each list whose sessions are all applied; the others stay queued.
    pub(super) fn end_known_orphans(&mut self) {
        if self.owners.said_to_live.is_empty() || !self.is_serving() {
            return;
        }
        let applied = self.state.applied();
        for (server, living) in std::mem::take(&mut self.owners.said_to_live) {
            if living.up_to > applied || !self.end_orphans(server, &living) {
                self.owners.said_to_live.insert(server, living);
            }
        }
    }

    /// Ends the orphaned sessions of `server`. Returns whether all of them were proposed.
    ///
    /// During a hand-over the leader cannot propose, and it may continue to lead if the hand-over
    /// fails. The caller then retries.
    fn end_orphans(&mut self, server: ServerId, living: &Living) -> bool {
        for session in self.state.sessions_at_home(server) {
            let is_open = self.sessions.lookup(session).is_some_and(|live| !live.closing);
            // A session created after the list arrived belongs to the process that sent the list.
            let is_former = session.0 <= living.up_to.as_i64() && !living.sessions.contains(&session);
            if is_open && is_former {
                if !self.propose(&Txn::CloseSession { session }, Origin::None) {
                    return false;
                }
                self.sessions.close(session);
            }
        }
        true
    }

    /// Closes a stale connection of a session whose entry came from elsewhere.
    ///
    /// Called after applying an entry of `session` that no connection of this server requested. A
    /// connection still held here is half open: its client moved away under a leader that died
    /// before this server was told. Requests waiting on that connection must not take effect after
    /// the entry.
    ///
    /// A session that is just returning to this leader keeps its connection. It waits for exactly
    /// such entries, which its former connection requested.
    pub(super) fn leave_to_its_owner(&mut self, session: SessionId) {
        let here = self.sessions.lookup(session).and_then(|live| live.conn());
        let is_coming = |conn: &ConnId| self.owners.returning.contains_key(conn);
        let here = here.filter(|conn| mutation::is_on(Mutation::ReturningSentAway) || !is_coming(conn));
        if let Some(conn) = here.filter(|_| !mutation::is_on(Mutation::OldOwnerGoesOn)) {
            self.close(conn);
        }
    }

    /// Closes the connection that a session was on.
    pub(super) fn evict(&mut self, session: SessionId, place: Place) {
        if mutation::is_on(Mutation::OldOwnerGoesOn) {
            return;
        }
        match place {
            Place::Here(conn) => self.close(conn),
            Place::There(peer, conn) => {
                self.send_to(peer, PeerMessage::Moved { session, conn });
            }
            Place::Nowhere | Place::Left => {}
        }
    }

    /// Returns whether this server leads in the epoch that a learner's message names.
    pub(super) fn leads_in(&self, epoch: Epoch) -> bool {
        self.leads() && self.zab.epoch() == epoch
    }
}
