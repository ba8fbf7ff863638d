//! INV-QUORUM-DURABLE: when a leader may serve, a quorum holds its epoch durably.
//!
//! The quorum's disks also hold the epoch's initial history.

use super::{Fact, Invariant, deciding, is_majority};
use crate::net::World;
use zoolet_zab::{Incarnation, Role, Zxid};

pub(super) struct QuorumDurable;

impl Invariant for QuorumDurable {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        let Fact::Became { by, role: Role::Leading } = fact else { return };
        let server = world.server(*by);
        let epoch = server.zab().epoch();
        let history = server.log.written.up_to(Zxid::first_of(epoch));
        for (config, first) in deciding(history, Zxid::first_of(epoch), server.zab().config()) {
            let is_quorum = is_majority(&config, |id, disk| {
                let is_it = |other: Incarnation| disk == Incarnation(0) || disk == other;
                let holds = |state: &crate::net::log::State| {
                    state.holds(&first) && (first.zxid.epoch() < epoch || state.current >= epoch)
                };
                world.servers.get(&id).is_some_and(|s| is_it(s.log.disk) && holds(&s.log.durable))
                    || world.lost.iter().any(|(s, lost, state)| *s == id && is_it(*lost) && holds(state))
            });
            assert!(is_quorum, "server {by} leads in {epoch:?} without a quorum of {config:?}");
        }
    }
}
