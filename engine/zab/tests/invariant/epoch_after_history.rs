//! INV-EPOCH-AFTER-HISTORY: a disk in an epoch holds the history that the epoch requires.
//!
//! It has everything committed in older epochs, and the whole initial history of its epoch. It may
//! lack a part of the initial history if it has promised a newer epoch since: that epoch's leader
//! may have truncated it.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct EpochAfterHistory;

impl Invariant for EpochAfterHistory {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let (Fact::Persisted { by } | Fact::Started { by }) = fact else { return };
        let log = &world.server(*by).log;
        if log.damaged {
            return;
        }
        let state = &log.durable;
        let before = world.committed_in.partition_point(|epoch| *epoch < state.current);
        if let Some(last) = before.checked_sub(1).map(|at| &world.committed[at]) {
            assert!(state.holds(last), "server {by} is in epoch {:?} without {:?}", state.current, last.zxid);
        }
        let Some(last) = world.primaries.get(&state.current).and_then(|primary| primary.initial.last()) else { return };
        let holds = state.holds(last) || state.accepted > state.current;
        assert!(holds, "server {by} is in epoch {:?} without {:?}", state.current, last.zxid);
    }
}
