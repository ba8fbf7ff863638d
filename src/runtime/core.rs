//! The core: passes events to the machine and carries out its actions, in turns.

use super::Input;
use super::base_threads::{BaseWork, Destination};
use super::checkpoint_thread::CheckpointWork;
use super::clock;
use super::links::{self, Instruction};
use super::log_thread::LogWork;
use super::status_stream;
use super::threads::{Failure, Question, Shared};
use super::turns::Driver;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoolet_machine::budget::Part;
use zoolet_machine::seam::action::Completion;
use zoolet_machine::seam::log_rate_limit::{AGAIN_MS, LogRateLimit};
use zoolet_machine::server::{Refusals, Refused};
use zoolet_machine::status::{self, DiskTrouble, DiskTroubles, Status};
use zoolet_machine::{Action, Budget, ConnId, Event, Now, Server};
use zoolet_model::{ConnectReply, Zxid};
use zoolet_session::{EmbeddedSessions, Environment as _, Link, LostReason};
#[cfg(feature = "port")]
use zoolet_transport::client_port::Output;
use zoolet_zab::Role;

/// Bounds of a turn, in events and in time.
///
/// A turn's actions are carried out at its end, so that the disk and the clients never wait for a
/// long queue.
const TURN_EVENTS: usize = 256;
const TURN: Duration = Duration::from_millis(2);

/// For how long a leader pings its learners while it handles the events of one look into its inbox.
///
/// It takes no acknowledgement meanwhile, so it commits nothing. After that its learners should
/// suspect it.
const PINGS: Duration = Duration::from_secs(1);

/// Events per reading of the clocks. Some events take a fraction of the time of a reading.
const CLOCK_EVENTS: usize = 16;

/// Log entries handled at start before the next reading of the clocks and check for due work.
const RECOVERY_TURN: u64 = 32;
/// Maximum number of log entries that wait for records at start.
///
/// Their records are fetched in batches of about this size.
const RECOVERY_WINDOW: usize = 2048;
/// The same bound for large entries, in bytes.
const RECOVERY_WINDOW_BYTES: usize = 4 << 20;

/// Interval between checks of the disk's health, milliseconds.
///
/// For about this long, other servers may not know of a problem.
const DISK_LOOK_MS: u64 = 5_000;

/// Delay before a session of this process connects again, milliseconds.
const REDIAL_MS: u64 = 100;

/// The logged part of a growing count, which limits its log lines to one a minute.
#[derive(Default)]
struct LoggedCount {
    count: u64,
    again_at_ms: u64,
}

impl LoggedCount {
    /// Returns the growth of `count` since its last log line, if a new line is due.
    fn news(&mut self, count: u64) -> Option<u64> {
        if count == self.count {
            return None;
        }
        let now_ms = clock::mono_ms();
        (now_ms >= self.again_at_ms).then(|| {
            self.again_at_ms = now_ms + AGAIN_MS;
            count - std::mem::replace(&mut self.count, count)
        })
    }
}

/// The machine, and everything that carries out its actions.
pub(super) struct Core {
    server: Server,
    /// The last reading of the clocks.
    now: Now,
    shared: Arc<Shared>,
    embedded: EmbeddedSessions,
    redial: Vec<(u64, Arc<Link>)>,
    questions: BTreeMap<u64, Arc<Question>>,
    tickets: u64,
    next_ping_ms: Option<u64>,
    closing_sessions: bool,
    is_handing_over: bool,
    /// Whether this server led when it was told to hand over.
    led_before_stop: bool,
    role: Role,
    serving: bool,
    /// Inputs that are taken from the inbox but not handled.
    ///
    /// If a turn is cut short, the senders of these inputs still learn of the end.
    batch: VecDeque<Input>,
    log_work: Vec<LogWork>,
    base_work: Vec<BaseWork>,
    completion_work: Vec<BaseWork>,
    #[cfg(feature = "port")]
    outputs: Vec<Output>,
    instructions: Vec<Instruction>,
    /// The thread that runs this turn.
    driver: Driver,
    /// Logged refusals of sessions in total, of sessions for one address, displaced local sessions,
    /// and guesses of the super user's password.
    logged: [LoggedCount; 4],
    /// The disk's troubles as last reported to the machine, and when to check again.
    disk_troubles: DiskTroubles,
    disk_look_at_ms: u64,
    disk_log_limit: LogRateLimit,
    /// When the streams of the status were last shown it; `None`: they need it at once.
    status_shown_ms: Option<u64>,
    /// Fetches and checkpoints in flight.
    under_way: usize,
    budget: Arc<Budget>,
    /// Log entries passed to the machine at start.
    recovered: u64,
    /// Bytes of each such entry that is not applied yet, and their sum.
    recovering: VecDeque<usize>,
    recovering_bytes: usize,
}

/// Whether the core goes on.
pub(super) enum Flow {
    On,
    End,
}

impl Core {
    pub(super) fn new(server: Server, shared: Arc<Shared>, budget: Arc<Budget>) -> Self {
        Self {
            server,
            now: clock::now(),
            shared,
            embedded: EmbeddedSessions::default(),
            redial: Vec::new(),
            questions: BTreeMap::new(),
            tickets: 0,
            next_ping_ms: None,
            closing_sessions: false,
            is_handing_over: false,
            led_before_stop: false,
            role: Role::Looking,
            serving: false,
            disk_troubles: DiskTroubles::default(),
            disk_look_at_ms: 0,
            disk_log_limit: LogRateLimit::default(),
            batch: VecDeque::new(),
            log_work: Vec::new(),
            base_work: Vec::new(),
            completion_work: Vec::new(),
            #[cfg(feature = "port")]
            outputs: Vec::new(),
            instructions: Vec::new(),
            driver: Driver::Core,
            logged: Default::default(),
            status_shown_ms: None,
            under_way: 0,
            budget,
            recovered: 0,
            recovering: VecDeque::new(),
            recovering_bytes: 0,
        }
    }

    /// Passes one log entry to the machine at start.
    ///
    /// Waits while many entries wait for records, because they would fill the memory.
    pub(super) fn recover(&mut self, zxid: Zxid, payload: Bytes) -> Result<(), Failure> {
        self.recovering.push_back(payload.len());
        self.recovering_bytes += payload.len();
        self.recovered += 1;
        self.handle(Event::Recovered { zxid, payload });
        if self.recovered.is_multiple_of(RECOVERY_TURN) || self.many_wait_for_records() {
            self.carry_out()?;
            self.judge()?;
        }
        // With nothing in flight, the waiting entries are above the watermark. The new epoch will
        // commit them.
        while self.many_wait_for_records() && self.under_way > 0 {
            if let Flow::End = self.wait_and_handle()? {
                return Err(self.stopped_at_start());
            }
        }
        Ok(())
    }

    /// Serves readers only, after the last log entry: the machine takes no part in its ensemble.
    ///
    /// Waits until every entry up to `committed` is applied.
    ///
    /// # Errors
    /// The base could not be read, the log lacks a committed entry, or the changes do not fit into
    /// memory.
    #[cfg(feature = "port")]
    pub(super) fn start_reading(&mut self, committed: Zxid) -> Result<(), Failure> {
        self.recovering = VecDeque::new();
        self.handle(Event::LogStalled { is_read_only: true });
        loop {
            let before = self.server.applied();
            self.judge()?;
            super::read_only::check_memory(&self.budget)?;
            if self.server.applied() >= committed {
                return Ok(());
            }
            if self.under_way > 0 {
                if let Flow::End = self.wait_and_handle()? {
                    return Err(self.stopped_at_start());
                }
            } else if self.server.applied() == before {
                return Err(Failure::Failed(format!("the log ends at {before}, before its last commit {committed}")));
            }
        }
    }

    fn stopped_at_start(&self) -> Failure {
        let why = self.shared.failure();
        why.unwrap_or_else(|| Failure::Failed("the node was stopped during its start".to_owned()))
    }

    fn many_wait_for_records(&mut self) -> bool {
        while self.recovering.len() > self.server.unapplied() {
            self.recovering_bytes -= self.recovering.pop_front().unwrap_or_default();
        }
        self.recovering.len() > RECOVERY_WINDOW || self.recovering_bytes > RECOVERY_WINDOW_BYTES
    }

    /// Lets the machine take part, after its last log entry.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.recovering = VecDeque::new();
        self.now = clock::now();
        self.server.start(self.now);
        self.carry_out()
    }

    /// Returns how many entries a turn may have to apply.
    pub(super) fn unapplied(&self) -> usize {
        self.server.unapplied()
    }

    /// Handles all waiting inputs, then all work that has become due.
    pub(super) fn turn(&mut self, by: Driver) -> Result<Flow, Failure> {
        self.driver = by;
        let mut batch = Vec::from(std::mem::take(&mut self.batch));
        self.shared.inbox.drain(&mut batch);
        self.batch = batch.into();
        let flow = self.handle_batch()?;
        if let Flow::On = flow {
            self.judge()?;
        }
        Ok(flow)
    }

    /// Tells the sessions of this process that the node has ended.
    pub(super) fn end(mut self, reason: LostReason) {
        self.embedded.lost(reason);
        self.shared.here.timers().end();
        self.shared.statuses.end();
        self.redial.drain(..).for_each(|(_, link)| link.lost(reason));
        self.questions.into_values().for_each(|question| question.set(None));
        self.shared.inbox.close();
        let mut left = Vec::from(std::mem::take(&mut self.batch));
        loop {
            for input in left.drain(..) {
                match input {
                    Input::Dial(link) => link.lost(reason),
                    Input::Ask(question) => question.set(None),
                    Input::Event(_) | Input::LookAtStatus | Input::CloseSessions | Input::HandOver | Input::Stop => {}
                    #[cfg(test)]
                    Input::Panic => {}
                }
            }
            if !self.shared.inbox.take(&mut left, None) {
                return;
            }
        }
    }

    /// Waits for an input, and handles all that wait.
    fn wait_and_handle(&mut self) -> Result<Flow, Failure> {
        let mut batch = Vec::from(std::mem::take(&mut self.batch));
        if !self.shared.inbox.take(&mut batch, None) {
            return Ok(Flow::End);
        }
        self.batch = batch.into();
        self.handle_batch()
    }

    fn handle_batch(&mut self) -> Result<Flow, Failure> {
        let mut flow = Flow::On;
        let (mut events, mut began) = (0, Instant::now());
        let looked = began;
        self.now = clock::now();
        while let Some(input) = self.batch.pop_front() {
            if let Flow::End = self.on_input(input) {
                flow = Flow::End;
            }
            events += 1;
            if events % CLOCK_EVENTS != 0 {
                continue;
            }
            self.now = clock::now();
            if events >= TURN_EVENTS || began.elapsed() >= TURN {
                if looked.elapsed() < PINGS {
                    self.server.ping_on_time(self.now);
                }
                self.carry_out()?;
                (events, began) = (0, Instant::now());
            }
        }
        self.carry_out()?;
        Ok(flow)
    }

    fn on_input(&mut self, input: Input) -> Flow {
        match input {
            Input::Event(event) => self.handle(event),
            // A client whose session was closed asks for the next one at once.
            Input::Dial(link) if self.closing_sessions => link.lost(LostReason::Stopped),
            Input::Dial(link) => self.dial(link),
            Input::Ask(question) => {
                self.tickets += 1;
                let ticket = OWN_TICKET | self.tickets;
                self.questions.insert(ticket, question);
                self.handle(Event::Status { ticket });
            }
            Input::LookAtStatus => self.status_shown_ms = None,
            Input::CloseSessions => {
                self.closing_sessions = true;
                self.embedded.close_all();
                self.redial.iter().for_each(|(_, link)| link.close_unheard());
                self.tell_if_closed();
            }
            Input::HandOver => {
                self.is_handing_over = true;
                self.led_before_stop |= self.server.leads();
                self.server.hand_over(self.now);
            }
            Input::Stop => return Flow::End,
            #[cfg(test)]
            Input::Panic => panic!("told to"),
        }
        Flow::On
    }

    fn handle(&mut self, event: Event) {
        if matches!(event, Event::Fetched { .. } | Event::Checkpointed { .. } | Event::CheckpointFailed { .. }) {
            self.under_way = self.under_way.saturating_sub(1);
        }
        if matches!(event, Event::Checkpointed { .. } | Event::SnapshotInstalled { .. }) {
            self.account_base();
        }
        self.server.handle(self.now, event);
    }

    /// Accounts for the base's memory and disk space.
    ///
    /// Reads fill the base's caches and merges change its tables without notice to the core. So the
    /// core asks now and then.
    fn account_base(&self) {
        self.budget.set(Part::Base, self.shared.base_memory_bytes());
        self.budget.set(Part::Disk, self.shared.disk_bytes());
    }

    /// Connects the sessions that waited until the server serves.
    fn on_serving_changed(&mut self) {
        self.status_shown_ms = None;
        if self.serving {
            self.shared.tell_serving();
            self.redial.iter_mut().for_each(|(due_ms, _)| *due_ms = 0);
        }
    }

    fn dial(&mut self, link: Arc<Link>) {
        // Without a leader, the machine serves sessions that may read an old state.
        let may_read = || link.may_read_only() && self.server.read_only_ms().is_some();
        if !self.serving && !may_read() {
            self.redial.push((clock::mono_ms() + REDIAL_MS, link));
            return;
        }
        if let Some(connect) = self.embedded.dial(link) {
            self.handle(connect);
        }
    }

    /// Handles due work, pings first: a delay of this process must not expire a session in it.
    fn judge(&mut self) -> Result<(), Failure> {
        self.now = clock::now();
        let now = self.now.mono_ms;
        if self.next_ping_ms.is_some_and(|due| due <= now) {
            for ping in self.embedded.pings() {
                self.server.handle(self.now, ping);
            }
            self.next_ping_ms = None;
        }
        self.next_ping_ms = match (self.next_ping_ms, self.embedded.ping_interval_ms()) {
            (Some(due), Some(interval)) => Some(due.min(now + interval)),
            (None, Some(interval)) => Some(now + interval),
            (_, None) => None,
        };
        self.shared.here.timers().wake_due(clock::since_boot());
        let due = self.redial.extract_if(.., |(due_ms, _)| *due_ms <= now).collect::<Vec<_>>();
        due.into_iter().for_each(|(_, link)| self.dial(link));
        if self.server.next_deadline().is_some_and(|due| due <= now) {
            self.server.handle_deadline(self.now);
        }
        self.look_at_disk();
        self.show_status();
        self.carry_out()
    }

    /// Requests the status for its streams, if there are any and a look is due.
    fn show_status(&mut self) {
        let now_ms = self.now.mono_ms;
        let is_due = self.status_shown_ms.is_none_or(|shown_ms| now_ms >= shown_ms + status_stream::LOOK_MS);
        if is_due && self.shared.statuses.is_watched() {
            self.status_shown_ms = Some(now_ms);
            self.handle(Event::Status { ticket: STREAMS_TICKET });
        }
    }

    /// Returns when the core must wake to show the status; `None` while no stream exists.
    fn status_due_ms(&self) -> Option<u64> {
        let due_ms = || self.status_shown_ms.map_or(self.now.mono_ms, |shown_ms| shown_ms + status_stream::WAKE_MS);
        self.shared.statuses.is_watched().then(due_ms)
    }

    /// Reports changes of the disk's health to the machine. Other servers show them.
    ///
    /// The core does not wake up for this check, since a member's heartbeats come more often.
    fn look_at_disk(&mut self) {
        if self.now.mono_ms < self.disk_look_at_ms {
            return;
        }
        self.disk_look_at_ms = self.now.mono_ms + DISK_LOOK_MS;
        let troubles = self.shared.disk_troubles();
        let before = std::mem::replace(&mut self.disk_troubles, troubles);
        if troubles == before {
            return;
        }
        // The thread that waits for the disk cannot log it.
        if troubles.contains(DiskTrouble::Hangs)
            && !before.contains(DiskTrouble::Hangs)
            && let Some(left_out) = self.disk_log_limit.admit("hangs", self.now.mono_ms)
        {
            tracing::warn!(left_out, "the disk does not answer: writes wait");
        }
        self.handle(Event::DiskTroubles(troubles));
    }

    /// Returns when work becomes due without any input, on [`Now::mono_ms`].
    pub(super) fn due_ms(&self) -> Option<u64> {
        let redial = self.redial.iter().map(|(due, _)| *due).min();
        let timer = self.shared.here.timers().next();
        // Rounded up: the timer must not wake before its instant.
        let timer = timer.map(|at| at.as_secs() * 1000 + u64::from(at.subsec_nanos().div_ceil(1_000_000)));
        let own = [self.server.next_deadline(), self.next_ping_ms, redial, timer, self.status_due_ms()];
        own.into_iter().flatten().min()
    }

    fn carry_out(&mut self) -> Result<(), Failure> {
        while let Some(action) = self.server.poll_action() {
            self.route(action)?;
        }
        // Peers come first, since they take longest: they make an entry durable while this server
        // does.
        if let Some(links) = &self.shared.links {
            links.push(&mut self.instructions);
        }
        self.shared.log.push_all(self.log_work.drain(..));
        // Before the threads that read the base: an answer's place must exist when it is filled.
        #[cfg(feature = "port")]
        if let Some(sockets) = &self.shared.sockets {
            sockets.push(&mut self.outputs, self.driver);
        }
        self.shared.base.push_all(self.base_work.drain(..));
        self.shared.completions.push_all(self.completion_work.drain(..));
        self.server.account(&self.budget);
        self.tell_refusals();
        if self.is_handing_over && self.is_succeeded() {
            self.shared.tell_handed_over();
        }
        self.tell_role();
        if self.server.is_serving() != self.serving {
            self.serving = !self.serving;
            self.on_serving_changed();
        }
        Ok(())
    }

    /// Returns whether another server leads, and the clients of a former leader may go.
    ///
    /// They stay until the successor serves, so that they find a server that serves. The writes that
    /// waited for it are sent to it only then, so their clients stay until these are answered.
    fn is_succeeded(&self) -> bool {
        let is_done = || self.server.is_serving() && !self.server.owes_answers();
        !self.server.leads() && (!self.led_before_stop || is_done())
    }

    /// Logs a change of role, because operators look for the leader first.
    fn tell_role(&mut self) {
        let role = self.server.zab().role();
        if role == self.role || self.shared.links.is_none() {
            return;
        }
        self.role = role;
        self.status_shown_ms = None;
        let epoch = self.server.zab().epoch().as_u32();
        match role {
            Role::Looking => tracing::info!("looking for a leader"),
            Role::Leading => tracing::info!(epoch, "leads"),
            Role::Following(leader) => tracing::info!(epoch, leader = leader.as_u8(), "follows"),
            Role::Observing(leader) => tracing::info!(epoch, leader = leader.as_u8(), "observes"),
        }
    }

    /// Logs refusals, at most once a minute each.
    ///
    /// An operator learns why clients get no sessions, but a flood of refusals does not fill a
    /// disk.
    fn tell_refusals(&mut self) {
        let Refusals { sessions, sessions_of_address, locals_displaced, super_guesses } = self.server.refusals();
        let [logged_all, logged_address, logged_displaced, logged_guesses] = &mut self.logged;
        if let Some(refused) = logged_all.news(sessions) {
            tracing::warn!(
                refused,
                sessions = self.server.sessions_taken(),
                "cannot open more sessions: sessions_max is reached"
            );
        }
        if let Refused { count, last: Some(client) } = sessions_of_address
            && let Some(refused) = logged_address.news(count)
        {
            tracing::warn!(
                %client,
                refused,
                "cannot open more sessions for this address: its share is used up; the share follows from connections_per_address_max"
            );
        }
        if let Some(ended) = logged_displaced.news(locals_displaced) {
            tracing::warn!(
                ended,
                "local sessions ended: sessions_max is reached, and global sessions took their places"
            );
        }
        if let Refused { count, last: Some(client) } = super_guesses
            && let Some(guesses) = logged_guesses.news(count)
        {
            tracing::warn!(%client, guesses, "wrong password for the super user; after a few guesses, one per 10 s is checked");
        }
    }

    fn route(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            // On a disk that is read-only since the start there is no log thread. Only watermarks
            // come here, and a lost watermark costs nothing.
            Action::Append(_) if self.shared.is_read_only => {}
            Action::Append(append) => self.log_work.push(LogWork::Append(append)),
            Action::Fetch(fetch) => {
                self.under_way += 1;
                self.base_work.push(BaseWork::Fetch(fetch));
            }
            Action::Checkpoint(checkpoint) if self.shared.is_read_only => {
                // As the only owner of the changes, the machine need not copy them.
                drop(checkpoint);
                let reason = "the disk is read-only".to_owned();
                self.server.handle(self.now, Event::CheckpointFailed { reason });
            }
            Action::Checkpoint(checkpoint) => {
                self.under_way += 1;
                self.shared.checkpoint.push(CheckpointWork::Write(checkpoint));
            }
            Action::ReleaseGenerations { below, garbage } => {
                self.base_work.push(BaseWork::Release { below });
                self.completion_work.push(BaseWork::Release { below });
                // Dropping the memtable takes milliseconds, and no entry should wait for that. The
                // checkpoint thread drops it before the next checkpoint, so at most one such memtable
                // is beyond the bound of memory.
                if let Some(memtable) = garbage {
                    self.shared.checkpoint.push(CheckpointWork::Drop(memtable));
                }
            }
            Action::Fail(reason) => return Err(Failure::Failed(reason)),
            Action::Complete(completion) => self.complete(completion),
            Action::Status { ticket: STREAMS_TICKET, mut status } => {
                self.fill_in(&mut status);
                self.shared.statuses.show(status.summary(), std::time::Instant::now());
            }
            Action::Status { ticket, mut status } if ticket & OWN_TICKET != 0 => {
                self.fill_in(&mut status);
                if let Some(question) = self.questions.remove(&ticket) {
                    question.set(Some(*status));
                }
            }
            Action::Connected { conn, reply } if EmbeddedSessions::is_embedded(conn) => self.connected(conn, &reply),
            Action::Reply { conn, xid, zxid, result } if EmbeddedSessions::is_embedded(conn) => {
                if let Some(link) = self.embedded.find(conn) {
                    link.reply(xid, zxid, result);
                }
            }
            Action::Notify { conn, event } if EmbeddedSessions::is_embedded(conn) => {
                if let Some(link) = self.embedded.find(conn) {
                    link.notify(event);
                }
            }
            Action::Close { conn } if EmbeddedSessions::is_embedded(conn) => self.close(conn),
            Action::Status { ticket, mut status } => {
                self.fill_in(&mut status);
                self.send_to_socket(Action::Status { ticket, status });
            }
            to_socket @ (Action::Connected { .. }
            | Action::Reply { .. }
            | Action::Notify { .. }
            | Action::Close { .. }) => self.send_to_socket(to_socket),
            Action::ReadLog(read) => self.log_work.push(LogWork::Read(read)),
            Action::HoldLog { above } => self.log_work.push(LogWork::Hold { above }),
            Action::InstallSnapshot { base } => drop(self.shared.checkpoint.push(CheckpointWork::Install { base })),
            to_peer @ (Action::PeerSend { .. }
            | Action::PeerClose { .. }
            | Action::SendSnapshot { .. }
            | Action::ReceiveSnapshot { .. }
            | Action::DropSnapshot { .. }) => {
                let instruction = links::instruction(&self.shared, to_peer, &mut self.base_work);
                debug_assert!(instruction.is_some(), "a server that is alone has nobody to say anything to");
                self.instructions.extend(instruction);
            }
        }
        Ok(())
    }

    /// Adds the parts of a status that the machine does not know.
    fn fill_in(&self, status: &mut Status) {
        self.account_base();
        self.shared.fill_in(status);
        if let Some(links) = &self.shared.links {
            (status.peers, status.file_voters) = (links.statuses(), links.file_voters());
        }
        status.alarms = status::alarms(status);
    }

    #[cfg(feature = "port")]
    fn send_to_socket(&mut self, action: Action) {
        self.outputs.extend(super::io_thread::output(action));
    }

    #[cfg(not(feature = "port"))]
    fn send_to_socket(&mut self, action: Action) {
        // Without a client port no such connection exists.
        debug_assert!(false, "{action:?} for a socket");
    }

    fn connected(&mut self, conn: ConnId, reply: &ConnectReply) {
        let Some(link) = self.embedded.find(conn).cloned() else { return };
        for (xid, request) in link.connected(conn, reply) {
            self.handle(Event::Request { conn, xid, request });
        }
        // Its timeout may be shorter than all others.
        self.next_ping_ms = self.next_ping_ms.map(|_| clock::mono_ms());
    }

    /// Keeps the answer's place in its connection's order; the completion thread fills it.
    fn complete(&mut self, completion: Box<Completion>) {
        match self.keep_place(completion.conn, completion.xid) {
            Some(destination) => self.completion_work.push(BaseWork::Complete(completion, destination)),
            // The connection is gone.
            None => self.handle(Event::Completed { bytes: completion.bytes }),
        }
    }

    fn keep_place(&mut self, conn: ConnId, xid: i32) -> Option<Destination> {
        if EmbeddedSessions::is_embedded(conn) {
            let link = self.embedded.find(conn)?;
            link.pending(conn, xid);
            return Some(Destination::Link(Arc::clone(link)));
        }
        #[cfg(not(feature = "port"))]
        return None;
        #[cfg(feature = "port")]
        {
            let sockets = self.shared.sockets.clone()?;
            self.tickets += 1;
            self.outputs.push(Output::Pending { conn, ticket: self.tickets });
            Some(Destination::Socket { sockets, ticket: self.tickets })
        }
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(link) = self.embedded.close(conn) {
            self.redial.push((clock::mono_ms() + REDIAL_MS, link));
        }
        self.handle(Event::Disconnected { conn });
        self.tell_if_closed();
    }

    /// Tells the shutdown once no session of this process can hold anything.
    ///
    /// A session without a connection is connected again when the server serves, to end it. Without
    /// a leader, the shutdown waits for those that may own ephemerals.
    fn tell_if_closed(&self) {
        let holds = |(_, link): &(u64, Arc<Link>)| link.holds_until_end();
        if self.closing_sessions && self.embedded.is_empty() && !self.redial.iter().any(holds) {
            self.shared.tell_sessions_closed();
        }
    }
}

/// Marks tickets of this process's requests, apart from those of the client port.
const OWN_TICKET: u64 = 1 << 63;

/// The ticket of the requests for streams of the status. Numbered tickets begin at 1.
const STREAMS_TICKET: u64 = OWN_TICKET;
