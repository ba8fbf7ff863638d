//! INV-CONTINUITY: a history has no gaps, and each of its epochs begins with counter 0.

use super::{Fact, Invariant};
use crate::net::World;
use crate::net::log::Record;

pub(super) struct Continuity;

impl Invariant for Continuity {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Appended { by, record: Record::Entry(_) | Record::Truncate(_) | Record::SnapEnd(_), .. } = fact
        else {
            return;
        };
        let entries = &world.server(*by).log.written.entries;
        // Older pairs were checked when they were appended. A snapshot is checked whole.
        let look_at = if matches!(fact, Fact::Appended { record: Record::SnapEnd(_), .. }) { entries.len() } else { 3 };
        for pair in entries[entries.len().saturating_sub(look_at)..].windows(2) {
            let (one, next) = (pair[0].zxid, pair[1].zxid);
            let follows = one.next() == Some(next) || one.epoch() < next.epoch() && next.counter() == 0;
            assert!(follows, "the history of server {by} has {next:?} after {one:?}");
        }
        assert!(entries.first().is_none_or(|first| first.zxid.counter() == 0), "it does not begin with an epoch");
    }
}
