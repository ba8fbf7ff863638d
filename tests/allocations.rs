//! What the requests of a session of this process allocate, counted over all threads of the process, once queues and tables have the size they need.
//!
//! The bounds are what is reached, not what is hoped for: who makes one of them worse has put an allocation on everybody's way. What the caller's own
//! thread allocates is counted in `allocations_caller.rs`: nothing.

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

/// Of so many times each after as many that are not counted, because memory grows to its size.
const TIMES: usize = 1000;

/// Allocations and reallocations of all threads in [`TIMES`] times.
fn counted(mut once: impl FnMut()) -> usize {
    (0..4 * TIMES).for_each(|_| once());
    let region = Region::new(COUNTED);
    (0..TIMES).for_each(|_| once());
    let change = region.change();
    change.allocations + change.reallocations
}

/// One test, because it counts what everybody in the process does.
#[test]
fn a_request_allocates_no_more_than_this_in_the_whole_process() {
    let cycles = Cycles::new();
    assert_eq!(counted(|| cycles.get()), 0, "a get of a kilobyte");
    assert_eq!(counted(|| cycles.exists()), 0, "exists");
    // The znode's new record; and a batch of entries for the log.
    let unwatched = counted(|| cycles.set());
    assert!(unwatched <= 2 * TIMES + SLACK, "a set: {unwatched}");
    // The key of the child, the mark that its session owns it, its record, two new records of its parent; and up to two batches of entries.
    let lock = counted(|| cycles.lock());
    assert!(lock <= 7 * TIMES + SLACK, "a lock taken and released: {lock}");

    let stream = cycles.session.watch(path!("/config"), AddWatchMode::Persistent).wait().unwrap();
    let watched = counted_with_reader(&cycles, stream);
    assert!(watched <= 2 * TIMES + SLACK, "a set that a stream hears of: {watched}");

    // The set, and a watch that is registered and used up: its path and its queue here, its path and its watcher in the machine.
    let once = counted(|| cycles.one_shot());
    assert!(once <= 8 * TIMES + SLACK, "a watch for one change: {once}");
}

/// Tables that grow now and then, and buffers that many share.
const SLACK: usize = TIMES / 2;

/// A set at a time, and a reader on a thread of its own that takes each event.
fn counted_with_reader(cycles: &Cycles, mut stream: zoolet::WatchStream) -> usize {
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
        let total = counted(|| {
            round.wait();
            cycles.set();
            round.wait();
        });
        over.store(true, SeqCst);
        round.wait();
        total
    })
}
