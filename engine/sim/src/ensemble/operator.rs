//! Actions of an operator: orderly stops of servers, and changes of the members.

use super::host::{Context, Death, Host};
use super::process::{Process, Stopped};
use super::world::{Happening, World};
use super::{MS, SECOND};
use zoolet_zab::{Config, Kind, Role, ServerId, Voters};

/// Maximum wait for another leader before a stop, and the interval of the checks.
const STOPPING_US: u64 = 2 * SECOND;
const LOOKS_EVERY_US: u64 = 5 * MS;
/// Interval at which the operator tries to restore the founding members.
const RESTORES_EVERY_US: u64 = SECOND / 5;

/// Members and their kinds.
type Members = Vec<(ServerId, Kind)>;

fn members_of(config: &Config) -> Members {
    config.members().iter().map(|member| (member.id, member.kind)).collect()
}

/// Orderly stops.
impl World {
    /// Tells a server that it is about to be stopped, mostly the leader; returns which one.
    pub(super) fn stop_gracefully(&mut self, victim: ServerId, lasts_us: u64) -> ServerId {
        let victim = self.leader().filter(|_| !self.random.one_in(3)).unwrap_or(victim);
        let until_us = self.now_us() + STOPPING_US;
        self.with(victim, |host, around| host.run(around, Process::hand_over));
        let Some(process) = self.hosts.get(&victim).and_then(|host| host.process.as_ref()) else { return victim };
        let happening = Happening::Stop { server: victim, process: process.number, until_us, lasts_us };
        self.around.agenda.after(LOOKS_EVERY_US, happening);
        victim
    }

    /// Ends the process once it no longer leads, or at `until_us`.
    ///
    /// It starts again after `lasts_us`.
    pub(super) fn stop(&mut self, server: ServerId, process: u64, until_us: u64, lasts_us: u64) {
        let leads = self.hosts.get(&server).and_then(|host| host.process.as_ref()).is_some_and(Process::leads);
        if leads && self.now_us() < until_us {
            let happening = Happening::Stop { server, process, until_us, lasts_us };
            return self.around.agenda.after(LOOKS_EVERY_US, happening);
        }
        self.with(server, |host, around| host.die(around, Death::Process));
        self.around.agenda.after(lasts_us, Happening::Start { server });
    }
}

/// Changes of the members.
impl World {
    /// Changes a member's kind, or removes a member.
    ///
    /// Returns the member, if the leader accepted the change. Nothing is changed while a disk is
    /// lost, because the disk may belong to a voter that the new membership needs.
    pub(super) fn change_members(&mut self) -> Option<ServerId> {
        let leader = self.leader().filter(|_| !self.hosts.values().any(Host::lacks_its_disk))?;
        let mut members = self.members_at(leader)?;
        let at = self.random.below(members.len() as u64) as usize;
        let changed = members[at].0;
        match members[at].1 {
            Kind::Voter if self.random.one_in(2) => members[at].1 = Kind::Observer,
            Kind::Observer if self.random.one_in(2) => members[at].1 = Kind::Voter,
            Kind::Voter | Kind::Observer => drop(members.remove(at)),
        }
        self.reconfigure(leader, members).then_some(changed)
    }

    /// Keeps restoring the founding membership from now on.
    ///
    /// One request is not enough: a change that was proposed before, or that an absent leader
    /// proposed, may still win.
    pub(super) fn restore_members(&mut self) {
        if !std::mem::replace(&mut self.is_restoring, true) {
            self.on_restore();
        }
    }

    /// Requests the founding membership, unless it holds or a fault still changes it.
    pub(super) fn on_restore(&mut self) {
        if !self.struck.is_reconfigured()
            && !self.is_restored()
            && let Some(leader) = self.leader()
        {
            let founders = members_of(&self.founders);
            self.reconfigure(leader, founders);
        }
        self.around.agenda.after(RESTORES_EVERY_US, Happening::Restore);
    }

    /// Returns whether the members are the founding ones.
    pub(super) fn is_restored(&self) -> bool {
        let ghost = self.witness().ghost();
        let config = ghost.config_at(ghost.committed.last().zxid);
        members_of(config) == members_of(&self.founders)
    }

    /// Returns the leader of the newest epoch, among servers whose processes run.
    pub fn leader(&self) -> Option<ServerId> {
        let said = |server: &ServerId| self.witness().said(*server).filter(|state| state.role == Role::Leading);
        let running = self.hosts.values().filter(|host| host.is_running()).map(|host| host.id);
        running.filter(|server| said(server).is_some()).max_by_key(|server| said(server).map(|state| state.epoch))
    }

    fn members_at(&self, leader: ServerId) -> Option<Members> {
        let process = self.hosts.get(&leader)?.process.as_ref()?;
        Some(members_of(process.server().zab().config()))
    }

    fn reconfigure(&mut self, leader: ServerId, members: Members) -> bool {
        let mut is_taken_up = false;
        self.with(leader, |host: &mut Host, around| {
            host.run(around, |process, cx| process.reconfigure(cx, &members, &mut is_taken_up));
        });
        is_taken_up
    }

    /// Returns whether these servers are a quorum, as this leader knows the members.
    ///
    /// They must be a quorum of a proposed membership too.
    pub(super) fn is_quorum(&self, leader: ServerId, of: &[ServerId]) -> bool {
        let Some(process) = self.hosts.get(&leader).and_then(|host| host.process.as_ref()) else { return false };
        let zab = process.server().zab();
        let voters = Voters::new(zab.config().clone(), zab.pending_config().cloned());
        voters.is_quorum(|id, _| of.contains(&id))
    }
}

impl Process {
    fn hand_over(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        cx.around.witness.trace.note(cx.now_us, cx.who(), || "is told to hand over");
        let now = cx.now();
        self.command(cx, |server| server.hand_over(now))
    }

    fn reconfigure(
        &mut self,
        cx: &mut Context<'_>,
        members: &[(ServerId, Kind)],
        is_taken_up: &mut bool,
    ) -> Result<(), Stopped> {
        let now = cx.now();
        let mut outcome = None;
        let done = self.command(cx, |server| outcome = Some(server.reconfigure(now, members)));
        cx.around.witness.trace.note(cx.now_us, cx.who(), || format!("is told its members {members:?}: {outcome:?}"));
        // True even if the leader died in the disk step that followed. Other servers may have the
        // entry by then, so the change must be undone.
        *is_taken_up = matches!(outcome, Some(Ok(_)));
        done
    }

    fn leads(&self) -> bool {
        self.server().leads()
    }
}
