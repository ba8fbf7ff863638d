//! One server process: the real state machine, log and base, with simulated threads.
//!
//! A thread's work is a job that takes simulated time.

mod base;
mod holds;
mod log;
mod pace;
mod peers;
mod reply_queues;
mod returns;
mod thread;

use super::host::Context;
use super::witness::State;
use super::world::Happening;
use super::{Rank, Sent};
use crate::workload::Random;
use base::BaseThreads;
use bytes::Bytes;
use holds::Holds;
use log::LogThread;
use pace::Pace;
use peers::PeerThreads;
use reply_queues::ReplyQueues;
use returns::Returns;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_machine::{Action, ConnId, Event, Limits, Server, Settings, Start};
use zoolet_model::Zxid;
use zoolet_store::{MeteredDisk, Store, Strategy};
use zoolet_zab::{Config, Timing};

/// The reason why a process ended by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped(pub String);

impl Stopped {
    pub(super) fn because(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Fails if the process died in a step of its disk.
///
/// Such a process does nothing more, regardless of the step's error.
fn check_alive(cx: &Context<'_>) -> Result<(), Stopped> {
    if cx.disk.crashed() { Err(Stopped("it died in a step of its disk".into())) } else { Ok(()) }
}

/// The parameters of a process.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Its resource limits.
    pub limits: Limits,
    /// Its operator's settings.
    pub settings: Settings,
    /// The members, as a configuration file lists them.
    pub members: Config,
    /// Protocol timeouts between servers.
    pub timing: Timing,
}

/// Work that a thread of the process has finished.
#[derive(Debug)]
pub(super) enum Job {
    Log(log::Batch),
    RetryLog,
    Base(Box<base::Work>),
    Peer(Box<peers::PeerJob>),
}

impl Job {
    /// Returns whether the job is the log thread's; all others count as the base's.
    pub(super) fn is_of_log(&self) -> bool {
        matches!(self, Self::Log(_) | Self::RetryLog)
    }
}

/// A running server process.
pub struct Process {
    /// Its number, unique on its box.
    pub number: u64,
    server: Server,
    log: LogThread,
    base: BaseThreads,
    replies: ReplyQueues,
    peers: PeerThreads,
    holds: Holds,
    returns: Returns,
    /// Events that the core has not taken yet.
    inbox: VecDeque<Event>,
    pace: Pace,
    /// The end of the core's last turn.
    busy_until_us: u64,
    /// Whether [`Happening::Turn`] is scheduled for the end of that turn.
    is_turn_noted: bool,
    /// A deadline passed during that turn and is to be handled.
    owes_judgement: bool,
    limits: Limits,
    /// Entries above it can be read from the log, as last reported to the machine.
    floor: Zxid,
    /// End of an installed snapshot that the machine has not made its state yet.
    installed: Option<Zxid>,
    /// The time of the next [`Happening::Deadline`].
    wakes_us: Option<u64>,
    /// Entries that were appended or recovered and not yet observed as applied.
    unapplied: BTreeMap<Zxid, Bytes>,
    applied: Zxid,
    /// Writes that this process asked of a next leader again.
    asked_again: u64,
    /// Whether its store was undamaged when it opened.
    pub(super) found_whole: bool,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("number", &self.number).field("applied", &self.applied).finish_non_exhaustive()
    }
}

impl Process {
    /// Opens the disk, replays the log and starts the server.
    ///
    /// # Errors
    /// [`Stopped`] when the store cannot be opened or replayed, or the process died meanwhile.
    pub(super) fn start(
        number: u64,
        configuration: &Configuration,
        cx: &mut Context<'_>,
        random: &mut Random,
    ) -> Result<Self, Stopped> {
        let Configuration { limits, settings, members, timing } = configuration.clone();
        let disk = MeteredDisk::new(cx.disk.clone(), Arc::clone(cx.meter));
        let incarnation = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let open = if members.members().len() == 1 { Store::open } else { Store::open_member };
        let store = open(Arc::new(disk), Strategy::Recycle, &limits, incarnation).map_err(Stopped::because)?;
        cx.around.witness.started(cx.now_us, cx.id, number, store.log.facts(), cx.is_damaged);
        if !store.health.is_whole() {
            cx.around.witness.found_damage(cx.now_us, cx.id, &store.health, cx.is_damaged);
        }
        let start = Start {
            limits,
            settings,
            id: cx.id,
            members,
            timing,
            recovered: store.recovered.clone(),
            base: store.state.clone(),
            chain_at_base: store.chain_at_base,
            seed: std::array::from_fn(|_| random.bits() as u8),
            log_bytes_used: store.log.used_bytes(),
        };
        let applied = start.base.as_ref().map_or(Zxid::ZERO, |_| store.base.meta().zxid);
        let mut entries = Vec::new();
        let replayed = store.replay(|event| {
            entries.push(event);
            Ok::<(), Stopped>(())
        });
        replayed.map_err(|error| Stopped(format!("{error:?}")))?;
        cx.meter.serve_base(store.base.id());
        let (floor, found_whole) = (store.log_floor, store.health.is_whole());
        cx.around.incarnations.insert((cx.id, number), store.facts.disk_incarnation);
        let Store { log, base, reserve, .. } = store;
        let mut process = Self {
            number,
            server: Server::new(start, cx.now()),
            log: LogThread::new(log),
            base: BaseThreads::new(base, reserve),
            replies: ReplyQueues::default(),
            peers: PeerThreads::default(),
            holds: Holds::new(&limits),
            returns: Returns::default(),
            inbox: VecDeque::new(),
            pace: Pace::drawn(random),
            busy_until_us: 0,
            is_turn_noted: false,
            owes_judgement: false,
            limits,
            floor,
            installed: None,
            wakes_us: None,
            unapplied: BTreeMap::new(),
            asked_again: 0,
            applied,
            found_whole,
        };
        for event in entries {
            if let Event::Recovered { zxid, payload } = &event {
                process.unapplied.insert(*zxid, payload.clone());
            }
            process.tell(event);
        }
        process.take_turns(cx)?;
        check_alive(cx)?;
        process.server.start(cx.now());
        process.carry_out(cx)?;
        process.settle(cx)?;
        Ok(process)
    }

    /// Returns the state machine.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Handles an event from outside.
    ///
    /// # Errors
    /// [`Stopped`] when the event ends the process.
    pub(super) fn event(&mut self, cx: &mut Context<'_>, event: Event) -> Result<(), Stopped> {
        self.tell(event);
        self.settle(cx)
    }

    /// Handles a deadline, after all readable input was read.
    ///
    /// A busy core handles the deadline at the end of its current turn.
    ///
    /// # Errors
    /// [`Stopped`] when the deadline ends the process.
    pub(super) fn deadline(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        self.wakes_us = None;
        if cx.now_us < self.busy_until_us {
            self.owes_judgement = true;
            self.note_turn(cx);
            return Ok(());
        }
        self.judge(cx)?;
        self.settle(cx)
    }

    fn judge(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        let now = cx.now();
        if self.server.next_deadline().is_some_and(|at_ms| at_ms <= now.mono_ms) {
            self.server.handle_deadline(now);
            self.carry_out(cx)?;
        }
        Ok(())
    }

    /// Ends the core's last turn.
    ///
    /// # Errors
    /// [`Stopped`] when an event that the core takes ends the process.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        self.is_turn_noted = false;
        if cx.now_us < self.busy_until_us {
            self.note_turn(cx);
            return Ok(());
        }
        if std::mem::take(&mut self.owes_judgement) {
            self.take_turns(cx)?;
            self.judge(cx)?;
        }
        self.settle(cx)
    }

    /// Lets all events before `until_us` wait for one turn.
    pub(super) fn be_busy(&mut self, until_us: u64) {
        self.busy_until_us = self.busy_until_us.max(until_us);
    }

    /// Handles the finished job of a thread.
    ///
    /// # Errors
    /// [`Stopped`] when the job ends the process.
    pub(super) fn job(&mut self, cx: &mut Context<'_>, job: Job) -> Result<(), Stopped> {
        match job {
            Job::Log(batch) => self.on_log(cx, batch)?,
            Job::RetryLog => self.log.retry(cx),
            Job::Base(work) => self.on_base(cx, *work)?,
            Job::Peer(job) => self.on_peer_job(cx, *job)?,
        }
        self.settle(cx)
    }

    /// Gives the machine a command.
    ///
    /// # Errors
    /// [`Stopped`] when the command ends the process.
    pub(super) fn command(&mut self, cx: &mut Context<'_>, command: impl FnOnce(&mut Server)) -> Result<(), Stopped> {
        self.take_turns(cx)?;
        command(&mut self.server);
        self.carry_out(cx)?;
        self.settle(cx)
    }

    /// Returns whether this process has the client's connection.
    pub(super) fn has_connection(&self, conn: ConnId) -> bool {
        self.replies.has(conn)
    }

    /// Handles the end of a connection.
    ///
    /// # Errors
    /// [`Stopped`] when the event ends the process.
    pub(super) fn disconnected(&mut self, cx: &mut Context<'_>, conn: ConnId) -> Result<(), Stopped> {
        if self.replies.close(conn) {
            return self.event(cx, Event::Disconnected { conn });
        }
        Ok(())
    }

    /// Schedules the next deadline anew, after a change of the clocks or a pause.
    pub(super) fn rearm(&mut self, cx: &mut Context<'_>) {
        self.wakes_us = None;
        self.arm(cx);
    }

    /// Queues an event for the core's next turn.
    fn tell(&mut self, event: Event) {
        if let Event::Connect { conn, .. } = &event {
            self.replies.open(*conn);
        }
        self.inbox.push_back(event);
    }

    /// Hands all queued events to the core.
    ///
    /// As in the binary, the actions are carried out after a batch of events rather than after each
    /// event.
    fn take_turns(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        while !self.inbox.is_empty() {
            let events = self.pace.events(cx.random).min(self.inbox.len());
            let (mut durable, mut hears_of_base) = (None, false);
            for event in self.inbox.drain(..events).collect::<Vec<_>>() {
                cx.around.witness.trace.note(cx.now_us, cx.who(), || format!("<- {event:?}"));
                self.note_heard(cx, &event);
                self.returns.note_heard(&event);
                if let Event::Persisted { seq, .. } = event {
                    durable = Some(seq);
                }
                hears_of_base |= matches!(event, Event::SnapshotInstalled { .. });
                self.server.handle(cx.now(), event);
            }
            // The witness judges a turn's actions together with the events heard in it. So it
            // learns of the snapshot first.
            if let Some(zxid) = self.installed.filter(|_| hears_of_base) {
                cx.around.witness.heard_of_base(cx.now_us, cx.id, zxid);
            }
            self.carry_out(cx)?;
            // A message of this turn may have been built before the core heard `Persisted`. So the
            // witness learns of that event after the actions.
            if let Some(seq) = durable {
                cx.around.witness.told(cx.now_us, cx.id, seq);
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        let outcome = self.carry_out_all(cx);
        self.note_state(cx);
        self.note_returns(cx);
        self.note_holds(cx);
        outcome
    }

    fn carry_out_all(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        while let Some(action) = self.server.poll_action() {
            cx.around.witness.trace.note(cx.now_us, cx.who(), || format!("-> {action:?}"));
            self.returns.note_done(&action);
            match action {
                Action::Append(append) => self.append(cx, append),
                Action::Fetch(fetch) => self.base.fetch(cx, fetch),
                Action::Complete(completion) => {
                    let place = self.replies.reserve(completion.conn);
                    self.base.complete(cx, place, completion);
                }
                Action::Checkpoint(checkpoint) => self.base.checkpoint(cx, checkpoint),
                Action::ReleaseGenerations { below, .. } => self.base.release(cx, below),
                Action::Connected { conn, reply } => self.send(cx, conn, Sent::Connected(reply)),
                Action::Reply { conn, xid, zxid, result } => self.send(cx, conn, Sent::Reply { xid, zxid, result }),
                Action::Notify { conn, event } => self.send(cx, conn, Sent::Event(event)),
                Action::Close { conn } => self.send(cx, conn, Sent::Close),
                Action::Status { .. } => {}
                Action::Fail(reason) => return Err(Stopped(reason)),
                Action::PeerSend { peer, link, message } => self.say(cx, peer, link, message),
                Action::PeerClose { peer, link, reason } => self.close_link(cx, peer, link, reason),
                Action::ReadLog(read) => self.read_log(cx, read),
                Action::HoldLog { above } => self.log.log.hold(above),
                Action::SendSnapshot { peer, link, transfer, generation, .. } => {
                    self.send_snapshot(cx, peer, link, transfer, generation);
                }
                Action::ReceiveSnapshot { peer, link, transfer, .. } => self.receive_snapshot(cx, peer, link, transfer),
                Action::DropSnapshot { peer, transfer } => self.drop_snapshot(peer, transfer),
                Action::InstallSnapshot { base } => self.install_snapshot(cx, base),
            }
        }
        Ok(())
    }

    fn append(&mut self, cx: &mut Context<'_>, append: Append) {
        for record in &append.records {
            match record {
                LogRecord::Entry { zxid, payload } => drop(self.unapplied.insert(*zxid, payload.clone())),
                LogRecord::Truncate { to } => self.unapplied.retain(|zxid, _| zxid <= to),
                // Entries applied in this very turn are not reported to the witness yet.
                LogRecord::SnapEnd { zxid, .. } => {
                    let applied = self.server.applied();
                    self.unapplied.retain(|at, _| at > zxid || *at <= applied);
                }
                LogRecord::Promise(_)
                | LogRecord::Epoch(_)
                | LogRecord::Config { .. }
                | LogRecord::SnapBegin { .. }
                | LogRecord::Birth { .. }
                | LogRecord::Damaged => {}
            }
        }
        cx.around.witness.appended(cx.now_us, cx.id, &append);
        self.log.push(append);
    }

    /// Takes a turn, unless the last one still lasts, then starts the log's next batch and
    /// schedules the next deadline.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>) -> Result<(), Stopped> {
        if !self.inbox.is_empty() && cx.now_us < self.busy_until_us {
            self.note_turn(cx);
        } else if !self.inbox.is_empty() {
            self.take_turns(cx)?;
            self.be_busy(cx.now_us + self.pace.busy_us(cx.random));
        }
        self.log.begin(cx)?;
        self.arm(cx);
        Ok(())
    }

    /// Reports the server's state to the witness, and first the entries it applied.
    ///
    /// This happens even if the process ends in this turn, because clients will hear of the applied
    /// entries.
    fn note_state(&mut self, cx: &mut Context<'_>) {
        let applied = self.server.applied();
        let has_applied = applied > self.applied;
        if has_applied {
            let mut rest = self.unapplied.split_off(&applied);
            if self.installed.take_if(|installed| *installed <= applied).is_some() {
                // The server never applied the entries that the snapshot holds.
                self.unapplied.clear();
                rest.retain(|zxid, _| *zxid > applied);
            }
            for (zxid, payload) in std::mem::replace(&mut self.unapplied, rest) {
                cx.around.witness.committed(cx.now_us, zxid, &payload);
            }
            if let Some(payload) = self.unapplied.remove(&applied) {
                cx.around.witness.committed(cx.now_us, applied, &payload);
            }
            self.applied = applied;
        }
        let (zab, digest) = (self.server.zab(), self.server.digest());
        let (role, epoch, committed) = (zab.role(), zab.epoch(), zab.committed());
        let is_refusing = self.server.refusing_writes().is_some();
        let state =
            State { applied, digest, is_serving: self.server.is_serving(), role, epoch, committed, is_refusing };
        cx.around.has_changed |= cx.around.witness.state(cx.now_us, cx.id, state);
        let asked_again = self.server.writes_asked_again();
        if std::mem::replace(&mut self.asked_again, asked_again) < asked_again {
            cx.around.witness.asked_again(cx.now_us);
        }
        if has_applied {
            cx.around.witness.kept(cx.now_us, cx.id, &self.server);
        }
    }

    fn note_turn(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.is_turn_noted, true) {
            let happening = Happening::Turn { server: cx.id, process: self.number };
            cx.around.agenda.at(self.busy_until_us, Rank::News, happening);
        }
    }

    fn arm(&mut self, cx: &mut Context<'_>) {
        if self.owes_judgement {
            return;
        }
        let deadline_ms = self.server.next_deadline();
        let Some(at_us) = deadline_ms.and_then(|at_ms| cx.clock.when(cx.now_us, at_ms)) else { return };
        if self.wakes_us.is_none_or(|wakes_us| at_us < wakes_us) {
            self.wakes_us = Some(at_us);
            let happening = Happening::Deadline { server: cx.id, process: self.number, at_us };
            cx.around.agenda.at(at_us, Rank::Deadline, happening);
        }
    }

    /// Returns whether a scheduled deadline is still the next one.
    pub(super) fn wakes_at(&self, at_us: u64) -> bool {
        self.wakes_us == Some(at_us)
    }

    fn send(&mut self, cx: &mut Context<'_>, conn: ConnId, sent: Sent) {
        self.replies.push(conn, sent);
        self.deliver(cx, conn);
    }

    fn deliver(&mut self, cx: &mut Context<'_>, conn: ConnId) {
        for sent in self.replies.take_ready(conn) {
            cx.around.send_to_client(cx.id, self.number, conn, sent);
        }
    }
}
