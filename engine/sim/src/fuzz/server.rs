//! Drives the machine with events in any order that its runtime or its clients can produce.
//!
//! The runtime owes the machine the following. The runs keep to it, because the machine asserts
//! these rules or documents them at the event:
//!
//! - The entries of the log are passed in before `start`, in order, and `start` is called once.
//! - The clock does not go back. It may stand still and jump, and deadlines may be noticed late.
//! - A connection's number is used for one connection, and no event follows its Disconnected.
//! - Persisted names only records that were appended. It may be late, repeated, or name a part of
//!   an append.
//! - A fetch is answered at most once, by the requested record or keys, or by a failure. A
//!   checkpoint gets exactly one answer.
//! - After `Fail` nothing is carried out.
//!
//! Lists are requested a page at a time, with events between the pages. A row that exists all the
//! time is listed exactly once.
//!
//! Everything else may happen:
//!
//! - requests before a connection's first message, after its last one, and on connections that
//!   never existed,
//! - answers of the disk in any order, late, or as any failure,
//! - a log that stalls and resumes, repeatedly or without reason,
//! - crashes at any step.

use super::listing::{Listing, Row};
use super::{Target, script};
use crate::replica::Replica;
use crate::workload::{Random, Workload};
use crate::world::{Conditions, Durable, Logged, Records, Snapshot, apply_changes, look_up, start};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use zoolet_machine::budget::Part;
use zoolet_machine::record::digest::record_hash;
use zoolet_machine::record::key::{Key, ephemerals_prefix};
use zoolet_machine::seam::action::{Append, BaseRead, Checkpoint, Completion, Fetch, FetchId, Generation, LogRecord};
use zoolet_machine::seam::event::{BaseFailure, Fetched, List, Shortage};
use zoolet_machine::watch::{ListedBy, Mark, ROWS_MAX};
use zoolet_machine::{Action, Budget, ConnId, Event, Limits, Now, Server, Settings, Status};
use zoolet_model::{
    ConnectRequest, Create, CreateKind, CreateMode, Request, SessionId, SessionSecret, SetWatches, Text, WriteOp, Zxid,
};
use zoolet_zab::AppendSeq;

/// Events chosen byte by byte.
pub(super) const SERVER: Target = Target { name: "server", valid: script, check };

/// Maximum number of events in a run.
const STEPS_MAX: u32 = 3000;
/// Bytes of memory that one request may take beyond its bound.
///
/// The bound is checked before the request, which may hold hundreds of paths and need as many large
/// records.
const ONE_REQUEST_BYTES: u64 = 64 << 10;
/// Maximum number of turns in which all work in flight must end.
const TURNS_MAX: u32 = 20_000;

/// Distinguishes tickets of status requests from tickets of lists.
const STATUS_TICKET: u64 = 1 << 63;

fn check(bytes: &[u8]) {
    Run::new(bytes).play();
}

/// Returns every action of the machine, as text, in the run that these bytes choose.
pub fn transcript(bytes: &[u8]) -> Vec<String> {
    let mut run = Run::new(bytes);
    run.transcript = Some(Vec::new());
    run.play();
    run.transcript.unwrap_or_default()
}

/// The expectations of one connection.
#[derive(Debug, Default)]
struct Client {
    /// Xids of its unanswered requests, in order.
    unanswered: VecDeque<i32>,
    /// Its first message was answered.
    connected: bool,
    /// The server said that it closes the connection.
    closed: bool,
    /// Its session, once it has one.
    session: SessionId,
    /// Whether it may be removing watches and setting them again.
    removes_watches: bool,
}

struct Run {
    input: Workload,
    /// Bit mask of the troubles that occur in this run.
    troubles: u16,
    conditions: Conditions,
    server: Server,
    now: Now,
    /// Every record, one by one.
    log: Vec<Logged>,
    persisted: AppendSeq,
    /// The last durable entry.
    durable_zxid: Zxid,
    durable: Durable,
    generations: BTreeMap<Generation, Arc<Records>>,
    fetches: Vec<(Fetch, Arc<Records>)>,
    checkpoint: Option<Checkpoint>,
    completions: Vec<(Completion, Arc<Records>)>,
    clients: BTreeMap<ConnId, Client>,
    connections: u64,
    xid: i32,
    sessions: Vec<(SessionId, SessionSecret)>,
    stalled: bool,
    space_is_short: bool,
    entries: Vec<(Zxid, Bytes)>,
    replica: Replica,
    /// Number of entries that the replica has applied.
    applied: usize,
    /// The newest entry that any client was told of.
    told: Zxid,
    /// Unanswered list requests, by ticket.
    asked: BTreeMap<u64, List>,
    tickets: u64,
    /// The last answer to a list request.
    answer: Option<Box<Status>>,
    listing: Option<Listing>,
    /// A fetch has failed, so the machine may give up.
    harmed: bool,
    failed: bool,
    transcript: Option<Vec<String>>,
}

impl Run {
    fn new(bytes: &[u8]) -> Self {
        let mut random = Random::scripted(bytes);
        let conditions =
            Conditions { limits: tiny(&mut random), settings: settings(&mut random), ..Conditions::default() };
        let troubles = random.below(1 << 16) as u16;
        let now = Now { mono_ms: random.below(3) * 5000, wall_ms: random.bits() as i64 };
        let durable = Durable::default();
        let server = Server::new(start(&conditions, 7, &[], &durable), now);
        Self {
            input: Workload::of(random),
            troubles,
            conditions,
            server,
            now,
            log: Vec::new(),
            persisted: AppendSeq::default(),
            durable_zxid: Zxid::ZERO,
            generations: BTreeMap::from([(Generation::default(), durable.records.clone())]),
            durable,
            fetches: Vec::new(),
            checkpoint: None,
            completions: Vec::new(),
            clients: BTreeMap::new(),
            connections: 0,
            xid: 0,
            sessions: Vec::new(),
            stalled: false,
            space_is_short: false,
            entries: Vec::new(),
            replica: Replica::new(false),
            applied: 0,
            told: Zxid::ZERO,
            asked: BTreeMap::new(),
            tickets: 0,
            answer: None,
            listing: None,
            harmed: false,
            failed: false,
            transcript: None,
        }
    }

    fn play(&mut self) {
        self.server.start(self.now);
        self.carry_out();
        if !self.random().one_in(8) {
            self.settle();
        }
        let mut steps = 0;
        while !self.input.random().is_over() && steps < STEPS_MAX && !self.failed {
            self.step();
            steps += 1;
        }
        if !self.failed {
            self.settle();
            self.everybody_was_answered();
        }
        if !self.failed {
            self.lists_are_whole();
        }
        if !self.failed {
            self.everybody_leaves();
        }
        if !self.failed {
            self.nothing_is_left();
            let digest = self.server.digest();
            self.crash();
            self.settle();
            assert!(self.failed || self.server.digest() == digest, "a restart changes nothing");
        }
    }

    fn random(&mut self) -> &mut Random {
        self.input.random()
    }

    fn below(&mut self, end: usize) -> usize {
        self.random().below(end.max(1) as u64) as usize
    }

    fn step(&mut self) {
        if self.listing.is_some() && self.random().one_in(3) {
            return self.next_page();
        }
        let trouble = 1u16 << self.random().below(16);
        match self.random().below(64) {
            0..=31 => self.request(),
            32..=34 => self.connect(),
            35..=44 => self.persist(),
            45..=54 => self.answer_fetch(),
            55 | 56 => self.end_checkpoint(),
            57..=59 => self.complete(),
            60 => self.time_passes(),
            _ if self.troubles & trouble != 0 => self.trouble(trouble.trailing_zeros()),
            _ => self.deadline(),
        }
    }

    /// Events that occur in some runs only: a run with all of them would get nowhere.
    fn trouble(&mut self, kind: u32) {
        match kind {
            0..=2 => self.disconnect(),
            3 => {
                self.stalled = true;
                self.happen(Event::LogStalled { is_read_only: false });
            }
            4 | 5 => {
                self.stalled = false;
                self.happen(Event::LogResumed);
            }
            6 => {
                let ticket = self.random().bits() | STATUS_TICKET;
                self.happen(Event::Status { ticket });
            }
            7 => self.stray(),
            8 => self.crash(),
            9 => self.fail_fetch(),
            10 => self.fail_checkpoint(),
            11 => self.unread_completion(),
            12 => {
                let is_short = self.random().one_in(2);
                self.room(is_short);
            }
            13 => self.time_passes(),
            _ => self.list(),
        }
    }

    // Requests of operators.

    fn list(&mut self) {
        match self.random().below(4) {
            0 => drop(self.ask(List::Deadlines)),
            1 => {
                let known = self.sessions.iter().map(|(session, _)| *session).collect::<Vec<_>>();
                let session = if known.is_empty() { SessionId(7) } else { *self.random().pick(&known) };
                drop(self.ask(List::Ephemerals(session)));
            }
            by => {
                let by = if by == 2 { ListedBy::Connection } else { ListedBy::Path };
                let rows_max = 1 + self.below(5);
                let there = self.watches();
                self.listing = Some(Listing::begin(by, rows_max, there));
            }
        }
    }

    /// Requests a list; returns the answer if it comes at once.
    fn ask(&mut self, list: List) -> Option<Box<Status>> {
        self.tickets += 1;
        self.asked.insert(self.tickets, list);
        self.answer = None;
        self.happen(Event::List { ticket: self.tickets, list });
        self.answer.take()
    }

    fn next_page(&mut self) {
        let Some(mut listing) = self.listing.take() else { return };
        let (by, from, rows_max) = (listing.by, listing.next, listing.rows_max);
        let page = self.ask(List::Watches { by, from, rows_max }).expect("watches are in memory");
        if !listing.page(page.listed, page.next) {
            self.listing = Some(listing);
        }
    }

    /// Returns all watches on data, requested without events in between.
    fn watches(&mut self) -> BTreeSet<Row> {
        let (by, from, rows_max) = (ListedBy::Path, Mark::default(), ROWS_MAX);
        let page = self.ask(List::Watches { by, from, rows_max }).expect("watches are in memory");
        assert_eq!(page.next, None, "the limits of these runs are far below a page");
        page.listed.into_iter().collect()
    }

    fn answered_list(&mut self, ticket: u64, status: Box<Status>) {
        let list = self.asked.remove(&ticket);
        assert!(list.is_some(), "an answer that nobody waits for: {status:?}");
        self.answer = Some(status);
    }

    /// Drops the rows from the listing's expectations that went, or may have gone and come back.
    fn watch_the_listing(&mut self) {
        let Some(mut listing) = self.listing.take() else { return };
        // The caller of another list request still needs its answer.
        let answer = self.answer.take();
        let there = self.watches();
        self.answer = answer;
        let removing = |client: &&mut Client| client.removes_watches;
        let removing: BTreeSet<_> = self.clients.values_mut().filter(removing).map(|client| client.session).collect();
        listing.retain(|row| there.contains(row) && !removing.contains(&row.0));
        self.clients.values_mut().for_each(|client| client.removes_watches &= !client.unanswered.is_empty());
        self.listing = Some(listing);
    }

    /// Checks, once nothing happens any more, that lists contain exactly the existing rows.
    fn lists_are_whole(&mut self) {
        while self.listing.is_some() {
            self.next_page();
        }
        assert!(self.asked.is_empty() || self.harmed, "nobody answers {:?}", self.asked);
        for by in [ListedBy::Connection, ListedBy::Path] {
            let there = self.watches();
            self.listing = Some(Listing::begin(by, 2, there));
            while self.listing.is_some() {
                self.next_page();
            }
        }
        let deadlines = self.ask(List::Deadlines).expect("sessions are in memory").deadlines;
        let sessions: BTreeSet<SessionId> = deadlines.iter().map(|(_, session)| *session).collect();
        assert_eq!((sessions.len(), sessions.len() as u64), (deadlines.len(), self.server.sessions() as u64));
        for session in sessions {
            let mut status = self.ask(List::Ephemerals(session));
            if status.is_none() {
                self.settle();
                status = self.answer.take();
            }
            let Some(status) = status else {
                assert!(self.failed, "nobody says what {session:?} owns");
                return;
            };
            let prefix = ephemerals_prefix(session);
            let paths = status.listed.iter().map(|(owner, path)| {
                assert_eq!(*owner, session);
                path.as_bytes()
            });
            assert!(paths.eq(self.replica.records.keys().filter_map(|key| key.strip_prefix(&*prefix))));
        }
    }

    // Actions of clients.

    /// Sends a request on any connection, in any state.
    fn request(&mut self) {
        if self.clients.values().all(|client| client.closed) && !self.random().one_in(8) {
            return self.connect();
        }
        let conn = self.some_connection();
        let last = self.server.applied().as_i64();
        let request = match self.random().below(100) {
            0..=3 => self.input.auth(),
            4 => self.input.last_request(),
            5..=9 => self.large_request(),
            _ => self.input.request(last),
        };
        self.xid = self.xid.wrapping_add(1);
        let xid = match self.random().below(30) {
            0 => *self.random().pick(&[-1, -2, -4, -8, 0, i32::MIN, i32::MAX]),
            _ => self.xid,
        };
        if let Some(client) = self.clients.get_mut(&conn)
            && !client.closed
        {
            client.unanswered.push_back(if request == Request::Ping { -2 } else { xid });
            client.removes_watches |= matches!(request, Request::RemoveWatches { .. });
        }
        self.happen(Event::Request { conn, xid, request });
    }

    fn some_connection(&mut self) -> ConnId {
        // Mostly an open connection, sometimes one that was closed, is gone, or never existed.
        let open: Vec<ConnId> =
            self.clients.iter().filter(|(_, client)| !client.closed).map(|(&conn, _)| conn).collect();
        match open.is_empty() || self.random().one_in(20) {
            true => ConnId(self.connections.wrapping_add(1).wrapping_sub(self.random().below(100))),
            false => *self.random().pick(&open),
        }
    }

    fn large_request(&mut self) -> Request {
        let many = self.random().below(300);
        let path = |number: u64| Text::from(format!("/{number}"));
        match self.random().below(4) {
            0 => {
                let data = Bytes::from(vec![b'x'; *self.random().pick(&[1024, 1025, 7000, 8192, 20_000])]);
                Request::Write(WriteOp::SetData { path: "/a".into(), data: Some(data), version: -1 })
            }
            1 => {
                let create = |number| Create {
                    path: path(number),
                    data: None,
                    acl: Some(zoolet_model::RequestedAcl::open()),
                    mode: CreateMode::Valid { kind: CreateKind::Ephemeral, sequential: false },
                    with_stat: true,
                };
                Request::Multi((0..many).map(|number| WriteOp::Create(create(number))).collect())
            }
            2 => {
                let (data, child) = ((0..many).map(path).collect(), (0..many).map(path).collect());
                Request::SetWatches(SetWatches { data, child, ..SetWatches::default() })
            }
            _ => {
                Request::MultiRead((0..many).map(|_| zoolet_model::ReadOp::GetChildren { path: "/".into() }).collect())
            }
        }
    }

    /// Opens a connection, with or without a session, and with a right or wrong password.
    fn connect(&mut self) {
        self.connections += 1;
        let conn = ConnId(self.connections);
        let (session, password) = match (self.random().below(6), self.sessions.len()) {
            (0..=2, 1..) => {
                let count = self.sessions.len();
                let at = self.below(count);
                let (session, secret) = self.sessions[at];
                let right = !self.random().one_in(4);
                (session, Some(Bytes::copy_from_slice(if right { &secret.0 } else { &secret.0[1..] })))
            }
            (3, _) => (SessionId(self.random().bits() as i64), None),
            _ => (SessionId(0), None),
        };
        let request = ConnectRequest {
            last_zxid_seen: if self.random().one_in(20) { self.random().bits() as i64 } else { 0 },
            timeout_ms: *self.random().pick(&[10_000, 40_000, 0, -1, i32::MAX, i32::MIN]),
            session,
            password,
            read_only: [None, Some(false), Some(true)][self.below(3)],
        };
        let peer = if self.random().one_in(4) { None } else { Some([127, 0, 0, 1].into()) };
        self.clients.insert(conn, Client::default());
        self.happen(Event::Connect { conn, peer, request });
    }

    /// Ends a connection, open or closed, or one that is unknown or already gone.
    fn disconnect(&mut self) {
        let conn = self.some_connection();
        self.clients.remove(&conn);
        self.happen(Event::Disconnected { conn });
    }

    // Events of disks.

    /// Makes some appended records durable, or repeats an earlier completion.
    fn persist(&mut self) {
        let durable = self.log.iter().take_while(|logged| logged.seq <= self.persisted).count();
        let more = if self.random().one_in(4) { 0 } else { self.below(self.log.len() - durable + 1) };
        if durable + more == 0 {
            return;
        }
        let back = if self.random().one_in(8) { self.below(durable + more) } else { 0 };
        let seq = self.log[durable + more - 1 - back].seq;
        let lie = if self.random().one_in(10) { self.random().below(1 << 20) } else { 0 };
        self.persisted_up_to(seq, lie);
    }

    /// Reports records as durable.
    ///
    /// `lie` is added to the reported log use in bytes, because segments are coarse.
    fn persisted_up_to(&mut self, seq: AppendSeq, lie: u64) {
        if seq > self.persisted {
            self.persisted = seq;
            let durable = self.log.iter().take_while(|logged| logged.seq <= seq);
            self.durable_zxid = durable.filter_map(|logged| entry_of(&logged.records[0])).last().unwrap_or(Zxid::ZERO);
        }
        let checkpoint = self.durable.meta.as_ref().map_or(Zxid::ZERO, |meta| meta.zxid);
        let above = self.entries.iter().rev().take_while(|(zxid, _)| *zxid > checkpoint);
        let log_bytes_used = above.map(|(_, payload)| payload.len() as u64).sum::<u64>() + lie;
        self.happen(Event::Persisted { seq, log_bytes_used, checkpoint });
    }

    /// Answers some fetches in flight, in any order.
    fn answer_fetch(&mut self) {
        for _ in 0..=self.random().below(16) {
            if self.fetches.is_empty() || self.failed {
                return;
            }
            let count = self.fetches.len();
            let at = self.below(count);
            self.answered(at, None);
        }
    }

    fn fail_fetch(&mut self) {
        if !self.fetches.is_empty() {
            let count = self.fetches.len();
            let (at, damaged) = (self.below(count), self.random().one_in(4));
            let why = "chosen".to_owned();
            self.answered(at, Some(if damaged { BaseFailure::Damaged(why) } else { BaseFailure::Io(why) }));
        }
    }

    fn answered(&mut self, at: usize, failure: Option<BaseFailure>) {
        let (Fetch { id, what, .. }, base) = self.fetches.swap_remove(at);
        self.harmed |= failure.is_some();
        let result = failure.map_or_else(|| Ok(look_up(&base, &what)), Err);
        self.happen(Event::Fetched { id, result });
    }

    fn end_checkpoint(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            self.checkpointed(&checkpoint);
        }
    }

    fn fail_checkpoint(&mut self) {
        if self.checkpoint.take().is_some() {
            self.happen(Event::CheckpointFailed { reason: "chosen".into() });
        }
    }

    fn checkpointed(&mut self, checkpoint: &Checkpoint) {
        self.write_base(checkpoint);
        let newest = self.generations.keys().next_back().map_or(0, |newest| newest.0);
        let generation = Generation(newest + 1);
        self.generations.insert(generation, self.durable.records.clone());
        self.happen(Event::Checkpointed { generation });
        let persisted = self.persisted;
        self.persisted_up_to(persisted, 0);
    }

    fn write_base(&mut self, checkpoint: &Checkpoint) {
        apply_changes(Arc::make_mut(&mut self.durable.records), &checkpoint.changes);
        self.durable.meta = Some(checkpoint.meta.clone());
        let digest =
            self.durable.records.iter().fold(0u128, |sum, (key, record)| sum.wrapping_add(record_hash(key, record)));
        assert_eq!(digest, checkpoint.meta.digest, "a base holds what its digest says");
    }

    /// Carries out any completion in flight.
    fn complete(&mut self) {
        if !self.completions.is_empty() {
            let count = self.completions.len();
            let at = self.below(count);
            self.completed(at, true);
        }
    }

    /// Fails a completion, because its base cannot be read.
    fn unread_completion(&mut self) {
        if !self.completions.is_empty() {
            let count = self.completions.len();
            let at = self.below(count);
            self.completed(at, false);
        }
    }

    fn completed(&mut self, at: usize, works: bool) {
        let (completion, base) = self.completions.swap_remove(at);
        if works {
            let (_, failure) = completion.run(&Snapshot(&base));
            assert_eq!(failure, None, "a base that is whole answers");
        } else {
            let (result, failure) = completion.run(&Unreadable);
            assert!(result.is_err() == failure.is_some(), "a base that cannot be read is no answer");
        }
        self.happen(Event::Completed { bytes: completion.bytes });
    }

    /// Sends answers that were never requested.
    fn stray(&mut self) {
        let id = FetchId(u64::MAX - self.random().below(3));
        let event = match self.random().below(4) {
            0 => Event::Fetched { id, result: Ok(Fetched::Record(None)) },
            1 => Event::Fetched { id, result: Ok(Fetched::Keys(vec![Key::from(*b"n/")])) },
            2 => Event::Fetched { id, result: Err(BaseFailure::Damaged("never asked".into())) },
            _ => Event::Completed { bytes: self.random().bits() },
        };
        self.happen(event);
    }

    /// Reports too little disk space, or enough again. Reports may repeat.
    fn room(&mut self, is_short: bool) {
        self.space_is_short = is_short;
        self.happen(Event::Space { shortage: is_short.then_some(Shortage::Disk) });
    }

    // Passing of time.

    fn time_passes(&mut self) {
        let due_ms = self.server.next_deadline().map_or(0, |due_ms| due_ms.saturating_sub(self.now.mono_ms));
        let late = [due_ms, due_ms + 1, due_ms + 150, due_ms + 201, 60_000, 1 << 36];
        let passed_ms = if self.random().one_in(6) { *self.random().pick(&late) } else { self.random().below(600) };
        self.now.mono_ms += passed_ms;
        self.now.wall_ms = match self.random().below(8) {
            0 => self.random().bits() as i64,
            _ => self.now.wall_ms.wrapping_add(passed_ms as i64),
        };
        if !self.random().one_in(3) {
            self.deadline();
        }
    }

    fn deadline(&mut self) {
        self.server.handle_deadline(self.now);
        self.carry_out();
    }

    /// Kills the process, which may lose records that are not durable, and starts it from the rest.
    fn crash(&mut self) {
        let durable = self.log.iter().take_while(|logged| logged.seq <= self.persisted).count();
        let survive = self.below(self.log.len() - durable + 1);
        self.log.truncate(durable + survive);
        if let Some(checkpoint) = self.checkpoint.take()
            && self.random().one_in(2)
        {
            self.write_base(&checkpoint);
        }
        let last = self.log.iter().rev().find_map(|logged| entry_of(&logged.records[0])).unwrap_or(Zxid::ZERO);
        assert!(self.told <= last, "somebody was told of {:?}, and the log ends at {last:?}", self.told);
        self.entries.retain(|(zxid, _)| *zxid <= last);
        self.persisted = self.log.last().map_or(AppendSeq::default(), |logged| logged.seq);
        self.durable_zxid = last;
        self.fetches.clear();
        self.completions.clear();
        self.clients.clear();
        self.asked.clear();
        self.listing = None;
        (self.stalled, self.space_is_short) = (false, false);
        self.generations = BTreeMap::from([(Generation::default(), self.durable.records.clone())]);
        (self.replica, self.applied) = (Replica::new(false), 0);
        self.server = Server::new(start(&self.conditions, 8, &self.log, &self.durable), self.now);
        for (zxid, payload) in self.entries.clone() {
            self.happen(Event::Recovered { zxid, payload });
        }
        self.server.start(self.now);
        self.carry_out();
    }

    // Actions of the machine.

    fn happen(&mut self, event: Event) {
        self.server.handle(self.now, event);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.server.poll_action() {
            assert!(!self.failed, "a server that gave up wants {action:?}");
            if let Some(transcript) = &mut self.transcript {
                transcript.push(format!("{action:?}"));
            }
            self.obey(action);
        }
        self.follow();
        self.nothing_grows();
        if !self.failed {
            self.watch_the_listing();
        }
    }

    /// Checks that the machine's memory stays within its bounds, plus one request's share.
    fn nothing_grows(&self) {
        let budget = Budget::new(&self.conditions.limits);
        self.server.account(&budget);
        for part in Part::ALL.into_iter().filter(|part| *part != Part::Log) {
            let (held, limit) = (budget.current(part), budget.limit(part));
            let beyond = match part {
                Part::Sessions | Part::Watches => 0,
                // Room is checked when an entry is proposed. Entries in flight become records
                // later, and each record is larger than its entry.
                Part::Memtable => 8 * (u64::from(self.conditions.limits.outstanding_bytes_max) + ONE_REQUEST_BYTES),
                // The cache's tables, and the records that a single entry or request needs at once.
                Part::RecordCache => 4 * ONE_REQUEST_BYTES,
                _ => ONE_REQUEST_BYTES,
            };
            assert!(held <= limit + beyond, "{} holds {held} of {limit}", part.name());
        }
    }

    fn obey(&mut self, action: Action) {
        match action {
            Action::Append(append) => self.append(append),
            Action::Fetch(fetch) => {
                let twice = self.fetches.iter().any(|(other, _)| other.what == fetch.what || other.id == fetch.id);
                assert!(!twice, "{fetch:?} is under way already");
                let base = self.generations.get(&fetch.generation).expect("a generation in use is kept").clone();
                self.fetches.push((fetch, base));
            }
            Action::Checkpoint(checkpoint) => {
                assert!(checkpoint.meta.zxid <= self.durable_zxid, "only what is durable is checkpointed");
                assert!(self.checkpoint.replace(checkpoint).is_none(), "one checkpoint at a time");
            }
            Action::ReleaseGenerations { below, .. } => self.generations.retain(|&generation, _| generation >= below),
            Action::Connected { conn, reply } => {
                let durable = self.durable_zxid.as_i64();
                let client = self.client(conn);
                assert!(!std::mem::replace(&mut client.connected, true), "{conn:?} was answered before");
                if reply.timeout_ms != 0 {
                    assert!(reply.session.0 <= durable, "a session begins before it is durable");
                    client.session = reply.session;
                    if let Some(listing) = &mut self.listing {
                        // Its watches went with its other connection, and may be set again on this
                        // one.
                        listing.retain(|(session, _)| *session != reply.session);
                    }
                    self.tell(reply.session.0);
                    self.sessions.retain(|(session, _)| *session != reply.session);
                    self.sessions.push((reply.session, reply.secret));
                }
            }
            Action::Reply { conn, xid, zxid, .. } => self.reply(conn, xid, zxid),
            Action::Complete(completion) => {
                self.reply(completion.conn, completion.xid, completion.zxid);
                let base = self.generations.get(&completion.generation).expect("a generation in use is kept").clone();
                self.completions.push((*completion, base));
            }
            Action::Notify { conn, event } => {
                let client = self.client(conn);
                assert!(client.connected, "{conn:?} has no session and is told {event:?}");
                let session = client.session;
                if let Some(listing) = &mut self.listing {
                    listing.retain(|row| row.0 != session || row.1 != event.path);
                }
                self.tell(event.zxid);
            }
            Action::Close { conn } => self.client(conn).closed = true,
            Action::Status { ticket, .. } if ticket & STATUS_TICKET != 0 => {}
            Action::Status { ticket, status } => self.answered_list(ticket, status),
            Action::Fail(reason) => {
                assert!(self.harmed, "the server gave up for nothing: {reason}");
                self.failed = true;
            }
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

    /// Returns the client of an outgoing message. It must be connected and not told of a close.
    fn client(&mut self, conn: ConnId) -> &mut Client {
        let client = self.clients.get_mut(&conn).unwrap_or_else(|| panic!("{conn:?} is not there"));
        assert!(!client.closed, "{conn:?} was told that it is closed");
        client
    }

    fn reply(&mut self, conn: ConnId, xid: i32, zxid: i64) {
        self.tell(zxid);
        let client = self.client(conn);
        assert!(client.connected, "{conn:?} is answered before it has a session");
        assert_eq!(
            client.unanswered.pop_front(),
            Some(xid),
            "the answer to {conn:?} is not that to its oldest request"
        );
    }

    /// Records that a client hears of everything up to `zxid`.
    fn tell(&mut self, zxid: i64) {
        let zxid = u64::try_from(zxid).ok().and_then(Zxid::from_bits).unwrap_or(Zxid::ZERO);
        assert!(zxid <= self.durable_zxid, "{zxid:?} is told and only {:?} is durable", self.durable_zxid);
        self.told = self.told.max(zxid);
    }

    fn append(&mut self, Append { seq, records, watermark, .. }: Append) {
        let before = self.log.last().map_or(0, |logged| logged.seq.0);
        assert_eq!(before + records.len() as u64, seq.0, "each record takes one number, without gaps");
        assert!(watermark <= self.durable_zxid, "what is not durable is not committed");
        for (number, record) in (before + 1..).zip(Vec::from(records)) {
            if let LogRecord::Entry { zxid, payload } = &record {
                assert!(self.entries.last().is_none_or(|(last, _)| last < zxid), "entries are appended in order");
                let bytes_max = self.conditions.limits.payload_bytes_max();
                assert!(payload.len() <= bytes_max, "an entry of {} bytes fits no segment", payload.len());
                self.entries.push((*zxid, payload.clone()));
            }
            self.log.push(Logged { seq: AppendSeq(number), records: vec![record], watermark });
        }
    }

    /// Checks that a replica that has only the entries reaches the same state.
    fn follow(&mut self) {
        let before = self.applied;
        while let Some((zxid, payload)) =
            self.entries.get(self.applied).filter(|entry| entry.0 <= self.server.applied())
        {
            self.replica.apply(*zxid, payload).unwrap_or_else(|what| panic!("{what}"));
            self.applied += 1;
        }
        assert!(self.server.applied() <= self.durable_zxid, "applied before it is durable");
        assert_eq!(self.replica.digest, self.server.digest(), "two replicas after {:?}", self.server.applied());
        let wrong = self.server.derived().into_iter().find(|number| !number.is_true());
        assert_eq!(wrong, None, "after {:?}", self.server.applied());
        if self.applied > before {
            let counted = self.replica.counts().unwrap_or_else(|what| panic!("{what}"));
            self.server.counts().agree(&counted).unwrap_or_else(|what| panic!("{what}"));
        }
    }

    // The end of a run.

    /// Completes all work in flight at once, successfully.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let unpersisted = self.log.last().map(|logged| logged.seq).filter(|seq| *seq > self.persisted);
            if self.failed {
                return;
            } else if std::mem::take(&mut self.stalled) {
                self.happen(Event::LogResumed);
            } else if let Some(seq) = unpersisted {
                self.persisted_up_to(seq, 0);
            } else if !self.fetches.is_empty() {
                self.answered(0, None);
            } else if let Some(checkpoint) = self.checkpoint.take() {
                self.checkpointed(&checkpoint);
            } else if !self.completions.is_empty() {
                self.completed(0, true);
            } else if self.server.next_deadline().is_some_and(|due_ms| due_ms <= self.now.mono_ms) {
                self.deadline();
            } else {
                return;
            }
        }
        panic!("nothing settles: {:?}", self.server);
    }

    fn everybody_was_answered(&mut self) {
        // Withdraws the exaggerated log use. A failed checkpoint that other work waits for is
        // retried.
        let persisted = self.persisted;
        self.persisted_up_to(persisted, 0);
        self.settle();
        for (conn, client) in self.clients.iter().filter(|(_, client)| !client.closed) {
            assert!(client.connected, "{conn:?} never heard anything: {:?}", self.server);
            assert!(client.unanswered.is_empty(), "{conn:?} waits for {:?}: {:?}", client.unanswered, self.server);
        }
    }

    /// Ends all connections, and then lets all sessions expire.
    fn everybody_leaves(&mut self) {
        for conn in std::mem::take(&mut self.clients).into_keys() {
            self.happen(Event::Disconnected { conn });
        }
        if self.space_is_short {
            // While space is short, checkpoints are retried forever.
            self.room(false);
        }
        self.settle();
        for _ in 0..TURNS_MAX {
            let Some(due_ms) = self.server.next_deadline() else { return };
            self.now.mono_ms = self.now.mono_ms.max(due_ms);
            self.deadline();
            self.settle();
            if self.failed {
                return;
            }
        }
        panic!("never idle: {:?}", self.server);
    }

    fn nothing_is_left(&mut self) {
        assert_eq!(self.server.sessions(), 0);
        assert_eq!(self.server.unapplied(), 0);
        self.replica.check();
        assert_eq!(self.replica.totals.ephemerals, 0, "ephemerals go with their sessions");
        let budget = Budget::new(&self.conditions.limits);
        self.server.account(&budget);
        for part in [Part::Sessions, Part::Watches, Part::Unapplied, Part::Fetches, Part::Completing] {
            assert_eq!(budget.current(part), 0, "{}", part.name());
        }
        assert_eq!(self.server.under_way(), 0, "{:?}", self.server);
    }
}

fn entry_of(record: &LogRecord) -> Option<Zxid> {
    if let LogRecord::Entry { zxid, .. } = record { Some(*zxid) } else { None }
}

/// Returns bounds of which a handful of requests reaches some. If it reached all, a run would get
/// nowhere.
fn tiny(random: &mut Random) -> Limits {
    let small = crate::machine::tiny_limits();
    let mut one_of = |usual: u32, others: &[u32]| if random.one_in(4) { *random.pick(others) } else { usual };
    Limits {
        sessions_max: one_of(8, &[1, 2]),
        watches_max: one_of(1000, &[0, 1, 5]),
        outstanding_bytes_max: one_of(1 << 16, &[1, 300, 4000]),
        outbound_bytes_max: one_of(1 << 16, &[1, 300, 4000]),
        memtable_bytes: one_of(small.memtable_bytes, &[1, 500, 64 << 10]),
        record_cache_bytes: one_of(small.record_cache_bytes, &[0, 300, 64 << 10]),
        // The configuration refuses fewer than six segments: three are kept free, and a checkpoint
        // starts when half of all segments are in use.
        log_segments: one_of(8, &[6, 7, 9]),
        ..small
    }
}

fn settings(random: &mut Random) -> Settings {
    Settings {
        session_timeout_min_ms: *random.pick(&[4000, 4000, 4000, 0, 1, 60_000]),
        session_timeout_max_ms: *random.pick(&[40_000, 40_000, 40_000, 0, 10, u32::MAX]),
        super_digest: random.one_in(2).then(|| crate::reference::digest_of(crate::workload::SUPER_USER)),
        skip_acl: random.one_in(8),
        container_check_interval_ms: *random.pick(&[60_000, 1, 100]),
        containers_per_minute_max: *random.pick(&[10_000, 0, 1, u32::MAX]),
        ..Settings::default()
    }
}

/// A base on which every read fails.
struct Unreadable;

impl BaseRead for Unreadable {
    fn record(&self, _: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Err(BaseFailure::Io("chosen".into()))
    }

    fn keys(&self, _: &[u8], _: Option<&[u8]>, _: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        Err(BaseFailure::Damaged("chosen".into()))
    }
}
