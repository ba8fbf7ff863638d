//! The machine's turns: events in, actions out.

use super::Input;
use super::base::{BaseWork, Destination};
use super::checkpoint::CheckpointWork;
use super::clock;
use super::log::LogWork;
use super::peers;
use super::seat::Driver;
use super::threads::{Failure, Question, Shared};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoolet_engine::action::Completion;
use zoolet_engine::budget::Part;
use zoolet_engine::notices::{AGAIN_MS, Notices};
use zoolet_engine::server::{Refusals, Refused};
use zoolet_engine::status::{self, DiskTrouble, DiskTroubles, Status};
use zoolet_engine::{Action, Budget, ConnId, Event, Now, Server};
use zoolet_model::{ConnectReply, Zxid};
use zoolet_session::{Link, Links, LostReason, Surroundings as _};
use zoolet_transport::peer::Instruction;
#[cfg(feature = "port")]
use zoolet_transport::server::Output;
use zoolet_zab::Role;

/// A turn ends after this many events or this long; then its actions are carried out, so that the disk and the clients never
/// wait for a long queue.
const TURN_EVENTS: usize = 256;
const TURN: Duration = Duration::from_millis(2);

/// How many events share one look at the clocks: some are handled in a fraction of the time that looking takes.
const CLOCK_EVENTS: usize = 16;

/// Entries of the log handled at start between two looks at the clocks and at what is to be done.
const RECOVERY_TURN: u64 = 32;
/// Entries of the log that may wait for records at start: their records are fetched in batches of about this many.
const RECOVERY_WINDOW: usize = 2048;
/// The same for large ones, bytes.
const RECOVERY_WINDOW_BYTES: usize = 4 << 20;

/// How long the other servers may not know what has gone wrong with the disk.
const DISK_LOOK_MS: u64 = 5_000;

/// How long a session of this process waits before it connects again.
const REDIAL_MS: u64 = 100;

/// How far a count that only grows was told, so that the log says it once a minute.
#[derive(Default)]
struct Told {
    count: u64,
    again_at_ms: u64,
}

impl Told {
    /// How much `count` has grown since it was told, if that is to be told now.
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

/// The machine with everything that carries out its actions.
pub(super) struct Core {
    server: Server,
    /// As of the last look at the clocks.
    now: Now,
    shared: Arc<Shared>,
    links: Links,
    redial: Vec<(u64, Arc<Link>)>,
    questions: BTreeMap<u64, Arc<Question>>,
    tickets: u64,
    next_ping_ms: Option<u64>,
    closing_sessions: bool,
    is_handing_over: bool,
    role: Role,
    serving: bool,
    /// What was taken from the inbox and is not handled; if a turn breaks off, whoever waits for one of these still hears of the end.
    batch: VecDeque<Input>,
    log_work: Vec<LogWork>,
    base_work: Vec<BaseWork>,
    completion_work: Vec<BaseWork>,
    #[cfg(feature = "port")]
    outputs: Vec<Output>,
    instructions: Vec<Instruction>,
    /// Whose turn it is.
    driver: Driver,
    /// Sessions refused for all, sessions refused for one address, guesses of the super user: as far as the log says it.
    told: [Told; 3],
    /// What is wrong with the disk, as the machine was told, and when that is looked at again.
    disk_troubles: DiskTroubles,
    disk_look_at_ms: u64,
    disk_notices: Notices,
    /// Questions to the base, and checkpoints, that are not answered yet.
    under_way: usize,
    budget: Arc<Budget>,
    /// Entries that were handed in at start.
    recovered: u64,
    /// Bytes of each of those that are not applied, and their sum.
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
            links: Links::default(),
            redial: Vec::new(),
            questions: BTreeMap::new(),
            tickets: 0,
            next_ping_ms: None,
            closing_sessions: false,
            is_handing_over: false,
            role: Role::Looking,
            serving: false,
            disk_troubles: DiskTroubles::default(),
            disk_look_at_ms: 0,
            disk_notices: Notices::default(),
            batch: VecDeque::new(),
            log_work: Vec::new(),
            base_work: Vec::new(),
            completion_work: Vec::new(),
            #[cfg(feature = "port")]
            outputs: Vec::new(),
            instructions: Vec::new(),
            driver: Driver::Core,
            told: Default::default(),
            under_way: 0,
            budget,
            recovered: 0,
            recovering: VecDeque::new(),
            recovering_bytes: 0,
        }
    }

    /// Hands in one entry of the log; waits when memory would otherwise fill with entries that wait for records.
    pub(super) fn recover(&mut self, zxid: Zxid, payload: Bytes) -> Result<(), Failure> {
        self.recovering.push_back(payload.len());
        self.recovering_bytes += payload.len();
        self.recovered += 1;
        self.handle(Event::Recovered { zxid, payload });
        if self.recovered.is_multiple_of(RECOVERY_TURN) || self.many_wait_for_records() {
            self.carry_out()?;
            self.judge()?;
        }
        // With nothing under way, what waits is above the watermark: the new epoch will commit it.
        while self.many_wait_for_records() && self.under_way > 0 {
            if let Flow::End = self.wait_and_handle()? {
                let why = self.shared.failure();
                return Err(why.unwrap_or_else(|| Failure::Failed("stopped while it started".to_owned())));
            }
        }
        Ok(())
    }

    fn many_wait_for_records(&mut self) -> bool {
        while self.recovering.len() > self.server.unapplied() {
            self.recovering_bytes -= self.recovering.pop_front().unwrap_or_default();
        }
        self.recovering.len() > RECOVERY_WINDOW || self.recovering_bytes > RECOVERY_WINDOW_BYTES
    }

    /// Every entry was handed in: take part.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.recovering = VecDeque::new();
        self.now = clock::now();
        self.server.start(self.now);
        self.carry_out()
    }

    /// Entries that a turn may have to apply.
    pub(super) fn unapplied(&self) -> usize {
        self.server.unapplied()
    }

    /// Handles all there is, then judges what time has passed.
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

    /// Tells the sessions of this process that it is over.
    pub(super) fn end(mut self, reason: LostReason) {
        self.links.lost(reason);
        self.shared.here.timers().end();
        self.redial.drain(..).for_each(|(_, link)| link.lost(reason));
        self.questions.into_values().for_each(|question| question.set(None));
        self.shared.inbox.close();
        let mut left = Vec::from(std::mem::take(&mut self.batch));
        loop {
            for input in left.drain(..) {
                match input {
                    Input::Dial(link) => link.lost(reason),
                    Input::Ask(question) => question.set(None),
                    Input::Event(_) | Input::CloseSessions | Input::HandOver | Input::Stop => {}
                    #[cfg(test)]
                    Input::Panic => {}
                }
            }
            if !self.shared.inbox.take(&mut left, None) {
                return;
            }
        }
    }

    /// Waits for something, and handles all there is.
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
            Input::Dial(link) => self.dial(link),
            Input::Ask(question) => {
                self.tickets += 1;
                let ticket = OWN_TICKET | self.tickets;
                self.questions.insert(ticket, question);
                self.handle(Event::Status { ticket });
            }
            Input::CloseSessions => {
                self.closing_sessions = true;
                self.links.close_all();
                self.tell_if_closed();
            }
            Input::HandOver => {
                self.is_handing_over = true;
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

    /// Reading fills its caches, and merges change its tables, without a word to the core: so it is asked now and then.
    fn account_base(&self) {
        self.budget.set(Part::Base, self.shared.base_memory_bytes());
        self.budget.set(Part::Disk, self.shared.disk_bytes());
    }

    /// Sessions that waited for a server that serves need not wait any longer.
    fn on_serving_changed(&mut self) {
        if self.serving {
            self.shared.tell_serving();
            self.redial.iter_mut().for_each(|(due_ms, _)| *due_ms = 0);
        }
    }

    fn dial(&mut self, link: Arc<Link>) {
        if !self.serving {
            self.redial.push((clock::mono_ms() + REDIAL_MS, link));
            return;
        }
        if let Some(connect) = self.links.dial(link) {
            self.handle(connect);
        }
    }

    /// What time has brought: pings first, so that no session of this process expires by its own process's delay.
    fn judge(&mut self) -> Result<(), Failure> {
        self.now = clock::now();
        let now = self.now.mono_ms;
        if self.next_ping_ms.is_some_and(|due| due <= now) {
            for ping in self.links.pings() {
                self.server.handle(self.now, ping);
            }
            self.next_ping_ms = None;
        }
        self.next_ping_ms = match (self.next_ping_ms, self.links.ping_interval_ms()) {
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
        self.carry_out()
    }

    /// The other servers show it. Nobody wakes up for it alone: a member's heartbeats come more often.
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
        // The thread that waits for the disk cannot say so.
        if troubles.contains(DiskTrouble::Hangs)
            && !before.contains(DiskTrouble::Hangs)
            && let Some(left_out) = self.disk_notices.admit("hangs", self.now.mono_ms)
        {
            tracing::warn!(left_out, "the disk does not answer: writes here wait for it");
        }
        self.handle(Event::DiskTroubles(troubles));
    }

    /// When there is something to do even if nothing arrives, on [`Now::mono_ms`].
    pub(super) fn due_ms(&self) -> Option<u64> {
        let redial = self.redial.iter().map(|(due, _)| *due).min();
        let timer = self.shared.here.timers().next();
        // Not before its instant.
        let timer = timer.map(|at| at.as_secs() * 1000 + u64::from(at.subsec_nanos().div_ceil(1_000_000)));
        [self.server.next_deadline(), self.next_ping_ms, redial, timer].into_iter().flatten().min()
    }

    fn carry_out(&mut self) -> Result<(), Failure> {
        while let Some(action) = self.server.poll_action() {
            self.route(action)?;
        }
        // First what has the longest way: a peer makes an entry durable while this server does.
        if let Some(links) = &self.shared.links {
            links.push(&mut self.instructions);
        }
        self.shared.log.push_all(self.log_work.drain(..));
        // Before the base thread is told: a place must be there when it is filled.
        #[cfg(feature = "port")]
        if let Some(sockets) = &self.shared.sockets {
            sockets.push(&mut self.outputs, self.driver);
        }
        self.shared.base.push_all(self.base_work.drain(..));
        self.shared.completions.push_all(self.completion_work.drain(..));
        self.server.account(&self.budget);
        self.tell_refusals();
        if self.is_handing_over && !self.server.leads() {
            self.shared.tell_handed_over();
        }
        self.tell_role();
        if self.server.is_serving() != self.serving {
            self.serving = !self.serving;
            self.on_serving_changed();
        }
        Ok(())
    }

    /// Who leads is what an operator looks for first.
    fn tell_role(&mut self) {
        let role = self.server.zab().role();
        if role == self.role || self.shared.links.is_none() {
            return;
        }
        self.role = role;
        let epoch = self.server.zab().epoch().as_u32();
        match role {
            Role::Looking => tracing::info!("looking for a leader"),
            Role::Leading => tracing::info!(epoch, "leads"),
            Role::Following(leader) => tracing::info!(epoch, leader = leader.as_u8(), "follows"),
            Role::Observing(leader) => tracing::info!(epoch, leader = leader.as_u8(), "observes"),
        }
    }

    /// An operator whose clients cannot get sessions should find out why; a flood of them must not fill a disk.
    fn tell_refusals(&mut self) {
        let Refusals { sessions, sessions_of_address, super_guesses } = self.server.refusals();
        let [told_all, told_address, told_guesses] = &mut self.told;
        if let Some(refused) = told_all.news(sessions) {
            tracing::warn!(refused, sessions = self.server.sessions_taken(), "no more sessions: sessions_max");
        }
        if let Refused { count, last: Some(client) } = sessions_of_address
            && let Some(refused) = told_address.news(count)
        {
            tracing::warn!(
                %client,
                refused,
                "no more sessions for clients of this address: its share follows from connections_per_address_max"
            );
        }
        if let Refused { count, last: Some(client) } = super_guesses
            && let Some(guesses) = told_guesses.news(count)
        {
            tracing::warn!(%client, guesses, "wrong password for the super user; after a few, one guess in ten seconds is looked at");
        }
    }

    fn route(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Append(append) => self.log_work.push(LogWork::Append(append)),
            Action::Fetch(fetch) => {
                self.under_way += 1;
                self.base_work.push(BaseWork::Fetch(fetch));
            }
            Action::Checkpoint(checkpoint) => {
                self.under_way += 1;
                self.shared.checkpoint.push(CheckpointWork::Write(checkpoint));
            }
            Action::ReleaseGenerations { below, garbage } => {
                self.base_work.push(BaseWork::Release { below, garbage: None });
                // Dropping it takes milliseconds, for which no entry should wait.
                self.completion_work.push(BaseWork::Release { below, garbage });
            }
            Action::Fail(reason) => return Err(Failure::Failed(reason)),
            Action::Complete(completion) => self.complete(completion),
            Action::Status { ticket, mut status } if ticket & OWN_TICKET != 0 => {
                self.fill_in(&mut status);
                if let Some(question) = self.questions.remove(&ticket) {
                    question.set(Some(*status));
                }
            }
            Action::Connected { conn, reply } if Links::is_embedded(conn) => self.connected(conn, &reply),
            Action::Reply { conn, xid, zxid, result } if Links::is_embedded(conn) => {
                if let Some(link) = self.links.find(conn) {
                    link.reply(xid, zxid, result);
                }
            }
            Action::Notify { conn, event } if Links::is_embedded(conn) => {
                if let Some(link) = self.links.find(conn) {
                    link.notify(event);
                }
            }
            Action::Close { conn } if Links::is_embedded(conn) => self.close(conn),
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
                let instruction = peers::instruction(&self.shared, to_peer, &mut self.base_work);
                debug_assert!(instruction.is_some(), "a server that is alone has nobody to say anything to");
                self.instructions.extend(instruction);
            }
        }
        Ok(())
    }

    /// What only whoever drives the machine knows.
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
        self.outputs.extend(super::port::output(action));
    }

    #[cfg(not(feature = "port"))]
    fn send_to_socket(&mut self, action: Action) {
        // Without a port there is no such connection.
        debug_assert!(false, "{action:?} for a socket");
    }

    fn connected(&mut self, conn: ConnId, reply: &ConnectReply) {
        let Some(link) = self.links.find(conn).cloned() else { return };
        for (xid, request) in link.connected(conn, reply) {
            self.handle(Event::Request { conn, xid, request });
        }
        // Its timeout may be shorter than those before.
        self.next_ping_ms = self.next_ping_ms.map(|_| clock::mono_ms());
    }

    /// The answer keeps its place in the connection's order here; the completion thread fills it.
    fn complete(&mut self, completion: Box<Completion>) {
        match self.keep_place(completion.conn, completion.xid) {
            Some(destination) => self.completion_work.push(BaseWork::Complete(completion, destination)),
            // Its connection is gone.
            None => self.handle(Event::Completed { bytes: completion.bytes }),
        }
    }

    fn keep_place(&mut self, conn: ConnId, xid: i32) -> Option<Destination> {
        if Links::is_embedded(conn) {
            let link = self.links.find(conn)?;
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
        if let Some(link) = self.links.close(conn) {
            self.redial.push((clock::mono_ms() + REDIAL_MS, link));
        }
        self.handle(Event::Disconnected { conn });
        self.tell_if_closed();
    }

    fn tell_if_closed(&self) {
        if self.closing_sessions && self.links.is_empty() {
            self.shared.tell_sessions_closed();
        }
    }
}

/// Tells tickets of this process's questions from the client port's.
const OWN_TICKET: u64 = 1 << 63;
