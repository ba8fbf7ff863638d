//! INV-PROMISE-MONOTONIC: the epochs that a server promised or entered never decrease, not even in
//! a crash.
//!
//! A server enters only epochs that it promised, and mentions a promise only once it is durable.
//!
//! A leader that proposes an epoch before its own promise is durable may crash and propose the
//! epoch again, for another history (A2; D1 of the durability contract). A follower that loses its
//! promise in a crash follows two leaders of one epoch (B2, D10; D2).

use super::{Ghost, Invariant, Seen};
use std::collections::BTreeMap;
use zoolet_zab::{Epoch, Incarnation, Message, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PromiseMonotonic {
    /// The newest promise that was announced for each disk.
    said: BTreeMap<(ServerId, Incarnation), Epoch>,
}

impl Invariant for PromiseMonotonic {
    fn name(&self) -> &'static str {
        "INV-PROMISE-MONOTONIC"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Sent { peer, message, .. } = seen else { return Ok(()) };
        let host = ghost.host(server);
        let durable = host.durable.accepted;
        let says = |what: &str, epoch: Epoch| {
            format!(
                "server {} says {what} {epoch:?} to server {}, and has durably promised {durable:?}",
                server.as_u8(),
                peer.as_u8()
            )
        };
        if let Message::FollowerInfo { accepted, .. } = message
            && *accepted < durable
        {
            // A leader that is told of an older promise chooses an epoch that was already promised.
            return Err(says("FollowerInfo", *accepted));
        }
        let (what, epoch) = match message {
            Message::LeaderInfo { epoch, .. } => ("LeaderInfo", *epoch),
            Message::AckEpoch { epoch, .. } => ("AckEpoch", *epoch),
            _ => return Ok(()),
        };
        if epoch > durable {
            return Err(says(what, epoch));
        }
        let said = self.said.entry((server, host.disk)).or_default();
        *said = (*said).max(epoch);
        Ok(())
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        if !matches!(seen, Seen::Started { .. } | Seen::Record(..)) {
            return Ok(());
        }
        let host = ghost.host(server);
        let (accepted, current) = (host.tail.accepted, host.tail.current);
        let said = self.said.get(&(server, host.disk)).copied().unwrap_or_default();
        let least = said.max(host.durable.accepted);
        if accepted < least {
            return Err(format!("server {} promises {accepted:?} after {least:?}", server.as_u8()));
        }
        if current < host.durable.current {
            return Err(format!("server {} enters {current:?} after {:?}", server.as_u8(), host.durable.current));
        }
        if current > accepted {
            return Err(format!("server {} enters {current:?}, and has promised {accepted:?}", server.as_u8()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, ack_epoch, entered, leader_info, promise};
    use super::*;

    #[test]
    fn promise_made_durable_before_it_is_announced_is_fine() {
        let mut story = Story::of(PromiseMonotonic::default());
        story.reign(1, &[2]);
        story.restart(2);
        story.reign(2, &[2, 3]);
        story.is_fine();
    }

    #[test]
    fn epoch_announced_before_its_promise_is_durable_is_reported() {
        let mut story = Story::of(PromiseMonotonic::default());
        story.append(1, &[promise(1)]);
        story.say(1, 2, &leader_info(1));
        story.is_wrong(&["server 1 says LeaderInfo Epoch(1) to server 2", "promised Epoch(0)"]);

        let mut story = Story::of(PromiseMonotonic::default());
        story.append(2, &[promise(1)]);
        story.say(2, 1, &ack_epoch(1));
        story.is_wrong(&["server 2 says AckEpoch Epoch(1)"]);
    }

    #[test]
    fn promise_of_a_lower_epoch_is_reported() {
        let mut story = Story::of(PromiseMonotonic::default());
        story.write(3, &[promise(4)]);
        story.append(3, &[promise(3)]);
        story.is_wrong(&["server 3 promises Epoch(3) after Epoch(4)"]);

        let mut story = Story::of(PromiseMonotonic::default());
        story.write(2, &[promise(4)]);
        story.say(2, 1, &ack_epoch(4));
        let mut facts = story.facts(2);
        facts.accepted = Epoch::ZERO;
        story.start(2, &facts);
        story.is_wrong(&["server 2 promises Epoch(0) after Epoch(4)"]);
    }

    #[test]
    fn epoch_entered_without_a_promise_is_reported() {
        let mut story = Story::of(PromiseMonotonic::default());
        story.append(1, &[entered(2)]);
        story.is_wrong(&["server 1 enters Epoch(2), and has promised Epoch(0)"]);
    }
}
