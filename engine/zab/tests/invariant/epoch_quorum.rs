//! INV-EPOCH-QUORUM: a leader picks and begins an epoch only with a quorum.
//!
//! The epoch is above every promise that a quorum reported to the leader. It begins once a quorum
//! has promised it durably, each server for the first time, and none of them has more history than
//! the leader.

use super::{Fact, Invariant, is_majority};
use crate::net::log::Record;
use crate::net::{World, server_id};
use std::collections::BTreeMap;
use zoolet_zab::{Attempt, Config, Credentials, Epoch, Incarnation, LinkId, Message};

/// Servers that promised, with their disks and the history they reported.
type Promised = Vec<(u8, Incarnation, Credentials)>;

#[derive(Default)]
pub(super) struct EpochQuorum {
    /// Requests to join, by (process, server): attempt, link, disk, accepted epoch.
    ///
    /// A request counts until its link ends or the process stops leading.
    asked: BTreeMap<(u64, u8), (Attempt, LinkId, Incarnation, Epoch)>,
    /// The epoch that each process picked last, judged when its promise was appended.
    ///
    /// A leader announces the epoch later, once its own promise is durable. The disk of a server
    /// of the quorum may be exchanged in between.
    picked: BTreeMap<u64, Epoch>,
    /// First-time promises of an epoch to a process.
    promised: BTreeMap<(u64, Epoch), Promised>,
    /// Previous and present epoch of each process.
    left: BTreeMap<u64, (Epoch, Epoch)>,
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

/// Returns whether the server leads, established or not.
fn leads(world: &World, by: u8) -> bool {
    world.server(by).zab().leader() == Some(server_id(by))
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
                match message {
                    Message::FollowerInfo { attempt, accepted, .. } if leads(world, *by) => {
                        let it = &world.links[link];
                        let disk = it.disks[it.end_of(*from).expect("it is an end")];
                        self.asked.insert((process, *from), (*attempt, *link, disk, *accepted));
                    }
                    Message::AckEpoch { attempt, epoch, credentials, .. } => {
                        let Some((asked, its_link, disk, accepted)) = self.asked.get(&(process, *from)) else { return };
                        if asked == attempt && its_link == link && accepted < epoch {
                            self.promised.entry((process, *epoch)).or_default().push((*from, *disk, *credentials));
                        }
                    }
                    _ => {}
                }
            }
            Fact::Parted { by, peer } => {
                self.asked.remove(&(world.server(*by).process, *peer));
            }
            Fact::Turn { by } if !leads(world, *by) => {
                let process = world.server(*by).process;
                self.asked.retain(|(asked, _), _| *asked != process);
            }
            Fact::Appended { by, record: Record::Promise(epoch), .. } if leads(world, *by) => {
                let process = world.server(*by).process;
                self.picked.insert(process, *epoch);
                Self::must_be_quorum(world, *by, "picks an epoch", |id, disk| {
                    let asked = self.asked.get(&(process, id));
                    asked.is_some_and(|(_, _, its, accepted)| {
                        (disk == Incarnation(0) || disk == *its) && accepted < epoch
                    })
                });
            }
            Fact::Sent { by, message: Message::LeaderInfo { epoch, .. }, .. } => {
                let picked = self.picked.get(&world.server(*by).process);
                assert_eq!(picked, Some(epoch), "server {by} announces an epoch that it did not pick");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::stage::Stage;
    use zoolet_zab::Zxid;

    fn epoch(epoch: u32) -> Epoch {
        Epoch::new(epoch).unwrap()
    }

    fn last() -> Zxid {
        Zxid::new(epoch(1), 4).unwrap()
    }

    /// Servers 2 and 3 of three voters run, without a link.
    fn apart() -> Stage {
        let mut stage = Stage::new(&[1, 2, 3]);
        (1..=3).for_each(|id| stage.history(id, &[(1, 4)], last()));
        stage.start(&[2, 3]);
        stage
    }

    /// Server 3 has picked epoch 2 with server 2, and its promise is not durable.
    fn picked() -> Stage {
        let mut stage = apart();
        stage.hung.insert(3);
        stage.net.connect(2, 3);
        stage.run(400);
        assert!(leads(&stage.net.world, 3));
        stage
    }

    /// Returns a check that saw the request of server 2 to server 3.
    fn asked(stage: &Stage) -> EpochQuorum {
        let credentials = Credentials { current: epoch(1), last: last() };
        let message = Message::FollowerInfo { attempt: Attempt(1), accepted: epoch(1), credentials };
        let mut check = EpochQuorum::default();
        let (link, _) = stage.link(2, 3);
        check.see(&stage.net.world, &Fact::Heard { by: 3, from: 2, link, message: &message });
        check
    }

    fn pick(check: &mut EpochQuorum, stage: &Stage) {
        let record = Record::Promise(epoch(2));
        check.see(&stage.net.world, &Fact::Appended { by: 3, record: &record, is_own: false });
    }

    fn announce(check: &mut EpochQuorum, stage: &Stage) {
        let message = Message::LeaderInfo { attempt: Attempt(1), epoch: epoch(2) };
        let (link, _) = stage.link(3, 2);
        check.see(&stage.net.world, &Fact::Sent { by: 3, to: 2, link, message: &message });
    }

    /// Regression: explorer's seed 1854. The disk of server 2 was exchanged after the pick.
    #[test]
    fn request_of_a_disk_counts_for_the_pick_if_its_link_ends_later() {
        let stage = picked();
        let mut check = asked(&stage);
        pick(&mut check, &stage);
        check.see(&stage.net.world, &Fact::Parted { by: 3, peer: 2 });
        announce(&mut check, &stage);
    }

    #[test]
    #[should_panic(expected = "server 3 picks an epoch without a quorum")]
    fn request_on_an_ended_link_does_not_count() {
        let stage = picked();
        let mut check = asked(&stage);
        check.see(&stage.net.world, &Fact::Parted { by: 3, peer: 2 });
        pick(&mut check, &stage);
    }

    #[test]
    #[should_panic(expected = "server 3 picks an epoch without a quorum")]
    fn request_to_an_earlier_leadership_does_not_count() {
        let (stage, looking) = (picked(), apart());
        let mut check = asked(&stage);
        check.see(&looking.net.world, &Fact::Turn { by: 3 });
        pick(&mut check, &stage);
    }

    #[test]
    #[should_panic(expected = "server 3 announces an epoch that it did not pick")]
    fn announced_epoch_must_have_been_picked() {
        let stage = picked();
        announce(&mut asked(&stage), &stage);
    }
}
