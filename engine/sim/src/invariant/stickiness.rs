//! INV-STICKINESS: a follower leaves a leader that it still hears only if a quorum misses the
//! leader too.
//!
//! Otherwise one bad link or a briefly slow leader costs a follower's clients their connections.
//! With two such followers, it costs all clients an epoch. The check uses the messages that the
//! follower received: the last notification on each of its present links.

use super::{Ghost, Invariant, Seen};
use std::collections::BTreeMap;
use zoolet_zab::{Epoch, Message, Notification, Role, ServerId, Stance};

/// The leader that a server follows.
#[derive(Clone, Copy, Debug)]
struct Bond {
    leader: ServerId,
    epoch: Epoch,
    /// The link to the leader is gone, or the leader handed over.
    is_over: bool,
    /// Whether any message since its last state was a reason to leave.
    ///
    /// A server may hear several messages in one turn, and need not act on the last one.
    may_leave: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stickiness {
    bonds: BTreeMap<ServerId, Bond>,
    /// The last notification, by receiver and sender.
    said: BTreeMap<(ServerId, ServerId), Notification>,
}

impl Stickiness {
    fn end(&mut self, server: ServerId, leader: ServerId) {
        if let Some(bond) = self.bonds.get_mut(&server).filter(|bond| bond.leader == leader) {
            bond.is_over = true;
        }
    }

    fn note_reason(&mut self, ghost: &Ghost, server: ServerId) {
        let Some(&bond) = self.bonds.get(&server) else { return };
        let may_leave = bond.may_leave || self.judge(ghost, server, bond).is_ok();
        self.bonds.insert(server, Bond { may_leave, ..bond });
    }

    fn forget(&mut self, server: ServerId) {
        self.bonds.remove(&server);
        self.said.retain(|(to, _), _| *to != server);
    }

    fn judge(&self, ghost: &Ghost, server: ServerId, bond: Bond) -> Result<(), String> {
        let said = |of: ServerId| self.said.get(&(server, of));
        let leads = |said: &Notification| matches!(said.stance, Stance::Leading { .. });
        let is_over = bond.is_over || said(bond.leader).is_some_and(|said| !leads(said) || said.epoch != bond.epoch);
        let others = || self.said.iter().filter(|((to, of), _)| *to == server && *of != bond.leader);
        let is_led_elsewhere = others().any(|(_, said)| said.stance == Stance::Leading { established: true });
        if is_over || is_led_elsewhere {
            return Ok(());
        }
        let misses = |said: &Notification| !matches!(said.stance, Stance::Following { suspects: false, .. });
        let miss = |of: ServerId| of == server || of != bond.leader && said(of).is_some_and(misses);
        let disk = ghost.host(server).disk;
        for config in ghost.host(server).tail.configs.in_force(&ghost.founders) {
            let (who, decide) = ghost.count(config, |of, _| miss(of));
            if !decide && config.counts(server, disk) {
                return Err(format!(
                    "server {} leaves its leader {} of {:?}, and of the voters of configuration {:?} only {:?} miss it",
                    server.as_u8(),
                    bond.leader.as_u8(),
                    bond.epoch,
                    config.version,
                    who.iter().map(|server| server.as_u8()).collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for Stickiness {
    fn name(&self) -> &'static str {
        "INV-STICKINESS"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Started { .. } | Seen::Stopped => self.forget(server),
            Seen::Parted { peer } => {
                self.said.remove(&(server, *peer));
                self.end(server, *peer);
            }
            Seen::Received { peer, message: Message::Notification(said), .. } => {
                self.said.insert((server, *peer), *said);
                self.note_reason(ghost, server);
            }
            Seen::Received { peer, message: Message::HandOver { .. }, .. } => self.end(server, *peer),
            Seen::State(state) => match state.role {
                Role::Following(leader) => {
                    let bond = Bond { leader, epoch: state.epoch, is_over: false, may_leave: false };
                    self.bonds.entry(server).or_insert(bond).may_leave = false;
                }
                Role::Looking => {
                    let bond = self.bonds.remove(&server).filter(|bond| !bond.may_leave);
                    return bond.map_or(Ok(()), |bond| self.judge(ghost, server, bond));
                }
                // A membership change may make the server an observer of the same leader.
                Role::Leading | Role::Observing(_) => drop(self.bonds.remove(&server)),
            },
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, epoch, id, zxid};
    use super::*;
    use zoolet_zab::{EnsembleId, Servers, Zxid};

    fn said(stance: Stance) -> Message {
        Message::Notification(Notification {
            ensemble: EnsembleId(77),
            stance,
            epoch: epoch(1),
            credentials: zoolet_zab::Credentials::default(),
            config: Zxid::ZERO,
            hears: Servers::NOBODY,
        })
    }

    #[test]
    fn reason_withdrawn_in_the_same_turn_still_justifies_leaving() {
        let mut story = followed();
        story.tell(3, 2, &said(Stance::Leading { established: true }));
        story.tell(3, 2, &said(Stance::Following { leader: id(1), suspects: false }));
        story.state(2, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story.is_fine();
    }

    #[test]
    fn reason_withdrawn_in_an_earlier_turn_does_not_justify_leaving() {
        let mut story = followed();
        story.tell(3, 2, &said(Stance::Following { leader: id(1), suspects: true }));
        story.state(2, Role::Following(id(1)), 1, zxid(1, 0), zxid(1, 0));
        story.tell(3, 2, &said(Stance::Following { leader: id(1), suspects: false }));
        story.state(2, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story.is_wrong(&["server 2 leaves its leader 1", "only [2] miss it"]);
    }

    /// Servers 2 and 3 follow server 1.
    fn followed() -> Story {
        let mut story = Story::of(Stickiness::default());
        story.reign(1, &[2, 3]);
        story.tell(1, 2, &said(Stance::Leading { established: true }));
        story.tell(3, 2, &said(Stance::Following { leader: id(1), suspects: false }));
        story.state(2, Role::Following(id(1)), 1, zxid(1, 0), zxid(1, 0));
        story
    }

    fn leave(mut story: Story) -> Story {
        story.state(2, Role::Looking, 1, zxid(1, 0), zxid(1, 0));
        story
    }

    #[test]
    fn follower_that_alone_leaves_its_leader_is_reported() {
        leave(followed()).is_wrong(&["server 2 leaves its leader 1 of Epoch(1)", "only [2] miss it"]);
    }

    #[test]
    fn follower_may_leave_when_a_quorum_misses_the_leader() {
        let mut story = followed();
        story.tell(3, 2, &said(Stance::Following { leader: id(1), suspects: true }));
        leave(story).is_fine();
    }

    #[test]
    fn follower_may_leave_when_its_link_to_the_leader_is_gone() {
        let mut story = followed();
        story.see(2, Seen::Parted { peer: id(1) });
        leave(story).is_fine();
    }

    #[test]
    fn follower_may_leave_a_leader_that_announces_it_stopped_leading() {
        let mut story = followed();
        story.tell(1, 2, &said(Stance::Looking { vote: None }));
        leave(story).is_fine();
    }

    #[test]
    fn notification_on_a_lost_link_does_not_justify_leaving() {
        let mut story = followed();
        story.tell(3, 2, &said(Stance::Looking { vote: None }));
        story.see(2, Seen::Parted { peer: id(3) });
        // Within the turn that heard it, the message remains a reason.
        story.state(2, Role::Following(id(1)), 1, zxid(1, 0), zxid(1, 0));
        leave(story).is_wrong(&["only [2] miss it"]);
    }
}
