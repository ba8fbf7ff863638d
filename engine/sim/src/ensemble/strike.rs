//! Strikes faults and heals them.

use super::host::{Death, Host};
use super::world::{Happening, World};
use super::{DRIFT_PPM_MAX, Fault, Kind, SECOND, WALL_STEP_MS};
use crate::disk::{Operation, OperationKind};
use std::collections::BTreeMap;
use std::io;
use zoolet_zab::{Role, ServerId};

/// Active faults, and a record of all faults.
#[derive(Debug, Default)]
pub(super) struct Struck {
    made: u64,
    active: BTreeMap<u64, Active>,
    /// Faults that struck, with their start and end times in microseconds.
    pub(super) spans: Vec<(Kind, u64, u64)>,
    cuts: BTreeMap<(ServerId, ServerId), u32>,
    /// Until when each server may still refuse for lack of space or because of failed reads.
    refusing_until_us: BTreeMap<ServerId, u64>,
}

/// A fault that will be healed.
#[derive(Clone, Debug)]
struct Active {
    kind: Kind,
    victims: Vec<ServerId>,
    cuts: Vec<(ServerId, ServerId)>,
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
            _ => Some(self.victim(&servers)),
        };
        let Some(victim) = victim else { return };
        let is_running = self.hosts.get(&victim).is_some_and(Host::is_running);
        let mut active = Active { kind: fault.kind, victims: vec![victim], cuts: Vec::new() };
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
        let Some(Active { kind, victims, cuts }) = self.struck.active.remove(&number) else { return };
        self.around.witness.trace.note(self.now_us(), "--", || format!("{kind} of {victims:?} is over"));
        for (from, to) in cuts {
            self.uncut(from, to);
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
            mended.into_iter().for_each(|victim| self.mend_one(fault.kind, victim));
            (fault.victims, fault.cuts) = (rest, cuts);
            if !fault.victims.is_empty() || !fault.cuts.is_empty() {
                self.struck.active.insert(number, fault);
            }
        }
    }

    fn mend_one(&mut self, kind: Kind, victim: ServerId) {
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
            Kind::LogError => self.with(victim, |host, _| host.disk.heal()),
            Kind::BaseError => {
                self.refuse_no_more(victim);
                self.with(victim, |host, _| host.disk.heal());
            }
            Kind::DiskFull => {
                self.refuse_no_more(victim);
                self.with(victim, |host, _| {
                    host.is_disk_full = false;
                    host.disk.set_capacity(None);
                });
            }
            Kind::DiskSlow => self.with(victim, |host, _| host.speed.slower = 1),
            Kind::LogHang | Kind::BaseHang => self.end_hang(victim),
            Kind::ClientCut => self.around.wires.cut(now_us, victim, false),
            Kind::BadPath => self.mend_paths(victim),
            Kind::Reconfigure => self.restore_members(),
            Kind::Isolate
            | Kind::CutOneWay
            | Kind::Partition
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
        let ppm = self.random.between(0, 2 * DRIFT_PPM_MAX as u64) as i64 - DRIFT_PPM_MAX;
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
        let of_log = |operation: &Operation<'_>| operation.name.ends_with(".log");
        let is_change = |kind| !matches!(kind, OperationKind::Open | OperationKind::Read);
        self.with(victim, |host, _| {
            match kind {
                Kind::DiskSlow => host.speed.slower = slower,
                Kind::LogHang => host.log_hangs = true,
                Kind::BaseHang => host.base_hangs = true,
                Kind::DiskFull => {
                    host.is_disk_full = true;
                    host.disk.set_capacity(Some(host.disk.used_bytes()));
                }
                Kind::LogError => host.disk.fail_with(move |operation| {
                    (of_log(operation) && is_change(operation.kind)).then_some(io::ErrorKind::Other)
                }),
                _ => host.disk.fail_with(move |operation| (!of_log(operation)).then_some(io::ErrorKind::Other)),
            }
            host.is_disk_blamed |= matches!(kind, Kind::LogError | Kind::BaseError | Kind::DiskFull);
        });
    }

    /// Ends a hang, or resets the hung box as its supervisor would.
    fn end_hang(&mut self, victim: ServerId) {
        if self.random.one_in(2) && self.is_alive(victim) {
            let death = self.death(true);
            self.with(victim, |host, around| {
                (host.log_hangs, host.base_hangs) = (false, false);
                host.die(around, death);
                host.start(around);
            });
        } else {
            self.with(victim, Host::release);
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

    fn spoil_path(&mut self, victim: ServerId, servers: &[ServerId], active: &mut Active) -> bool {
        let other = *self.random.pick(servers);
        let (latency_us, loss_ppm) = (self.random.logarithmic(5000, 400_000), self.random.logarithmic(10_000, 400_000));
        let Some(path) = self.around.links.path_mut(victim, other) else { return false };
        (path.latency_us, path.loss_ppm) = (latency_us, loss_ppm as u32);
        active.victims = vec![victim];
        true
    }

    fn mend_paths(&mut self, victim: ServerId) {
        for other in self.servers() {
            if let Some(path) = self.around.links.path_mut(victim, other) {
                (path.latency_us, path.loss_ppm) = (100, 0);
            }
        }
    }
}
