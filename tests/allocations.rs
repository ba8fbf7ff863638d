//! Bounds the allocations of requests and recipes of a session in this process.
//!
//! They are counted over all threads, once queues and tables have their final size. The bounds are
//! the current figures, so a change that adds an allocation to a common path fails. The allocations
//! of the caller's thread are counted in `embedding/allocations_caller.rs`: none, up to a lock.

mod allocations_cycles;
mod scratch;

use allocations_cycles::Cycles;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use zoolet::{AddWatchMode, Wait, path};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the allocations and reallocations per call, over all threads.
///
/// A first series of `times` calls is not counted, because memory grows to its size. The least of
/// several rounds counts: threads that wait for a processor form other batches, and background work
/// of the node falls into some rounds.
fn counted(times: usize, mut once: impl FnMut()) -> f64 {
    (0..times).for_each(|_| once());
    let round = |_| {
        let region = Region::new(COUNTED);
        (0..times).for_each(|_| once());
        let change = region.change();
        (change.allocations + change.reallocations) as f64 / times as f64
    };
    (0..6).map(round).fold(f64::INFINITY, f64::min)
}

/// Entries share the memory that they are encoded in: about eighty per buffer.
const SHARED: f64 = 0.05;

/// Numbers of calls for cycles of one or two writes, and for longer cycles.
const TIMES: usize = 1000;
const FEW_TIMES: usize = 250;

/// One test, because it counts all allocations of the process.
#[test]
fn requests_and_recipes_stay_within_their_allocation_bounds() {
    let cycles = Cycles::new();
    // Before the first set, which makes the data short.
    let get = counted(TIMES, || cycles.get());
    let set = counted(TIMES, || cycles.set());
    let mut table = vec![
        // Name, bound per call, count per call.
        ("a get of a kilobyte", 0.0, get),
        ("exists", 0.0, counted(TIMES, || cycles.exists())),
        // The record.
        ("a set", 1.0 + SHARED, set),
        // A log batch of two entries, when a release comes with the next acquire.
        ("a lock taken and given up", 3.5, counted(TIMES, || cycles.lock())),
        // Path and queue in the session, path and watcher in the server, and the set.
        ("a watch for one change, and the change", 7.5, counted(TIMES, || cycles.one_shot())),
        ("a term in office", 32.0, counted(FEW_TIMES, || cycles.elect())),
        // The create and the delete share memory as sets do.
        ("an item put in and taken", 54.0 + 2.0 * SHARED, counted(FEW_TIMES, || cycles.pass_item())),
    ];
    let stream = cycles.session.watch(path!("/config"), AddWatchMode::Persistent).wait().unwrap();
    table.push(("that a stream hears of a set", SHARED, counted_with_reader(&cycles, stream) - set));
    let is_more = |&(_, most, counted): &(&str, f64, f64)| counted > most;
    assert!(!table.iter().any(is_more), "{table:#?}");
}

/// Sets one at a time, while a reader on another thread takes each event.
fn counted_with_reader(cycles: &Cycles, mut stream: zoolet::WatchStream) -> f64 {
    let (round, over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                round.wait();
                if over.load(SeqCst) {
                    return;
                }
                assert!(stream.next().wait().is_some());
                round.wait();
            }
        });
        let total = counted(TIMES, || {
            round.wait();
            cycles.set();
            round.wait();
        });
        over.store(true, SeqCst);
        round.wait();
        total
    })
}
