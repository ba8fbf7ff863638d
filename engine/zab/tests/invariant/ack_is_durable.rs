//! INV-ACK<=DURABLE: a server acknowledges only entries on its disk.
//!
//! Everything before the entry must be there too, and the leader must have the same entry.

use super::{Fact, Invariant};
use crate::net::World;
use zoolet_zab::{Message, Zxid};

pub(super) struct AckIsDurable;

impl Invariant for AckIsDurable {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Sent { by, message: Message::Ack { epoch, to, .. }, .. } = fact else { return };
        if *to == Zxid::ZERO {
            return;
        }
        let state = &world.server(*by).log.durable;
        let Some(mine) = state.entry(*to) else {
            panic!("server {by} acknowledges {to:?}; durable is {:?}", state.last());
        };
        let primary = &world.primaries[epoch];
        let all = || primary.initial.iter().chain(&primary.proposed);
        let theirs = all().find(|entry| entry.zxid == *to);
        assert_eq!(theirs, Some(mine), "server {by} acknowledges another entry than the primary of {epoch:?} has");
    }
}
