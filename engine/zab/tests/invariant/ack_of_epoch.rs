//! INV-ACKLD-DURABLE: who acknowledges an epoch's first entry has the epoch, and all of its initial history, on its disk.

use super::{Fact, Invariant};
use crate::net::World;
use zoolet_zab::{Message, Zxid};

pub(super) struct AckOfEpoch;

impl Invariant for AckOfEpoch {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Sent { by, message: Message::Ack { epoch, to, .. }, .. } = fact else { return };
        if *to < Zxid::first_of(*epoch) {
            return;
        }
        let state = &world.server(*by).log.durable;
        if *to == state.floor && *to <= world.last_committed() {
            // A snapshot that reaches into the epoch: a quorum of others holds all of it already, and this Ack adds nothing. What is
            // proposed after it comes behind NewLeader.
            return;
        }
        assert_eq!(state.current, *epoch, "server {by} acknowledges {to:?} before its epoch is durable");
        let primary = &world.primaries[epoch];
        let first = &primary.proposed[0];
        assert!(state.holds(first), "server {by} acknowledges {to:?} without the initial history of {epoch:?}");
    }
}
