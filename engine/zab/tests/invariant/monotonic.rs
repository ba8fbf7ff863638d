//! Monotonic: a process's commit watermark and applied entry never go back.

use super::{Fact, Invariant};
use crate::net::World;
use std::collections::BTreeMap;
use zoolet_zab::Zxid;

#[derive(Default)]
pub(super) struct Monotonic {
    /// Commit watermark and applied entry, by process.
    known: BTreeMap<u64, (Zxid, Zxid)>,
}

impl Invariant for Monotonic {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        match fact {
            Fact::Committed { by, before, to } => assert!(to > before, "server {by} commits {to:?} after {before:?}"),
            Fact::Turn { by } => {
                let server = world.server(*by);
                let now = (server.zab().committed(), server.applied);
                let known = self.known.entry(server.process).or_default();
                assert!(now.0 >= known.0 && now.1 >= known.1, "server {by} goes back from {known:?} to {now:?}");
                *known = now;
            }
            _ => {}
        }
    }
}
