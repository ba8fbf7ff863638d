//! Cuts, sleep and idle timeouts.

use super::{Flight, Landed, LinkId, Side, SimLinks, State};
use zoolet_zab::ServerId;

impl<M: Clone> SimLinks<M> {
    /// Cuts the path from one box to another.
    pub fn cut(&mut self, now_us: u64, from: ServerId, to: ServerId) {
        self.set_cut(from, to, true);
        self.listen(now_us);
    }

    /// Ends the cut and sends the parked messages of streams again.
    pub fn heal(&mut self, now_us: u64, from: ServerId, to: ServerId) {
        self.set_cut(from, to, false);
        let mut again = Vec::new();
        for (&link, found) in &mut self.links {
            let Some(side) = found.side_of(to).filter(|&side| found.end(side.other()).server == from) else { continue };
            let end = found.end_mut(side);
            let is_confirm = std::mem::take(&mut end.is_confirm_parked);
            let lanes = end.lanes.iter_mut().enumerate();
            let parked: Vec<_> = lanes.map(|(stream, lane)| (stream, lane.take_parked())).collect();
            again.push((link, side, is_confirm, parked));
        }
        for (link, side, is_confirm, parked) in again {
            if is_confirm {
                self.confirm(now_us, link);
            }
            for (stream, messages) in parked {
                for (number, message) in messages {
                    self.launch(now_us, link, side, stream, number, message);
                }
            }
        }
        self.listen(now_us);
    }

    /// Makes the process on a box neither hear nor say anything until [`SimLinks::wake`].
    pub fn sleep(&mut self, now_us: u64, server: ServerId) {
        if let Some(there) = self.hosts.get_mut(&server) {
            there.is_asleep = true;
        }
        self.listen(now_us);
    }

    /// Wakes the process, which now hears everything that arrived meanwhile.
    ///
    /// After a silence longer than the idle timeout, it may give a link up before it reads the
    /// messages that had arrived on it.
    pub fn wake(&mut self, now_us: u64, server: ServerId) {
        let Some(there) = self.hosts.get_mut(&server) else { return };
        there.is_asleep = false;
        let mut held = std::mem::take(&mut there.held);
        let overdue: Vec<_> = self
            .ends_at(server)
            .into_iter()
            .filter(|&(link, side)| self.links.get(&link).is_some_and(|found| found.end(side).is_overdue))
            .collect();
        for &(link, side) in &overdue {
            if self.random.one_in(2) {
                held.retain(|landed| !matches!(landed, Landed::Message { link: on, .. } if *on == link));
                self.take_down(now_us, link, side, true);
            }
        }
        self.landed.append(&mut held);
        for (link, side) in overdue {
            self.take_down(now_us, link, side, true);
        }
        self.listen(now_us);
    }

    fn set_cut(&mut self, from: ServerId, to: ServerId, is_cut: bool) {
        if let Some(path) = self.paths.get_mut(&(from, to)) {
            path.is_cut = is_cut;
        }
    }

    /// Begins and ends silences after a change in which ends can hear each other.
    pub(super) fn listen(&mut self, now_us: u64) {
        for (&link, found) in &mut self.links {
            for side in Side::BOTH {
                let (end, other) = (found.end(side), found.end(side.other()));
                let path = self.paths.get(&(other.server, end.server));
                let speaks = self.hosts.get(&other.server).is_some_and(|there| there.is_alive && !there.is_asleep);
                let hears = speaks
                    && path.is_some_and(|path| !path.is_cut)
                    && matches!(other.state, State::Up | State::Joining);
                let waits = matches!(end.state, State::Up) || (side == Side::Acceptor && end.state == State::Joining);
                let end = found.end_mut(side);
                if hears || !waits {
                    (end.silent_since_us, end.is_overdue) = (None, false);
                } else if end.silent_since_us.is_none() {
                    end.silent_since_us = Some(now_us);
                    end.silence += 1;
                    let timeout_us = self.network.idle_timeout_us;
                    // Each end counts from the last packet it heard.
                    let at_us = now_us + timeout_us - self.random.below(timeout_us / 10 + 1);
                    self.flights.push_back((at_us, Flight::Silence { link, end: side, mark: end.silence }));
                }
            }
        }
    }

    pub(super) fn on_silence(&mut self, now_us: u64, link: LinkId, side: Side, mark: u64) {
        let Some(found) = self.links.get_mut(&link) else { return };
        let end = found.end_mut(side);
        if end.silence != mark || end.silent_since_us.is_none() {
            return;
        }
        if self.hosts.get(&end.server).is_some_and(|there| there.is_asleep) {
            end.is_overdue = true;
        } else {
            self.take_down(now_us, link, side, true);
        }
    }
}
