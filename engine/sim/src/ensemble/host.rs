//! A box: a disk, clocks, and at most one process.

use super::process::{Configuration, Job, Process, Stopped};
use super::wire::ToServer;
use super::world::{Around, Happening};
use super::{Clock, Landed, SECOND, Said, Speed};
use crate::disk::{OperationKind, SimDisk};
use crate::workload::Random;
use std::fmt;
use std::io;
use std::sync::Arc;
use zoolet_machine::seam::peer::LinkId;
use zoolet_machine::status::Written;
use zoolet_machine::{ConnId, Event, Now};
use zoolet_store::Meter;
use zoolet_zab::ServerId;

/// Everything that a process works with.
pub(super) struct Context<'a> {
    pub(super) now_us: u64,
    pub(super) id: ServerId,
    pub(super) process: u64,
    pub(super) clock: &'a Clock,
    pub(super) disk: &'a SimDisk,
    pub(super) meter: &'a Arc<Meter>,
    pub(super) speed: &'a mut Speed,
    pub(super) random: &'a mut Random,
    pub(super) around: &'a mut Around,
    /// The disk may hold less than was durable, or other bytes.
    pub(super) is_damaged: bool,
}

impl Context<'_> {
    pub(super) fn now(&self) -> Now {
        self.clock.now(self.now_us)
    }

    pub(super) fn who(&self) -> Who {
        Who(self.id)
    }

    /// Runs `write`; returns its result and the extra time for the bytes it made durable.
    pub(super) fn timed<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> (T, u64) {
        let before = self.disk.counters().synced_bytes;
        let written = write(self);
        let bytes = self.disk.counters().synced_bytes - before;
        (written, self.speed.write_us(bytes))
    }
}

/// The name of a server in a trace.
pub(super) struct Who(pub(super) ServerId);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0.as_u8())
    }
}

/// Maximum delay of the core after a pause.
///
/// The threads of a process wake one after another. So the core finds the input of all of them in
/// one turn.
const WAKE_US: u64 = 1000;

/// Input of a process that does not run.
enum Held {
    Job(Job),
    Client(ConnId, ToServer),
    LinkClosed(ServerId, LinkId),
    Turn,
}

/// The two parts of a disk that faults tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Parts {
    /// The log, or the jobs of its thread.
    pub(super) log: bool,
    /// Every other file, or all other jobs.
    pub(super) base: bool,
}

impl Parts {
    pub(super) fn without(self, other: Self) -> Self {
        Self { log: self.log && !other.log, base: self.base && !other.base }
    }

    fn any(self) -> bool {
        self.log || self.base
    }
}

/// The way in which a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Only the process ends: its writes stay in the page cache.
    Process,
    /// The box loses power, and the seed decides the fate of unsynced writes.
    ///
    /// Seed 0 loses all of them, seed 1 keeps all of them.
    Power(u64),
}

/// A simulated machine.
pub struct Host {
    pub(super) id: ServerId,
    pub(super) disk: SimDisk,
    /// Bytes written by the present process, as it counts them itself.
    meter: Arc<Meter>,
    pub(super) clock: Clock,
    pub(super) speed: Speed,
    pub(super) random: Random,
    pub(super) configuration: Configuration,
    pub(super) process: Option<Process>,
    /// Whether a kernel runs that answers for an ended process.
    is_powered: bool,
    processes: u64,
    held: Option<Vec<Held>>,
    /// Jobs of these parts do not end.
    pub(super) hangs: Parts,
    /// Operations on these parts fail; a process that ends takes the failures with it.
    pub(super) fails: Parts,
    hung: Vec<Job>,
    /// End of the longest hang that a test ordered.
    pub(super) hangs_until_us: u64,
    /// The kind of death if the process dies in a step of its disk.
    pub(super) dies_in_step: Option<Death>,
    /// The disk was made to fail since this process began.
    ///
    /// The process may stop, and the next one may fail to start.
    pub(super) is_disk_blamed: bool,
    pub(super) is_disk_full: bool,
    /// Bytes on the disk were changed, and no later process has found the store undamaged.
    pub(super) is_damaged: bool,
    /// The changed bytes: file, offset and new value.
    pub(super) rot: Vec<(String, u64, u8)>,
    /// The disk was exchanged, and no process has started on it yet.
    pub(super) has_new_disk: bool,
    /// The previous disk, in the state in which it was taken out.
    pub(super) former: Option<SimDisk>,
}

impl Host {
    /// Returns the bytes written to the disk since the run began.
    pub fn written_bytes(&self) -> u64 {
        self.disk.counters().written_bytes
    }

    /// Returns the bytes that syncs of files made durable, counted in blocks of 4 KiB.
    pub fn synced_bytes(&self) -> u64 {
        self.disk.counters().synced_bytes
    }

    /// Returns the bytes written by the present process, as it counts them itself.
    pub fn metered(&self) -> Written {
        self.meter.written()
    }

    pub(super) fn new(id: ServerId, clock: Clock, speed: Speed, mut random: Random, with: Configuration) -> Self {
        Self {
            id,
            disk: SimDisk::new(random.bits()),
            meter: Arc::default(),
            clock,
            speed,
            random,
            configuration: with,
            process: None,
            is_powered: true,
            processes: 0,
            held: None,
            hangs: Parts::default(),
            fails: Parts::default(),
            hung: Vec::new(),
            hangs_until_us: 0,
            dies_in_step: None,
            is_disk_blamed: false,
            is_disk_full: false,
            is_damaged: false,
            rot: Vec::new(),
            has_new_disk: false,
            former: None,
        }
    }

    /// Returns whether a process exists and is not stopped.
    pub fn is_running(&self) -> bool {
        self.process.is_some() && self.held.is_none()
    }

    /// Returns whether nothing delays the process, its clock or its disk.
    pub(super) fn is_sound(&self) -> bool {
        self.is_running() && !self.hangs.any() && !self.clock.is_frozen() && self.speed.slower == 1
    }

    /// Returns whether the clock is frozen, or the disk is hung, full, failing or slow.
    pub(super) fn is_held_up(&self) -> bool {
        let is_disk_bad = self.hangs.any() || self.is_disk_full || self.is_disk_blamed;
        is_disk_bad || self.clock.is_frozen() || self.speed.slower != 1
    }

    /// Returns whether a process exists and is stopped.
    pub fn is_asleep(&self) -> bool {
        self.held.is_some()
    }

    /// Starts a process if none exists; a failed start is followed by another attempt.
    pub(super) fn start(&mut self, around: &mut Around) {
        around.has_changed = true;
        if self.process.is_some() {
            return;
        }
        if !std::mem::replace(&mut self.is_powered, true) {
            self.clock.reboot(around.agenda.now_us());
        }
        self.processes += 1;
        self.hung.clear();
        self.meter = Arc::default();
        let (number, now_us) = (self.processes, around.agenda.now_us());
        let mut random = self.random.fork();
        let mut cx = Context {
            now_us,
            id: self.id,
            process: number,
            clock: &self.clock,
            disk: &self.disk,
            meter: &self.meter,
            speed: &mut self.speed,
            random: &mut self.random,
            around,
            is_damaged: self.is_damaged,
        };
        match Process::start(number, &self.configuration, &mut cx, &mut random) {
            Ok(process) => {
                self.is_damaged &= !process.found_whole || self.is_rotten();
                self.process = Some(process);
                self.is_disk_blamed = self.is_disk_full;
                self.has_new_disk = false;
                around.links.start(now_us, self.id, number);
            }
            Err(stopped) => self.on_stopped(around, &stopped),
        }
    }

    /// Ends the process; its successor finds the disk as `death` leaves it.
    pub(super) fn die(&mut self, around: &mut Around, death: Death) {
        let now_us = around.agenda.now_us();
        around.witness.trace.note(now_us, Who(self.id), || format!("dies: {death:?}"));
        self.process = None;
        self.held = None;
        self.hung.clear();
        self.dies_in_step = None;
        self.fails = Parts::default();
        self.disk.crash();
        self.disk = match death {
            Death::Process => self.disk.after_process_crash(),
            Death::Power(seed) => self.disk.after_power_loss(seed),
        };
        self.is_powered = death == Death::Process;
        around.witness.stopped(now_us, self.id, around.incarnations.contains_key(&(self.id, self.processes)));
        around.has_changed = true;
        around.ended.push(self.id);
        around.links.stop(now_us, self.id);
        if self.is_powered {
            around.reset_clients_of(self.id);
        }
    }

    /// Stops the process until [`Host::wake`].
    pub(super) fn sleep(&mut self, around: &mut Around) {
        if self.process.is_some() && self.held.is_none() {
            self.held = Some(Vec::new());
            around.has_changed = true;
            around.links.sleep(around.agenda.now_us(), self.id);
        }
    }

    /// Lets a stopped process continue; it first hears everything that arrived meanwhile.
    pub(super) fn wake(&mut self, around: &mut Around) {
        let Some(held) = self.held.take() else { return };
        around.has_changed = true;
        if let Some(process) = &mut self.process {
            process.be_busy(around.agenda.now_us() + self.random.logarithmic(1, WAKE_US));
        }
        around.links.wake(around.agenda.now_us(), self.id);
        for held in held {
            match held {
                Held::Turn => self.on_turn(around),
                Held::Job(job) => self.on_job(around, job),
                Held::Client(conn, what) => self.on_client(around, conn, what),
                Held::LinkClosed(peer, link) => self.on_link_closed(around, peer, link),
            }
        }
        self.rearm(around);
    }

    /// Reschedules the process's deadline after a change of the clocks.
    pub(super) fn rearm(&mut self, around: &mut Around) {
        self.run(around, |process, cx| {
            process.rearm(cx);
            Ok(())
        });
    }

    /// Lets operations on these parts fail, and all others succeed.
    ///
    /// Of the log's operations, those fail that change something.
    pub(super) fn fail(&mut self, log: bool, base: bool) {
        self.fails = Parts { log, base };
        if !self.fails.any() {
            return self.disk.heal();
        }
        self.disk.fail_with(move |operation| {
            let is_change = !matches!(operation.kind, OperationKind::Open | OperationKind::Read);
            let fails = if operation.name.ends_with(".log") { log && is_change } else { base };
            fails.then_some(io::ErrorKind::Other)
        });
    }

    /// Ends the hang of these parts: their hung jobs end now.
    pub(super) fn release(&mut self, around: &mut Around, parts: Parts) {
        self.hangs = self.hangs.without(parts);
        for job in std::mem::take(&mut self.hung) {
            self.on_job(around, job);
        }
    }

    pub(super) fn on_job(&mut self, around: &mut Around, job: Job) {
        if let Some(held) = &mut self.held {
            held.push(Held::Job(job));
        } else if if job.is_of_log() { self.hangs.log } else { self.hangs.base } {
            self.hung.push(job);
        } else {
            self.run(around, |process, cx| process.job(cx, job));
        }
    }

    pub(super) fn on_deadline(&mut self, around: &mut Around, at_us: u64) {
        if self.held.is_none() {
            self.run(around, |process, cx| if process.wakes_at(at_us) { process.deadline(cx) } else { Ok(()) });
        }
    }

    /// Ends the core's last turn.
    pub(super) fn on_turn(&mut self, around: &mut Around) {
        if let Some(held) = &mut self.held {
            return held.push(Held::Turn);
        }
        self.run(around, Process::turn);
    }

    /// Handles something that arrived from a client.
    pub(super) fn on_client(&mut self, around: &mut Around, conn: ConnId, what: ToServer) {
        if let Some(held) = &mut self.held {
            return held.push(Held::Client(conn, what));
        }
        let Some(process) = &self.process else {
            if self.is_powered {
                around.reset_client(conn);
            }
            return;
        };
        match what {
            ToServer::Connect(request) => {
                let peer = around.wires.address_of(conn);
                self.run(around, |process, cx| process.event(cx, Event::Connect { conn, peer, request }));
            }
            // The connection belonged to an earlier process, or is closed.
            ToServer::Request(..) if !process.has_connection(conn) => around.reset_client(conn),
            ToServer::Request(xid, request) => {
                self.run(around, |process, cx| process.event(cx, Event::Request { conn, xid, request }));
            }
            ToServer::Fin => self.run(around, |process, cx| process.disconnected(cx, conn)),
        }
    }

    pub(super) fn on_closed(&mut self, around: &mut Around, conn: ConnId) {
        if let Some(held) = &mut self.held {
            return held.push(Held::Client(conn, ToServer::Fin));
        }
        self.run(around, |process, cx| process.disconnected(cx, conn));
    }

    /// Handles a link that came up or went down, or a message from a peer.
    ///
    /// For a stopped process the links hold back everything that arrives.
    pub(super) fn on_landed(&mut self, around: &mut Around, landed: Landed<Said>) {
        around.has_changed |= !matches!(landed, Landed::Message { .. });
        self.run(around, |process, cx| {
            process.landed(cx, landed);
            Ok(())
        });
    }

    /// Lets the process take everything that landed at this time.
    pub(super) fn settle(&mut self, around: &mut Around) {
        self.run(around, Process::settle);
    }

    pub(super) fn on_link_closed(&mut self, around: &mut Around, peer: ServerId, link: LinkId) {
        if let Some(held) = &mut self.held {
            return held.push(Held::LinkClosed(peer, link));
        }
        self.run(around, |process, cx| {
            process.link_down(cx, peer, link);
            process.settle(cx)
        });
    }

    pub(super) fn run(
        &mut self,
        around: &mut Around,
        turn: impl FnOnce(&mut Process, &mut Context<'_>) -> Result<(), Stopped>,
    ) {
        let Self { id, clock, disk, meter, speed, random, process, .. } = self;
        let Some(process) = process else { return };
        let now_us = around.agenda.now_us();
        let mut cx = Context {
            now_us,
            id: *id,
            process: process.number,
            clock,
            disk,
            meter,
            speed,
            random,
            around: &mut *around,
            is_damaged: false,
        };
        if let Err(stopped) = turn(process, &mut cx) {
            self.on_stopped(around, &stopped);
        }
    }

    /// Ends a process that stopped.
    ///
    /// It died in a step of its disk, as decided before, or it stopped by itself.
    fn on_stopped(&mut self, around: &mut Around, Stopped(why): &Stopped) {
        let now_us = around.agenda.now_us();
        around.witness.trace.note(now_us, Who(self.id), || format!("stops: {why}"));
        let death = match self.dies_in_step.take() {
            Some(death) if self.disk.crashed() => death,
            Some(_) | None => Death::Process,
        };
        // A truncation reads the end of the log. If those bytes have rotted, the log cannot answer
        // truthfully, and the server stops. Its successor finds the damage when it opens the log,
        // and receives a snapshot.
        let has_read_rot = self.is_rotten() && why.contains("the log is damaged");
        if !self.disk.crashed() && !self.is_disk_blamed && !has_read_rot {
            around.witness.violation(now_us, format!("server {} stopped by itself: {why}", self.id.as_u8()));
        }
        self.die(around, death);
        // A supervisor restarts the process.
        let delay_us = self.random.between(SECOND / 10, 3 * SECOND);
        around.agenda.after(delay_us, Happening::Start { server: self.id });
    }
}
