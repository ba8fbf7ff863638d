//! Strikes faults and heals them.

use super::clock::draw_drift;
use super::host::{Death, Host, Parts};
use super::world::{Happening, World};
use super::{Fault, Kind, SECOND, WALL_STEP_MS};
use std::collections::BTreeMap;
use zoolet_zab::{Role, ServerId};

/// Active faults, and a record of all faults.
#[derive(Debug, Default)]
pub(super) struct Struck {
    made: u64,
    active: BTreeMap<u64, Active>,
    /// Faults that struck, with their start and end times in microseconds.
    pub(super) spans: Vec<(Kind, u64, u64)>,
    cuts: BTreeMap<(ServerId, ServerId), u32>,
    /// Paths that faults made bad.
    bad_paths: BTreeMap<(ServerId, ServerId), BadPath>,
    /// Until when each server may still refuse for lack of space or because of failed reads.
    refusing_until_us: BTreeMap<ServerId, u64>,
}

/// A fault that will be healed.
#[derive(Clone, Debug)]
struct Active {
    kind: Kind,
    victims: Vec<ServerId>,
    cuts: Vec<(ServerId, ServerId)>,
    bad_path: Option<(ServerId, ServerId)>,
}

/// A path that one fault or several made bad.
#[derive(Debug)]
struct BadPath {
    /// Faults that will be healed.
    faults: u32,
    /// Latency and loss before the first of them.
    was: (u64, u32),
}

/// How long a server may go on refusing after its disk is healed.
const REFUSING_US: u64 = 3 * SECOND;

impl Struck {
    /// Returns whether this server may refuse requests.
    pub(super) fn may_refuse(&self, server: ServerId, now_us: u64) -> bool {
        let refuses = |active: &Active| {
            matches!(active.kind, Kind::BaseError | Kind::DiskFull) && active.victims.contains(&server)
        };
        let lasts = self.refusing_until_us.get(&server).is_some_and(|&until_us| now_us < until_us);
        lasts || self.active.values().any(refuses)
    }

    /// Returns whether an active fault has changed the members.
    pub(super) fn is_reconfigured(&self) -> bool {
        self.active.values().any(|active| active.kind == Kind::Reconfigure)
    }

    /// Returns whether an active fault does to this server what a fault of `kind` does.
    ///
    /// The end of one fault must not end another one.
    pub(super) fn holds(&self, kind: Kind, server: ServerId) -> bool {
        self.active.values().any(|active| active.kind.ends_like(kind) && active.victims.contains(&server))
    }

    /// Returns whether no fault is active.
    pub(super) fn is_quiet(&self) -> bool {
        self.active.is_empty()
    }
}

impl World {
    /// Strikes a fault on a server that it can hit; without such a server nothing happens.
    pub(super) fn strike(&mut self, fault: Fault) {
        self.around.has_changed = true;
        let servers = self.servers();
        let victim = match fault.kind {
            Kind::ProspectDies => self.leading(&servers),
            _ if fault.at_leader => self.leading(&servers),
            _ => Some(self.victim(&servers)),
        };
        let Some(victim) = victim else { return };
        let is_running = self.hosts.get(&victim).is_some_and(Host::is_running);
        let mut active = Active { kind: fault.kind, victims: vec![victim], cuts: Vec::new(), bad_path: None };
        let needs_process = !matches!(
            fault.kind,
            Kind::PowerLossOfAll
                | Kind::Drift
                | Kind::WallStep
                | Kind::DiskSlow
                | Kind::Isolate
                | Kind::CutOneWay
                | Kind::Partition
                | Kind::ClientCut
        );
        if needs_process && !is_running {
            return;
        }
        let has_struck = match fault.kind {
            Kind::Crash | Kind::PowerLoss => {
                let death = self.death(fault.kind == Kind::PowerLoss);
                self.with(victim, |host, around| host.die(around, death));
                true
            }
            Kind::PowerLossOfAll => {
                active.victims = servers.iter().copied().filter(|server| self.is_alive(*server)).collect();
                for &server in &active.victims {
                    let death = self.death(true);
                    self.with(server, |host, around| host.die(around, death));
                }
                true
            }
            Kind::CrashInStep | Kind::PowerLossInStep => self.arm_step(victim, fault.kind == Kind::PowerLossInStep),
            Kind::Pause | Kind::Suspend => {
                self.with(victim, Host::sleep);
                true
            }
            Kind::Drift | Kind::WallStep | Kind::ClockFreeze => {
                self.disturb_clock(victim, fault.kind);
                true
            }
            Kind::LogError | Kind::BaseError | Kind::DiskFull | Kind::DiskSlow | Kind::LogHang | Kind::BaseHang => {
                self.spoil_disk(victim, fault.kind);
                true
            }
            Kind::ClientReset => {
                self.around.reset_clients_of(victim);
                true
            }
            Kind::ClientCut => {
                let now_us = self.now_us();
                self.around.wires.cut(now_us, victim, true);
                true
            }
            Kind::Isolate | Kind::CutOneWay | Kind::Partition | Kind::ProspectDies => {
                active.cuts = self.cuts_of(fault.kind, victim, &servers);
                active.cuts.clone().into_iter().for_each(|(from, to)| self.cut(from, to));
                !active.cuts.is_empty()
            }
            Kind::Reset => self.reset_link(victim, &servers),
            Kind::BadPath => self.spoil_path(victim, &servers, &mut active),
            Kind::Wipe | Kind::Clone | Kind::Rot => self.lose_disk(fault.kind, victim),
            Kind::GracefulStop => {
                active.victims = vec![self.stop_gracefully(victim, fault.lasts_us.unwrap_or_default())];
                true
            }
            Kind::Reconfigure => {
                let changed = self.change_members();
                active.victims = changed.into_iter().collect();
                changed.is_some()
            }
        };
        if has_struck {
            self.note(fault.kind, &active.victims, fault.lasts_us);
            let now_us = self.now_us();
            self.struck.spans.push((fault.kind, now_us, now_us + fault.lasts_us.unwrap_or(0)));
            if let Some(lasts_us) = fault.lasts_us {
                self.struck.made += 1;
                self.struck.active.insert(self.struck.made, active);
                self.around.agenda.after(lasts_us, Happening::Mend(self.struck.made));
            }
        }
    }

    /// Draws a victim: in half of the cases the leader, on which most depends.
    fn victim(&mut self, servers: &[ServerId]) -> ServerId {
        let leader = self.leading(servers);
        let anybody = *self.random.pick(servers);
        leader.filter(|_| self.random.one_in(2)).unwrap_or(anybody)
    }

    fn leading(&self, servers: &[ServerId]) -> Option<ServerId> {
        let said = |server: &&ServerId| self.witness().said(**server);
        let leads = |server: &&ServerId| said(server).is_some_and(|state| state.role == Role::Leading);
        servers.iter().filter(leads).max_by_key(|server| said(server).map(|state| state.epoch)).copied()
    }

    /// Handles a server's promise to a prospective leader, for an active [`Kind::ProspectDies`].
    ///
    /// The prospective leader loses power before it hears the promise. The isolated old leader then
    /// reaches the promising server again. Their link is new, so it delivers no message that was
    /// sent meanwhile.
    pub(super) fn on_promised(&mut self, by: ServerId, to: ServerId) {
        let awaits = |active: &&mut Active| {
            active.kind == Kind::ProspectDies && active.victims.len() == 1 && ![by, to].contains(&active.victims[0])
        };
        let Some(active) = self.struck.active.values_mut().find(awaits) else { return };
        let leader = active.victims[0];
        let between = [(leader, by), (by, leader)];
        active.victims.push(to);
        active.cuts.retain(|cut| !between.contains(cut));
        let (now_us, death) = (self.now_us(), self.death(true));
        self.with(to, |host, around| host.die(around, death));
        self.around.links.reset(now_us, leader, by);
        between.into_iter().for_each(|(from, to)| self.uncut(from, to));
    }

    /// Ends a fault.
    pub(super) fn mend(&mut self, number: u64) {
        self.around.has_changed = true;
        let Some(Active { kind, victims, cuts, bad_path }) = self.struck.active.remove(&number) else { return };
        self.around.witness.trace.note(self.now_us(), "--", || format!("{kind} of {victims:?} is over"));
        for (from, to) in cuts {
            self.uncut(from, to);
        }
        if let Some((from, to)) = bad_path {
            self.mend_path(from, to);
        }
        for victim in victims {
            self.mend_one(kind, victim);
        }
    }

    /// Ends all faults of these servers.
    pub(super) fn mend_all(&mut self, of: &[ServerId]) {
        self.around.has_changed = true;
        let active = std::mem::take(&mut self.struck.active);
        for (number, mut fault) in active {
            let (mended, rest): (Vec<_>, Vec<_>) = fault.victims.into_iter().partition(|victim| of.contains(victim));
            let (healed, cuts): (Vec<_>, Vec<_>) =
                fault.cuts.into_iter().partition(|(from, to)| of.contains(from) && of.contains(to));
            healed.into_iter().for_each(|(from, to)| self.uncut(from, to));
            if let Some((from, to)) = fault.bad_path.take_if(|(from, _)| of.contains(from)) {
                self.mend_path(from, to);
            }
            mended.into_iter().for_each(|victim| self.mend_one(fault.kind, victim));
            (fault.victims, fault.cuts) = (rest, cuts);
            if !fault.victims.is_empty() || !fault.cuts.is_empty() {
                self.struck.active.insert(number, fault);
            }
        }
    }

    fn mend_one(&mut self, kind: Kind, victim: ServerId) {
        if self.struck.holds(kind, victim) {
            return;
        }
        let now_us = self.now_us();
        match kind {
            Kind::Crash | Kind::PowerLoss | Kind::PowerLossOfAll | Kind::Wipe | Kind::Clone | Kind::ProspectDies => {
                self.with(victim, Host::start);
            }
            // A process that died in the step comes back by itself. One that never reached the step
            // goes on.
            Kind::CrashInStep | Kind::PowerLossInStep => self.with(victim, |host, _| {
                if host.dies_in_step.take().is_some() {
                    host.disk.set_crash_at(u64::MAX);
                }
            }),
            Kind::Pause | Kind::Suspend => self.with(victim, Host::wake),
            Kind::ClockFreeze => {
                // To a single server, a clock that stopped and then jumps looks like silence.
                // Nothing is promised then (docs/explanation/safety.md).
                let catches_up = self.random.one_in(2) && self.hosts.len() > 1;
                self.with(victim, |host, around| {
                    host.clock.thaw(now_us, catches_up);
                    host.rearm(around);
                });
            }
            Kind::LogError => self.with(victim, |host, _| host.fail(false, host.fails.base)),
            Kind::BaseError => {
                self.refuse_no_more(victim);
                self.with(victim, |host, _| host.fail(host.fails.log, false));
            }
            Kind::DiskFull => {
                self.refuse_no_more(victim);
                self.with(victim, |host, _| {
                    host.is_disk_full = false;
                    host.disk.set_capacity(None);
                });
            }
            Kind::DiskSlow => self.with(victim, |host, _| host.speed.slower = 1),
            Kind::LogHang | Kind::BaseHang => self.end_hang(kind, victim),
            Kind::ClientCut => self.around.wires.cut(now_us, victim, false),
            Kind::Reconfigure => self.restore_members(),
            Kind::Isolate
            | Kind::CutOneWay
            | Kind::Partition
            | Kind::BadPath
            | Kind::GracefulStop
            | Kind::Drift
            | Kind::WallStep
            | Kind::Reset
            | Kind::ClientReset
            | Kind::Rot => {}
        }
    }

    fn refuse_no_more(&mut self, server: ServerId) {
        self.struck.refusing_until_us.insert(server, self.now_us() + REFUSING_US);
        // No fault has this number: the event only makes the run look again which servers serve.
        self.around.agenda.after(REFUSING_US, Happening::Mend(0));
    }

    fn is_alive(&self, server: ServerId) -> bool {
        self.hosts.get(&server).is_some_and(|host| host.process.is_some())
    }

    fn note(&self, kind: Kind, victims: &[ServerId], lasts_us: Option<u64>) {
        self.around.witness.trace.note(self.now_us(), "**", || match lasts_us {
            Some(lasts_us) => format!("{kind} of {victims:?} for {} ms", lasts_us / 1000),
            None => format!("{kind} of {victims:?}"),
        });
    }

    pub(super) fn death(&mut self, is_power_loss: bool) -> Death {
        // Losing all or none of the unsynced writes is likeliest, and leaves the fewest traces.
        let fate = if self.random.one_in(2) { self.random.below(2) } else { self.random.bits() };
        if is_power_loss { Death::Power(fate) } else { Death::Process }
    }

    fn arm_step(&mut self, victim: ServerId, is_power_loss: bool) -> bool {
        let death = self.death(is_power_loss);
        let steps = self.random.logarithmic(1, 32) - 1;
        let is_while_it_starts = self.random.one_in(3);
        self.with(victim, |host, around| {
            if is_while_it_starts {
                host.die(around, death);
            }
            host.dies_in_step = Some(death);
            host.disk.set_crash_at(host.disk.steps() + steps);
            host.start(around);
        });
        true
    }

    fn disturb_clock(&mut self, victim: ServerId, kind: Kind) {
        let now_us = self.now_us();
        let ppm = draw_drift(&mut self.random);
        let step_ms = if self.random.one_in(2) { WALL_STEP_MS } else { -WALL_STEP_MS };
        self.with(victim, |host, around| {
            match kind {
                Kind::ClockFreeze => host.clock.freeze(now_us),
                Kind::WallStep => host.clock.step_wall(step_ms),
                _ => host.clock.drift(now_us, ppm),
            }
            host.rearm(around);
        });
    }

    fn spoil_disk(&mut self, victim: ServerId, kind: Kind) {
        let slower = self.random.logarithmic(10, 2000);
        self.with(victim, |host, _| {
            match kind {
                Kind::DiskSlow => host.speed.slower = slower,
                Kind::LogHang => host.hangs.log = true,
                Kind::BaseHang => host.hangs.base = true,
                Kind::DiskFull => {
                    host.is_disk_full = true;
                    host.disk.set_capacity(Some(host.disk.used_bytes()));
                }
                Kind::LogError => host.fail(true, host.fails.base),
                _ => host.fail(host.fails.log, true),
            }
            host.is_disk_blamed |= matches!(kind, Kind::LogError | Kind::BaseError | Kind::DiskFull);
        });
    }

    /// Ends a hang, or resets the hung box as its supervisor would.
    fn end_hang(&mut self, kind: Kind, victim: ServerId) {
        let now_us = self.now_us();
        if self.hosts.get(&victim).is_some_and(|host| host.hangs_until_us > now_us) {
            // A hang that a test ordered goes on, and ends this one too.
            return;
        }
        let ends = Parts { log: kind == Kind::LogHang, base: kind == Kind::BaseHang };
        if self.random.one_in(2) && self.is_alive(victim) {
            let death = self.death(true);
            self.with(victim, |host, around| {
                host.hangs = host.hangs.without(ends);
                host.die(around, death);
                host.start(around);
            });
        } else {
            self.with(victim, |host, around| host.release(around, ends));
        }
    }

    fn cuts_of(&mut self, kind: Kind, victim: ServerId, servers: &[ServerId]) -> Vec<(ServerId, ServerId)> {
        let others: Vec<_> = servers.iter().copied().filter(|&server| server != victim).collect();
        if others.is_empty() {
            return Vec::new();
        }
        match kind {
            Kind::CutOneWay => {
                let other = *self.random.pick(&others);
                vec![if self.random.one_in(2) { (victim, other) } else { (other, victim) }]
            }
            Kind::Partition => {
                let side: Vec<_> = servers.iter().filter(|_| self.random.one_in(2)).copied().collect();
                let pairs = servers.iter().flat_map(|&from| servers.iter().map(move |&to| (from, to)));
                pairs.filter(|(from, to)| side.contains(from) != side.contains(to)).collect()
            }
            _ => others.iter().flat_map(|&other| [(victim, other), (other, victim)]).collect(),
        }
    }

    pub(super) fn cut(&mut self, from: ServerId, to: ServerId) {
        let now_us = self.now_us();
        *self.struck.cuts.entry((from, to)).or_default() += 1;
        self.around.links.cut(now_us, from, to);
    }

    pub(super) fn uncut(&mut self, from: ServerId, to: ServerId) {
        let now_us = self.now_us();
        let cuts = self.struck.cuts.entry((from, to)).or_default();
        *cuts = cuts.saturating_sub(1);
        if *cuts == 0 {
            self.around.links.heal(now_us, from, to);
        }
    }

    fn reset_link(&mut self, victim: ServerId, servers: &[ServerId]) -> bool {
        let now_us = self.now_us();
        let other = *self.random.pick(servers);
        other != victim && self.around.links.reset(now_us, victim, other)
    }

    /// Makes one path of the victim bad, if there is a path to the server drawn.
    fn spoil_path(&mut self, victim: ServerId, servers: &[ServerId], active: &mut Active) -> bool {
        let other = *self.random.pick(servers);
        let (latency_us, loss_ppm) = (self.random.logarithmic(5000, 400_000), self.random.logarithmic(10_000, 400_000));
        let has_struck = self.make_bad(victim, other, (latency_us, loss_ppm as u32));
        active.bad_path = has_struck.then_some((victim, other));
        has_struck
    }

    /// Gives a path this latency and loss until [`World::mend_path`].
    fn make_bad(&mut self, from: ServerId, to: ServerId, is: (u64, u32)) -> bool {
        let Some(path) = self.around.links.path_mut(from, to) else { return false };
        let was = (path.latency_us, path.loss_ppm);
        self.struck.bad_paths.entry((from, to)).or_insert(BadPath { faults: 0, was }).faults += 1;
        (path.latency_us, path.loss_ppm) = is;
        true
    }

    /// Ends one [`World::make_bad`]; the last end restores the path.
    fn mend_path(&mut self, from: ServerId, to: ServerId) {
        let Some(bad) = self.struck.bad_paths.get_mut(&(from, to)) else { return };
        bad.faults -= 1;
        if bad.faults > 0 {
            return;
        }
        let was = bad.was;
        self.struck.bad_paths.remove(&(from, to));
        if let Some(path) = self.around.links.path_mut(from, to) {
            (path.latency_us, path.loss_ppm) = was;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mix, Path, Plan, Trace};
    use super::*;

    const FIRST_ENDS_US: u64 = 2 * SECOND;
    const SECOND_ENDS_US: u64 = 4 * SECOND;

    fn id(server: u8) -> ServerId {
        ServerId::new(server).unwrap()
    }

    /// Returns servers without clients, with no fault but those that a test strikes.
    fn world(voters: u8) -> World {
        let none = Plan { mix: Mix::of(&[]), clients: 0, ..Plan::ensemble(1) };
        let mut world = Plan { voters, observers: 0, ..none }.build(1, Trace::off());
        world.run_until(SECOND);
        world
    }

    fn strike(world: &mut World, kind: Kind, until_us: u64) {
        let now_us = world.now_us();
        world.strike(Fault { at_us: now_us, kind, lasts_us: Some(until_us - now_us), at_leader: false });
    }

    /// Strikes a server with two faults.
    ///
    /// Returns whether the second one lasts when the first one is over, and after its own end.
    fn overlap(first: Kind, second: Kind, lasts: impl Fn(&World) -> bool) -> (bool, bool) {
        let mut world = world(1);
        strike(&mut world, first, FIRST_ENDS_US);
        strike(&mut world, second, SECOND_ENDS_US);
        assert_eq!(world.struck.active.len(), 2, "{first} and {second} have struck");
        world.run_until(FIRST_ENDS_US + 1);
        assert_eq!(world.struck.active.len(), 1, "{first} is over");
        let lasted = lasts(&world);
        world.run_until(SECOND_ENDS_US + 1);
        (lasted, lasts(&world))
    }

    #[test]
    fn overlapping_faults_of_one_kind_end_separately() {
        let fails = |world: &World| world.hosts[&id(1)].fails;
        let is_cut = |world: &World| world.around.wires.is_server_cut(id(1));
        let once = (true, false);
        assert_eq!(overlap(Kind::LogHang, Kind::LogHang, |world| world.hosts[&id(1)].hangs.log), once);
        assert_eq!(overlap(Kind::BaseHang, Kind::BaseHang, |world| world.hosts[&id(1)].hangs.base), once);
        assert_eq!(overlap(Kind::LogError, Kind::LogError, |world| fails(world).log), once);
        assert_eq!(overlap(Kind::BaseError, Kind::BaseError, |world| fails(world).base), once);
        assert_eq!(overlap(Kind::DiskFull, Kind::DiskFull, |world| world.hosts[&id(1)].is_disk_full), once);
        assert_eq!(overlap(Kind::DiskSlow, Kind::DiskSlow, |world| world.hosts[&id(1)].speed.slower > 1), once);
        assert_eq!(overlap(Kind::ClockFreeze, Kind::ClockFreeze, |world| world.hosts[&id(1)].clock.is_frozen()), once);
        assert_eq!(overlap(Kind::ClientCut, Kind::ClientCut, is_cut), once);
    }

    #[test]
    fn overlapping_faults_of_log_and_base_end_separately() {
        let once = (true, false);
        assert_eq!(overlap(Kind::LogHang, Kind::BaseHang, |world| world.hosts[&id(1)].hangs.base), once);
        assert_eq!(overlap(Kind::BaseHang, Kind::LogHang, |world| world.hosts[&id(1)].hangs.log), once);
        assert_eq!(overlap(Kind::LogError, Kind::BaseError, |world| world.hosts[&id(1)].fails.base), once);
        assert_eq!(overlap(Kind::BaseError, Kind::LogError, |world| world.hosts[&id(1)].fails.log), once);
    }

    #[test]
    fn pause_after_a_power_loss_outlasts_a_suspension_before_it() {
        let mut world = world(1);
        strike(&mut world, Kind::Suspend, FIRST_ENDS_US);
        strike(&mut world, Kind::PowerLossOfAll, SECOND + SECOND / 4);
        world.run_until(SECOND + SECOND / 2);
        strike(&mut world, Kind::Pause, SECOND_ENDS_US);
        world.run_until(FIRST_ENDS_US + 1);
        assert!(world.hosts[&id(1)].is_asleep());
        world.run_until(SECOND_ENDS_US + 1);
        assert!(world.hosts[&id(1)].is_running());
    }

    #[test]
    fn path_regains_its_quality_when_its_last_fault_ends() {
        let mut world = world(2);
        let (from, to) = (id(1), id(2));
        let now = |world: &mut World| {
            let Path { latency_us, loss_ppm, .. } = *world.around.links.path_mut(from, to).unwrap();
            (latency_us, loss_ppm)
        };
        let was = now(&mut world);
        assert!(world.make_bad(from, to, (5000, 10_000)) && world.make_bad(from, to, (7000, 20_000)));
        world.mend_path(from, to);
        assert_eq!(now(&mut world), (7000, 20_000), "the second fault lasts");
        world.mend_path(from, to);
        assert_eq!(now(&mut world), was);
        assert!(!world.make_bad(from, from, (5000, 10_000)), "there is no such path");
    }

    #[test]
    fn ordered_and_drawn_disk_hangs_end_separately() {
        let mut world = world(1);
        strike(&mut world, Kind::LogHang, SECOND_ENDS_US);
        world.hang_disk(id(1), FIRST_ENDS_US - SECOND);
        world.run_until(FIRST_ENDS_US + 1);
        assert_eq!(world.hosts[&id(1)].hangs, Parts { log: true, base: false });
        world.hang_disk(id(1), SECOND_ENDS_US);
        world.run_until(SECOND_ENDS_US + 1);
        assert_eq!(world.hosts[&id(1)].hangs, Parts { log: true, base: true });
        world.run_until(2 * SECOND_ENDS_US);
        assert_eq!(world.hosts[&id(1)].hangs, Parts::default());
    }
}
