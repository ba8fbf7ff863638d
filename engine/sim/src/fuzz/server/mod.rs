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

mod actions;
mod bounds;
mod clients;
mod disks;
mod end;
mod operators;

use super::listing::Listing;
use super::{Target, script};
use crate::one_server::{Conditions, Durable, Logged, Records, start};
use crate::replica::Replica;
use crate::workload::{Random, Workload};
use bounds::{settings, tiny};
use bytes::Bytes;
use clients::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_machine::seam::action::{Checkpoint, Completion, Fetch, Generation, LogRecord};
use zoolet_machine::seam::event::List;
use zoolet_machine::{ConnId, Event, Now, Server, Status};
use zoolet_model::{SessionId, SessionSecret, Zxid};
use zoolet_zab::AppendSeq;

/// Events chosen byte by byte.
pub(super) const SERVER: Target = Target { name: "server", valid: script, check };

/// Maximum number of events in a run.
const STEPS_MAX: u32 = 3000;
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
}

fn entry_of(record: &LogRecord) -> Option<Zxid> {
    if let LogRecord::Entry { zxid, .. } = record { Some(*zxid) } else { None }
}
