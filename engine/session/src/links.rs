//! The sessions of one node, as the machine sees them: by connection.

use super::Link;
use super::life::PINGS_IN_TIMEOUT;
use std::collections::HashMap;
use std::sync::Arc;
use zoolet_engine::{ConnId, Event};
use zoolet_model::LostReason;

/// The in-process sessions of a node, as the machine sees them.
#[derive(Debug, Default)]
pub struct Links {
    links: HashMap<ConnId, Arc<Link>>,
    numbers: u64,
}

/// The bit that tells connections of this process from sockets.
const EMBEDDED: u64 = 1 << 63;

impl Links {
    /// Whether a connection is one of this process.
    pub fn is_embedded(conn: ConnId) -> bool {
        conn.0 & EMBEDDED != 0
    }

    /// The session on a connection.
    pub fn find(&self, conn: ConnId) -> Option<&Arc<Link>> {
        self.links.get(&conn)
    }

    /// Connects a session; the event goes to the machine.
    pub fn dial(&mut self, link: Arc<Link>) -> Option<Event> {
        self.numbers += 1;
        let conn = ConnId(EMBEDDED | self.numbers);
        let request = link.dial()?;
        self.links.insert(conn, link);
        Some(Event::Connect { conn, peer: None, request })
    }

    /// The machine closed it; gives the session when it wants to be connected again.
    pub fn close(&mut self, conn: ConnId) -> Option<Arc<Link>> {
        let link = self.links.remove(&conn)?;
        link.closed().then_some(link)
    }

    /// A ping for each: a session of this process lives as long as the process runs.
    pub fn pings(&self) -> impl Iterator<Item = Event> {
        self.links.iter().filter_map(|(&conn, link)| {
            let (xid, request) = link.ping()?;
            Some(Event::Request { conn, xid, request })
        })
    }

    /// How often to ping, milliseconds; `None` without a session.
    pub fn ping_interval_ms(&self) -> Option<u64> {
        self.links.values().map(|link| u64::from(link.timeout_ms() / PINGS_IN_TIMEOUT).max(1)).min()
    }

    /// Asks every session to close, as a clean shutdown does.
    pub fn close_all(&self) {
        self.links.values().for_each(|link| link.close_unheard());
    }

    /// Whether no session is connected, or about to be.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The node is gone.
    pub fn lost(&mut self, reason: LostReason) {
        self.links.drain().for_each(|(_, link)| link.lost(reason));
    }
}
