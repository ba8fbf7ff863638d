//! Which server, and which of its connections, a session is on: the leader knows, and asks nobody.
//!
//! A client that comes back shows its session and secret. Whatever server it came to, the leader decides: after a quorum confirmed that it leads, from a state that has everything
//! committed by then. So "expired" is never said of a session that lives, nor "alive" of one that a newer leader ended.

use super::Server;
use super::admission::{Admission, Need};
use super::history::Origin;
use super::syncs::Awaits;
use crate::event::ConnId;
use crate::peer::{Attachment, PeerMessage};
use crate::session::{Phase, Place};
use crate::txn::Txn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoolet_model::{ConnectReply, ConnectRequest, ServerId, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Epoch, Mutation, Round, mutation};

/// A client that came back to this server, and whose session is being asked after.
#[derive(Clone, Copy, Debug)]
struct Returning {
    session: SessionId,
    read_only_byte: bool,
    /// Of this connection; known when the leader has answered.
    since: Attachment,
}

/// A learner's list of the sessions of its process.
#[derive(Clone, Debug)]
struct Living {
    /// The last entry that was proposed when the list came: a session of a former process began at or before it.
    up_to: Zxid,
    sessions: BTreeSet<SessionId>,
}

/// Leader: does this session live?
#[derive(Clone, Copy, Debug)]
struct Question {
    /// Where its owner is from now on, if it does.
    place: Place,
    session: SessionId,
    secret: Option<SessionSecret>,
    timeout_ms: u32,
    round: Round,
}

/// The same of all. Thousands come at once when a server is lost: each is looked at when its turn has come, and not before. One of a connection that has
/// ended stays until then.
#[derive(Debug, Default)]
struct Questions {
    /// Not confirmed, in the order of their rounds.
    asked: VecDeque<Question>,
    /// What has to be applied before each can be answered; never less than of the one before.
    confirmed: VecDeque<(Zxid, Question)>,
    /// Of sessions whose end is proposed and may never come: whoever asks waits until it is known.
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

    fn next(&mut self, applied: Zxid) -> Option<(Zxid, Question)> {
        let is_ready = self.confirmed.front().is_some_and(|(up_to, _)| *up_to <= applied);
        if is_ready { self.confirmed.pop_front() } else { None }
    }
}

/// Sessions that come to another connection.
#[derive(Debug, Default)]
pub(super) struct Owners {
    returning: BTreeMap<ConnId, Returning>,
    questions: Questions,
    /// Sessions that were begun in this very process, connected or not: of a former one nobody is left.
    pub(super) of_this_process: BTreeSet<SessionId>,
    /// Leader: the sessions of its own process that each learner named. A list stays until this leader has applied every session that it can be about, and
    /// has ended the sessions that it does not name.
    said_to_live: BTreeMap<ServerId, Living>,
}

impl Owners {
    /// What waits here.
    pub(super) fn len(&self) -> usize {
        self.returning.len() + self.questions.len() + self.said_to_live.len()
    }

    pub(super) fn clear(&mut self) {
        self.returning.clear();
        self.questions = Questions::default();
        self.said_to_live.clear();
    }

    pub(super) fn forget_connection(&mut self, conn: ConnId) {
        self.returning.remove(&conn);
    }

    /// A session is over: who asked after it can be told.
    pub(super) fn ended(&mut self, session: SessionId) {
        for question in self.questions.ending.remove(&session).into_iter().flatten().rev() {
            self.questions.confirmed.push_front(question);
        }
    }
}

/// Every server.
impl Server {
    /// A client shows the session that it had. Its connection is answered by [`Server::on_revalidated`].
    pub(super) fn ask_after_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        let ConnectRequest { session, ref password, .. } = *request;
        let timeout_ms = self.negotiate(request.timeout_ms);
        let secret = password.as_deref().and_then(|password| <[u8; 16]>::try_from(password).ok()).map(SessionSecret);
        let read_only_byte = request.read_only.is_some();
        let since = Attachment::default();
        self.owners.returning.insert(conn, Returning { session, read_only_byte, since });
        let is_asked = match self.leader() {
            Some(leader) => {
                let epoch = self.zab.epoch();
                self.send_to(leader, PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms })
            }
            None => self.ask(Place::Here(conn), session, secret, timeout_ms),
        };
        if !is_asked {
            self.close(conn);
        }
    }

    /// The leader's answer; this server itself may be the leader. What follows from it does so in [`Server::answer_syncs`].
    pub(super) fn on_revalidated(&mut self, conn: ConnId, session: SessionId, up_to: Option<Zxid>, since: Attachment) {
        let returning = self.owners.returning.get_mut(&conn).filter(|returning| returning.session == session);
        let Some(returning) = returning else {
            // It went away meanwhile.
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

    /// Everything the client may have seen or done before is applied here.
    pub(super) fn take_in(&mut self, conn: ConnId) {
        let Some(returning) = self.owners.returning.remove(&conn) else { return };
        let Returning { session, read_only_byte, since } = returning;
        // The timeout that all servers have applied, and not the one that was asked for: a leader without room for the entry leaves it as it was.
        let Some((secret, timeout_ms)) = self.sessions.lookup(session).map(|live| (live.secret, live.timeout_ms))
        else {
            // It ended meanwhile. When the client comes back the leader will say so.
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
        self.connected(conn, ConnectReply { timeout_ms, session, secret, read_only_byte });
        self.heard_of(conn);
        self.ready.push_back(conn);
    }
}

/// Learner.
impl Server {
    /// A session of ours has come to another server, or was there before it was here.
    pub(super) fn on_moved(&mut self, session: SessionId, conn: ConnId) {
        if self.connections.get(&conn).is_some_and(|connection| connection.session == session) {
            self.close(conn);
        }
    }
}

/// Leader.
impl Server {
    /// A learner asks whether a session lives that came to it.
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
            // A leader that is a quorum by itself, and has observers. Thousands may ask before anything else is done.
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

    /// Answers what the applied state is ready for; false when that was nothing.
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
            // It went away meanwhile.
            return;
        }
        let proved = self
            .sessions
            .lookup(session)
            .filter(|live| secret.is_some_and(|secret| super::connect::constant_time_eq(&secret.0, &live.secret.0)));
        // What it asked for on its old connection, and is not committed yet, must not come after what it asks for on the new one.
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
                self.send_to(peer, PeerMessage::Revalidated { conn, session, up_to, since });
            }
            Place::Nowhere | Place::Left => {}
        }
    }

    /// The owner of a session came back with this timeout. A timeout that changes becomes an entry: the next leader would grant the former one
    /// otherwise, and this server too after a restart. Returns the entry that the client waits for.
    fn renew_session(&mut self, session: SessionId, timeout_ms: u32) -> Option<Zxid> {
        let now_ms = self.now.mono_ms;
        if mutation::is_on(Mutation::RenewalNotReplicated) {
            self.sessions.renew(session, timeout_ms, now_ms);
            return None;
        }
        self.sessions.touch(session, now_ms);
        let changes = self.sessions.lookup(session).is_some_and(|live| live.next_timeout_ms != timeout_ms);
        // Without room for the entry the session keeps its timeout, which the client is told: coming back works while the disk does not.
        let txn = Txn::RenewSession { session, timeout_ms };
        if !changes || self.admission(Need::Session) != Admission::Go || !self.propose(&txn, Origin::None) {
            return None;
        }
        let zxid = self.zab.last();
        self.sessions.begin_renewal(session, timeout_ms, zxid, now_ms);
        Some(zxid)
    }

    /// A server says which sessions of its own process live: those of its former processes have no owner any more, and end at once.
    ///
    /// A learner says this once in an epoch, and its disk may be faster than this leader's. The list waits until the leader has applied every session that
    /// was proposed before: one that is still to be applied would be passed over, and live on for its whole timeout.
    pub(super) fn on_living(&mut self, server: ServerId, sessions: BTreeSet<SessionId>) {
        let up_to = self.zab.last();
        self.owners.said_to_live.insert(server, Living { up_to, sessions });
        self.end_known_orphans();
    }

    /// The leader serves: it knows all sessions there were when it began to lead, and none that were begun since.
    pub(super) fn end_all_orphans(&mut self) {
        let sessions = self.owners.of_this_process.clone();
        self.on_living(self.zab.id(), sessions);
    }

    /// Ends what former processes left, as far as this leader has applied what the lists are about.
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

    /// Whether all of them are ended. Nothing can be proposed while another server shall lead, and this one may go on.
    fn end_orphans(&mut self, server: ServerId, living: &Living) -> bool {
        for session in self.state.sessions_at_home(server) {
            let is_open = self.sessions.lookup(session).is_some_and(|live| !live.closing);
            // A session that began behind the list is of the process that sent it.
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

    /// Applied is an entry of a session that did not ask for it on a connection of this server. One that is here nevertheless is half open: its client
    /// went elsewhere, under a leader that died before this server was told. What waits on it must not come after that entry.
    ///
    /// A session that is only coming to this leader stays: it waits for exactly such entries, which its former connection asked for.
    pub(super) fn leave_to_its_owner(&mut self, session: SessionId) {
        let here = self.sessions.lookup(session).and_then(|live| live.conn());
        let is_coming = |conn: &ConnId| self.owners.returning.contains_key(conn);
        let here = here.filter(|conn| mutation::is_on(Mutation::ReturningSentAway) || !is_coming(conn));
        if let Some(conn) = here.filter(|_| !mutation::is_on(Mutation::OldOwnerGoesOn)) {
            self.close(conn);
        }
    }

    /// Ends the connection that a session was on.
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

    /// Whether a learner says this in the epoch that this server leads.
    pub(super) fn leads_in(&self, epoch: Epoch) -> bool {
        self.leads() && self.zab.epoch() == epoch
    }
}
