//! Disks that are lost, exchanged or rot.
//!
//! A majority of the voters keeps everything that was durable, and knows which disks of the others
//! were lost. More is not promised.
//!
//! A disk never comes back in a state that its box has moved on from: a server that counts the disk
//! could not tell. A box gets its previous disk in its last state, or a copy of another server's
//! disk with an incarnation that this server never had.

mod rot;

use super::Kind;
use super::host::{Death, Host};
use super::world::{Around, World};
use crate::disk::SimDisk;
use zoolet_zab::{Config, Incarnation, ServerId, Zxid};

impl World {
    /// Loses the durable state of `victim`, if the other servers can do without it.
    ///
    /// Returns whether that happened.
    pub(super) fn lose_disk(&mut self, kind: Kind, victim: ServerId) -> bool {
        if !self.may_lose(victim) {
            return false;
        }
        match kind {
            Kind::Clone => self.exchange(victim),
            Kind::Rot => self.rot(victim),
            _ => {
                self.with(victim, Host::wipe);
                true
            }
        }
    }

    /// Gives the box a disk that already has a history.
    fn exchange(&mut self, victim: ServerId) -> bool {
        let former =
            if self.random.one_in(2) { self.hosts.get_mut(&victim).and_then(|host| host.former.take()) } else { None };
        let Some(disk) = former.or_else(|| self.draw_copy(victim)) else { return false };
        self.with(victim, |host, around| host.exchange(around, disk));
        true
    }

    /// Copies the durable state of another server's disk that was never `victim`'s.
    fn draw_copy(&mut self, victim: ServerId) -> Option<SimDisk> {
        let ghost = self.witness().ghost();
        let is_new = |host: &Host| {
            let disk = ghost.hosts.get(&host.id).map(|books| books.disk);
            disk.is_some_and(|disk| !ghost.disks().any(|known| known == (victim, disk)))
        };
        let is_whole = |host: &Host| host.is_running() && !host.is_damaged;
        let others = self.hosts.values().filter(|host| host.id != victim && is_whole(host) && is_new(host));
        let others: Vec<_> = others.map(|host| host.disk.clone()).collect();
        if others.is_empty() { None } else { Some(self.random.pick(&others).after_power_loss(0)) }
    }

    fn rot(&mut self, victim: ServerId) -> bool {
        let is_power_loss = self.random.one_in(2);
        let (is_at_rest, death) = (self.random.one_in(2), self.death(is_power_loss));
        let mut has_struck = false;
        self.with(victim, |host, around| {
            has_struck = host.rot();
            if has_struck && is_at_rest {
                host.die(around, death);
                host.start(around);
            }
        });
        has_struck
    }

    /// Draws servers that can form a quorum, if possible just more than half of all.
    pub(super) fn draw_core(&mut self) -> Vec<ServerId> {
        let mut core = self.servers();
        let size = core.len() / 2 + 1;
        while core.len() > size {
            let spare: Vec<_> = core.iter().copied().filter(|&server| self.decide_without(&core, server)).collect();
            if spare.is_empty() {
                break;
            }
            let left_out = *self.random.pick(&spare);
            core.retain(|&server| server != left_out);
        }
        core
    }

    /// Returns whether every voter counts itself as a voter, with its complete disk.
    pub(super) fn all_count(&self) -> bool {
        let counts = |id| self.hosts.get(&id).is_some_and(Host::counts);
        self.config().is_none_or(|config| config.voters().all(|voter| counts(voter.id)))
    }

    /// Returns the committed membership; `None` before the ensemble is born.
    ///
    /// No disk is lost before then.
    fn config(&self) -> Option<&Config> {
        let ghost = self.witness().ghost();
        Some(ghost.config_at(ghost.committed.last().zxid)).filter(|config| config.is_born())
    }

    fn may_lose(&self, victim: ServerId) -> bool {
        let is_alone = self.config().is_none_or(|config| config.voters().count() == 1);
        // The victim may have proposed a membership that others append only later. That membership
        // may count the lost disk, and then the others are not a majority of it (seed 20000036 of
        // the mix with turns of many events).
        let books = self.witness().ghost().hosts.get(&victim);
        let is_proposing = books.is_some_and(|books| books.tail.configs.pending.is_some());
        !is_alone && !is_proposing && self.decide_without(&self.servers(), victim)
    }

    /// Returns whether the sound servers among `servers`, without `other`, are a majority of the
    /// voters.
    fn decide_without(&self, servers: &[ServerId], other: ServerId) -> bool {
        let Some(config) = self.config() else { return false };
        let is_sound = |id: ServerId, disk| servers.contains(&id) && self.is_sound(id, disk, config.version);
        let sound = config.voters().filter(|voter| voter.id != other && is_sound(voter.id, voter.disk));
        2 * sound.count() > config.voters().count()
    }

    /// Returns whether a server is sound under the membership `version`.
    ///
    /// A sound server has the complete disk that the membership names, and durably knows that
    /// membership. A server that knows an older membership may still count a lost disk.
    fn is_sound(&self, server: ServerId, disk: Incarnation, version: Zxid) -> bool {
        let (Some(host), Some(books)) = (self.hosts.get(&server), self.witness().ghost().hosts.get(&server)) else {
            return false;
        };
        let knows = books.durable.configs.committed.as_ref().is_some_and(|known| known.version == version);
        let is_settled = knows && books.tail.configs.pending.is_none();
        let is_all_there = !host.is_rotten() && (!host.is_damaged || host.counts());
        !host.has_new_disk && is_all_there && books.disk == disk && books.is_whole() && is_settled
    }
}

impl Host {
    /// Returns whether its process believes that it counts as a voter.
    fn counts(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.server().zab().is_voter())
    }

    /// Returns whether durable state of this box is missing, or may be.
    pub(super) fn lacks_its_disk(&self) -> bool {
        self.has_new_disk || self.is_damaged || self.is_rotten()
    }

    /// Ends the process with a loss of power and replaces the disk by an empty one.
    fn wipe(&mut self, around: &mut Around) {
        let empty = SimDisk::new(self.random.bits());
        self.exchange(around, empty);
    }

    /// Ends the process with a loss of power and replaces the disk.
    ///
    /// Faults of the old disk do not affect the new one.
    fn exchange(&mut self, around: &mut Around, disk: SimDisk) {
        self.die(around, Death::Power(0));
        disk.set_capacity(None);
        let before = std::mem::replace(&mut self.disk, disk);
        self.former = if self.is_damaged { None } else { Some(before) };
        (self.is_disk_full, self.is_disk_blamed, self.is_damaged) = (false, false, false);
        self.has_new_disk = true;
        self.rot.clear();
    }
}
