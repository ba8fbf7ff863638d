//! Cost of one request in the machine alone, or in the machines of three servers: no socket, disk or
//! other thread.
//!
//! Time is this thread's own CPU time, so a busy machine disturbs it little. Allocations are exact.
//! The bench `instructions` bounds the cost of the same requests.
//!
//! `cargo bench -p zoolet-machine --bench machine`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and stops at the first surprise")]

mod support;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use support::{BATCH, Kind, Machine, Requests, create, path};
use zoolet_model::{CreateKind, CreateMode, Request, WriteOp};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BATCHES: usize = 2000;

fn main() {
    let requests = Requests::new();
    for kind in Kind::ALL {
        measure(&mut Machine::start(kind), &requests, kind);
    }
    close_sessions(&mut Machine::start(Kind::Create));
}

fn measure(machine: &mut Machine, requests: &Requests, kind: Kind) {
    let (mut spent_ns, mut allocations, mut replies) = (0, 0, 0);
    for round in 0..BATCHES {
        let batch = requests.batch(kind, round);
        let (region, began) = (Region::new(ALLOCATOR), cpu_ns());
        let answered = machine.serve(batch);
        if round >= BATCHES / 10 {
            spent_ns += cpu_ns() - began;
            allocations += region.change().allocations;
            replies += answered;
        }
    }
    assert_eq!(replies, (BATCHES - BATCHES / 10) * BATCH);
    println!(
        "{kind:<59} {:>7.0} ns {:>6.2} allocations",
        spent_ns as f64 / replies as f64,
        allocations as f64 / replies as f64
    );
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
        "{:<59} {:>7.0} ns {:>6.2} allocations",
        "an ephemeral's end with its session",
        spent_ns as f64 / (ROUNDS * DEATHS) as f64,
        allocations as f64 / (ROUNDS * DEATHS) as f64
    );
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
