//! What the requests and recipes of a session of this process allocate, counted over all threads of the process, once queues and tables have the size
//! they need.
//!
//! The bounds are what is reached, not what is hoped for: who makes one of them worse has put an allocation on everybody's way. What the caller's own
//! thread allocates is counted in `library/allocations_caller.rs`: nothing, up to a lock.

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

/// Allocations and reallocations of all threads each time, of so many times after as many that are not counted, because memory grows to its size. The
/// least of several rounds: threads that wait for a processor come in other batches, and what the node does of itself falls into some of them.
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

/// Entries share the memory that they are encoded in, some eighty of them.
const SHARED: f64 = 0.05;

/// Times of what is one or two writes, and of what is many.
const TIMES: usize = 1000;
const FEW_TIMES: usize = 250;

/// One test, because it counts what everybody in the process does.
#[test]
fn a_request_or_recipe_allocates_no_more_than_this_in_the_whole_process() {
    let cycles = Cycles::new();
    // Before the first set: that makes it short.
    let get = counted(TIMES, || cycles.get());
    let set = counted(TIMES, || cycles.set());
    let mut table = vec![
        // What, at most how many each time, how many.
        ("a get of a kilobyte", 0.0, get),
        ("exists", 0.0, counted(TIMES, || cycles.exists())),
        // The record.
        ("a set", 1.0 + SHARED, set),
        // A batch of two for the log, when giving up comes with taking it again.
        ("a lock taken and given up", 3.5, counted(TIMES, || cycles.lock())),
        // Its path and its queue here, its path and its watcher in the machine; and the set.
        ("a watch for one change, and the change", 7.5, counted(TIMES, || cycles.one_shot())),
        ("a term in office", 32.0, counted(FEW_TIMES, || cycles.elect())),
        ("an item put in and taken", 54.0, counted(FEW_TIMES, || cycles.pass_item())),
    ];
    let stream = cycles.session.watch(path!("/config"), AddWatchMode::Persistent).wait().unwrap();
    table.push(("that a stream hears of a set", SHARED, counted_with_reader(&cycles, stream) - set));
    let is_more = |&(_, most, counted): &(&str, f64, f64)| counted > most;
    assert!(!table.iter().any(is_more), "{table:#?}");
}

/// A set at a time, and a reader on a thread of its own that takes each event.
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
