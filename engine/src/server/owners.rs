//! Which server, and which of its connections, a session is on: the leader knows, and asks nobody.
//!
//! A client that comes back shows its session and secret. Whatever server it came to, the leader decides: after a quorum confirmed that it leads, from a state that has everything
//! committed by then. So "expired" is never said of a session that lives, nor "alive" of one that a newer leader ended.

use super::Server;
use super::history::Origin;
use super::pipeline::Awaits;
use crate::event::ConnId;
use crate::peer::PeerMessage;
use crate::session::{Phase, Place};
use crate::txn::Txn;
use std::collections::{BTreeMap, BTreeSet};
use zoolet_model::{ConnectReply, ConnectRequest, ServerId, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Epoch, Mutation, Round, mutation};

/// A client that came back to this server, and whose session is being asked after.
#[derive(Clone, Copy, Debug)]
struct Returning {
    session: SessionId,
    timeout_ms: u32,
    read_only_byte: bool,
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
    /// What has to be applied before it can be answered; known once the round is confirmed.
    up_to: Option<Zxid>,
}

/// Sessions that come to another connection.
#[derive(Debug, Default)]
pub(super) struct Owners {
    returning: BTreeMap<ConnId, Returning>,
    questions: Vec<Question>,
    /// Sessions that were begun in this very process, connected or not: of a former one nobody is left.
    pub(super) of_this_process: BTreeSet<SessionId>,
}

impl Owners {
    /// What waits here.
    pub(super) fn len(&self) -> usize {
        self.returning.len() + self.questions.len()
    }

    pub(super) fn clear(&mut self) {
        self.returning.clear();
        self.questions.clear();
    }

    pub(super) fn forget_connection(&mut self, conn: ConnId) {
        if self.returning.remove(&conn).is_some() {
            self.questions.retain(|question| question.place != Place::Here(conn));
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
        self.owners.returning.insert(conn, Returning { session, timeout_ms, read_only_byte });
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

    /// The leader's answer; this server itself may be the leader.
    pub(super) fn on_revalidated(&mut self, conn: ConnId, session: SessionId, up_to: Option<Zxid>) {
        let Some(returning) = self.owners.returning.get(&conn).filter(|returning| returning.session == session) else {
            // It went away meanwhile.
            return;
        };
        let Some(up_to) = up_to else {
            self.refused(conn, returning.read_only_byte);
            return self.close(conn);
        };
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.session = session;
        }
        let up_to = if mutation::is_on(Mutation::ReadBeforeOwnWrites) { Zxid::ZERO } else { up_to };
        self.await_applied(conn, Awaits::Session, up_to);
    }

    /// Everything the client may have seen or done before is applied here.
    pub(super) fn take_in(&mut self, conn: ConnId) {
        let Some(Returning { session, timeout_ms, read_only_byte }) = self.owners.returning.remove(&conn) else {
            return;
        };
        let Some(secret) = self.sessions.lookup(session).map(|live| live.secret) else {
            // It ended meanwhile. When the client comes back the leader will say so.
            return self.close(conn);
        };
        let place = Place::Here(conn);
        match self.sessions.attach(session, place) {
            Place::Here(old) if old != conn => self.close(old),
            Place::Here(_) | Place::There(..) | Place::Nowhere | Place::Left => {}
        }
        self.sessions.renew(session, timeout_ms, self.now.mono_ms);
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
        self.owners.questions.push(Question { place, session, secret, timeout_ms, round, up_to: None });
        true
    }

    pub(super) fn on_questions_confirmed(&mut self, round: Round, up_to: Option<Zxid>) {
        for question in self.owners.questions.iter_mut().filter(|question| question.round <= round) {
            // What was confirmed once stays so: a later round only asks for more.
            question.up_to = question.up_to.or(up_to);
        }
        self.answer_questions();
    }

    /// Answers what the applied state is ready for.
    pub(super) fn answer_questions(&mut self) {
        let mut at = 0;
        while let Some(&question) = self.owners.questions.get(at) {
            let is_ready = question.up_to.is_some_and(|up_to| up_to <= self.state.applied());
            // An end that is only proposed may never come: whoever asks waits until it is known.
            let is_ending = self.sessions.lookup(question.session).is_some_and(|live| live.closing);
            if is_ready && !is_ending {
                self.owners.questions.remove(at);
                self.answer_question(question);
            } else {
                at += 1;
            }
        }
    }

    fn answer_question(&mut self, question: Question) {
        let Question { place, session, secret, timeout_ms, up_to, .. } = question;
        let proved = self
            .sessions
            .lookup(session)
            .filter(|live| secret.is_some_and(|secret| super::connect::constant_time_eq(&secret.0, &live.secret.0)));
        // What it asked for on its old connection, and is not committed yet, must not come after what it asks for on the new one.
        let up_to = proved.and_then(|live| up_to.map(|up_to| up_to.max(live.last_write)));
        if up_to.is_some() {
            let old = self.sessions.attach(session, place);
            if old != place {
                self.evict(session, old);
            }
            self.sessions.renew(session, timeout_ms, self.now.mono_ms);
            self.note_busy();
        }
        match place {
            Place::Here(conn) => self.on_revalidated(conn, session, up_to),
            Place::There(peer, conn) => {
                self.send_to(peer, PeerMessage::Revalidated { conn, session, up_to });
            }
            Place::Nowhere | Place::Left => {}
        }
    }

    /// A server says which sessions of its own process live: those of its former processes have no owner any more, and end at once.
    pub(super) fn end_orphans(&mut self, server: ServerId, living: &BTreeSet<SessionId>) {
        for session in self.state.sessions_at_home(server) {
            let is_open = self.sessions.lookup(session).is_some_and(|live| !live.closing);
            if is_open && !living.contains(&session) && self.propose(&Txn::CloseSession { session }, Origin::None) {
                self.sessions.close(session);
            }
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
