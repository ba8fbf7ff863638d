//! Cost of one request in the machine alone: no socket, disk or other thread.
//!
//! Time is this thread's own CPU time, so a busy machine disturbs it little. Allocations are exact.
//!
//! `cargo bench -p zoolet-machine`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and stops at the first surprise")]

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use zoolet_machine::seam::action::{FetchWhat, FirstKeys};
use zoolet_machine::seam::event::Fetched;
use zoolet_machine::server::Start;
use zoolet_machine::{Action, ConnId, Event, Limits, Now, Server, Settings};
use zoolet_model::{
    ConnectRequest, Create, CreateKind, CreateMode, Request, RequestedAcl, ServerId, Text, WriteOp, Zxid,
};
use zoolet_zab::{Config, Incarnation, Recovered, Timing};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
const CONNECTIONS: u64 = 8;
const KEYS: usize = 1000;
/// Requests per batch of the log, as 8 connections with 64 in flight produce.
const BATCH: usize = 256;
const BATCHES: usize = 2000;

fn main() {
    let mut machine = Machine::start();
    let data = Bytes::from_static(&[7; 100]);
    for at in 0..KEYS {
        machine.request(1, create(path(at), data.clone()));
    }
    machine.settle();
    let paths: Vec<Text> = (0..KEYS).map(path).collect();
    machine.measure("setData of 100 bytes, 1,000 keys", |at| {
        Request::Write(WriteOp::SetData { path: paths[at % KEYS].clone(), data: Some(data.clone()), version: -1 })
    });
    machine.measure("getData of 100 bytes, 1,000 keys", |at| Request::GetData {
        path: paths[at % KEYS].clone(),
        watch: false,
    });
    machine.measure("exists of nothing", |_| Request::Exists { path: Text::from_static("/no"), watch: false });
    machine.measure("create and delete", |at| {
        let name = path(KEYS + at / 2 % KEYS);
        if at % 2 == 0 {
            create(name, data.clone())
        } else {
            Request::Write(WriteOp::Delete { path: name, version: -1 })
        }
    });
    machine.measure("ping", |_| Request::Ping);
    close_sessions(&mut machine);
}

/// Ends sessions that own `DEATHS` ephemerals, each session in one entry.
fn close_sessions(machine: &mut Machine) {
    const DEATHS: usize = 10_000;
    const ROUNDS: usize = 20;
    let (mut spent_ns, mut allocations) = (0, 0);
    for round in 0..ROUNDS {
        let conn = 100 + round as u64;
        machine.connect(conn);
        for first in (0..DEATHS).step_by(1000) {
            let create = |at| match create(path(1_000_000 + at), Bytes::new()) {
                Request::Write(WriteOp::Create(mut create)) => {
                    create.mode = CreateMode::Valid { kind: CreateKind::Ephemeral, sequential: false };
                    WriteOp::Create(create)
                }
                other => panic!("{other:?}"),
            };
            machine.request(conn, Request::Multi((first..first + 1000).map(create).collect()));
        }
        machine.settle();
        let (region, began) = (Region::new(ALLOCATOR), cpu_ns());
        machine.request(conn, Request::CloseSession);
        machine.settle();
        spent_ns += cpu_ns() - began;
        allocations += region.change().allocations;
    }
    println!(
        "{:<40} {:>7.0} ns {:>6.2} allocations",
        "an ephemeral's end with its session",
        spent_ns as f64 / (ROUNDS * DEATHS) as f64,
        allocations as f64 / (ROUNDS * DEATHS) as f64
    );
}

fn path(at: usize) -> Text {
    Text::from(format!("/bench/{at:07}"))
}

fn create(path: Text, data: Bytes) -> Request {
    let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
    Request::Write(WriteOp::Create(Create {
        path,
        data: Some(data),
        acl: Some(RequestedAcl::open()),
        mode,
        with_stat: false,
    }))
}

/// A server whose log is durable at once and whose base is empty.
struct Machine {
    server: Server,
    xid: i32,
}

impl Machine {
    fn start() -> Self {
        let start = Start {
            limits: Limits { memtable_bytes: 1 << 30, ..Limits::default() },
            settings: Settings::default(),
            id: ServerId::STANDALONE,
            members: Config::standalone(ServerId::STANDALONE),
            timing: Timing::default(),
            recovered: Recovered::empty(Incarnation(1), Config::standalone(ServerId::STANDALONE)),
            base: None,
            chain_at_base: 0,
            seed: [7; 32],
            log_bytes_used: 0,
        };
        let mut machine = Self { server: Server::new(start, NOW), xid: 0 };
        machine.server.start(NOW);
        machine.settle();
        (1..=CONNECTIONS).for_each(|conn| machine.connect(conn));
        machine.request(1, create(Text::from_static("/bench"), Bytes::new()));
        machine.settle();
        machine
    }

    fn connect(&mut self, conn: u64) {
        let request = ConnectRequest::for_new_session(30_000);
        self.server.handle(NOW, Event::Connect { conn: ConnId(conn), peer: None, request });
        self.settle();
    }

    fn request(&mut self, conn: u64, request: Request) {
        self.xid += 1;
        self.server.handle(NOW, Event::Request { conn: ConnId(conn), xid: self.xid, request });
    }

    /// Carries out all actions; returns the number of replies.
    fn settle(&mut self) -> usize {
        let mut replies = 0;
        loop {
            while let Some(action) = self.server.poll_action() {
                match action {
                    Action::Append(append) => {
                        let persisted = Event::Persisted { seq: append.seq, log_bytes_used: 0, checkpoint: Zxid::ZERO };
                        self.server.handle(NOW, persisted);
                    }
                    Action::Fetch(fetch) => {
                        let nothing = match fetch.what {
                            FetchWhat::Record(_) => Fetched::Record(None),
                            FetchWhat::KeysUnder(_) => Fetched::Keys(Vec::new()),
                            FetchWhat::FirstKeys(_) => FirstKeys::of([]),
                            FetchWhat::Weights { .. } => Fetched::Weights(Vec::new(), true),
                        };
                        self.server.handle(NOW, Event::Fetched { id: fetch.id, result: Ok(nothing) });
                    }
                    Action::Reply { result, .. } => {
                        result.map(drop).or_else(|code| if code.code() == -101 { Ok(()) } else { Err(code) }).unwrap();
                        replies += 1;
                    }
                    Action::Connected { .. } | Action::Close { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            // One call applies only a part of the committed entries.
            if self.server.unapplied() == 0 {
                return replies;
            }
            self.server.handle_deadline(NOW);
        }
    }

    fn measure(&mut self, what: &str, request: impl Fn(usize) -> Request) {
        // Requests are built before the measurement; the codec is measured elsewhere.
        let mut at = 0;
        let (mut spent_ns, mut allocations, mut replies) = (0, 0, 0);
        for round in 0..BATCHES {
            let batch: Vec<Request> = (at..at + BATCH).map(&request).collect();
            at += BATCH;
            let (region, began) = (Region::new(ALLOCATOR), cpu_ns());
            for (at, request) in batch.into_iter().enumerate() {
                // Each connection sends contiguous requests, so a znode's create and delete keep
                // their order.
                self.request(1 + at as u64 / (BATCH as u64 / CONNECTIONS), request);
            }
            let answered = self.settle();
            if round >= BATCHES / 10 {
                spent_ns += cpu_ns() - began;
                allocations += region.change().allocations;
                replies += answered;
            }
        }
        assert_eq!(replies, (BATCHES - BATCHES / 10) * BATCH);
        println!(
            "{what:<40} {:>7.0} ns {:>6.2} allocations",
            spent_ns as f64 / replies as f64,
            allocations as f64 / replies as f64
        );
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
