//! Primary integrity: a primary proposes on top of everything delivered from older epochs.
//!
//! Its history holds every such entry that any server ever delivers.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct PrimaryIntegrity;

impl Invariant for PrimaryIntegrity {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Declared { before, history, .. } = fact else { return };
        for entry in history.iter().filter(|entry| entry.zxid > *before) {
            for (epoch, primary) in world.primaries.iter().filter(|(epoch, _)| **epoch > entry.zxid.epoch()) {
                let has = primary.initial.binary_search_by_key(&entry.zxid, |e| e.zxid).map(|at| &primary.initial[at]);
                // A primary whose epoch never counts may lack the entry, but it must commit
                // nothing.
                let is_alive = primary.proposed.iter().any(|e| world.committed.contains(e));
                assert!(has == Ok(entry) || !is_alive, "the primary of {epoch:?} proposed without {:?}", entry.zxid);
            }
        }
    }
}
