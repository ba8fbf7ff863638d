//! INV-ACKLD-DURABLE: a follower acknowledges an epoch's first entry only when its log is complete.
//!
//! It must have durably entered the epoch and hold all of the epoch's initial history. The leader
//! counts these acknowledgements before it serves.
//!
//! ZooKeeper acknowledged three kinds of incomplete logs: without the epoch, which a crash then
//! made it forget (A1); with a history only in memory or queued for the disk (A9, A10, A14); with a
//! snapshot that was not synced (A29).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::{Message, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AckLdDurable;

impl Invariant for AckLdDurable {
    fn name(&self) -> &'static str {
        "INV-ACKLD-DURABLE"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Sent { message: Message::Ack { epoch, to, .. }, .. } = seen else { return Ok(()) };
        if to.epoch() != *epoch {
            return Ok(());
        }
        let host = ghost.host(server);
        let wrong =
            |what: String| Err(format!("server {} acknowledges {to:?} of {epoch:?}, and {what}", server.as_u8()));
        if *to == host.history.floor().zxid && ghost.is_committed(host.history.floor()) {
            // This acknowledges a snapshot, whose entries were all committed without this server.
            // NewLeader follows later.
            return Ok(());
        }
        if host.durable.current < *epoch {
            return wrong(format!("has durably entered {:?} only", host.durable.current));
        }
        match ghost.primaries.get(epoch) {
            None => wrong("nobody has ever led in that epoch".into()),
            Some(primary) if !ghost.is_in(&host.history, primary.initial) => {
                wrong(format!("does not durably hold the epoch's initial history up to {:?}", primary.initial.zxid))
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::super::story::{Story, ack, commit, entered, entry, promise, zxid};
    use super::*;
    use zoolet_machine::seam::action::LogRecord;

    #[test]
    fn ack_after_the_epoch_and_its_history_are_durable_is_fine() {
        let mut story = Story::of(AckLdDurable);
        story.reign(1, &[2, 3]);
        story.is_fine();
    }

    #[test]
    fn ack_before_the_epoch_is_durable_is_reported() {
        let mut story = Story::of(AckLdDurable);
        story.reign(1, &[3]);
        story.write(2, &[promise(1)]);
        story.append(2, &[entered(1), entry(1, 0)]);
        story.say(2, 1, &ack(1, zxid(1, 0)));
        story.is_wrong(&["server 2 acknowledges 1.0 of Epoch(1)", "entered Epoch(0) only"]);
    }

    #[test]
    fn a_snapshot_may_be_acknowledged_before_the_epoch_is_entered() {
        let mut story = Story::of(AckLdDurable);
        story.reign(1, &[2]);
        story.say(1, 2, &commit(1, zxid(1, 0)));
        let Link { zxid, chain } = story.checks.ghost.committed.last();
        story.write(3, &[promise(1), LogRecord::SnapEnd { base: 1, zxid, chain }]);
        story.say(3, 1, &ack(1, zxid));
        story.is_fine();
    }

    #[test]
    fn ack_without_the_initial_history_is_reported() {
        let mut story = Story::of(AckLdDurable);
        story.reign(1, &[2, 3]);
        story.write(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.reign(2, &[2]);
        story.write(3, &[promise(2), entered(2)]);
        story.say(3, 1, &ack(2, zxid(2, 0)));
        story.is_wrong(&["server 3 acknowledges 2.0 of Epoch(2)", "initial history up to 1.1"]);
    }
}
