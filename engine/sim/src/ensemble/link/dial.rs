//! How links come up and go down.

use super::{End, Flight, Landed, Link, LinkId, Side, SimLinks, State};
use zoolet_zab::ServerId;

/// The attempts of one process to reach one peer.
#[derive(Debug, Default)]
pub(super) struct Dialler {
    /// Number of the scheduled attempt; flights with an older number are ignored.
    attempt: u64,
    failures: u32,
    /// The link of the last attempt.
    tried: Option<LinkId>,
}

impl<M: Clone> SimLinks<M> {
    /// Starts a process on a box without one; its number must be new on the box.
    pub fn start(&mut self, now_us: u64, server: ServerId, process: u64) {
        if let Some(there) = self.hosts.get_mut(&server) {
            (there.process, there.is_alive, there.is_asleep) = (process, true, false);
            there.held.clear();
        }
        for peer in self.peers_of(server) {
            let delay_us = self.random.below(self.network.dial_us + 1);
            self.dial_in(now_us, server, peer, delay_us);
        }
        self.listen(now_us);
    }

    /// Ends a process; its peers are told nothing.
    pub fn stop(&mut self, now_us: u64, server: ServerId) {
        if let Some(there) = self.hosts.get_mut(&server) {
            (there.is_alive, there.is_asleep) = (false, false);
            there.held.clear();
        }
        self.landed.retain(|landed| landed.at() != server);
        let ends: Vec<_> = self.ends_at(server);
        for (link, side) in ends {
            self.take_down(now_us, link, side, false);
        }
        self.listen(now_us);
    }

    pub(super) fn peers_of(&self, server: ServerId) -> Vec<ServerId> {
        self.hosts.keys().copied().filter(|&peer| peer != server).collect()
    }

    pub(super) fn ends_at(&self, server: ServerId) -> Vec<(LinkId, Side)> {
        self.links.iter().filter_map(|(&link, found)| found.side_of(server).map(|side| (link, side))).collect()
    }

    /// Schedules the next attempt after `delay_us`, in place of any other.
    fn dial_in(&mut self, now_us: u64, from: ServerId, to: ServerId, delay_us: u64) {
        if self.paths.get(&(from, to)).is_none_or(|path| !path.is_dialled) {
            return;
        }
        if let Some(dialler) = self.diallers.get_mut(&(from, to)) {
            dialler.attempt += 1;
            self.flights.push_back((now_us + delay_us, Flight::Redial { from, to, attempt: dialler.attempt }));
        }
    }

    pub(super) fn redial(&mut self, now_us: u64, from: ServerId, to: ServerId, attempt: u64) {
        let Some(there) = self.hosts.get(&from) else { return };
        let (process, is_asleep) = (there.process, there.is_asleep);
        let is_current = self.diallers.get(&(from, to)).is_some_and(|dialler| dialler.attempt == attempt);
        if !there.is_alive || !is_current || self.up.contains_key(&(from, to)) {
            return;
        }
        if is_asleep {
            return self.dial_in(now_us, from, to, self.network.dial_us);
        }
        let (link, path) = (LinkId(self.made), self.paths.get(&(from, to)).cloned());
        self.made += 1;
        let end = |server, process, state| End {
            server,
            process,
            state,
            lanes: Default::default(),
            is_confirm_parked: false,
            silent_since_us: None,
            silence: 0,
            is_overdue: false,
        };
        let made = Link { dialler: end(from, process, State::Joining), acceptor: end(to, 0, State::Absent) };
        self.links.insert(link, made);
        let Some(dialler) = self.diallers.get_mut(&(from, to)) else { return };
        let before = dialler.tried.replace(link);
        let wait_us = self.network.dial_us.saturating_mul(1 << dialler.failures.min(16)).min(self.network.dial_us_max);
        dialler.failures += 1;
        if let Some(before) = before {
            self.take_down(now_us, before, Side::Dialler, false);
        }
        if let Some(path) = path.filter(|path| !path.is_cut) {
            self.flights.push_back((now_us + path.packet_us(&mut self.random), Flight::Dial { link }));
        }
        // Wait at least as long as a handshake takes. Otherwise no handshake over a slow path would
        // finish.
        let wait_us = wait_us.max(self.handshake_us(from, to));
        let wait_us = wait_us + self.random.below(wait_us / 2 + 1);
        self.dial_in(now_us, from, to, wait_us);
    }

    fn handshake_us(&self, from: ServerId, to: ServerId) -> u64 {
        [(from, to), (to, from)]
            .iter()
            .filter_map(|way| self.paths.get(way))
            .map(|path| 2 * path.latency_us + 8 * path.jitter_us)
            .sum()
    }

    pub(super) fn on_dial(&mut self, now_us: u64, link: LinkId) {
        if !self.reaches(link, Side::Acceptor) {
            return;
        }
        let Some(found) = self.links.get_mut(&link) else { return };
        let Some(there) = self.hosts.get(&found.acceptor.server).filter(|there| !there.is_asleep) else { return };
        if found.dialler.state != State::Joining || found.acceptor.state != State::Absent {
            return;
        }
        (found.acceptor.state, found.acceptor.process) = (State::Joining, there.process);
        if let Some(path) = self.path_to(link, Side::Dialler).filter(|path| !path.is_cut).cloned() {
            self.flights.push_back((now_us + path.packet_us(&mut self.random), Flight::Accept { link }));
        }
        self.listen(now_us);
    }

    pub(super) fn on_accept(&mut self, now_us: u64, link: LinkId) {
        let Some(found) = self.links.get(&link) else { return };
        let is_awake = self.hosts.get(&found.dialler.server).is_some_and(|there| !there.is_asleep);
        if found.dialler.state == State::Joining && is_awake && self.reaches(link, Side::Dialler) {
            self.come_up(now_us, link, Side::Dialler);
            if self.links.get(&link).is_some_and(|found| found.dialler.state == State::Up) {
                self.confirm(now_us, link);
            }
        }
    }

    /// Sends the dialler's last handshake message, which is repeated after a cut.
    pub(super) fn confirm(&mut self, now_us: u64, link: LinkId) {
        let Some(path) = self.path_to(link, Side::Acceptor).cloned() else { return };
        if let Some(found) = self.links.get_mut(&link) {
            found.acceptor.is_confirm_parked = path.is_cut;
        }
        if !path.is_cut {
            self.flights.push_back((now_us + path.stream_us(&mut self.random), Flight::Confirm { link }));
        }
    }

    pub(super) fn on_confirm(&mut self, now_us: u64, link: LinkId) {
        if !self.reaches(link, Side::Acceptor) {
            // A dialler that is up repeats the message after a cut.
            if let Some(found) = self.links.get_mut(&link) {
                found.acceptor.is_confirm_parked = found.dialler.state == State::Up;
            }
            return;
        }
        if self.links.get(&link).is_some_and(|found| found.acceptor.state == State::Joining) {
            self.come_up(now_us, link, Side::Acceptor);
            self.read(now_us, link, Side::Acceptor);
        }
    }

    /// Brings a link up at one end.
    ///
    /// The end may already have a link with this peer. There are two cases:
    ///
    /// - Both are young and were dialled from both sides. The link that the smaller id dialled
    ///   stays, so both ends choose alike.
    /// - The peer has lost the old link. The new one replaces it.
    fn come_up(&mut self, now_us: u64, link: LinkId, side: Side) {
        let Some(found) = self.links.get(&link) else { return };
        let (at, peer, process) =
            (found.end(side).server, found.end(side.other()).server, found.end(side.other()).process);
        let dialler = found.dialler.server;
        if let Some(&old) = self.up.get(&(at, peer)) {
            let other = self
                .links
                .get(&old)
                .and_then(|found| Some((found.dialler.server, found.end(found.side_of(peer)?).state)));
            if other.is_some_and(|(old_dialler, state)| {
                old_dialler < dialler && matches!(state, State::Up | State::Joining)
            }) {
                self.take_down(now_us, link, side, false);
                return self.say_closed(now_us, link, side);
            }
            if let Some(old_side) = self.links.get(&old).and_then(|found| found.side_of(at)) {
                self.take_down(now_us, old, old_side, true);
                self.say_closed(now_us, old, old_side);
            }
        }
        if let Some(found) = self.links.get_mut(&link) {
            found.end_mut(side).state = State::Up;
        }
        self.up.insert((at, peer), link);
        if let Some(dialler) = self.diallers.get_mut(&(at, peer)) {
            (dialler.failures, dialler.attempt) = (0, dialler.attempt + 1);
        }
        self.tell(Landed::Up { at, peer, link, process });
        self.listen(now_us);
    }

    /// Takes a link down at one end, which dials again if its process is alive.
    ///
    /// Messages in flight to this end are lost.
    pub(super) fn take_down(&mut self, now_us: u64, link: LinkId, side: Side, is_told: bool) {
        let Some(found) = self.links.get_mut(&link) else { return };
        let (at, peer) = (found.end(side).server, found.end(side.other()).server);
        let was = std::mem::replace(&mut found.end_mut(side).state, State::Down);
        // Messages that this end had parked are not sent again.
        found.end_mut(side.other()).lanes.iter_mut().for_each(|lane| drop(lane.take_parked()));
        let is_over = Side::BOTH.iter().all(|&side| matches!(found.end(side).state, State::Down | State::Absent));
        if was == State::Up {
            if self.up.get(&(at, peer)) == Some(&link) {
                self.up.remove(&(at, peer));
            }
            if is_told {
                self.tell(Landed::Down { at, peer, link });
            }
            if self.hosts.get(&at).is_some_and(|there| there.is_alive) {
                let delay_us = self.random.below(self.network.dial_us + 1);
                self.dial_in(now_us, at, peer, delay_us);
            }
        }
        if is_over {
            self.links.remove(&link);
        }
        self.listen(now_us);
    }
}
