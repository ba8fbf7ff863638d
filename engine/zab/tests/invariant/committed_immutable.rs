//! Committed immutable: committed entries never change, and the newest is never lost.

use super::{Fact, Invariant};
use crate::net::World;
use crate::net::log::Entry;

#[derive(Default)]
pub(super) struct CommittedImmutable {
    seen: Vec<Entry>,
}

impl Invariant for CommittedImmutable {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        match fact {
            Fact::Committed { .. } => {
                assert!(world.committed.len() >= self.seen.len(), "something committed is gone");
                assert_eq!(world.committed[..self.seen.len()], self.seen, "something committed has changed");
                self.seen.extend_from_slice(&world.committed[self.seen.len()..]);
            }
            Fact::Persisted { .. } | Fact::Crashed { .. } => {
                // Some current disk must hold the newest committed entry, unless a lost disk held
                // it.
                let Some(last) = world.committed.last() else { return };
                let held = world.servers.values().any(|server| server.log.durable.holds(last));
                let was_held = world.lost.iter().any(|(_, _, state)| state.holds(last));
                assert!(held || was_held, "{:?} was committed and is on no disk any more", last.zxid);
            }
            _ => {}
        }
    }
}
