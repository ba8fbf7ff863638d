//! Local sessions: this server begins, continues and ends them without an entry.
//!
//! A local session exists at one server only. Its writes become entries that name it as local. When
//! it asks for an ephemeral, an entry makes it global first, with the same id. The request waits
//! until that entry is applied here.

use super::Server;
use super::admission::{Admission, Need};
use super::history::Origin;
use crate::network::Source;
use crate::record::znode::Session;
use crate::seam::ids::ConnId;
use crate::seam::peer::Attachment;
use crate::server::connect::constant_time_eq;
use crate::server::pipeline::Step;
use crate::sessions::{Live, Phase, Place, Waiting};
use crate::txn::Txn;
use std::collections::BTreeSet;
use std::net::IpAddr;
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, SessionId, SessionSecret};

/// Lateness of a deadline that counts as a pause of this server, in milliseconds.
const LATE_MS: u64 = 200;

impl Server {
    /// Returns whether a new session of this client is local.
    ///
    /// A session inside this process ends with the process, which only a global session can.
    pub(super) fn begins_local(&self, client: Option<IpAddr>) -> bool {
        self.settings.local_sessions && client.is_some()
    }

    /// Returns a session, local or global.
    pub(super) fn live(&self, session: SessionId) -> Option<&Live> {
        self.locals.table().lookup(session).or_else(|| self.sessions.lookup(session))
    }

    pub(super) fn begin_local(&mut self, conn: ConnId, request: &ConnectRequest) {
        let client = self.connections.get(&conn).and_then(|connection| connection.identity.ip);
        let source = client.map(|client| Source::of(client, self.seed));
        if !self.has_room_for_session(client, source) {
            return self.close(conn);
        }
        let secret = SessionSecret(self.secrets.next_secret());
        let begun = Session { timeout_ms: self.negotiate(request.timeout_ms), secret, home: None };
        let sessions = &self.sessions;
        let is_taken = |id| sessions.lookup(id).is_some();
        let session = self.locals.begin(begun, conn, source, self.now.mono_ms, is_taken);
        self.open_local(conn, session, begun.timeout_ms, secret, request.read_only.is_some());
    }

    /// Continues a local session on a new connection. Its old connection closes at once.
    pub(super) fn continue_local(&mut self, conn: ConnId, request: &ConnectRequest) {
        let ConnectRequest { session, password, .. } = request;
        let (session, now_ms, timeout_ms) = (*session, self.now.mono_ms, self.negotiate(request.timeout_ms));
        let proved = self
            .locals
            .table()
            .lookup(session)
            .map(|live| live.secret)
            .filter(|secret| password.as_deref().is_some_and(|password| constant_time_eq(password, &secret.0)));
        let Some(secret) = proved else {
            self.refused(conn, request.read_only.is_some());
            return self.close(conn);
        };
        if self.locals.is_upgrading(session) {
            // It may be global in a moment, and this server must not answer for it then.
            return self.close(conn);
        }
        let table = self.locals.table_mut();
        let old = table.attach(session, Place::Here(conn), Attachment::default());
        table.renew(session, timeout_ms, now_ms);
        self.evict(session, old);
        self.open_local(conn, session, timeout_ms, secret, request.read_only.is_some());
        // New requests must see the writes of the former connection, and no old write may take
        // effect after a new one.
        if let Some(former) = self.locals.former(session).filter(|&former| self.has_writes_in_flight(former))
            && let Some(connection) = self.connections.get_mut(&conn)
        {
            connection.blocked = true;
            self.locals.follow(former, conn);
        }
    }

    pub(super) fn open_local(
        &mut self,
        conn: ConnId,
        session: SessionId,
        timeout_ms: u32,
        secret: SessionSecret,
        read_only_byte: bool,
    ) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.session = session;
            connection.phase = Phase::Open;
        }
        let timeout_ms = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        let is_reader = self.is_reader(conn);
        self.locals.table_mut().note_reader(session, is_reader);
        let read_only_ms = self.read_only_ms().filter(|_| is_reader);
        self.connected(conn, ConnectReply { timeout_ms, session, secret, read_only_byte, read_only_ms });
        self.ready.push_back(conn);
    }

    fn has_writes_in_flight(&self, conn: ConnId) -> bool {
        self.forwards.writers().chain(self.history.writers()).any(|of| of == conn)
    }

    /// Resumes the connections whose session's former connection has no write in flight any more.
    pub(super) fn resume_following(&mut self) {
        if !self.locals.is_any_following() {
            return;
        }
        let settled = (self.state.applied(), self.forwards.answered_total());
        if !self.locals.become_settled(settled) {
            // A hanging disk settles nothing, while thousands of clients come back.
            return;
        }
        let in_flight: BTreeSet<_> = self.forwards.writers().chain(self.history.writers()).collect();
        for (former, conn) in self.locals.take_following() {
            if in_flight.contains(&former) {
                self.locals.follow(former, conn);
            } else if let Some(connection) = self.connections.get_mut(&conn) {
                connection.blocked = false;
                self.ready.push_back(conn);
            }
        }
    }

    /// Notes that a connection ends. The session on it stays.
    pub(super) fn leave_local(&mut self, session: SessionId, conn: ConnId, has_writes: bool) {
        if self.locals.table().lookup(session).and_then(Live::conn) == Some(conn) {
            // The request that asked for the upgrade ends with its connection.
            self.locals.answer_refusal(session);
        }
        self.locals.table_mut().detach(session, conn);
        if has_writes {
            self.locals.left_writes(session, conn);
        }
    }

    /// Closes a session that asked for it. No other server knows it, so there is no entry.
    pub(super) fn close_local(&mut self, conn: ConnId, head: &Waiting) -> Step {
        let Some(connection) = self.connections.get(&conn) else { return Step::Done };
        let session = connection.session;
        if !connection.proposed.is_empty() {
            return Step::Wait;
        }
        self.reply(conn, head.xid, self.state.applied().as_i64(), Ok(Reply::Empty));
        self.close(conn);
        self.locals.remove(session);
        Step::Done
    }

    /// Makes the session of a request for ephemerals global. The request waits for that.
    pub(super) fn upgrade(&mut self, conn: ConnId, head: &Waiting, writes_pending: bool) -> Step {
        let Some(session) = self.connections.get(&conn).map(|connection| connection.session) else {
            return Step::Done;
        };
        if self.locals.is_upgrading(session) {
            return Step::Wait;
        }
        let Some(live) = self.locals.table().lookup(session) else { return Step::Wait };
        let txn = Txn::UpgradeSession { session, timeout_ms: live.timeout_ms, secret: live.secret };
        let admission = match self.admission(Need::Session) {
            _ if self.locals.is_refused(session) => Admission::Refuse,
            // Kept writes may be this session's, and an entry of a global session may not come before
            // them.
            _ if self.asks_kept_first() => Admission::Wait,
            admission => admission,
        };
        match admission {
            Admission::Wait => {
                self.waiting_for_room.insert(conn);
                Step::Wait
            }
            Admission::Refuse if writes_pending => Step::Wait,
            Admission::Refuse => {
                self.locals.answer_refusal(session);
                self.reply(conn, head.xid, self.state.applied().as_i64(), Err(ErrorCode::SystemError));
                Step::Done
            }
            Admission::Go => {
                if !self.propose(&txn, Origin::Upgrade { conn, session }) {
                    self.close(conn);
                    return Step::Done;
                }
                self.locals.begin_upgrade(session, self.zab.epoch());
                Step::Wait
            }
        }
    }

    /// Handles an applied upgrade: every server has the session now.
    pub(super) fn on_upgraded(&mut self, session: SessionId, birth: Attachment) {
        let Some((live, source)) = self.locals.remove(session) else { return };
        self.sessions.charge(source);
        self.sessions.began_from(session, source);
        if let Some(conn) = live.conn() {
            self.sessions.attach(session, Place::Here(conn), birth);
            self.heard_of(conn);
            self.ready.push_back(conn);
        }
    }

    /// Handles the leader's refusal of an upgrade. The session stays local.
    pub(super) fn on_upgrade_refused(&mut self, conn: ConnId, session: SessionId, code: ErrorCode) {
        self.locals.refuse_upgrade(session);
        if code == ErrorCode::SystemError && self.is_open(conn) {
            self.ready.push_back(conn);
        } else {
            self.locals.answer_refusal(session);
            self.close(conn);
        }
    }

    /// Closes the connections whose earlier writes have an unknown outcome, at a change of role.
    pub(super) fn lose_following(&mut self) {
        for (_, conn) in self.locals.take_following() {
            self.close(conn);
        }
    }

    /// Settles the upgrades of earlier epochs when this server begins to serve.
    ///
    /// Everything of these epochs that will ever be committed is applied by now. A snapshot may
    /// have brought it.
    pub(super) fn settle_upgrades(&mut self) {
        for (session, epoch) in self.locals.take_upgrading() {
            if self.sessions.lookup(session).is_some() {
                // A later epoch would outbid a connection that took the session over meanwhile.
                self.on_upgraded(session, Attachment { epoch, round: 0 });
            }
        }
    }

    /// Returns when a local session may expire, in milliseconds.
    pub(super) fn locals_deadline(&self) -> Option<u64> {
        if self.judges_locals() { self.locals.table().next_deadline() } else { None }
    }

    /// Returns whether the clients of some local sessions can be heard.
    fn judges_locals(&self) -> bool {
        self.hears_locals() || self.serves_readers()
    }

    /// Returns whether the clients of all local sessions can be heard.
    ///
    /// A server without a leader, or with a stale state, lets at most readers in.
    fn hears_locals(&self) -> bool {
        self.is_serving() && !self.is_stale()
    }

    /// Gives every local session its full timeout once its client can be heard again.
    pub(super) fn note_locals(&mut self) {
        if self.locals.table().is_empty() {
            return;
        }
        if self.locals.become_heard(self.judges_locals(), self.hears_locals()) {
            self.locals.table_mut().touch_all(self.now.mono_ms);
        }
    }

    /// Returns whether the client of this local session can be heard.
    fn may_be_heard(&self, session: SessionId) -> bool {
        self.hears_locals() || self.locals.table().lookup(session).is_some_and(|live| live.is_reader)
    }

    /// Ends the local sessions that were silent for their timeout.
    ///
    /// The accepting server decides alone: no other server can continue them.
    pub(super) fn expire_locals(&mut self) {
        self.note_locals();
        let now_ms = self.now.mono_ms;
        if !self.judges_locals() {
            return;
        }
        if self.locals.table().next_deadline().is_some_and(|due_ms| now_ms.saturating_sub(due_ms) > LATE_MS) {
            // A server that slept or was paused heard no client meanwhile.
            self.locals.table_mut().touch_all(now_ms);
        }
        while let Some(session) = self.locals.table_mut().expired(now_ms) {
            let conn = self.locals.table().lookup(session).and_then(Live::conn);
            let carrier = conn.and_then(|conn| self.connections.get(&conn));
            let is_busy = carrier.is_some_and(|carrier| carrier.outstanding() > 0);
            if is_busy || self.locals.is_upgrading(session) || !self.may_be_heard(session) {
                self.locals.table_mut().touch(session, now_ms);
                continue;
            }
            self.end_local(session);
            self.upkeep.sessions_expired += 1;
        }
    }

    fn end_local(&mut self, session: SessionId) {
        let Some((live, _)) = self.locals.remove(session) else { return };
        if let Some(conn) = live.conn() {
            self.close(conn);
        }
    }

    /// Ends local sessions until all sessions are within `sessions_max`, the least time left first.
    ///
    /// The leader admits global sessions by its own count. It does not know how many local sessions
    /// another server has.
    pub(super) fn make_room_for_global(&mut self) {
        // A session that becomes global counts once, and keeps its place.
        let counted_twice = self.locals.upgrading().filter(|id| self.sessions.lookup(*id).is_some()).count();
        let surplus = self.sessions().saturating_sub(counted_twice + self.limits.sessions_max as usize);
        if surplus == 0 {
            return;
        }
        for session in self.locals.soonest(surplus) {
            self.end_local(session);
            self.refusing.refusals.locals_displaced += 1;
        }
    }
}
