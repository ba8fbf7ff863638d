//! One server on a virtual clock, over a log and a base with random delays.
//!
//! One seed determines all random choices, so a run can be repeated exactly. Only the machine is
//! real: the log is a list, and the base is a few generations of an ordered map.

mod snapshot;

pub(crate) use snapshot::Snapshot;

use crate::workload::Random;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use zoolet_machine::budget::Budget;
use zoolet_machine::record::key::{self, Key};
use zoolet_machine::record::znode::Znode;
use zoolet_machine::seam::action::{
    Append, Checkpoint, CheckpointMeta, Completion, Fetch, FetchWhat, FirstKeys, Generation, LogRecord, Weighed,
};
use zoolet_machine::seam::event::Fetched;
use zoolet_machine::server::Counts;
use zoolet_machine::state::Changes;
use zoolet_machine::status::Status;
use zoolet_machine::{Action, BaseState, ConnId, Event, Limits, Now, Server, Settings, Start};
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, ServerId, WatchEvent, Zxid};
use zoolet_zab::{AppendSeq, Config, Epoch, Incarnation, Recovered, Spans, Timing};

/// The conditions of a world. Delays are virtual milliseconds, each drawn between 0 and its
/// maximum.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The server's bounds.
    pub limits: Limits,
    /// The operator's settings.
    pub settings: Settings,
    /// Maximum delay until an append is durable.
    pub persist_ms_max: u64,
    /// Maximum delay until the base answers.
    pub fetch_ms_max: u64,
    /// Maximum delay until a checkpoint is durable.
    pub checkpoint_ms_max: u64,
    /// Maximum delay until a completion is carried out.
    pub complete_ms_max: u64,
    /// One in this many checkpoints fails; 0 for none.
    pub checkpoint_fails_one_in: u64,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            settings: Settings::default(),
            persist_ms_max: 3,
            fetch_ms_max: 3,
            checkpoint_ms_max: 20,
            complete_ms_max: 3,
            checkpoint_fails_one_in: 0,
        }
    }
}

/// A message from the server to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The answer to its connect request.
    Connected(ConnectReply),
    /// The answer to a request.
    Reply {
        /// The request's xid.
        xid: i32,
        /// The zxid in the header.
        zxid: i64,
        /// The body, or the error.
        result: Result<Reply, ErrorCode>,
    },
    /// A watch event.
    Event(WatchEvent),
    /// The connection was closed.
    Close,
}

/// An entry as the server proposed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its zxid.
    pub zxid: Zxid,
    /// Its bytes.
    pub payload: Bytes,
}

pub(crate) type Records = BTreeMap<Key, Bytes>;

/// The base after one durable transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durable {
    pub(crate) records: Arc<Records>,
    pub(crate) meta: Option<CheckpointMeta>,
}

#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) seq: AppendSeq,
    pub(crate) records: Vec<LogRecord>,
    pub(crate) watermark: Zxid,
}

/// An event that happens at a scheduled time.
#[derive(Debug)]
enum Happening {
    Persisted(AppendSeq),
    Fetched(Fetch, Arc<Records>),
    Checkpointed(Checkpoint),
    CheckpointFailed,
    Completed(u64, Box<Completion>, Arc<Records>),
    /// A completion whose connection is gone.
    Dropped(u64),
    Disconnected(ConnId),
    LogResumed,
}

/// A place in a connection's outgoing queue.
#[derive(Debug)]
enum Place {
    Ready(Sent),
    /// The completion with this number is not carried out yet.
    Taken(u64),
}

/// One server and everything around it.
#[derive(Debug)]
pub struct World {
    conditions: Conditions,
    random: Random,
    seed: u64,
    now: Now,
    server: Server,
    budget: Budget,
    /// All appends since the last crash, durable or not, behind those that survived it.
    log: Vec<Logged>,
    persisted: AppendSeq,
    last_persist_ms: u64,
    durable: Durable,
    generations: BTreeMap<Generation, Arc<Records>>,
    happenings: BTreeMap<(u64, u64), Happening>,
    count: u64,
    outgoing: BTreeMap<ConnId, VecDeque<Place>>,
    inbox: BTreeMap<ConnId, Vec<Sent>>,
    statuses: Vec<Status>,
    entries: Vec<Entry>,
    digests: BTreeMap<Zxid, u128>,
    counts: BTreeMap<Zxid, Counts>,
    starts: u64,
    /// Steps since time last advanced.
    stalled: u64,
}

const STANDALONE: ServerId = ServerId::STANDALONE;

/// Number of steps without advancing time that counts as a livelock.
const STALLED_MAX: u64 = 50_000;

/// Start of the wall clock, in milliseconds since 1970.
const WALL_MS: i64 = 1_700_000_000_000;

impl World {
    /// Creates a server on an empty disk; it is not started yet.
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self::with_log(conditions, seed, Vec::new(), Durable::default())
    }

    /// Creates a server with these committed entries in its log and an empty base.
    ///
    /// The server is not started yet. It applies the entries while time passes.
    pub fn recovering(conditions: Conditions, seed: u64, entries: &[Entry]) -> Self {
        let records = |entry: &Entry| {
            let record = LogRecord::Entry { zxid: entry.zxid, payload: entry.payload.clone() };
            if entry.zxid.counter() == 0 {
                let epoch = entry.zxid.epoch();
                vec![LogRecord::Promise(epoch), LogRecord::Epoch(epoch), record]
            } else {
                vec![record]
            }
        };
        let mut seq = AppendSeq::default();
        let log = entries
            .iter()
            .map(|entry| {
                let records = records(entry);
                seq = AppendSeq(seq.0 + records.len() as u64);
                Logged { seq, records, watermark: entry.zxid }
            })
            .collect();
        Self::with_log(conditions, seed, log, Durable::default())
    }

    fn with_log(conditions: Conditions, seed: u64, log: Vec<Logged>, durable: Durable) -> Self {
        let now = Now { mono_ms: 1000, wall_ms: WALL_MS };
        let server = Server::new(start(&conditions, seed, &log, &durable), now);
        let mut world = Self {
            budget: Budget::new(&conditions.limits),
            random: Random::new(seed),
            conditions,
            seed,
            now,
            server,
            persisted: log.last().map_or(AppendSeq::default(), |last| last.seq),
            log,
            last_persist_ms: 0,
            generations: BTreeMap::from([(Generation::default(), durable.records.clone())]),
            durable,
            happenings: BTreeMap::new(),
            count: 0,
            outgoing: BTreeMap::new(),
            inbox: BTreeMap::new(),
            statuses: Vec::new(),
            entries: Vec::new(),
            digests: BTreeMap::new(),
            counts: BTreeMap::new(),
            starts: 0,
            stalled: 0,
        };
        world.recover();
        world
    }

    /// Passes the log's entries to the server, as after a start or crash.
    fn recover(&mut self) {
        let records: Vec<LogRecord> = self.log.iter().flat_map(|logged| logged.records.clone()).collect();
        for record in records {
            if let LogRecord::Entry { zxid, payload } = record {
                self.server.handle(self.now, Event::Recovered { zxid, payload });
                self.carry_out();
            }
        }
    }

    /// Starts the server.
    pub fn start(&mut self) {
        self.starts += 1;
        self.server.start(self.now);
        self.carry_out();
    }

    // State of the world.

    /// Returns the machine.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the current time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Returns the world's random numbers.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Returns every proposed entry that no crash lost, in order, from the first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the state's digest after each entry at which the world looked.
    pub fn digests(&self) -> &BTreeMap<Zxid, u128> {
        &self.digests
    }

    /// Returns the server's derived numbers after each entry at which the world looked.
    pub fn counts(&self) -> &BTreeMap<Zxid, Counts> {
        &self.counts
    }

    /// Takes the messages to a connection since the last call.
    pub fn take(&mut self, conn: ConnId) -> Vec<Sent> {
        self.inbox.remove(&conn).unwrap_or_default()
    }

    /// Returns the server's status.
    pub fn status(&mut self) -> Status {
        self.happen(Event::Status { ticket: 1 });
        self.statuses.pop().expect("a status is answered at once")
    }

    // Actions of clients.

    /// Opens a connection with its connect request.
    pub fn connect(&mut self, conn: ConnId, peer: Option<IpAddr>, request: ConnectRequest) {
        self.outgoing.insert(conn, VecDeque::new());
        self.happen(Event::Connect { conn, peer, request });
    }

    /// Sends a request.
    pub fn request(&mut self, conn: ConnId, xid: i32, request: Request) {
        if self.outgoing.contains_key(&conn) {
            self.happen(Event::Request { conn, xid, request });
        }
    }

    /// Breaks a connection; all messages in flight on it are lost.
    pub fn disconnect(&mut self, conn: ConnId) {
        if self.outgoing.remove(&conn).is_some() {
            self.happen(Event::Disconnected { conn });
        }
    }

    /// Returns whether the connection is open.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.outgoing.contains_key(&conn)
    }

    // Passing of time.

    /// Lets `milliseconds` pass, with everything that happens meanwhile.
    pub fn run_for(&mut self, milliseconds: u64) {
        let until_ms = self.now.mono_ms + milliseconds;
        while self.step(until_ms) {}
        self.advance_to(until_ms);
        self.judge();
    }

    /// Lets time pass until nothing is in flight. Later deadlines remain ahead.
    ///
    /// # Panics
    /// If that takes longer than a virtual minute.
    pub fn run_until_quiet(&mut self) {
        let until_ms = self.now.mono_ms + 60_000;
        while !self.happenings.is_empty() || self.server.next_deadline().is_some_and(|at| at <= self.now.mono_ms) {
            assert!(self.step(until_ms), "nothing settles: {:?}", self.happenings);
        }
    }

    /// Handles the next event up to `until_ms`; returns false without such an event.
    fn step(&mut self, until_ms: u64) -> bool {
        let happening = self.happenings.first_key_value().map(|(&(at_ms, _), _)| at_ms);
        let deadline = self.server.next_deadline().map(|at_ms| at_ms.max(self.now.mono_ms));
        let Some(at_ms) = [happening, deadline].into_iter().flatten().min().filter(|&at_ms| at_ms <= until_ms) else {
            return false;
        };
        self.advance_to(at_ms);
        while let Some(entry) = self.happenings.first_entry().filter(|entry| entry.key().0 <= at_ms) {
            let happening = entry.remove();
            self.advance_to(at_ms);
            assert!(self.stalled < STALLED_MAX, "time stands still, over and over: {happening:?}");
            self.take_place(happening);
        }
        self.judge();
        true
    }

    fn advance_to(&mut self, at_ms: u64) {
        self.stalled = if at_ms > self.now.mono_ms { 0 } else { self.stalled + 1 };
        assert!(self.stalled < 2 * STALLED_MAX, "time stands still");
        let passed_ms = at_ms.saturating_sub(self.now.mono_ms);
        self.now.mono_ms += passed_ms;
        self.now.wall_ms += passed_ms as i64;
    }

    /// Checks deadlines, after all events of this moment were handled.
    fn judge(&mut self) {
        if self.server.next_deadline().is_some_and(|at_ms| at_ms <= self.now.mono_ms) {
            self.server.handle_deadline(self.now);
            self.carry_out();
        }
    }

    /// Stalls the log for `milliseconds`, and reports it. Appended records are not lost.
    pub fn stall_log(&mut self, milliseconds: u64) {
        let resumes_ms = self.now.mono_ms + milliseconds;
        let late = |(at_ms, happening): (&(u64, u64), &Happening)| {
            matches!(happening, Happening::Persisted(_)) && at_ms.0 < resumes_ms
        };
        let delayed: Vec<_> = self.happenings.iter().filter(|&happening| late(happening)).map(|(&at, _)| at).collect();
        self.last_persist_ms = self.last_persist_ms.max(resumes_ms);
        self.at(resumes_ms, Happening::LogResumed);
        for at in delayed {
            if let Some(happening) = self.happenings.remove(&at) {
                self.at(resumes_ms, happening);
            }
        }
        self.happen(Event::LogStalled { is_read_only: false });
    }

    /// Kills the process and starts it again, with all connections gone.
    ///
    /// With `power` set, it may also lose appends that are not durable.
    pub fn crash(&mut self, power: bool) {
        // Appends become durable in order, so a prefix of the rest survives.
        let unsynced = self.log.iter().filter(|logged| logged.seq > self.persisted).count();
        let lost = if power && unsynced > 0 { self.random.below(unsynced as u64 + 1) as usize } else { 0 };
        self.log.truncate(self.log.len() - lost);
        // The checkpoint may have become durable without the server hearing of it.
        let writing = self.happenings.values().find_map(|happening| match happening {
            Happening::Checkpointed(checkpoint) => Some(checkpoint.clone()),
            Happening::Persisted(_)
            | Happening::Fetched(..)
            | Happening::CheckpointFailed
            | Happening::Completed(..)
            | Happening::Dropped(_)
            | Happening::Disconnected(_)
            | Happening::LogResumed => None,
        });
        if let Some(checkpoint) = writing.filter(|_| self.random.one_in(2)) {
            self.write_base(&checkpoint);
        }
        let last = last_entry(&self.log);
        self.entries.retain(|entry| entry.zxid <= last);
        self.persisted = self.log.last().map_or(AppendSeq::default(), |last| last.seq);
        self.happenings.clear();
        self.outgoing.clear();
        self.generations = BTreeMap::from([(Generation::default(), self.durable.records.clone())]);
        self.advance_to(self.now.mono_ms + 1);
        let seed = self.seed.wrapping_add(self.starts);
        self.server = Server::new(start(&self.conditions, seed, &self.log, &self.durable), self.now);
        self.recover();
        self.start();
    }

    // Actions of the machine.

    fn happen(&mut self, event: Event) {
        self.server.handle(self.now, event);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        self.server.account(&self.budget);
        while let Some(action) = self.server.poll_action() {
            match action {
                Action::Append(append) => self.append(append),
                Action::Fetch(fetch) => {
                    let base = self.generations.get(&fetch.generation).expect("a generation in use is kept").clone();
                    self.after(self.conditions.fetch_ms_max, Happening::Fetched(fetch, base));
                }
                Action::Checkpoint(checkpoint) => {
                    let fails = self.conditions.checkpoint_fails_one_in;
                    let fails = fails > 0 && self.random.one_in(fails);
                    let end = if fails { Happening::CheckpointFailed } else { Happening::Checkpointed(checkpoint) };
                    self.after(self.conditions.checkpoint_ms_max, end);
                }
                Action::ReleaseGenerations { below, .. } => {
                    self.generations.retain(|&generation, _| generation >= below)
                }
                Action::Connected { conn, reply } => self.send(conn, Sent::Connected(reply)),
                Action::Reply { conn, xid, zxid, result } => self.send(conn, Sent::Reply { xid, zxid, result }),
                Action::Complete(completion) => self.complete(completion),
                Action::Notify { conn, event } => self.send(conn, Sent::Event(event)),
                Action::Close { conn } => self.send(conn, Sent::Close),
                Action::Status { status, .. } => self.statuses.push(*status),
                Action::Fail(reason) => panic!("the server gave up: {reason}"),
                peers @ (Action::PeerSend { .. }
                | Action::PeerClose { .. }
                | Action::ReadLog(_)
                | Action::HoldLog { .. }
                | Action::SendSnapshot { .. }
                | Action::ReceiveSnapshot { .. }
                | Action::DropSnapshot { .. }
                | Action::InstallSnapshot { .. }) => panic!("one voter has no peers: {peers:?}"),
            }
        }
        let applied = self.server.applied();
        if self.digests.insert(applied, self.server.digest()).is_none() {
            self.counts.insert(applied, self.server.counts());
            let wrong = self.server.derived().into_iter().find(|number| !number.is_true());
            assert_eq!(wrong, None, "after {applied:?}");
        }
    }

    fn append(&mut self, Append { seq, records, watermark, .. }: Append) {
        for record in &records {
            if let LogRecord::Entry { zxid, payload } = record {
                self.entries.push(Entry { zxid: *zxid, payload: payload.clone() });
            }
        }
        self.log.push(Logged { seq, records: records.into(), watermark });
        let delay_ms = self.random.below(self.conditions.persist_ms_max + 1);
        // One batch is in flight at a time, so appends become durable in order.
        self.last_persist_ms = self.last_persist_ms.max(self.now.mono_ms + delay_ms);
        self.at(self.last_persist_ms, Happening::Persisted(seq));
    }

    fn complete(&mut self, completion: Box<Completion>) {
        // The completion gets its generation now, so a later release does not affect it.
        let base = self.generations.get(&completion.generation).expect("a generation in use is kept").clone();
        if let Some(queue) = self.outgoing.get_mut(&completion.conn) {
            queue.push_back(Place::Taken(self.count));
            let happening = Happening::Completed(self.count, completion, base);
            self.after(self.conditions.complete_ms_max, happening);
        } else {
            self.after(0, Happening::Dropped(completion.bytes));
        }
    }

    fn after(&mut self, milliseconds_max: u64, happening: Happening) {
        let delay_ms = self.random.below(milliseconds_max + 1);
        self.at(self.now.mono_ms + delay_ms, happening);
    }

    fn at(&mut self, at_ms: u64, happening: Happening) {
        self.count += 1;
        self.happenings.insert((at_ms, self.count), happening);
    }

    fn take_place(&mut self, happening: Happening) {
        let event = match happening {
            Happening::Persisted(seq) => {
                self.persisted = seq;
                let checkpoint = self.durable.meta.as_ref().map_or(Zxid::ZERO, |meta| meta.zxid);
                Event::Persisted { seq, log_bytes_used: self.log_bytes_used(), checkpoint }
            }
            Happening::Fetched(Fetch { id, what, .. }, base) => {
                Event::Fetched { id, result: Ok(look_up(&base, &what)) }
            }
            Happening::Checkpointed(checkpoint) => {
                self.write_base(&checkpoint);
                let newest = self.generations.keys().next_back().map_or(0, |newest| newest.0);
                let generation = Generation(newest + 1);
                self.generations.insert(generation, self.durable.records.clone());
                Event::Checkpointed { generation }
            }
            Happening::CheckpointFailed => Event::CheckpointFailed { reason: "chance".into() },
            Happening::Completed(number, completion, base) => return self.completed(number, &completion, &base),
            Happening::Dropped(bytes) => Event::Completed { bytes },
            Happening::Disconnected(conn) => return self.disconnect(conn),
            Happening::LogResumed => Event::LogResumed,
        };
        self.happen(event);
    }

    fn write_base(&mut self, checkpoint: &Checkpoint) {
        apply_changes(Arc::make_mut(&mut self.durable.records), &checkpoint.changes);
        self.durable.meta = Some(checkpoint.meta.clone());
        // Recovery needs no entry from the log that the base holds. Some are kept, as in a ring.
        let base_zxid = checkpoint.meta.zxid;
        let spare = self.log.iter().take_while(|logged| last_entry(std::slice::from_ref(logged)) <= base_zxid).count();
        let drop_max = spare.saturating_sub(4);
        self.facts_survive(drop_max);
    }

    /// Removes the oldest `count` appends, but keeps their records of epochs.
    fn facts_survive(&mut self, count: usize) {
        let forgotten: Vec<Logged> = self.log.drain(..count).collect();
        let restated: Vec<LogRecord> = forgotten
            .into_iter()
            .flat_map(|logged| logged.records)
            .filter(|record| !matches!(record, LogRecord::Entry { .. }))
            .collect();
        if let Some(first) = self.log.first_mut() {
            first.records.splice(0..0, restated);
        }
    }

    fn log_bytes_used(&self) -> u64 {
        let base_zxid = self.durable.meta.as_ref().map_or(Zxid::ZERO, |meta| meta.zxid);
        let above = self.entries.iter().rev().take_while(|entry| entry.zxid > base_zxid);
        above.map(|entry| entry.payload.len() as u64).sum()
    }

    fn completed(&mut self, number: u64, completion: &Completion, base: &Arc<Records>) {
        let (result, failure) = completion.run(&Snapshot(base));
        assert_eq!(failure, None, "a base that is whole answers");
        let sent = Sent::Reply { xid: completion.xid, zxid: completion.zxid, result };
        if let Some(queue) = self.outgoing.get_mut(&completion.conn)
            && let Some(place) = queue.iter_mut().find(|place| matches!(place, Place::Taken(taken) if *taken == number))
        {
            *place = Place::Ready(sent);
        }
        self.deliver(completion.conn);
        self.happen(Event::Completed { bytes: completion.bytes });
    }

    fn send(&mut self, conn: ConnId, sent: Sent) {
        if let Some(queue) = self.outgoing.get_mut(&conn) {
            queue.push_back(Place::Ready(sent));
        }
        self.deliver(conn);
    }

    fn deliver(&mut self, conn: ConnId) {
        let Some(queue) = self.outgoing.get_mut(&conn) else { return };
        let inbox = self.inbox.entry(conn).or_default();
        while let Some(Place::Ready(_)) = queue.front() {
            let Some(Place::Ready(sent)) = queue.pop_front() else { return };
            let closes = sent == Sent::Close;
            inbox.push(sent);
            if closes {
                return self.after(1, Happening::Disconnected(conn));
            }
        }
    }
}

/// Returns a server's starting point: the state of its log, and its base.
pub(crate) fn start(conditions: &Conditions, seed: u64, log: &[Logged], durable: &Durable) -> Start {
    let (mut accepted, mut current) = (Epoch::ZERO, Epoch::ZERO);
    let mut history = Spans::EMPTY;
    if let Some(meta) = &durable.meta {
        restate(&mut history, meta.zxid);
    }
    let mut committed = durable.meta.as_ref().map_or(Zxid::ZERO, |meta| meta.zxid);
    for logged in log {
        committed = committed.max(logged.watermark);
        for record in &logged.records {
            match record {
                LogRecord::Promise(epoch) => accepted = accepted.max(*epoch),
                LogRecord::Epoch(epoch) => current = current.max(*epoch),
                LogRecord::Entry { zxid, .. } if *zxid > history.last() || history.iter().next().is_none() => {
                    restate(&mut history, *zxid);
                }
                LogRecord::Entry { .. } | LogRecord::Birth { .. } | LogRecord::Config { .. } => {}
                other => panic!("one voter logs nothing like {other:?}"),
            }
        }
    }
    let base = durable.meta.as_ref().map(|meta| {
        let sessions = durable.records.iter().filter(|(key, _)| key[0] == key::SESSION);
        BaseState::read(meta, sessions.map(|(key, record)| (key.clone(), record.clone())))
            .expect("our own base is whole")
    });
    Start {
        limits: conditions.limits,
        settings: conditions.settings.clone(),
        id: STANDALONE,
        members: Config::standalone(STANDALONE),
        timing: Timing::default(),
        recovered: Recovered {
            accepted,
            current,
            history,
            committed,
            appended: log.last().map_or(AppendSeq::default(), |last| last.seq),
            ..Recovered::empty(Incarnation(1), Config::standalone(STANDALONE))
        },
        base,
        chain_at_base: 0,
        seed: std::array::from_fn(|at| (seed >> (at % 8 * 8)) as u8 ^ at as u8),
        log_bytes_used: 0,
    }
}

/// Extends `history` up to and including an entry. Entries purged from the log are in the base.
fn restate(history: &mut Spans, zxid: Zxid) {
    let mut whole = Spans::EMPTY;
    for span in history.iter().filter(|span| span.epoch < zxid.epoch()) {
        whole.push_span(span);
    }
    whole.push_span(zoolet_zab::Span { epoch: zxid.epoch(), last: zxid.counter() });
    *history = whole;
}

fn last_entry(log: &[Logged]) -> Zxid {
    let zxids = log.iter().flat_map(|logged| &logged.records).filter_map(|record| match record {
        LogRecord::Entry { zxid, .. } => Some(*zxid),
        _ => None,
    });
    zxids.last().unwrap_or(Zxid::ZERO)
}

pub(crate) fn apply_changes(records: &mut Records, changes: &Changes) {
    for (key, record) in changes {
        match record {
            Some(record) => drop(records.insert(key.clone(), record.clone())),
            None => drop(records.remove(key)),
        }
    }
}

pub(crate) fn look_up(base: &Records, what: &FetchWhat) -> Fetched {
    match what {
        FetchWhat::Record(key) => Fetched::Record(base.get(key).cloned()),
        FetchWhat::KeysUnder(prefix) => Fetched::Keys(
            base.range(prefix.clone()..)
                .map(|(key, _)| key.clone())
                .take_while(|key| key.starts_with(prefix))
                .collect(),
        ),
        FetchWhat::FirstKeys(from) => {
            FirstKeys::of(base.range(from.clone()..).map(|(key, _)| key).take_while(|key| key[0] == from[0]))
        }
        FetchWhat::Weights { from, to } => {
            let mut weighed = Weighed::default();
            for (key, record) in base.range(from.clone()..to.clone()) {
                if !weighed.has_room() {
                    break;
                }
                weighed.push(key, Znode::decode(record).expect("a stored znode decodes").data.length());
            }
            weighed.finish()
        }
    }
}
