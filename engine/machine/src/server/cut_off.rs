//! A learner that does not hear its leader sends its waiting clients on.
//!
//! A learner that is cut off from its leader alone goes on following. A quorum hears the leader, and
//! an election would stop the writes of all servers. Requests that need the leader would wait here
//! for seconds. So the learner closes their connections, and the clients reach another server.
//! Connections without such requests, and reads, stay until the state is too old. So do clients in
//! this process, which know no other server.
//!
//! A learner that hears neither its leader nor a quorum does not know whether the others have lost
//! the leader too. Its clients wait as they wait for a new leader, see `waiting.rs`.

use super::Server;
use super::touch::KEPT_MS;
use crate::sessions::{Connection, Phase};
use std::collections::BTreeSet;
use std::net::IpAddr;
use zoolet_model::{Class, Request};

/// Interval between two searches for waiting clients, in milliseconds.
const LOOK_MS: u64 = 50;

/// Returns whether a request gets its outcome from the leader.
fn asks_leader(request: &Request) -> bool {
    let class = request.class();
    class.is_ordered() || matches!(class, Class::Sync)
}

/// Returns whether a client may find what it needs at another server.
fn may_leave(connection: &Connection) -> bool {
    !connection.is_reader && connection.identity.ip.is_some()
}

/// Returns whether a connection waits for the leader.
fn waits_for_leader(connection: &Connection) -> bool {
    match connection.phase {
        Phase::Joining | Phase::Leaving => true,
        Phase::Open => {
            !connection.proposed.is_empty() || connection.waiting.iter().any(|waiting| asks_leader(&waiting.request))
        }
        Phase::Closed => false,
    }
}

impl Server {
    /// Returns whether this learner and its leader have not heard each other for too long.
    fn is_cut_off(&self) -> bool {
        self.zab.cut_off_at_ms().is_some_and(|at_ms| at_ms <= self.now.mono_ms)
    }

    /// Returns whether a new client should go to another server now.
    pub(super) fn sends_on(&self, client: Option<IpAddr>) -> bool {
        let is_over = self.zab.doubts_since_ms().is_some_and(|since_ms| since_ms + KEPT_MS <= self.now.mono_ms);
        client.is_some() && (is_over || self.is_cut_off())
    }

    /// Returns when [`Server::send_waiting_on`] must run, in milliseconds.
    pub(super) fn cut_off_deadline(&self) -> Option<u64> {
        let is_open = |connection: &Connection| connection.phase != Phase::Closed && may_leave(connection);
        let at_ms = self.zab.cut_off_at_ms().or(self.zab.doubts_since_ms());
        let at_ms = at_ms.filter(|_| self.connections.values().any(is_open))?;
        Some(at_ms.max(self.touches.send_on_at_ms))
    }

    /// Closes the connections that have waited long enough for a silent leader.
    pub(super) fn send_waiting_on(&mut self) {
        // It may have begun to doubt in this very turn.
        self.touches.doubts_since_ms = self.zab.doubts_since_ms();
        let (now_ms, is_cut_off) = (self.now.mono_ms, self.is_cut_off());
        let looks = is_cut_off || self.touches.doubts_since_ms.is_some();
        if !looks || now_ms < self.touches.send_on_at_ms {
            return;
        }
        self.touches.send_on_at_ms = now_ms + LOOK_MS;
        let blocked: BTreeSet<_> = self.syncs.waiting().collect();
        let waiting = self.connections.iter().filter(|(conn, connection)| {
            may_leave(connection)
                && (waits_for_leader(connection) || blocked.contains(conn))
                && (is_cut_off || self.kept_until_ms(connection) <= now_ms)
        });
        let waiting: Vec<_> = waiting.map(|(&conn, _)| conn).collect();
        waiting.into_iter().for_each(|conn| self.close(conn));
    }
}
