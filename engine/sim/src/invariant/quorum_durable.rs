//! INV-QUORUM-DURABLE: a leader serves only once a quorum of voters durably holds its epoch's
//! beginning.
//!
//! The quorum holds the initial history and the first entry, and has durably entered the epoch. If
//! a leader served with histories in memory only, a power loss of the quorum would lose committed
//! entries (A9, A10, A14).

use super::{Ghost, Invariant, Seen};
use std::collections::BTreeSet;
use zoolet_zab::{Epoch, Role, ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct QuorumDurable {
    judged: BTreeSet<(Epoch, ServerId)>,
}

impl Invariant for QuorumDurable {
    fn name(&self) -> &'static str {
        "INV-QUORUM-DURABLE"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::State(state) = seen else { return Ok(()) };
        if state.role != Role::Leading || !self.judged.insert((state.epoch, server)) {
            return Ok(());
        }
        let serves = format!("server {} serves as leader of {:?}", server.as_u8(), state.epoch);
        let Some(first) = ghost.broadcast(Zxid::first_of(state.epoch)) else {
            return Err(format!("{serves}, and nobody has broadcast in that epoch"));
        };
        for config in ghost.host(server).tail.configs.in_force(&ghost.founders) {
            let (holders, decide) = ghost.count(config, |server, disk| {
                ghost.entered(server, disk) >= state.epoch && ghost.holds(server, disk, first)
            });
            if !decide {
                return Err(format!(
                    "{serves}, and of the voters of configuration {:?} only {:?} durably hold {:?} and have entered the epoch",
                    config.version,
                    holders.iter().map(|server| server.as_u8()).collect::<Vec<_>>(),
                    first.zxid
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entered, entry, promise, zxid};
    use super::*;

    #[test]
    fn leader_may_serve_once_a_quorum_durably_holds_its_first_entry() {
        let mut story = Story::of(QuorumDurable::default());
        story.reign(1, &[2]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 0));
        story.is_fine();
    }

    #[test]
    fn leader_serving_before_a_quorum_durably_holds_its_entry_is_reported() {
        let mut story = Story::of(QuorumDurable::default());
        story.write(1, &[promise(1), entered(1), entry(1, 0)]);
        story.append(2, &[promise(1), entered(1), entry(1, 0)]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 0));
        story.is_wrong(&["server 1 serves as leader of Epoch(1)", "only [1] durably hold 1.0"]);
    }

    #[test]
    fn voter_with_the_history_but_not_the_epoch_does_not_count() {
        let mut story = Story::of(QuorumDurable::default());
        story.write(1, &[promise(1), entered(1), entry(1, 0)]);
        story.write(2, &[promise(1), entry(1, 0)]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 0));
        story.is_wrong(&["only [1]"]);
    }
}
