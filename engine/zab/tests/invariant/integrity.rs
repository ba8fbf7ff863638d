//! Integrity: a delivered entry is exactly the one that its primary proposed.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct Integrity;

impl Invariant for Integrity {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Committed { by, before, to } = fact else { return };
        let delivered = world.server(*by).delivered();
        assert_eq!(delivered.last().map(|entry| entry.zxid), Some(*to), "server {by} delivers what it does not have");
        for entry in delivered.iter().rev().take_while(|entry| entry.zxid > *before) {
            let Some(primary) = world.primaries.get(&entry.zxid.epoch()) else { continue };
            let proposed = primary.proposed.get(entry.zxid.counter() as usize);
            assert_eq!(proposed, Some(entry), "server {by} delivers what was never proposed");
        }
    }
}
