//! INV-COMMIT-QUORUM: a committed entry is durable on a quorum of every deciding configuration.
//!
//! The quorum is counted on the disks.

use super::{Fact, Invariant, deciding, is_majority};
use crate::net::World;

pub(super) struct CommitQuorum;

impl Invariant for CommitQuorum {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Declared { by, before, history } = fact else { return };
        let Some(entry) = history.last() else { panic!("server {by} commits nothing") };
        let file = world.server(*by).zab().config();
        for (config, entry) in deciding(history, *before, file) {
            let is_quorum = is_majority(&config, |id, disk| world.held(id, disk, &entry));
            assert!(is_quorum, "server {by} commits {:?} without a quorum of {config:?}", entry.zxid);
        }
        // The commit rule counts only entries of the leader's own epoch; these commit older entries
        // too.
        let epoch = world.server(*by).zab().epoch();
        assert!(entry.zxid.epoch() <= epoch, "server {by} commits {:?} in {epoch:?}", entry.zxid);
        let Some(primary) = world.primaries.get(&epoch) else { return };
        let is_covered = primary.proposed.iter().filter(|proposed| proposed.zxid >= entry.zxid).any(|proposed| {
            let mut covering = primary.initial.clone();
            covering.extend(primary.proposed.iter().filter(|entry| entry.zxid <= proposed.zxid).cloned());
            deciding(&covering, *before, file)
                .iter()
                .all(|(config, entry)| is_majority(config, |id, disk| world.held(id, disk, entry)))
        });
        assert!(is_covered, "server {by} commits {:?}, and no entry of {epoch:?} is held by a quorum", entry.zxid);
    }
}
