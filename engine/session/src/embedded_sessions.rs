//! The in-process sessions of one node, by connection.

use super::Link;
use super::liveness::PINGS_IN_TIMEOUT;
use std::collections::HashMap;
use std::sync::Arc;
use zoolet_machine::{ConnId, Event};
use zoolet_model::LostReason;

/// The in-process sessions of a node, by connection, for the machine's side.
#[derive(Debug, Default)]
pub struct EmbeddedSessions {
    links: HashMap<ConnId, Arc<Link>>,
    numbers: u64,
}

/// Marks connection ids of in-process sessions, to tell them from sockets.
const EMBEDDED: u64 = 1 << 63;

impl EmbeddedSessions {
    /// Returns whether a connection belongs to an in-process session.
    pub fn is_embedded(conn: ConnId) -> bool {
        conn.0 & EMBEDDED != 0
    }

    /// Returns the session of a connection.
    pub fn find(&self, conn: ConnId) -> Option<&Arc<Link>> {
        self.links.get(&conn)
    }

    /// Starts a connection for a session and returns the event for the machine.
    ///
    /// Returns `None` if the session is over and does not need a connection.
    pub fn dial(&mut self, link: Arc<Link>) -> Option<Event> {
        self.numbers += 1;
        let conn = ConnId(EMBEDDED | self.numbers);
        let request = link.dial()?;
        self.links.insert(conn, link);
        Some(Event::Connect { conn, peer: None, request })
    }

    /// Ends a connection that the machine closed; returns the session if it wants to reconnect.
    pub fn close(&mut self, conn: ConnId) -> Option<Arc<Link>> {
        let link = self.links.remove(&conn)?;
        link.closed().then_some(link)
    }

    /// Yields one ping per connected session, which keeps it alive while the process runs.
    pub fn pings(&self) -> impl Iterator<Item = Event> {
        self.links.iter().filter_map(|(&conn, link)| {
            let (xid, request) = link.ping()?;
            Some(Event::Request { conn, xid, request })
        })
    }

    /// Returns the ping interval in milliseconds; `None` without a session.
    pub fn ping_interval_ms(&self) -> Option<u64> {
        self.links.values().map(|link| u64::from(link.timeout_ms() / PINGS_IN_TIMEOUT).max(1)).min()
    }

    /// Asks every connected session to close, for a clean shutdown.
    pub fn close_all(&self) {
        self.links.values().for_each(|link| link.close_unheard());
    }

    /// Returns whether a shutdown need not wait for a session that is connected or connecting.
    ///
    /// A closed session that read without a leader ends on its next connection. A shutdown waits
    /// for that if the session may own ephemerals.
    pub fn is_empty(&self) -> bool {
        self.links.values().all(|link| link.waits_to_end() && !link.holds_until_end())
    }

    /// Ends every session: the node is gone.
    pub fn lost(&mut self, reason: LostReason) {
        self.links.drain().for_each(|(_, link)| link.lost(reason));
    }
}
