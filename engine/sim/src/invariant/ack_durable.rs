//! INV-ACK<=DURABLE: an acknowledged entry is durable on the server's disk, and equals the leader's
//! entry there.
//!
//! Known failures of other systems: the completion of a truncated write was taken for the
//! completion of another write (B14, B15). A reply was sent before the disk answered (B11, B12). A
//! failed fsync was retried and reported success (B8).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::{Message, ServerId, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AckDurable;

impl Invariant for AckDurable {
    fn name(&self) -> &'static str {
        "INV-ACK<=DURABLE"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Sent { peer, message: Message::Ack { to, epoch, .. }, .. } = seen else { return Ok(()) };
        let host = ghost.host(server);
        let says = format!("server {} acknowledges {to:?} to server {}", server.as_u8(), peer.as_u8());
        if *to > host.durable.last.zxid {
            return Err(format!("{says}, and {:?} is durable", host.durable.last.zxid));
        }
        if *to == Zxid::ZERO || *to < host.history.floor().zxid {
            return Ok(());
        }
        let Some(held) = host.history.at(*to) else { return Err(format!("{says}, and it is not in its history")) };
        let leads = ghost.primaries.get(epoch).filter(|primary| primary.server == *peer);
        // A leader that has promised a newer epoch may have truncated entries that it sent in this
        // one. Acknowledgements of these no longer count.
        let leader = ghost
            .hosts
            .get(peer)
            .zip(leads)
            .filter(|(host, primary)| host.process == primary.process && host.tail.accepted <= *epoch);
        if leader.is_some() && !ghost.has(*peer, held) {
            return Err(format!("{says}, and holds another history up to there than that leader"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, ack, cut, entered, entry, promise, zxid};
    use super::*;

    #[test]
    fn acknowledging_a_durable_entry_is_fine() {
        let mut story = Story::of(AckDurable);
        story.reign(1, &[2]);
        story.append(1, &[entry(1, 1)]);
        story.write(2, &[entry(1, 1)]);
        story.say(2, 1, &ack(1, zxid(1, 1)));
        story.is_fine();
    }

    #[test]
    fn acknowledging_an_entry_not_yet_durable_is_reported() {
        let mut story = Story::of(AckDurable);
        story.reign(1, &[2]);
        story.append(1, &[entry(1, 1)]);
        story.append(2, &[entry(1, 1)]);
        story.say(2, 1, &ack(1, zxid(1, 1)));
        story.is_wrong(&["server 2 acknowledges 1.1 to server 1, and 1.0 is durable"]);
    }

    #[test]
    fn ack_based_on_the_completion_of_a_truncated_write_is_reported() {
        let mut story = Story::of(AckDurable);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1), cut(1, 0)]);
        story.append(2, &[entry(1, 1)]);
        story.say(2, 1, &ack(1, zxid(1, 1)));
        story.is_wrong(&["server 2 acknowledges 1.1"]);
    }

    #[test]
    fn acknowledging_a_history_unlike_the_leaders_is_reported() {
        let mut story = Story::of(AckDurable);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        story.write(1, &[promise(2), entered(2), entry(2, 0)]);
        story.write(2, &[promise(2), entered(2), entry(2, 0)]);
        story.say(2, 1, &ack(2, zxid(2, 0)));
        story.is_wrong(&["server 2 acknowledges 2.0", "holds another history"]);
    }
}
