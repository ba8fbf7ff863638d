//! State order: at every server purged <= checkpoint <= applied <= committed <= appended.
//!
//! Also applied <= durable.
//!
//! A server applies nothing that is not durable on its own disk, so a client never sees data that a
//! power loss undoes. Entries purged from the log are in the base (B3, B6, D8), and the base holds
//! only applied entries (B10).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StateOrder;

impl Invariant for StateOrder {
    fn name(&self) -> &'static str {
        "state order"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let host = ghost.host(server);
        let in_order = |less: (&str, Zxid), more: (&str, Zxid)| {
            if less.1 <= more.1 {
                return Ok(());
            }
            Err(format!("server {} has {} {:?} and {} {:?}", server.as_u8(), less.0, less.1, more.0, more.1))
        };
        if matches!(seen, Seen::Recycled(_)) {
            return in_order(("purged", host.purged), ("in the base", host.checkpoint));
        }
        let Seen::State(state) = seen else { return Ok(()) };
        // A received snapshot is durable before the log records it.
        let (durable, appended) = (host.durable.last.zxid.max(host.tail_floor().zxid), host.tail.last.zxid);
        if !host.has_unheard_base {
            in_order(("in the base", host.checkpoint), ("applied", state.applied))?;
        }
        in_order(("applied", state.applied), ("committed", state.committed))?;
        in_order(("applied", state.applied), ("durable", durable))?;
        // A leader's watermark may exceed its own durable history, because other servers hold the
        // entries. INV-COMMIT-QUORUM has counted them.
        in_order(("committed", state.committed), ("appended", appended))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entry, zxid};
    use super::*;
    use zoolet_zab::Role;

    #[test]
    fn leader_may_commit_entries_its_own_disk_does_not_hold_yet() {
        let mut story = Story::of(StateOrder);
        story.reign(1, &[2, 3]);
        story.append(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 0));
        story.see(1, Seen::Checkpointed(zxid(1, 0)));
        story.see(1, Seen::Recycled(zxid(1, 0)));
        story.is_fine();
    }

    #[test]
    fn applying_an_entry_not_durable_on_the_own_disk_is_reported() {
        let mut story = Story::of(StateOrder);
        story.reign(1, &[2, 3]);
        story.append(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        story.is_wrong(&["server 1 has applied 1.1 and durable 1.0"]);
    }

    #[test]
    fn applying_an_uncommitted_entry_is_reported() {
        let mut story = Story::of(StateOrder);
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 1));
        story.is_wrong(&["server 1 has applied 1.1 and committed 1.0"]);
    }

    /// A machine may handle other events in the same turn before it hears that a snapshot replaced
    /// its base.
    #[test]
    fn installed_base_may_be_ahead_until_the_machine_learns_of_it() {
        let mut story = Story::of(StateOrder);
        story.reign(1, &[2]);
        story.see(1, Seen::Installed(zxid(1, 3)));
        story.state(1, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story.is_fine();
        let mut story = Story::of(StateOrder);
        story.reign(1, &[2]);
        story.see(1, Seen::Installed(zxid(1, 3)));
        story.see(1, Seen::Checkpointed(zxid(1, 3)));
        story.state(1, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story.is_wrong(&["server 1 has in the base 1.3 and applied 1.0"]);
    }

    #[test]
    fn purging_entries_not_in_the_base_is_reported() {
        let mut story = Story::of(StateOrder);
        story.reign(1, &[2]);
        story.see(1, Seen::Recycled(zxid(1, 0)));
        story.is_wrong(&["server 1 has purged 1.0 and in the base 0.0"]);
    }
}
