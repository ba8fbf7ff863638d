//! Local and global primary order of committed entries.
//!
//! Committed entries of one epoch have the order of their primary's broadcasts, without gaps.
//! Entries of an older epoch precede those of a newer one.
//!
//! This distinguishes Zab from agreement slot by slot: a client's later write is never committed
//! without the earlier one.

use super::{Ghost, Invariant, Link, Seen};
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PrimaryOrder {
    judged: Zxid,
}

fn judge(ghost: &Ghost, before: Link, link: Link) -> Result<(), String> {
    let wrong =
        |what: String| Err(format!("{:?} is committed directly after {:?}, and {what}", link.zxid, before.zxid));
    if link.zxid.epoch() < before.zxid.epoch() {
        return wrong("its epoch is older".into());
    }
    let Some(primary) = ghost.primaries.get(&link.zxid.epoch()) else {
        return wrong("nobody led in its epoch".into());
    };
    let expected = if link.zxid.counter() == 0 {
        Some(primary.initial)
    } else {
        let broadcast = primary.broadcast.links();
        let at = broadcast.partition_point(|other| other.zxid < link.zxid);
        at.checked_sub(1).map(|at| broadcast[at]).or(Some(primary.broadcast.floor()))
    };
    if expected == Some(before) {
        return Ok(());
    }
    wrong(format!("its primary, server {}, broadcast it after {:?}", primary.server.as_u8(), expected.map(|e| e.zxid)))
}

impl Invariant for PrimaryOrder {
    fn name(&self) -> &'static str {
        "primary order"
    }

    fn after(&mut self, ghost: &Ghost, _server: ServerId, _seen: &Seen<'_>) -> Result<(), String> {
        let new = ghost.committed.after(self.judged);
        let Some(last) = new.last() else { return Ok(()) };
        let mut before = ghost.committed.at(self.judged).unwrap_or_default();
        self.judged = last.zxid;
        for &link in new {
            judge(ghost, before, link)?;
            before = link;
        }
        Ok(())
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        let mut before = ghost.committed.floor();
        for &link in ghost.committed.links() {
            judge(ghost, before, link)?;
            before = link;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entered, entry, promise, zxid};
    use super::*;
    use zoolet_zab::Role;

    #[test]
    fn successive_epochs_without_gaps_are_fine() {
        let mut story = Story::of(PrimaryOrder::default());
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1), entry(1, 2)]);
        story.reign(3, &[2]);
        story.state(1, Role::Leading, 3, zxid(3, 0), zxid(3, 0));
        story.is_fine();
    }

    #[test]
    fn committing_past_a_skipped_entry_is_reported() {
        let mut story = Story::of(PrimaryOrder::default());
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1), entry(1, 2)]);
        story.write(2, &[entry(1, 2)]);
        story.state(2, Role::Following(ServerId::new(1).unwrap()), 1, zxid(1, 2), zxid(1, 2));
        story.is_wrong(&["1.2 is committed directly after 1.0", "server 1, broadcast it after Some(1.1)"]);
    }

    #[test]
    fn epoch_committed_after_an_entry_foreign_to_its_history_is_reported() {
        let mut story = Story::of(PrimaryOrder::default());
        story.reign(1, &[2, 3]);
        story.write(2, &[entry(1, 1)]);
        story.write(1, &[promise(2), entered(2), entry(2, 0)]);
        story.write(2, &[promise(2), entered(2), entry(2, 0)]);
        story.state(2, Role::Following(ServerId::new(1).unwrap()), 2, zxid(2, 0), zxid(2, 0));
        story.is_wrong(&["2.0 is committed directly after 1.1", "after Some(1.0)"]);
    }
}
