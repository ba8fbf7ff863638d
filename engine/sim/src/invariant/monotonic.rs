//! Monotonic: the committed and the applied zxid of a process only grow.
//!
//! After a restart, a server knows at least as much as committed as its log durably recorded.
//!
//! In violations, reads go back in time after a restart (B13). Or the watermark is too high after a
//! truncation, or too low after a restart.

use super::{Ghost, Invariant, Seen, State};
use std::collections::BTreeMap;
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Monotonic {
    last: BTreeMap<ServerId, (u64, State)>,
}

impl Invariant for Monotonic {
    fn name(&self) -> &'static str {
        "monotonic"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::State(state) = seen else { return Ok(()) };
        let process = ghost.host(server).process;
        // The state that this process started with, or reported last.
        let known = ghost.host(server).state;
        let before = self.last.insert(server, (process, *state)).filter(|(said, _)| *said == process);
        let before = before.map_or(known, |(_, state)| state);
        let wrong = |what: &str, after: String, before: String| {
            Err(format!("server {} has {what} {after} after {before}", server.as_u8()))
        };
        if state.committed < before.committed {
            return wrong("committed", format!("{:?}", state.committed), format!("{:?}", before.committed));
        }
        if state.applied < before.applied {
            return wrong("applied", format!("{:?}", state.applied), format!("{:?}", before.applied));
        }
        if state.epoch < before.epoch {
            return wrong("entered", format!("{:?}", state.epoch), format!("{:?}", before.epoch));
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
    fn growing_zxids_are_fine_and_a_restart_may_apply_again() {
        let mut story = Story::of(Monotonic::default());
        story.reign(1, &[2]);
        story.write(1, &[entry(1, 1)]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 0));
        story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
        story.restart(1);
        story.state(1, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story.is_fine();
    }

    #[test]
    fn committed_or_applied_zxid_that_goes_back_is_reported() {
        for (committed, applied, says) in [
            (zxid(1, 0), zxid(1, 0), "server 1 has committed 1.0 after 1.1"),
            (zxid(1, 1), zxid(1, 0), "server 1 has applied 1.0 after 1.1"),
        ] {
            let mut story = Story::of(Monotonic::default());
            story.reign(1, &[2]);
            story.write(1, &[entry(1, 1)]);
            story.state(1, Role::Leading, 1, zxid(1, 1), zxid(1, 1));
            story.state(1, Role::Leading, 1, committed, applied);
            story.is_wrong(&[says]);
        }
    }

    #[test]
    fn forgetting_the_durable_commit_watermark_is_reported() {
        let mut story = Story::of(Monotonic::default());
        story.reign(1, &[2]);
        let mut facts = story.facts(1);
        facts.watermark = zxid(1, 0);
        story.start(1, &facts);
        story.state(1, Role::Looking, 1, zxid(0, 0), zxid(0, 0));
        story.is_wrong(&["server 1 has committed 0.0 after 1.0"]);
    }
}
