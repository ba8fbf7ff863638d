//! INV-ONE-PRIMARY: one process proposes in an epoch, and one leads in it.

use super::{Fact, Invariant};
use crate::net::World;
use crate::net::log::Record;
use std::collections::BTreeMap;
use zoolet_zab::{Epoch, Message, Role};

#[derive(Default)]
pub(super) struct OnePrimary {
    leads: BTreeMap<Epoch, (u8, u64)>,
}

impl Invariant for OnePrimary {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let (by, epoch) = match fact {
            // A lone voter promises, begins the epoch and proposes in one batch. No other server
            // hears of it before the batch is durable.
            Fact::Appended { by, record: Record::Entry(entry), is_own: true }
                if world.server(*by).log.durable.accepted == entry.zxid.epoch() =>
            {
                (*by, entry.zxid.epoch())
            }
            Fact::Became { by, role: Role::Leading } => (*by, world.server(*by).zab().epoch()),
            // LeaderInfo is not checked: two servers may propose the same epoch, but only one gets
            // it.
            Fact::Sent { by, message: Message::NewLeader { epoch, .. }, .. }
            | Fact::Sent { by, message: Message::Proposal { epoch, .. }, .. } => (*by, *epoch),
            _ => return,
        };
        let me = (by, world.server(by).process);
        let leads = *self.leads.entry(epoch).or_insert(me);
        assert_eq!(leads, me, "epoch {} has two primaries (server, process)", epoch.as_u32());
    }
}
