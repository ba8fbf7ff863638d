//! What a test does to an ensemble by its own hand, one thing at a time: nothing is drawn, and nothing is mended by itself.

use super::host::{Death, Host};
use super::world::{Happening, World};
use zoolet_zab::ServerId;

impl World {
    /// A server's process dies, as by SIGKILL, and stays away until [`World::start_server`].
    pub fn kill_server(&mut self, server: ServerId) {
        if self.hosts.get(&server).is_some_and(|host| host.process.is_some()) {
            self.with(server, |host, around| host.die(around, Death::Process));
            self.end_clients();
        }
    }

    /// A server's process is started, if it has none.
    pub fn start_server(&mut self, server: ServerId) {
        self.with(server, Host::start);
    }

    /// Two servers do not reach each other until [`World::join`]. Clients reach both.
    pub fn part(&mut self, one: ServerId, other: ServerId) {
        self.around.has_changed = true;
        self.cut(one, other);
        self.cut(other, one);
    }

    /// They reach each other again, when this was said as often as [`World::part`].
    pub fn join(&mut self, one: ServerId, other: ServerId) {
        self.around.has_changed = true;
        self.uncut(one, other);
        self.uncut(other, one);
    }

    /// Nothing that a server asks of its disk ends for so long, microseconds.
    pub fn hang_disk(&mut self, server: ServerId, for_us: u64) {
        self.around.has_changed = true;
        let until_us = self.now_us().saturating_add(for_us);
        self.with(server, |host, _| {
            (host.log_hangs, host.base_hangs) = (true, true);
            host.hangs_until_us = host.hangs_until_us.max(until_us);
        });
        self.around.agenda.after(for_us, Happening::HangOver { server });
    }

    pub(super) fn on_hang_over(&mut self, server: ServerId) {
        let now_us = self.now_us();
        self.around.has_changed = true;
        self.with(server, |host, around| {
            if host.hangs_until_us <= now_us {
                host.release(around);
            }
        });
    }
}
