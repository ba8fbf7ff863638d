//! Total order: every server applies the committed entries in one order, each once, without gaps.
//!
//! A server's position is an entry of the committed sequence and only advances. The digest, which
//! `determinism` compares, covers the entries applied in between.

use super::{Ghost, Invariant, Seen};
use std::collections::BTreeMap;
use zoolet_zab::{ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TotalOrder {
    /// The recently applied entries of each server, with the process, oldest first.
    applied: BTreeMap<ServerId, Vec<(u64, Zxid)>>,
}

/// Number of entries remembered per server for the recount.
const REMEMBERED: usize = 256;

impl Invariant for TotalOrder {
    fn name(&self) -> &'static str {
        "total order"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::State(state) = seen else { return Ok(()) };
        let process = ghost.host(server).process;
        let applied = self.applied.entry(server).or_default();
        if applied.last() == Some(&(process, state.applied)) {
            return Ok(());
        }
        applied.push((process, state.applied));
        if applied.len() > 2 * REMEMBERED {
            applied.drain(..REMEMBERED);
        }
        let is_known = state.applied >= ghost.committed.floor().zxid;
        if is_known && state.applied != Zxid::ZERO && ghost.committed.at(state.applied).is_none() {
            return Err(format!("server {} applied {:?}, which is not committed", server.as_u8(), state.applied));
        }
        Ok(())
    }

    /// Checks that each process applies entries in ascending order. All servers then share one
    /// order, because there is one committed sequence.
    fn recount(&mut self, _ghost: &Ghost) -> Result<(), String> {
        for (server, applied) in &self.applied {
            for pair in applied.windows(2) {
                let ((before, first), (after, second)) = (pair[0], pair[1]);
                if before == after && second < first {
                    return Err(format!("server {} applied {second:?} after {first:?}", server.as_u8()));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entry, zxid};
    use super::*;
    use zoolet_zab::Role;

    #[test]
    fn applying_committed_entries_again_after_a_restart_is_fine() {
        let mut story = Story::of(TotalOrder::default());
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        story.restart(1);
        story.state(1, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story.is_fine();
    }

    #[test]
    fn applied_entry_that_was_never_committed_is_reported() {
        let mut story = Story::of(TotalOrder::default());
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 1));
        story.is_wrong(&["server 1 applied 1.1, which is not committed"]);
    }

    #[test]
    fn applied_position_that_goes_back_is_reported() {
        let mut story = Story::of(TotalOrder::default());
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 0));
        story.is_wrong(&["server 1 applied 1.0 after 1.1"]);
    }
}
