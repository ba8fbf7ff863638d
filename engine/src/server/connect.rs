//! Connections and the sessions they carry.

use super::Server;
use super::admission::{Admission, Need};
use super::fetches::Waiter;
use super::history::Origin;
use crate::action::Action;
use crate::event::ConnId;
use crate::network::Source;
use crate::peer::Attachment;
use crate::session::{Connection, Phase, Place};
use crate::store::key;
use crate::txn::Txn;
use std::net::IpAddr;
use zoolet_model::{ConnectReply, ConnectRequest, Reply, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Mutation, mutation};

impl Server {
    pub(super) fn on_connect(&mut self, conn: ConnId, peer: Option<IpAddr>, request: &ConnectRequest) {
        // A client that has seen more than this server must find another one; it is told by a close, not by a refusal (surface 1.4).
        let is_ahead = request.last_zxid_seen > self.state.applied().as_i64();
        let is_ahead = is_ahead && !mutation::is_on(Mutation::ClientAheadTaken);
        if !self.is_serving() || self.is_stale() || is_ahead {
            self.actions.push_back(Action::Close { conn });
            return;
        }
        self.connections.insert(conn, Connection::new(peer, self.settings.skip_acl));
        if request.session == SessionId(0) {
            self.begin_session(conn, request)
        } else {
            self.continue_session(conn, request)
        }
    }

    fn begin_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        let secret = SessionSecret(self.secrets.next_secret());
        // Without an address it is of this process, and ends with it.
        let client = self.connections.get(&conn).and_then(|connection| connection.identity.ip);
        let home = client.is_none().then(|| self.zab.id());
        let source = client.map(|client| Source::of(client, self.seed));
        let txn = Txn::CreateSession { timeout_ms: self.negotiate(request.timeout_ms), secret, home };
        let refused = !self.has_room_for_session(client, source) || self.admission(Need::Session) != Admission::Go;
        let origin = Origin::Connect { conn, read_only_byte: request.read_only.is_some() };
        if refused || !self.propose(&txn, origin) {
            return self.close(conn);
        }
        self.joining.begin(&mut self.sessions, conn, source);
    }

    /// The new session's connection may be gone; the session then waits for its owner or its timeout.
    pub(super) fn on_session_created(&mut self, conn: ConnId, reply: ConnectReply) {
        let source = self.joining.end(conn);
        self.sessions.began_from(reply.session, source);
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.phase == Phase::Joining
        {
            self.sessions.attach(reply.session, Place::Here(conn), Attachment::of_birth(reply.session));
            connection.session = reply.session;
            connection.phase = Phase::Open;
            if connection.identity.ip.is_none() {
                self.owners.of_this_process.insert(reply.session);
            }
            self.connected(conn, reply);
            self.heard_of(conn);
            self.ready.push_back(conn);
        }
    }

    /// The secret is checked before anything happens to the connection that carries the session now: ZooKeeper closes that one
    /// first, for anybody who knows the id (surface 13.25).
    fn continue_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        let timeout_ms = self.negotiate(request.timeout_ms);
        let changes = self.sessions.lookup(request.session).is_some_and(|live| live.next_timeout_ms != timeout_ms);
        if !self.is_alone() || changes {
            // Another timeout is an entry, which the client waits for.
            return self.ask_after_session(conn, request);
        }
        let ConnectRequest { session, password, .. } = request;
        let proved = self
            .sessions
            .lookup(*session)
            .filter(|live| password.as_deref().is_some_and(|password| constant_time_eq(password, &live.secret.0)));
        let Some((secret, is_ending)) = proved.map(|live| (live.secret, live.closing)) else {
            self.refused(conn, request.read_only.is_some());
            return self.close(conn);
        };
        if is_ending {
            // A power loss may take back an end that is only proposed: whoever asks is told nothing, and asks again.
            return self.close(conn);
        }
        // Alone there is no other server that could know less: the old connection is gone at once.
        let since = self.sessions.since(*session);
        let old = self.sessions.attach(*session, Place::Here(conn), since);
        self.evict(*session, old);
        // With the timeout that it has, coming back writes nothing, costs no zxid (surface 13.5) and works while the log does not.
        self.sessions.touch(*session, self.now.mono_ms);
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.session = *session;
            connection.phase = Phase::Open;
        }
        let reply = ConnectReply {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session: *session,
            secret,
            read_only_byte: request.read_only.is_some(),
        };
        self.connected(conn, reply);
        self.wait_for_own_writes(conn);
    }

    pub(super) fn negotiate(&self, asked_ms: i32) -> u32 {
        let (min, max) = (self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms);
        u32::try_from(asked_ms).unwrap_or(0).clamp(min, max.max(min))
    }

    /// A session is gone: its owner asked for it and is answered, or it expired and its connection just ends.
    pub(super) fn on_session_closed(&mut self, zxid: Zxid, origin: Origin, session: SessionId) {
        let carried_by = self.sessions.remove(session);
        self.owners.of_this_process.remove(&session);
        self.owners.ended(session);
        self.state.memory().forget_keys(&key::ephemerals_prefix(session));
        if let Origin::Request { conn, xid, .. } = origin {
            self.history.acknowledged += 1;
            self.reply(conn, xid, zxid.as_i64(), Ok(Reply::Empty));
            self.close(conn);
        }
        if let Some(conn) = carried_by {
            self.close(conn);
        }
    }

    /// Sends what is queued and closes. Whatever the connection had waiting is dropped; its session lives on.
    pub(super) fn close(&mut self, conn: ConnId) {
        if self.is_open(conn) {
            self.actions.push_back(Action::Close { conn });
            self.forget(conn);
        }
    }

    pub(super) fn on_disconnected(&mut self, conn: ConnId) {
        self.forget(conn);
        self.connections.remove(&conn);
    }

    fn forget(&mut self, conn: ConnId) {
        self.tell_before_end(conn);
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.phase = Phase::Closed;
        let head = connection.waiting.front().map(|head| head.number);
        connection.clear();
        self.identity_bytes -= connection.forget_identities();
        self.sessions.detach(connection.session, conn);
        self.watches.drop_connection(conn);
        if let Some(number) = head {
            self.let_go(Waiter::Request(conn, number));
        }
        self.forwards.forget_connection(conn);
        self.owners.forget_connection(conn);
    }
}

pub(super) fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
