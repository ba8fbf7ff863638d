//! Disks that are lost. Of a majority of the voters everything that was durable stays, and knows what the others lost: more is not promised.

use super::Kind;
use super::host::{Death, Host};
use super::world::{Around, World};
use crate::disk::SimDisk;
use zoolet_zab::{Config, Incarnation, ServerId, Zxid};

impl World {
    /// What was durable at `victim` is not there any more, if the others can do without. Says whether it is so.
    pub(super) fn lose_disk(&mut self, kind: Kind, victim: ServerId) -> bool {
        if !self.may_lose(victim) {
            return false;
        }
        match kind {
            Kind::Wipe => self.with(victim, Host::wipe),
            _ => return false,
        }
        true
    }

    /// Some of the servers that can decide, and as many others as there is room for.
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

    /// Whether every voter has the disk that counts, and nothing is missing on it.
    pub(super) fn all_count(&self) -> bool {
        self.config()
            .is_none_or(|config| config.voters().all(|voter| self.is_sound(voter.id, voter.disk, config.version)))
    }

    /// The members as they are now; nobody was lost before there was a membership with disks.
    fn config(&self) -> Option<&Config> {
        let ghost = self.witness().ghost();
        Some(ghost.config_at(ghost.committed.last().zxid)).filter(|config| config.is_born())
    }

    fn may_lose(&self, victim: ServerId) -> bool {
        let is_alone = self.config().is_none_or(|config| config.voters().count() == 1);
        !is_alone && self.decide_without(&self.servers(), victim)
    }

    /// Whether those of `servers` that lost nothing, `other` not among them, are more than half of the voters.
    fn decide_without(&self, servers: &[ServerId], other: ServerId) -> bool {
        let Some(config) = self.config() else { return false };
        let is_sound = |id: ServerId, disk| servers.contains(&id) && self.is_sound(id, disk, config.version);
        let sound = config.voters().filter(|voter| voter.id != other && is_sound(voter.id, voter.disk));
        2 * sound.count() > config.voters().count()
    }

    /// Whether a server has the disk that the membership names, all of it, and durably knows that membership: who knows an older one may still count
    /// a disk that is gone.
    fn is_sound(&self, server: ServerId, disk: Incarnation, version: Zxid) -> bool {
        let (Some(host), Some(books)) = (self.hosts.get(&server), self.witness().ghost().hosts.get(&server)) else {
            return false;
        };
        let knows = books.durable.configs.committed.as_ref().is_some_and(|known| known.version == version);
        let is_settled = knows && books.tail.configs.pending.is_none();
        !host.has_new_disk && !host.is_damaged && books.disk == disk && books.is_whole() && is_settled
    }
}

impl Host {
    /// The box is away, and its disk is gone; it comes back with an empty one.
    fn wipe(&mut self, around: &mut Around) {
        self.die(around, Death::Power(0));
        let empty = SimDisk::new(self.random.bits());
        self.replace_disk(empty);
    }

    /// Nothing that was wrong with the old disk is wrong with this one.
    fn replace_disk(&mut self, disk: SimDisk) {
        (self.disk, self.has_new_disk) = (disk, true);
        (self.is_disk_full, self.is_disk_blamed, self.is_damaged) = (false, false, false);
    }
}
