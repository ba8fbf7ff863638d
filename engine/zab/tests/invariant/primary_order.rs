//! Local and global primary order: servers deliver by epoch, then in proposal order.
//!
//! They skip nothing.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct PrimaryOrder;

impl Invariant for PrimaryOrder {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Committed { by, .. } = fact else { return };
        for pair in world.server(*by).delivered().windows(2) {
            let (one, next) = (pair[0].zxid, pair[1].zxid);
            let in_order = one.next() == Some(next) || one.epoch() < next.epoch() && next.counter() == 0;
            assert!(in_order, "server {by} delivers {next:?} directly after {one:?}");
        }
    }
}
