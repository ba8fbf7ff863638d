//! The end of a run: a part that can decide is healed, elects, commits, and stays quiet.

use super::{Event, Explorer};
use crate::net::server_id;
use std::collections::BTreeSet;
use zoolet_zab::{Incarnation, Role};

impl Explorer {
    /// Picks the servers that run from now on; together they can decide.
    ///
    /// `None` if too much was lost.
    fn choose_core(&mut self) -> Option<BTreeSet<u8>> {
        let all: BTreeSet<u8> = self.ids().into_iter().collect();
        let mut some = all.clone();
        for _ in 0..self.rng.below(3).min(all.len() as u64 - 1) {
            let ids: Vec<u8> = some.iter().copied().collect();
            some.remove(self.rng.pick(&ids).expect("some"));
        }
        [some, all].into_iter().find(|core| self.can_decide(core))
    }

    fn can_decide(&self, core: &BTreeSet<u8>) -> bool {
        let world = &self.net.world;
        // The core needs a quorum of every configuration that one of its servers may use.
        let servers = || core.iter().map(|id| world.server(*id));
        let born = servers().any(|server| server.log.durable.config.is_some());
        if !born {
            return (1..=self.mix.voters).all(|id| core.contains(&id));
        }
        // These are the newest committed configuration, and both configurations of each server with
        // a pending change. Such a server does not know the outcome of the change.
        let mut configs: Vec<_> =
            world.committed.iter().rev().find_map(|entry| entry.config.clone()).into_iter().collect();
        if configs.is_empty() {
            configs.extend(servers().filter_map(|server| server.log.durable.config.clone()));
        }
        for state in servers().map(|server| if server.runs() { &server.log.written } else { &server.log.durable }) {
            if let Some(pending) = state.pending.as_ref().filter(|pending| state.entry(pending.version).is_some()) {
                configs.extend([Some(pending.clone()), state.config.clone()].into_iter().flatten());
            }
        }
        configs.iter().all(|config| {
            let voters: Vec<_> = config.voters().collect();
            let sound = voters.iter().filter(|voter| {
                let id = voter.id.as_u8();
                let is_disk = voter.disk == Incarnation(0) || voter.disk == world.server(id).log.disk;
                core.contains(&id) && !world.server(id).log.damaged && is_disk
            });
            2 * sound.count() > voters.len()
        })
    }

    pub(super) fn recover(&mut self) {
        let cuts: Vec<_> = self.cuts.iter().copied().collect();
        self.mend(&cuts);
        self.armed.clear();
        self.calm = true;
        // Events delayed by a pause arrive when the server wakes.
        let awake = self.paused.values().copied().max().unwrap_or_default().max(self.now());
        self.run_until(awake, |_| false);
        let Some(core) = self.choose_core() else { return };
        self.core = core;
        for id in self.ids() {
            if !self.core.contains(&id) && self.runs(id) {
                self.net.crash(id, 0, true);
            } else if self.core.contains(&id) && !self.runs(id) {
                self.plan_in(0, Event::Start(id));
            }
        }
        let story = format!("the core is {:?}", self.core);
        self.note(story);
        let end = self.now() + 40_000;
        let is_led = self.run_until(end, |it| it.leader().is_some_and(|leader| it.settled(leader)));
        assert!(is_led, "LIVENESS: the core {:?} has no leader that all follow after 40 s", self.core);
        let leader = self.leader().expect("just seen");
        for _ in 0..5 {
            let _ = self.net.propose(leader);
        }
        self.after();
        let end = self.now() + 10_000;
        let is_done = self.run_until(end, Self::converged);
        assert!(is_done, "LIVENESS: the core {:?} did not converge within 10 s", self.core);
        // From now on the core is idle. It must stay as it is, however long.
        self.run_until(self.now() + 3_000, |_| false);
        let epochs: Vec<_> = self.core.iter().map(|id| self.net.world.server(*id).zab().epoch()).collect();
        self.run_until(self.now() + 20_000, |_| false);
        let later: Vec<_> = self.core.iter().map(|id| self.net.world.server(*id).zab().epoch()).collect();
        assert_eq!(epochs, later, "LIVENESS: an idle core elects again");
        assert!(self.converged(), "LIVENESS: an idle core parts");
    }

    /// Returns whether every server of the core follows or observes this leader.
    fn settled(&self, leader: u8) -> bool {
        self.core.iter().all(|id| match self.net.world.server(*id).role {
            Role::Leading => *id == leader,
            Role::Following(it) | Role::Observing(it) => it == server_id(leader),
            Role::Looking => false,
        })
    }

    fn converged(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let last = self.net.world.server(leader).log.written.last();
        self.settled(leader)
            && self.core.iter().all(|id| {
                let server = self.net.world.server(*id);
                server.applied == last && server.log.durable.last() == last
            })
    }
}
