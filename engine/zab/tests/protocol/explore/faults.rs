//! Faults that strike during the storm.

use super::mix::Fault;
use super::{Event, Explorer};
use crate::net::server_id;
use zoolet_zab::{Incarnation, Kind, Member, Zxid};

impl Explorer {
    pub(super) fn crash(&mut self, id: u8) {
        if !self.runs(id) {
            return;
        }
        let in_flight = self.net.world.server(id).log.in_flight().count() as u64;
        let keep = self.rng.below(in_flight + 1) as usize;
        let is_told = self.rng.once_in(2);
        self.paused.remove(&id);
        self.disks.remove(&id);
        self.net.crash(id, keep, is_told);
        let delay = if self.rng.once_in(3) { self.rng.below(50) } else { self.rng.below(3000) };
        self.plan_in(delay, Event::Start(id));
    }

    /// Returns whether a majority without this server could repair it.
    ///
    /// Each server of that majority must know the newest committed configuration.
    fn may_lose(&self, id: u8) -> bool {
        let world = &self.net.world;
        let Some(config) = world.committed.iter().rev().find_map(|entry| entry.config.clone()) else { return false };
        let is_sound = |id: u8, disk: Incarnation| {
            world.servers.get(&id).is_some_and(|server| {
                let state = &server.log.durable;
                let knows = state.config.as_ref().is_some_and(|known| known.version == config.version);
                server.log.disk == disk && !server.log.damaged && knows && server.log.written.pending.is_none()
            })
        };
        let voters: Vec<_> = config.voters().collect();
        let sound = voters.iter().filter(|voter| voter.id.as_u8() != id && is_sound(voter.id.as_u8(), voter.disk));
        2 * sound.count() > voters.len()
    }

    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let delay = self.rng.between(1, 2 * self.mix.fault_ms);
        self.plan_in(delay, Event::Fault);
        let fault = *self.rng.pick(&self.mix.faults.clone()).expect("some");
        let ids = self.ids();
        let id = *self.rng.pick(&ids).expect("some");
        let at_leader = self.leader().unwrap_or(id);
        match fault {
            Fault::Crash => self.crash(id),
            Fault::CrashAtAppend => {
                let after = self.rng.between(1, 12);
                self.armed.insert(id, after);
            }
            Fault::CrashLeader => self.crash(at_leader),
            Fault::CrashAll => {
                if self.rng.once_in(3) {
                    ids.into_iter().for_each(|id| self.crash(id));
                }
            }
            Fault::Reset => {
                let links: Vec<_> = self.net.world.links.keys().copied().collect();
                if let Some(&link) = self.rng.pick(&links) {
                    let arrive = [self.rng.below(5) as usize, self.rng.below(5) as usize];
                    self.net.reset(link, arrive);
                }
            }
            Fault::CutOneWay => {
                let other = *self.rng.pick(&ids).expect("some");
                if other != id {
                    self.cut_for(vec![(id, other)]);
                }
            }
            Fault::Partition => {
                let side: Vec<u8> = ids.iter().copied().filter(|_| self.rng.once_in(2)).collect();
                let side = if self.rng.once_in(3) { vec![at_leader] } else { side };
                let mut pairs = Vec::new();
                for &a in &side {
                    for &b in ids.iter().filter(|b| !side.contains(b)) {
                        pairs.extend([(a, b), (b, a)]);
                    }
                }
                self.cut_for(pairs);
            }
            Fault::Pause => {
                if self.runs(id) && !self.paused.contains_key(&id) {
                    let until = self.now() + self.rng.between(20, 4000);
                    self.paused.insert(id, until);
                    // The server resumes before any event that its pause delays to the same moment.
                    self.plan(until, Event::Resume(id));
                }
            }
            Fault::Wipe => {
                // A file with a single voter starts a new ensemble on any empty disk.
                let is_alone = self.mix.voters == 1 && id == 1;
                if !is_alone && self.may_lose(id) && self.rng.once_in(2) {
                    self.crash(id);
                    self.net.wipe(id);
                }
            }
            Fault::Rot => {
                if self.may_lose(id) && self.rng.once_in(2) {
                    self.crash(id);
                    let entries = self.rng.between(1, 30) as usize;
                    self.net.rot(id, entries);
                }
            }
            Fault::Floor => {
                let watermark = self.net.world.server(id).log.durable.watermark;
                let back = self.rng.below(20);
                let to = Zxid::from_bits(watermark.to_bits().saturating_sub(back)).unwrap_or(watermark);
                if self.runs(id) && self.net.world.server(id).log.written.entry(to).is_some() {
                    self.net.raise_floor(id, to);
                }
            }
            Fault::HandOver => {
                if self.runs(at_leader) {
                    self.net.hand_over(at_leader);
                }
            }
            Fault::Reconfigure => self.reconfigure(at_leader),
        }
    }

    fn cut_for(&mut self, pairs: Vec<(u8, u8)>) {
        self.cut(&pairs);
        let delay = self.rng.between(20, 5000);
        self.plan_in(delay, Event::Mend(pairs));
    }

    fn reconfigure(&mut self, id: u8) {
        if !self.runs(id) {
            return;
        }
        let config = self.net.world.server(id).zab().config().clone();
        let mut members = Vec::new();
        for other in self.ids() {
            let disk = self.net.world.server(other).log.disk;
            let kind = match self.rng.below(6) {
                0 => continue,
                1 => Kind::Observer,
                _ => Kind::Voter,
            };
            let known = config.member(server_id(other)).copied();
            members.push(match known {
                Some(known) if !self.rng.once_in(4) => known,
                _ => Member { id: server_id(other), kind, disk },
            });
        }
        let _ = self.net.reconfigure(id, &members);
    }
}
