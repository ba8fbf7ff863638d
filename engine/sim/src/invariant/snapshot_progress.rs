//! INV-SNAP-PROGRESS: a leader's snapshot reaches further than the learner's last acknowledgement
//! in the same attempt.
//!
//! A learner may have a snapshot and still be below the beginning of the leader's log. The same
//! snapshot leaves it there. The learner would receive that snapshot again and again, and write it
//! to flash each time, until the leader makes a new checkpoint (seed 487186478).

use super::{Ghost, Invariant, Seen};
use std::collections::BTreeMap;
use zoolet_zab::{Attempt, Message, ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SnapshotProgress {
    /// The learner's last acknowledgement and its attempt, by leader and learner.
    acked: BTreeMap<(ServerId, ServerId), (Attempt, Zxid)>,
}

impl Invariant for SnapshotProgress {
    fn name(&self) -> &'static str {
        "INV-SNAP-PROGRESS"
    }

    fn after(&mut self, _: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Started { .. } | Seen::Stopped => self.acked.retain(|(leader, _), _| *leader != server),
            Seen::Parted { peer } => drop(self.acked.remove(&(server, *peer))),
            Seen::Received { peer, message: Message::Ack { attempt, to, .. }, .. } => {
                self.acked.insert((server, *peer), (*attempt, *to));
            }
            Seen::Sent { peer, message: Message::Snap { attempt, at_least, .. }, .. } => {
                let acked = self.acked.get(&(server, *peer)).filter(|(of, to)| of == attempt && to >= at_least);
                if let Some((_, to)) = acked {
                    return Err(format!(
                        "server {} sends server {} a snapshot of at least {at_least:?}, which acknowledged {to:?} in this attempt",
                        server.as_u8(),
                        peer.as_u8()
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, ack, config, epoch, id, zxid};
    use super::*;

    fn snap(attempt: u32, counter: u64) -> Message {
        let (attempt, epoch) = (Attempt(attempt), epoch(1));
        Message::Snap { attempt, epoch, at_least: zxid(1, counter), config: config(zxid(1, 0), &[1, 2, 3]) }
    }

    /// Server 1 sends a snapshot up to 1.5, and server 2 acknowledges it.
    fn story() -> Story {
        let mut story = Story::of(SnapshotProgress::default());
        story.say(1, 2, &snap(1, 3));
        story.tell(2, 1, &ack(1, zxid(1, 5)));
        story
    }

    #[test]
    fn snapshot_not_beyond_the_learners_last_ack_is_reported() {
        let mut story = story();
        story.say(1, 2, &snap(1, 5));
        story.is_wrong(&["server 1 sends server 2 a snapshot of at least 1.5, which acknowledged 1.5 in this attempt"]);
    }

    #[test]
    fn snapshot_beyond_the_learners_last_ack_is_fine() {
        let mut story = story();
        story.say(1, 2, &snap(1, 6));
        story.say(1, 3, &snap(1, 5));
        story.is_fine();
    }

    #[test]
    fn new_link_or_epoch_may_repeat_a_snapshot() {
        let mut story = story();
        story.say(1, 2, &snap(2, 5));
        story.see(1, Seen::Parted { peer: id(2) });
        story.say(1, 2, &snap(1, 5));
        story.is_fine();
    }
}
