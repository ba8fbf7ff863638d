//! Read-only service: a server without a leader, or with a read-only disk, serves readers.
//!
//! Readers are clients that ask to read only. They read the last applied state, which is a
//! committed one and may be old. Their sessions are local, except those of owners in this process.
//! Their connections end when the cause of the service ends.

use super::Server;
use crate::seam::ids::ConnId;
use crate::server::connect::constant_time_eq;
use crate::sessions::{Connection, Phase};
use std::net::IpAddr;
use zoolet_model::{ConnectRequest, Request, SessionId};
use zoolet_zab as zab;

/// Shortest time without a leader after which readers are served, in milliseconds.
const LEADERLESS_MS: u64 = 2000;

/// What a server knows about its own lack of a leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaderless {
    /// When the present election began; `None` while this server has a leader.
    electing_since_ms: Option<u64>,
    /// When this server last served with a leader, or its process began; `None` while it serves.
    lost_at_ms: Option<u64>,
    /// Until when the state was known to be current before the present event: a follower had heard
    /// its leader, a leader a quorum. `None` for a server that had no leader.
    current_ms: Option<u64>,
    /// False only if no reader is connected.
    has_readers: bool,
}

impl Leaderless {
    /// Creates the state at start: the age of the recovered state counts from the start.
    pub(super) fn new(now_ms: u64) -> Self {
        Self { electing_since_ms: Some(now_ms), lost_at_ms: Some(now_ms), current_ms: None, has_readers: false }
    }

    /// Returns when this server last served with a leader, or its process began, in milliseconds.
    /// `None` while it serves.
    pub(super) fn lost_at_ms(&self) -> Option<u64> {
        self.lost_at_ms
    }

    /// Returns until when the state was known to be current before the present event.
    pub(super) fn current_ms(&self) -> Option<u64> {
        self.current_ms
    }
}

/// Returns whether a reader's request is refused with -119.
fn is_refused(request: &Request) -> bool {
    request.class().is_ordered() || matches!(request, Request::Sync { .. })
}

impl Server {
    /// Returns whether this server serves clients that ask to read only.
    pub(super) fn serves_readers(&self) -> bool {
        let may_read = self.settings.read_only && !self.failed && !self.history.is_replaced;
        may_read && (self.is_leaderless() || self.has_read_only_disk())
    }

    /// Returns whether this server has had no leader, or a silent one, for long enough.
    ///
    /// One follower alone does not abandon its silent leader. Its state is outdated nevertheless.
    fn is_leaderless(&self) -> bool {
        let since_ms = self.leaderless.electing_since_ms.or_else(|| self.current_ms().filter(|_| self.is_outdated()));
        since_ms.is_some_and(|since_ms| since_ms + self.patience_ms() <= self.now.mono_ms)
    }

    fn patience_ms(&self) -> u64 {
        LEADERLESS_MS.max(self.settings.tick_ms.into())
    }

    pub(super) fn has_read_only_disk(&self) -> bool {
        self.upkeep.log_stalled.is_some_and(|stall| stall.is_read_only)
    }

    /// Returns the age of the state that readers see, in milliseconds; `None` unless this server
    /// serves readers.
    ///
    /// The age is the time since the leader last heard a quorum, as far as this server knows, or since
    /// its disk first refused a commit, whichever is earlier.
    pub fn read_only_ms(&self) -> Option<u64> {
        let since_ms = self.leaderless.lost_at_ms.into_iter().chain(self.current_ms()).min();
        self.serves_readers().then(|| since_ms.map_or(0, |since_ms| self.now.mono_ms.saturating_sub(since_ms)))
    }

    /// Returns whether this client is to be served read-only.
    pub(super) fn is_for_readers(&self, request: &ConnectRequest) -> bool {
        let is_served = self.is_serving() && !self.is_stale();
        // With a leader and a read-only disk, no new session can begin.
        let is_refused = !is_served || (self.has_read_only_disk() && request.session == SessionId::NONE);
        let continues_here = self.locals.contains(request.session) && self.has_read_only_disk();
        request.read_only == Some(true) && self.serves_readers() && (is_refused || continues_here)
    }

    /// Begins to serve a client that asks to read only.
    pub(super) fn on_reader(&mut self, conn: ConnId, peer: Option<IpAddr>, request: &ConnectRequest) {
        let connection = Connection { is_reader: true, ..Connection::new(peer, self.settings.skip_acl) };
        self.connections.insert(conn, connection);
        self.leaderless.has_readers = true;
        let session = request.session;
        if session == SessionId::NONE {
            self.begin_local(conn, request)
        } else if self.locals.contains(session) {
            self.continue_local(conn, request)
        } else if peer.is_none() && self.sessions.lookup(session).is_some() {
            self.read_beside_session(conn, request)
        } else if session.server_of_local() == Some(self.zab.id())
            && self.sessions.lookup(session).is_none()
            && !self.settings.local_sessions_upgrade
        {
            // It began here, and its process is gone. It cannot have become global unnoticed.
            self.refused(conn, true);
            self.close(conn)
        } else {
            // A global session goes on at a server that has a leader (surface 1.4).
            self.close(conn)
        }
    }

    /// Lets the owner of a global session in this process read.
    ///
    /// The session itself stays as it is: nothing here extends its life.
    fn read_beside_session(&mut self, conn: ConnId, request: &ConnectRequest) {
        let proved = self.sessions.lookup(request.session).filter(|live| {
            request.password.as_deref().is_some_and(|password| constant_time_eq(password, &live.secret.0))
        });
        let Some((secret, timeout_ms)) = proved.map(|live| (live.secret, live.timeout_ms)) else {
            return self.close(conn);
        };
        self.open_local(conn, request.session, timeout_ms, secret, request.read_only.is_some());
    }

    /// Returns whether this connection may only read.
    pub(super) fn is_reader(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(|connection| connection.is_reader)
    }

    /// Returns whether this reader's request must be refused.
    pub(super) fn is_refused_to_reader(&self, connection: &Connection, request: &Request) -> bool {
        let ends_local = *request == Request::CloseSession && self.locals.contains(connection.session);
        is_refused(request) && !ends_local
    }

    /// Notes a change of the protocol's role. An election that ends also ends read-only service.
    pub(super) fn note_leader(&mut self, role: zab::Role) {
        if role == zab::Role::Looking {
            let now_ms = self.now.mono_ms;
            let current_ms = self.leaderless.current_ms.take().unwrap_or(now_ms);
            // A follower may have served readers beside a silent leader. It goes on with that.
            let outdated_ms = u64::from(self.settings.staleness_max_ms).max(self.patience_ms());
            let was_reading = current_ms + outdated_ms < now_ms;
            self.leaderless.electing_since_ms = Some(if was_reading { current_ms } else { now_ms });
            self.leaderless.lost_at_ms.get_or_insert(current_ms);
        } else {
            self.leaderless.electing_since_ms = None;
            self.end_reading();
        }
    }

    /// Notes until when the state is current, before an event that may end the role.
    pub(super) fn note_current(&mut self) {
        self.leaderless.current_ms = if self.leads() {
            self.zab.quorum_heard_ms(self.now.mono_ms).or(self.leaderless.current_ms)
        } else {
            self.current_ms()
        };
    }

    /// Notes that this server serves with a leader.
    pub(super) fn note_serving(&mut self) {
        self.leaderless.lost_at_ms = None;
    }

    /// Closes the connections of readers, unless this server still serves them.
    pub(super) fn end_reading(&mut self) {
        if !self.leaderless.has_readers || self.serves_readers() {
            return;
        }
        self.leaderless.has_readers = false;
        let readers = self.connections.iter().filter(|(_, one)| one.is_reader && one.phase != Phase::Closed);
        let readers: Vec<_> = readers.map(|(&conn, _)| conn).collect();
        readers.into_iter().for_each(|conn| self.close(conn));
        if !self.settings.local_sessions {
            // No session may be local in normal service.
            self.locals.clear();
        }
    }
}
