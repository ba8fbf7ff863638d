//! Agreement, Total order, INV-PREFIX: delivered sequences are prefixes of each other.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct Agreement;

impl Invariant for Agreement {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Committed { by, .. } = fact else { return };
        let mine = world.server(*by).delivered();
        for other in world.servers.values() {
            let both = mine.iter().zip(other.delivered());
            let differ = both.rev().find(|(mine, theirs)| mine != theirs);
            assert_eq!(differ, None, "servers {by} and {} delivered different entries", other.id);
        }
        let differ = mine.iter().zip(&world.committed).rev().find(|(mine, committed)| mine != committed);
        assert_eq!(differ, None, "server {by} delivers another entry than was committed before");
    }
}
