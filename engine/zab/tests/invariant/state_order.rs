//! State order: a server applies only committed entries that are durable on its disk.
//!
//! Its commit watermark never exceeds the newest commit anywhere. While a snapshot is in flight,
//! applied may exceed durable.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct StateOrder;

impl Invariant for StateOrder {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Turn { by } = fact else { return };
        let server = world.server(*by);
        let (zab, log) = (server.zab(), &server.log);
        let durable = log.durable.last();
        assert_eq!(zab.last(), log.written.last(), "server {by} knows its own history");
        assert!(server.applied <= zab.committed(), "server {by} applied {:?} of {:?}", server.applied, zab.committed());
        assert!(zab.committed() <= world.last_committed(), "server {by} thinks {:?} is committed", zab.committed());
        assert!(log.written.floor <= zab.last().max(log.written.floor), "the log begins behind its end");
        let in_flight_snapshot = log.written.floor > durable;
        assert!(
            server.applied <= durable || in_flight_snapshot,
            "server {by} applied {:?} of {durable:?}",
            server.applied
        );
    }
}
