//! All connections, each found by its id.

use super::Connection;
use crate::seam::ids::ConnId;
use std::collections::BTreeMap;

/// The connections of a server.
///
/// It remembers the slot of the connection that [`Connections::get_mut`] returned last, because the
/// steps of a request look up the same connection repeatedly.
#[derive(Debug, Default)]
pub struct Connections {
    places: BTreeMap<ConnId, usize>,
    /// They shrink only when the last connection ends. An empty one takes 8 bytes.
    slots: Vec<Option<Box<(ConnId, Connection)>>>,
    /// Empty slots.
    free: Vec<usize>,
    /// The slot that was remembered. It may be empty by now, or hold another connection, so each use
    /// compares the id.
    last: usize,
}

impl Connections {
    /// Adds a connection. One that had this id before is dropped.
    pub fn insert(&mut self, conn: ConnId, connection: Connection) {
        self.remove(&conn);
        let added = Some(Box::new((conn, connection)));
        let at = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(at) {
            Some(slot) => *slot = added,
            None => self.slots.push(added),
        }
        self.places.insert(conn, at);
    }

    /// Removes and returns a connection.
    pub fn remove(&mut self, conn: &ConnId) -> Option<Connection> {
        let at = self.places.remove(conn)?;
        let removed = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        if self.is_empty() {
            // Thousands of clients may have come and gone.
            *self = Self::default();
        }
        Some(removed.1)
    }

    /// Returns a connection.
    pub fn get(&self, conn: &ConnId) -> Option<&Connection> {
        let found = match self.slots.get(self.last) {
            Some(Some(found)) if found.0 == *conn => found,
            _ => self.slots.get(*self.places.get(conn)?)?.as_ref()?,
        };
        Some(&found.1)
    }

    /// Returns a connection, and remembers it.
    pub fn get_mut(&mut self, conn: &ConnId) -> Option<&mut Connection> {
        if !matches!(self.slots.get(self.last), Some(Some(found)) if found.0 == *conn) {
            self.last = *self.places.get(conn)?;
        }
        Some(&mut self.slots.get_mut(self.last)?.as_mut()?.1)
    }

    /// Returns whether there is a connection of this id.
    pub fn contains_key(&self, conn: &ConnId) -> bool {
        self.get(conn).is_some()
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Iterates over the connections in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&ConnId, &Connection)> {
        self.places.iter().filter_map(|(conn, &at)| Some((conn, &self.slots.get(at)?.as_ref()?.1)))
    }

    /// Iterates over the ids in their order.
    pub fn keys(&self) -> impl Iterator<Item = &ConnId> {
        self.places.keys()
    }

    /// Iterates over the connections in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &Connection> {
        self.iter().map(|(_, connection)| connection)
    }

    /// Iterates over the connections in the order of their ids.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ConnId, &mut Connection)> {
        let mut all: Vec<_> = self.slots.iter_mut().flatten().map(|slot| (&slot.0, &mut slot.1)).collect();
        all.sort_unstable_by_key(|&(conn, _)| *conn);
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(births: u32) -> Connection {
        Connection { births, ..Connection::new(None, false) }
    }

    #[test]
    fn each_connection_is_found_by_its_id_whichever_was_looked_up_last() {
        let mut all = Connections::default();
        let mut expected = BTreeMap::new();
        let mut seed = 1_u64;
        for round in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let conn = ConnId((seed >> 33) % 7);
            match (seed >> 40) % 4 {
                0 => {
                    all.insert(conn, connection(round));
                    expected.insert(conn, round);
                }
                1 => assert_eq!(all.remove(&conn).map(|one| one.births), expected.remove(&conn)),
                2 => assert_eq!(all.get_mut(&conn).map(|one| one.births), expected.get(&conn).copied()),
                _ => assert_eq!(all.get(&conn).map(|one| one.births), expected.get(&conn).copied()),
            }
            assert_eq!((all.len(), all.contains_key(&conn)), (expected.len(), expected.contains_key(&conn)));
            let found: Vec<_> = all.iter().map(|(&conn, one)| (conn, one.births)).collect();
            assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>());
            let found: Vec<_> = all.iter_mut().map(|(&conn, one)| (conn, one.births)).collect();
            assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn slots_of_ended_connections_are_used_again_and_freed_with_the_last() {
        let mut all = Connections::default();
        for round in 0..100 {
            all.insert(ConnId(round), connection(0));
            all.insert(ConnId(round + 1), connection(0));
            all.remove(&ConnId(round));
        }
        assert_eq!(all.slots.len(), 2);
        all.remove(&ConnId(100));
        assert_eq!((all.slots.capacity(), all.free.capacity(), all.len()), (0, 0, 0));
    }
}
