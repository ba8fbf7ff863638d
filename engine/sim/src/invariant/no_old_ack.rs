//! INV-NO-OLD-ACK: a server that promised an epoch acknowledges nothing in an older one.
//!
//! Such an acknowledgement could complete an old leader's quorum after the new leader has counted
//! the quorum's histories. The new epoch would then lack a committed entry (the heart of the Zab
//! proof; C14, C16).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::{Message, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NoOldAck;

impl Invariant for NoOldAck {
    fn name(&self) -> &'static str {
        "INV-NO-OLD-ACK"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Sent { peer, message, .. } = seen else { return Ok(()) };
        let promised = ghost.host(server).durable.accepted;
        let (epoch, what) = match message {
            Message::Ack { epoch, to, .. } => (*epoch, format!("Ack of {to:?}")),
            Message::AckEpoch { epoch, .. } => (*epoch, "AckEpoch".to_owned()),
            _ => return Ok(()),
        };
        if epoch >= promised {
            return Ok(());
        }
        Err(format!(
            "server {} says {what} in {epoch:?} to server {}, after it promised {promised:?}",
            server.as_u8(),
            peer.as_u8()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, ack, entry, promise, zxid};
    use super::*;

    #[test]
    fn acks_in_the_promised_epoch_are_fine() {
        let mut story = Story::of(NoOldAck);
        story.reign(1, &[2, 3]);
        story.reign(2, &[2]);
        story.is_fine();
    }

    #[test]
    fn ack_in_an_older_epoch_after_a_newer_promise_is_reported() {
        let mut story = Story::of(NoOldAck);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        story.write(2, &[promise(2)]);
        story.say(2, 1, &ack(1, zxid(1, 1)));
        story.is_wrong(&["server 2 says Ack of 1.1 in Epoch(1) to server 1", "promised Epoch(2)"]);
    }
}
