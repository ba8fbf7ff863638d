//! Determinism: servers that applied the same entry have the same state, including sessions.
//!
//! This state equals the one that a naive state machine computes from the committed entries.
//!
//! Known failures of other systems: the applied mark was durable without the applied data (B10). A
//! snapshot was taken while entries were applied (B7). Entries meant something else after a restart
//! (H1). State was carried over from another epoch (A20).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Determinism {
    is_stuck: bool,
}

impl Invariant for Determinism {
    fn name(&self) -> &'static str {
        "determinism"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        if let Some(why) = &ghost.stuck
            && !std::mem::replace(&mut self.is_stuck, true)
        {
            return Err(format!("at server {}: {why}", server.as_u8()));
        }
        let Seen::State(state) = seen else { return Ok(()) };
        let expected = ghost.digests.get(&state.applied);
        match (state.digest, expected) {
            (Some(digest), Some(&expected)) if digest != expected => Err(format!(
                "server {} has digest {digest:032x} after {:?}, and applying what is committed gives {expected:032x}",
                server.as_u8(),
                state.applied
            )),
            _ => Ok(()),
        }
    }

    fn recount(&mut self, ghost: &Ghost) -> Result<(), String> {
        let Some(model) = &ghost.model else { return Ok(()) };
        let hash = zoolet_machine::record::digest::record_hash;
        let sum = model.records.iter().fold(0u128, |sum, (key, record)| sum.wrapping_add(hash(key, record)));
        if sum == model.digest {
            return Ok(());
        }
        Err(format!("the digest counts {:032x}, and the records sum up to {sum:032x}", model.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::story::{Story, commit, entry, epoch, id, payload, zxid};
    use super::*;
    use zoolet_machine::seam::action::LogRecord;
    use zoolet_machine::txn::Txn;
    use zoolet_model::SessionSecret;
    use zoolet_zab::Role;

    #[test]
    fn digest_equal_to_the_model_of_committed_entries_is_fine() {
        let mut story = Story::of(Determinism::default());
        story.reign(1, &[2]);
        let payload = payload(&Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([1; 16]), home: None });
        let create = LogRecord::Entry { zxid: zxid(1, 1), payload };
        story.write(1, std::slice::from_ref(&create));
        story.write(2, &[create]);
        story.say(1, 2, &commit(1, zxid(1, 1)));
        for server in 1..=2 {
            story.state(server, Role::Looking, 1, zxid(1, 1), zxid(1, 1));
        }
        assert!(story.checks.ghost.model.as_ref().is_some_and(|model| model.totals.znodes > 0));
        story.is_fine();
    }

    #[test]
    fn different_state_digest_after_the_same_entry_is_reported() {
        let mut story = Story::of(Determinism::default());
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        let state = State {
            role: Role::Following(id(1)),
            epoch: epoch(1),
            committed: zxid(1, 0),
            applied: zxid(1, 0),
            digest: Some(9),
        };
        story.see(2, Seen::State(state));
        story.is_wrong(&["server 2 has digest 00000000000000000000000000000009 after 1.0"]);
    }

    #[test]
    fn a_committed_entry_that_cannot_be_applied_is_reported() {
        let mut story = Story::of(Determinism::default());
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        story.say(2, 1, &commit(1, zxid(1, 1)));
        story.is_wrong(&["at server 2: 1.1 is committed and cannot be applied: nobody broadcast it"]);
    }
}
