//! INV-EPOCH-QUORUM: a server leads beyond discovery only with the promises of a quorum of voters.
//!
//! - The voters durably promised the epoch to this server before any other, and when this server
//!   asked them.
//! - The epoch is newer than every earlier promise of these voters.
//! - None of them had more history than the epoch begins with.
//!
//! Two leaders could pass if promises counted from observers, from another attempt, or from servers
//! that had promised the epoch to another server (A3, A4, D8).

use super::one_primary::led_by;
use super::{Ghost, Invariant, Link, Seen};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_machine::seam::action::LogRecord;
use zoolet_zab::{Credentials, Epoch, Incarnation, Message, ServerId};

/// An epoch, its leader, and the leader's process.
type Reign = (Epoch, ServerId, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EpochQuorum {
    /// The server to which each disk first promised an epoch.
    promised: BTreeMap<(Epoch, ServerId, Incarnation), ServerId>,
    /// The disk of each process.
    disks: BTreeMap<(ServerId, u64), Incarnation>,
    /// The promises that a leader's process received, and the credentials of their disks.
    heard: BTreeMap<Reign, BTreeMap<(ServerId, Incarnation), Credentials>>,
    /// The newest promised epoch in the last FollowerInfo, by receiving server, its process, and
    /// sender.
    asked: BTreeMap<(ServerId, u64, ServerId), Epoch>,
    /// A process's credentials when it entered an epoch.
    began: BTreeMap<Reign, Credentials>,
    /// Leaders that were judged.
    judged: BTreeSet<Reign>,
}

impl EpochQuorum {
    fn judge(&mut self, ghost: &Ghost, leader: ServerId, epoch: Epoch) -> Result<(), String> {
        let host = ghost.host(leader);
        if !self.judged.insert((epoch, leader, host.process)) {
            return Ok(());
        }
        let heard = self.heard.get(&(epoch, leader, host.process));
        let began = self.began.get(&(epoch, leader, host.process)).copied().unwrap_or_default();
        // A single server makes promise, epoch and first entry durable in one batch. It sends
        // nothing before.
        let own = host.tail.accepted >= epoch;
        let to_this = |server, disk| {
            let first = self.promised.get(&(epoch, server, disk));
            let heard = heard.and_then(|heard| heard.get(&(server, disk))).is_some_and(|held| *held <= began);
            if server == leader && disk == host.disk {
                return own && first.is_none_or(|first| *first == leader);
            }
            heard && first == Some(&leader)
        };
        let mut configs = host.tail.configs.in_force(&ghost.founders);
        if host.history.last() == Link::default() {
            // Birth: all founders are asked, and the first entry names their disks, which were
            // unknown before.
            configs.push(&ghost.founders);
        }
        for config in configs {
            let (who, decide) = ghost.count(config, to_this);
            if !decide {
                return Err(format!(
                    "server {} leads in {epoch:?}, and of the voters of configuration {:?} only {:?} promised it to this leader first, with no more history",
                    leader.as_u8(),
                    config.version,
                    who.iter().map(|server| server.as_u8()).collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for EpochQuorum {
    fn name(&self) -> &'static str {
        "INV-EPOCH-QUORUM"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        if let Seen::Record(_, LogRecord::Epoch(epoch)) = seen {
            let host = ghost.host(server);
            let held = Credentials { current: host.tail.current, last: host.tail.last.zxid };
            self.began.insert((*epoch, server, host.process), held);
        }
        Ok(())
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Started { process, .. } => {
                self.disks.insert((server, *process), ghost.host(server).disk);
                Ok(())
            }
            Seen::Sent { peer, message, .. } => {
                if let Message::AckEpoch { epoch, .. } = message {
                    let disk = ghost.host(server).disk;
                    self.promised.entry((*epoch, server, disk)).or_insert(*peer);
                }
                led_by(message).map_or(Ok(()), |epoch| self.judge(ghost, server, epoch))
            }
            Seen::Received { peer, process, message } => {
                let (reigns, disk) = (ghost.host(server).process, self.disks.get(&(*peer, *process)));
                if let Message::FollowerInfo { accepted, .. } = message {
                    self.asked.insert((server, reigns, *peer), *accepted);
                }
                if let (Message::AckEpoch { epoch, credentials, .. }, Some(disk)) = (message, disk) {
                    let is_new = self.asked.get(&(server, reigns, *peer)).is_some_and(|accepted| accepted < epoch);
                    let heard = self.heard.entry((*epoch, server, reigns)).or_default();
                    if is_new {
                        heard.insert((*peer, *disk), *credentials);
                    }
                }
                Ok(())
            }
            Seen::Record(..) => {
                let host = ghost.host(server);
                let epoch = host.tail.last.zxid.epoch();
                let leads = |primary: &super::Primary| (primary.server, primary.process) == (server, host.process);
                match ghost.primaries.get(&epoch) {
                    Some(primary) if leads(primary) => self.judge(ghost, server, epoch),
                    Some(_) | None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, ack_epoch, ack_epoch_of, entered, entry, epoch, follower_info, promise, zxid};
    use super::*;

    #[test]
    fn leader_with_one_other_promise_has_a_quorum_of_three_voters() {
        let mut story = Story::of(EpochQuorum::default());
        story.reign(1, &[2]);
        story.reign(2, &[3]);
        story.is_fine();
    }

    #[test]
    fn leader_without_other_promises_is_reported() {
        let mut story = Story::of(EpochQuorum::default());
        story.write(1, &[promise(1)]);
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["server 1 leads in Epoch(1)", "only [1] promised"]);
    }

    #[test]
    fn promise_that_never_reached_the_leader_does_not_count() {
        let mut story = Story::of(EpochQuorum::default());
        story.write(1, &[promise(1)]);
        story.write(2, &[promise(1)]);
        story.say(2, 1, &ack_epoch(1));
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["only [1] promised"]);
    }

    #[test]
    fn promise_made_before_the_leaders_request_does_not_count() {
        let mut story = Story::of(EpochQuorum::default());
        story.write(1, &[promise(1)]);
        story.write(2, &[promise(1)]);
        story.tell(2, 1, &follower_info(1));
        story.tell(2, 1, &ack_epoch(1));
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["only [1] promised"]);
    }

    #[test]
    fn leader_with_less_history_than_its_promising_quorum_is_reported() {
        let mut story = Story::of(EpochQuorum::default());
        story.reign(1, &[2]);
        story.write(3, &[promise(2)]);
        story.write(2, &[promise(2)]);
        story.tell(2, 3, &follower_info(1));
        story.tell(2, 3, &ack_epoch_of(2, Credentials { current: epoch(1), last: zxid(1, 0) }));
        story.append(3, &[entered(2), entry(2, 0)]);
        story.is_wrong(&[
            "server 3 leads in Epoch(2)",
            "only [3] promised it to this leader first, with no more history",
        ]);
    }

    #[test]
    fn promise_given_first_to_another_leader_does_not_count() {
        let mut story = Story::of(EpochQuorum::default());
        for server in 1..=3 {
            story.write(server, &[promise(1)]);
        }
        for leader in [3, 1] {
            story.tell(2, leader, &follower_info(0));
            story.tell(2, leader, &ack_epoch(1));
        }
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["server 1 leads in Epoch(1)", "only [1] promised"]);
    }
}
