//! Stickiness: a follower leaves a live leader only with a quorum that misses it too.
//!
//! So a server whose own link is bad, or whose leader is only slow, ends neither an epoch nor its
//! clients' connections.

use super::{Fact, Invariant, is_majority};
use crate::net::World;
use std::collections::BTreeMap;
use zoolet_zab::{Message, Notification, Role, Stance};

#[derive(Default)]
pub(super) struct Stickiness {
    /// The leader of each follower, and whether the follower was sent away since.
    ///
    /// It was if its link is gone or the leader handed over.
    follows: BTreeMap<u8, (u8, bool)>,
    /// Last notification on the present link, by (receiver, sender).
    said: BTreeMap<(u8, u8), Notification>,
}

impl Stickiness {
    fn forget(&mut self, by: u8) {
        self.follows.remove(&by);
        self.said.retain(|(to, _), _| *to != by);
    }

    fn part(&mut self, by: u8, peer: u8) {
        self.said.remove(&(by, peer));
        self.send_away(by, peer);
    }

    fn send_away(&mut self, by: u8, from: u8) {
        if let Some((leader, is_sent_away)) = self.follows.get_mut(&by) {
            *is_sent_away |= *leader == from;
        }
    }

    fn must_have_left_with_others(&self, world: &World, by: u8, leader: u8) {
        let server = world.server(by);
        let said = |of: u8| self.said.get(&(by, of));
        let leads = |said: &Notification| matches!(said.stance, Stance::Leading { .. });
        let is_over = said(leader).is_some_and(|said| !leads(said) || said.epoch != server.zab().epoch());
        let is_led_elsewhere = (1..=u8::MAX).any(|peer| {
            peer != leader && said(peer).is_some_and(|said| said.stance == Stance::Leading { established: true })
        });
        let misses = |said: &Notification| !matches!(said.stance, Stance::Following { suspects: false, .. });
        let zab = server.zab();
        let is_missed = [Some(zab.config()), zab.pending_config()]
            .into_iter()
            .flatten()
            .all(|config| is_majority(config, |id, _| id == by || id != leader && said(id).is_some_and(misses)));
        assert!(
            is_over || is_led_elsewhere || is_missed || !zab.is_voter(),
            "server {by} leaves its leader {leader} alone"
        );
    }
}

impl Invariant for Stickiness {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        match fact {
            Fact::Started { by } | Fact::Crashed { by } => self.forget(*by),
            Fact::Parted { by, peer } | Fact::Closed { by, peer, .. } => self.part(*by, *peer),
            Fact::Heard { by, from, message: Message::Notification(said), .. } => {
                self.said.insert((*by, *from), *said);
            }
            Fact::Heard { by, from, message: Message::HandOver { .. }, .. } => self.send_away(*by, *from),
            Fact::Became { by, role: Role::Following(leader) } => {
                self.follows.insert(*by, (leader.as_u8(), false));
            }
            Fact::Became { by, role: Role::Looking } => {
                if let Some((leader, false)) = self.follows.remove(by) {
                    self.must_have_left_with_others(world, *by, leader);
                }
            }
            // A change of membership may make the server an observer of the same leader.
            Fact::Became { by, role: Role::Leading | Role::Observing(_) } => drop(self.follows.remove(by)),
            _ => {}
        }
    }
}
