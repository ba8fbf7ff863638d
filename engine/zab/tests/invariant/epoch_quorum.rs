//! INV-EPOCH-QUORUM: a leader picks and begins an epoch only with a quorum.
//!
//! The epoch is above every promise that a quorum reported to the leader. It begins once a quorum
//! has promised it durably, each server for the first time, and none of them has more history than
//! the leader.

use super::{Fact, Invariant, is_majority};
use crate::net::World;
use crate::net::log::Record;
use std::collections::BTreeMap;
use zoolet_zab::{Attempt, Config, Credentials, Epoch, Incarnation, LinkId, Message};

/// Servers that promised, with their disks and the history they reported.
type Promised = Vec<(u8, Incarnation, Credentials)>;

#[derive(Default)]
pub(super) struct EpochQuorum {
    /// The last request to join of each disk, by (process, server, disk): attempt, link, accepted
    /// epoch.
    ///
    /// A leader picks an epoch before its own promise is durable, and announces the epoch after it.
    /// A server whose disk is exchanged in between asks again; the request of its former disk was
    /// part of the quorum.
    asked: BTreeMap<(u64, u8, Incarnation), (Attempt, LinkId, Epoch)>,
    /// First-time promises of an epoch to a process.
    promised: BTreeMap<(u64, Epoch), Promised>,
    /// Previous and present epoch of each process.
    left: BTreeMap<u64, (Epoch, Epoch)>,
    /// The epoch that each process announced.
    announced: BTreeMap<u64, Epoch>,
}

impl EpochQuorum {
    fn must_be_quorum(world: &World, by: u8, what: &str, holds: impl Fn(u8, Incarnation) -> bool) {
        let server = world.server(by);
        let zab = server.zab();
        let state = &server.log.written;
        // A birth is recorded in the same step in which the epoch begins.
        let is_born = state.entries.iter().any(|entry| entry.config.is_some()) || state.current > Epoch::ZERO;
        let mut configs: Vec<&Config> = vec![zab.config()];
        configs.extend(zab.pending_config());
        for config in configs {
            let holds = |id: u8, disk: Incarnation| {
                if id == by { disk == Incarnation(0) || disk == server.log.disk } else { holds(id, disk) }
            };
            let all = config.voters().all(|voter| holds(voter.id.as_u8(), voter.disk));
            let is_quorum = all || is_born && is_majority(config, holds);
            assert!(is_quorum, "server {by} {what} without a quorum of {config:?}");
        }
    }
}

impl Invariant for EpochQuorum {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        match fact {
            Fact::Started { by } => {
                let server = world.server(*by);
                let current = server.log.written.current;
                self.left.insert(server.process, (current, current));
            }
            Fact::Appended { by, record: Record::Epoch(epoch), .. } => {
                if let Some((left, current)) = self.left.get_mut(&world.server(*by).process) {
                    (*left, *current) = (*current, *epoch);
                }
            }
            Fact::Heard { by, from, link, message } => {
                let process = world.server(*by).process;
                let it = &world.links[link];
                let disk = it.disks[it.end_of(*from).expect("it is an end")];
                match message {
                    Message::FollowerInfo { attempt, accepted, .. } => {
                        self.asked.insert((process, *from, disk), (*attempt, *link, *accepted));
                    }
                    Message::AckEpoch { attempt, epoch, credentials, .. } => {
                        let Some((asked, its_link, accepted)) = self.asked.get(&(process, *from, disk)) else { return };
                        if asked == attempt && its_link == link && accepted < epoch {
                            self.promised.entry((process, *epoch)).or_default().push((*from, disk, *credentials));
                        }
                    }
                    _ => {}
                }
            }
            Fact::Sent { by, message: Message::LeaderInfo { epoch, .. }, .. } => {
                let server = world.server(*by);
                let announced = self.announced.insert(server.process, *epoch);
                if announced == Some(*epoch) {
                    return;
                }
                Self::must_be_quorum(world, *by, "picks an epoch", |id, disk| {
                    let any = (server.process, id, Incarnation(0))..=(server.process, id, Incarnation(u128::MAX));
                    let mut asked = self.asked.range(any);
                    asked
                        .any(|((.., its), (.., accepted))| (disk == Incarnation(0) || disk == *its) && accepted < epoch)
                });
            }
            Fact::Sent { by, message: Message::AckEpoch { epoch, .. }, .. } => {
                let accepted = world.server(*by).log.durable.accepted;
                assert_eq!(accepted, *epoch, "server {by} answers with a promise that is not durable");
            }
            Fact::Appended { by, record: Record::Entry(entry), is_own: true } if entry.zxid.counter() == 0 => {
                let epoch = entry.zxid.epoch();
                let server = world.server(*by);
                let alone: Vec<_> = server.zab().config().voters().map(|voter| voter.id.as_u8()).collect();
                let is_durable = server.log.durable.accepted == epoch || alone == [*by];
                assert!(is_durable, "server {by} begins epoch {epoch:?} before its own promise is durable");
                let promised = self.promised.get(&(server.process, epoch));
                let last = world.primaries[&epoch].initial.last().map(|entry| entry.zxid).unwrap_or_default();
                let left = self.left.get(&server.process).map(|(left, _)| *left).unwrap_or_default();
                let mine = Credentials { current: left, last };
                Self::must_be_quorum(world, *by, "begins an epoch", |id, disk| {
                    promised.is_some_and(|promised| {
                        promised.iter().any(|(it, its, held)| {
                            *it == id && (disk == Incarnation(0) || disk == *its) && *held <= mine
                        })
                    })
                });
            }
            _ => {}
        }
    }
}
