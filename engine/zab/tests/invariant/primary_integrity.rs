//! Primary integrity: a primary proposes only after it has, in its history, all that any server ever delivers of older epochs.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct PrimaryIntegrity;

impl Invariant for PrimaryIntegrity {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Declared { before, history, .. } = fact else { return };
        for entry in history.iter().filter(|entry| entry.zxid > *before) {
            for (epoch, primary) in world.primaries.iter().filter(|(epoch, _)| **epoch > entry.zxid.epoch()) {
                let has = primary.initial.binary_search_by_key(&entry.zxid, |e| e.zxid).map(|at| &primary.initial[at]);
                // A primary whose epoch never counts may have begun without it; it must not get anywhere.
                let is_alive = primary.proposed.iter().any(|e| world.committed.contains(e));
                assert!(has == Ok(entry) || !is_alive, "the primary of {epoch:?} proposed without {:?}", entry.zxid);
            }
        }
    }
}
