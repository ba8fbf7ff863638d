//! INV-ONE-PRIMARY: in each epoch at most one process of one server leads beyond discovery.
//!
//! Two leaders of one epoch give the same zxid to different entries, and nothing later can tell
//! these apart (A2, A3, D8). A server that crashed and restarted counts as another leader.

use super::{Ghost, Invariant, Seen};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_zab::{Epoch, Message, Role, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OnePrimary {
    leaders: BTreeMap<Epoch, (ServerId, u64)>,
    /// Epochs in which a message was sent or clients were served.
    shown: BTreeSet<Epoch>,
}

/// Returns the epoch in which the message's sender leads beyond discovery.
pub(super) fn led_by(message: &Message) -> Option<Epoch> {
    match message {
        Message::Diff { epoch, .. }
        | Message::Trunc { epoch, .. }
        | Message::Snap { epoch, .. }
        | Message::NewLeader { epoch, .. }
        | Message::Proposal { epoch, .. }
        | Message::Commit { epoch, .. }
        | Message::Synced { epoch, .. } => Some(*epoch),
        _ => None,
    }
}

impl Invariant for OnePrimary {
    fn name(&self) -> &'static str {
        "INV-ONE-PRIMARY"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let process = ghost.host(server).process;
        if let Seen::Started { .. } = seen {
            // A leadership that existed only in the memory of the crashed process never took
            // effect.
            let (leaders, shown) = (&mut self.leaders, &self.shown);
            leaders.retain(|epoch, _| ghost.primaries.contains_key(epoch) || shown.contains(epoch));
        }
        let evidence = match seen {
            Seen::Sent { message, .. } => led_by(message).map(|epoch| (epoch, server, process)),
            Seen::State(state) if state.role == Role::Leading => Some((state.epoch, server, process)),
            Seen::Record(..) => {
                let epoch = ghost.host(server).tail.last.zxid.epoch();
                ghost.primaries.get(&epoch).map(|primary| (epoch, primary.server, primary.process))
            }
            _ => None,
        };
        let Some((epoch, server, process)) = evidence else { return Ok(()) };
        if !matches!(seen, Seen::Record(..)) {
            self.shown.insert(epoch);
        }
        let first = *self.leaders.entry(epoch).or_insert((server, process));
        if first == (server, process) {
            return Ok(());
        }
        Err(format!(
            "in {epoch:?} server {} (process {}) led, and now server {} (process {process}) does",
            first.0.as_u8(),
            first.1,
            server.as_u8()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, entered, entry, new_leader, promise, zxid};
    use super::*;

    #[test]
    fn different_epochs_may_have_different_leaders() {
        let mut story = Story::of(OnePrimary::default());
        story.reign(1, &[2]);
        story.state(1, Role::Leading, 1, zxid(1, 0), zxid(1, 0));
        story.say(2, 1, &new_leader(2));
        story.state(2, Role::Leading, 2, zxid(1, 0), zxid(1, 0));
        story.state(1, Role::Following(ServerId::new(2).unwrap()), 2, zxid(1, 0), zxid(1, 0));
        story.is_fine();
    }

    #[test]
    fn two_leaders_of_one_epoch_are_reported() {
        let mut story = Story::of(OnePrimary::default());
        story.reign(1, &[2]);
        story.say(3, 2, &new_leader(1));
        story.is_wrong(&["in Epoch(1) server 1 (process 1) led", "now server 3 (process 3)"]);
    }

    #[test]
    fn restarted_leader_that_leads_the_same_epoch_again_is_reported() {
        let mut story = Story::of(OnePrimary::default());
        story.append(1, &[promise(1), entered(1), entry(1, 0)]);
        story.say(1, 2, &new_leader(1));
        story.restart(1);
        story.append(1, &[promise(1), entered(1), entry(1, 0)]);
        story.is_wrong(&["in Epoch(1) server 1 (process 1) led", "now server 1 (process 4)"]);
    }

    #[test]
    fn epoch_lost_before_it_was_durable_or_announced_may_begin_again() {
        let mut story = Story::of(OnePrimary::default());
        story.append(1, &[promise(1), entered(1), entry(1, 0)]);
        story.restart(1);
        story.append(1, &[promise(1), entered(1), entry(1, 0)]);
        story.say(1, 2, &new_leader(1));
        story.is_fine();
    }
}
