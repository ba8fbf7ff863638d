//! INV-LASTZXID-DURABLE: a server reports no more history than its disk holds.
//!
//! It reports no less than it acknowledged; and while no append is in flight, exactly the disk's
//! history.

use super::{Fact, Invariant};
use crate::net::World;
use crate::net::log::Record;
use std::collections::BTreeMap;
use zoolet_zab::{Message, Zxid};

#[derive(Default)]
pub(super) struct LastZxidDurable {
    /// By process: newest acknowledged entry that no leader has removed since.
    acked: BTreeMap<u64, Zxid>,
}

impl Invariant for LastZxidDurable {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let (by, said) = match fact {
            Fact::Sent { by, message: Message::FollowerInfo { credentials, .. }, .. }
            | Fact::Sent { by, message: Message::AckEpoch { credentials, .. }, .. } => (*by, *credentials),
            Fact::Sent { by, message: Message::Notification(said), .. } => (*by, said.credentials),
            Fact::Sent { by, message: Message::Ack { to, .. }, .. } => {
                let acked = self.acked.entry(world.server(*by).process).or_default();
                *acked = (*acked).max(*to);
                return;
            }
            Fact::Appended { by, record: Record::Truncate(to), .. } => {
                let acked = self.acked.entry(world.server(*by).process).or_default();
                *acked = (*acked).min(*to);
                return;
            }
            Fact::Appended { by, record: Record::SnapEnd(_), .. } => {
                // Until the snapshot is durable, a crash brings the old history back: only commits
                // are certain.
                self.acked.insert(world.server(*by).process, world.server(*by).log.durable.watermark);
                return;
            }
            _ => return,
        };
        let server = world.server(by);
        let last = server.log.durable.last();
        assert!(said.last <= last, "server {by} says it holds {:?}, and durable is {last:?}", said.last);
        assert!(said.current <= server.log.durable.current, "server {by} says it is in {:?}", said.current);
        // With facts between many entries in flight, a server may know of less than its disk holds.
        let is_still = server.log.in_flight().next().is_none();
        let least = if is_still { last } else { self.acked.get(&server.process).copied().unwrap_or_default() };
        assert!(said.last >= least, "server {by} says it holds only {:?}, and durable is {last:?}", said.last);
    }
}
