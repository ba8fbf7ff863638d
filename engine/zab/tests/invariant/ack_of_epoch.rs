//! INV-ACKLD-DURABLE: an Ack of an epoch's first entry needs a durable epoch.
//!
//! The sender's disk holds the record of the epoch and its whole initial history.

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
            // A snapshot can reach into the epoch. A quorum of other servers then holds all of it
            // already, and this Ack adds nothing. Later proposals come after NewLeader.
            return;
        }
        assert_eq!(state.current, *epoch, "server {by} acknowledges {to:?} before its epoch is durable");
        let primary = &world.primaries[epoch];
        let first = &primary.proposed[0];
        assert!(state.holds(first), "server {by} acknowledges {to:?} without the initial history of {epoch:?}");
    }
}
