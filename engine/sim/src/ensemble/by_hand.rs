//! Faults that a test orders one at a time.
//!
//! Nothing is drawn, and nothing but a disk hang heals by itself.

use super::Kind;
use super::host::{Death, Host, Parts};
use super::world::{Happening, World};
use zoolet_zab::ServerId;

impl World {
    /// Kills a server's process, as SIGKILL does, until [`World::start_server`].
    pub fn kill_server(&mut self, server: ServerId) {
        if self.hosts.get(&server).is_some_and(|host| host.process.is_some()) {
            self.with(server, |host, around| host.die(around, Death::Process));
            self.end_clients();
        }
    }

    /// Starts a server's process, if it has none.
    pub fn start_server(&mut self, server: ServerId) {
        self.with(server, Host::start);
    }

    /// Cuts two servers from each other until [`World::join`]; clients reach both.
    pub fn part(&mut self, one: ServerId, other: ServerId) {
        self.around.has_changed = true;
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Undoes one [`World::part`]; the cut ends when all are undone.
    pub fn join(&mut self, one: ServerId, other: ServerId) {
        self.around.has_changed = true;
        self.uncut(one, other);
        self.uncut(other, one);
    }

    /// Cuts one way: nothing that `from` sends reaches `to`, until [`World::mend_way`].
    pub fn cut_way(&mut self, from: ServerId, to: ServerId) {
        self.around.has_changed = true;
        self.cut(from, to);
    }

    /// Undoes one [`World::cut_way`]; the cut ends when all are undone.
    pub fn mend_way(&mut self, from: ServerId, to: ServerId) {
        self.around.has_changed = true;
        self.uncut(from, to);
    }

    /// Lets no disk operation of a server end for this many microseconds.
    pub fn hang_disk(&mut self, server: ServerId, for_us: u64) {
        self.around.has_changed = true;
        let until_us = self.now_us().saturating_add(for_us);
        self.with(server, |host, _| {
            host.hangs = Parts { log: true, base: true };
            host.hangs_until_us = host.hangs_until_us.max(until_us);
        });
        self.around.agenda.after(for_us, Happening::HangOver { server });
    }

    pub(super) fn on_hang_over(&mut self, server: ServerId) {
        let now_us = self.now_us();
        self.around.has_changed = true;
        // A fault that still hangs a part ends by itself.
        let ends = [Kind::LogHang, Kind::BaseHang].map(|kind| !self.struck.holds(kind, server));
        self.with(server, |host, around| {
            if host.hangs_until_us <= now_us {
                host.release(around, Parts { log: ends[0], base: ends[1] });
            }
        });
    }
}
