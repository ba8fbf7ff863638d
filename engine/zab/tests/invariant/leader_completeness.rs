//! Leader completeness: an established epoch's initial history holds all earlier commits.

use super::{Fact, Invariant};
use crate::net::World;
use zoolet_zab::Role;

pub(super) struct LeaderCompleteness;

impl Invariant for LeaderCompleteness {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Became { by, role: Role::Leading } = fact else { return };
        let epoch = world.server(*by).zab().epoch();
        let primary = &world.primaries[&epoch];
        for entry in world.committed.iter().filter(|entry| entry.zxid.epoch() < epoch) {
            let at = primary.initial.binary_search_by_key(&entry.zxid, |e| e.zxid);
            let has = at.is_ok_and(|at| primary.initial[at] == *entry);
            assert!(has, "server {by} leads in {epoch:?} without {:?}, which is committed", entry.zxid);
        }
    }
}
