//! INV-NO-OLD-ACK: a server that promised an epoch acknowledges nothing of an older one.

use super::{Fact, Invariant};
use crate::net::World;
use zoolet_zab::Message;

pub(super) struct NoOldAck;

impl Invariant for NoOldAck {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        if let Fact::Sent { by, message: Message::Ack { epoch, to, .. }, .. } = fact {
            let accepted = world.server(*by).log.written.accepted;
            assert!(accepted <= *epoch, "server {by} promised {accepted:?} and acknowledges {to:?} in {epoch:?}");
        }
    }
}
