//! INV-EPOCH-QUORUM: when a server leads beyond discovery, a quorum of voters has durably promised the epoch to it, and to it first; and the
//! epoch is newer than everything those had promised before.
//!
//! Promises counted of observers, of another attempt or of servers that had promised the epoch to somebody else let two leaders pass (A3, A4, D8).

use super::one_primary::led_by;
use super::{Ghost, Invariant, Link, Seen};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_zab::{Epoch, Incarnation, Message, ServerId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EpochQuorum {
    /// To whom each disk first promised an epoch.
    promised: BTreeMap<(Epoch, ServerId, Incarnation), ServerId>,
    /// On which disk each process runs.
    disks: BTreeMap<(ServerId, u64), Incarnation>,
    /// Promises that a leader's process heard.
    heard: BTreeMap<(Epoch, ServerId, u64), BTreeSet<(ServerId, Incarnation)>>,
    /// Leaders that were judged.
    judged: BTreeSet<(Epoch, ServerId, u64)>,
}

impl EpochQuorum {
    fn judge(&mut self, ghost: &Ghost, leader: ServerId, epoch: Epoch) -> Result<(), String> {
        let host = ghost.host(leader);
        if !self.judged.insert((epoch, leader, host.process)) {
            return Ok(());
        }
        let heard = self.heard.get(&(epoch, leader, host.process));
        // One batch makes promise, epoch and first entry durable where nobody else is asked; what it holds goes nowhere before.
        let own = host.tail.accepted >= epoch;
        let to_this = |server, disk| {
            let first = self.promised.get(&(epoch, server, disk));
            let heard = heard.is_some_and(|heard| heard.contains(&(server, disk)));
            if server == leader && disk == host.disk {
                return own && first.is_none_or(|first| *first == leader);
            }
            heard && first == Some(&leader)
        };
        let mut configs = host.tail.configs.in_force(&ghost.founders);
        if host.history.last() == Link::default() {
            // Birth: everybody is asked, and its entry names the disks that nobody knew before.
            configs.push(&ghost.founders);
        }
        for config in configs {
            let (who, decide) = ghost.count(config, to_this);
            if !decide {
                return Err(format!(
                    "server {} leads in {epoch:?}, and of the voters of configuration {:?} only {:?} promised it to this leader first",
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
                if let (Message::AckEpoch { epoch, .. }, Some(disk)) = (message, self.disks.get(&(*peer, *process))) {
                    let leader = (*epoch, server, ghost.host(server).process);
                    self.heard.entry(leader).or_default().insert((*peer, *disk));
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
    use super::super::story::{Story, ack_epoch, entered, entry, promise};
    use super::*;

    #[test]
    fn a_leader_with_one_promise_beside_its_own_has_a_quorum_of_three() {
        let mut story = Story::of(EpochQuorum::default());
        story.reign(1, &[2]);
        story.reign(2, &[3]);
        story.is_fine();
    }

    #[test]
    fn a_leader_that_goes_on_alone_is_reported() {
        let mut story = Story::of(EpochQuorum::default());
        story.write(1, &[promise(1)]);
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["server 1 leads in Epoch(1)", "only [1] promised"]);
    }

    #[test]
    fn a_promise_that_never_arrived_does_not_count() {
        let mut story = Story::of(EpochQuorum::default());
        story.write(1, &[promise(1)]);
        story.write(2, &[promise(1)]);
        story.say(2, 1, &ack_epoch(1));
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["only [1] promised"]);
    }

    #[test]
    fn a_promise_given_to_another_leader_first_does_not_count() {
        let mut story = Story::of(EpochQuorum::default());
        for server in 1..=3 {
            story.write(server, &[promise(1)]);
        }
        story.tell(2, 3, &ack_epoch(1));
        story.tell(2, 1, &ack_epoch(1));
        story.append(1, &[entered(1), entry(1, 0)]);
        story.is_wrong(&["server 1 leads in Epoch(1)", "only [1] promised"]);
    }
}
