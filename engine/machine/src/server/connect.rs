//! Connections and the sessions they carry.

use super::Server;
use super::admission::Admission;
use super::fetches::Waiter;
use super::history::Origin;
use crate::network::Source;
use crate::record::key;
use crate::seam::action::Action;
use crate::seam::ids::ConnId;
use crate::seam::peer::Attachment;
use crate::sessions::{Connection, Phase, Place};
use crate::txn::Txn;
use std::net::IpAddr;
use zoolet_model::{ConnectReply, ConnectRequest, Reply, SessionId, SessionSecret, Zxid};
use zoolet_zab::{Mutation, mutation};

impl Server {
    pub(super) fn on_connect(&mut self, conn: ConnId, peer: Option<IpAddr>, request: &ConnectRequest) {
        let is_behind = self.is_behind(request);
        if !is_behind && self.is_for_readers(request) {
            return self.on_reader(conn, peer, request);
        }
        let waits = !self.takes_requests() && self.keeps_newcomers(request);
        if !waits && (!self.is_serving() || self.is_stale() || self.sends_on(peer) || is_behind) {
            self.connections.remove(&conn);
            self.actions.push_back(Action::Close { conn });
            return;
        }
        let joined = (self.now.mono_ms, self.negotiate(request.timeout_ms));
        self.connections.insert(conn, Connection { joined, ..Connection::new(peer, self.settings.skip_acl) });
        if waits {
            return self.keep_newcomer(conn, request);
        }
        if request.session == SessionId(0) && self.begins_local(peer) {
            self.begin_local(conn, request)
        } else if request.session == SessionId(0) {
            self.begin_session(conn, request)
        } else if self.locals.contains(request.session) {
            self.continue_local(conn, request)
        } else {
            self.continue_session(conn, request)
        }
    }

    /// Returns whether this client has seen newer state.
    ///
    /// Such a client must find another server: its connection is closed, and its session not refused
    /// (surface 1.4).
    pub(super) fn is_behind(&self, request: &ConnectRequest) -> bool {
        request.last_zxid_seen > self.state.applied().as_i64() && !mutation::is_on(Mutation::ClientAheadTaken)
    }

    fn begin_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        // A connection without an address comes from this process, and its session ends with the
        // process.
        let client = self.connections.get(&conn).and_then(|connection| connection.identity.ip);
        let home = client.is_none().then(|| self.zab.id());
        let source = client.map(|client| Source::of(client, self.seed));
        let admission = self.admission_of_newcomer();
        if !self.has_room_for_session(client, source) || admission == Admission::Refuse {
            return self.close(conn);
        }
        if admission == Admission::Wait {
            return self.keep_newcomer(conn, request);
        }
        let secret = SessionSecret(self.secrets.next_secret());
        let txn = Txn::CreateSession { timeout_ms: self.negotiate(request.timeout_ms), secret, home };
        let origin = Origin::Connect { conn, read_only_byte: request.read_only.is_some() };
        if !self.propose(&txn, origin) {
            return self.close(conn);
        }
        self.joining.begin(&mut self.sessions, conn, source);
    }

    /// Handles a session's creation. If its connection is gone, the session waits for its owner or
    /// its timeout.
    pub(super) fn on_session_created(&mut self, conn: ConnId, reply: ConnectReply, birth: Zxid) {
        let source = self.joining.end(conn);
        self.sessions.began_from(reply.session, source);
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.phase == Phase::Joining
        {
            self.sessions.attach(reply.session, Place::Here(conn), Attachment::of_birth(birth));
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

    /// Continues a session on a new connection.
    ///
    /// The secret is checked before the old connection is touched. ZooKeeper closes the old
    /// connection first, for any client that knows the id (surface 13.25).
    fn continue_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        let timeout_ms = self.negotiate(request.timeout_ms);
        let changes = self.sessions.lookup(request.session).is_some_and(|live| live.next_timeout_ms != timeout_ms);
        if !self.is_alone() || changes {
            // A changed timeout becomes an entry, which the client waits for.
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
            // A power loss may undo an end that is only proposed: give no answer, and let the
            // client ask again.
            return self.close(conn);
        }
        // Alone, no other server could lag behind: the old connection closes at once.
        let since = self.sessions.since(*session);
        let old = self.sessions.attach(*session, Place::Here(conn), since);
        self.evict(*session, old);
        // With an unchanged timeout, returning writes nothing and costs no zxid (surface 13.5). It
        // works while the log does not.
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
            read_only_ms: None,
        };
        self.connected(conn, reply);
        self.wait_for_own_writes(conn);
    }

    pub(super) fn negotiate(&self, asked_ms: i32) -> u32 {
        let (min, max) = (self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms);
        u32::try_from(asked_ms).unwrap_or(0).clamp(min, max.max(min))
    }

    /// Handles a session's end: answers an owner that requested it, and closes the connections.
    pub(super) fn on_session_closed(&mut self, zxid: Zxid, origin: Origin, session: SessionId) {
        let carried_by = self.sessions.remove(session);
        self.owners.of_this_process.remove(&session);
        self.owners.ended(session);
        self.state.memory().forget_keys(&key::ephemerals_prefix(session));
        if let Origin::Request { conn, xid, number } = origin {
            self.history.acknowledged += 1;
            self.close_behind_a_lost_refusal(conn, number);
            self.reply(conn, xid, zxid.as_i64(), Ok(Reply::Empty));
            self.close(conn);
        }
        if let Some(conn) = carried_by {
            self.close(conn);
        }
    }

    /// Sends what is queued and closes. Waiting requests are dropped; the session lives on.
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
        self.newcomers.remove(&conn);
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.phase = Phase::Closed;
        let has_writes = !connection.proposed.is_empty();
        let session = connection.session;
        let head = connection.waiting.front().map(|head| head.number);
        connection.clear();
        connection.newcomer = None;
        self.identity_bytes -= connection.forget_identities();
        self.sessions.detach(session, conn);
        self.leave_local(session, conn, has_writes);
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
