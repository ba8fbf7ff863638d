//! Memory of the watch table, in bytes per watch.
//!
//! Paths without watches take none. There is a single test, because the counting allocator counts
//! the whole process.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::{alloc::System, hint::black_box, time::Instant};
use zoolet_machine::ConnId;
use zoolet_machine::watch::{ListedBy, Mark, ROWS_MAX, WatchKind, WatchTable};
use zoolet_model::EventKind;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns a path as long as Curator's lock paths, about 30 bytes.
fn path(n: usize) -> String {
    format!("/site-7/locks/device-{n:08}/c")
}

struct Shape {
    name: &'static str,
    paths: usize,
    watches_per_path: usize,
    connections: usize,
    /// Maximum bytes per watch, everything included.
    bytes_max: usize,
}

// A watch that shares its path or its connection with others takes at most 100 bytes. In the fourth
// shape each watch pays for both alone.
const SHAPES: [Shape; 6] = [
    Shape {
        name: "200k watches over 50k paths",
        paths: 50_000,
        watches_per_path: 4,
        connections: 1_000,
        bytes_max: 100,
    },
    Shape {
        name: "1 path, 100k connections",
        paths: 1,
        watches_per_path: 100_000,
        connections: 100_000,
        bytes_max: 100,
    },
    Shape { name: "100k paths, 1 connection", paths: 100_000, watches_per_path: 1, connections: 1, bytes_max: 100 },
    Shape {
        name: "100k paths, each its own connection",
        paths: 100_000,
        watches_per_path: 1,
        connections: 100_000,
        bytes_max: 128,
    },
    Shape {
        name: "100k paths, two watches each",
        paths: 100_000,
        watches_per_path: 2,
        connections: 500,
        bytes_max: 100,
    },
    Shape {
        name: "10k paths, 20 watches each",
        paths: 10_000,
        watches_per_path: 20,
        connections: 1_000,
        bytes_max: 100,
    },
];

fn fill(shape: &Shape) -> WatchTable {
    let mut table = WatchTable::new(1_000_000, usize::MAX, 0x5eed);
    for n in 0..shape.paths {
        let path = path(n);
        for w in 0..shape.watches_per_path {
            let conn = ConnId(((n * shape.watches_per_path + w) % shape.connections) as u64);
            table.add(conn, &path, WatchKind::Data).unwrap();
        }
    }
    table
}

#[test]
#[expect(clippy::print_stdout, reason = "the numbers are what docs/explanation/measurements.md quotes")]
fn watches_take_at_most_128_bytes_and_unwatched_paths_take_none() {
    for shape in &SHAPES {
        let region = Region::new(COUNTED);
        let mut table = fill(shape);
        let change = region.change();
        let used = change.bytes_allocated - change.bytes_deallocated;
        let blocks = change.allocations - change.deallocations;
        let watches = shape.paths * shape.watches_per_path;
        assert_eq!(table.watches() as usize, watches);
        assert_eq!(table.paths() as usize, shape.paths);
        assert_eq!(table.connections(), shape.connections);
        let estimate = table.bytes();

        let unwatched: Vec<String> = (0..1000).map(|n| format!("/site-7/locks/device-{n:08}/d")).collect();
        let region = Region::new(COUNTED);
        let start = Instant::now();
        let rounds = 200;
        for _ in 0..rounds {
            for path in &unwatched {
                table.fire(EventKind::NodeDataChanged, black_box(path), &mut |_| panic!("nobody watches"));
            }
        }
        let nanoseconds = start.elapsed().as_nanos() as usize / (rounds * unwatched.len());
        let allocated = region.change().allocations;

        println!(
            "{}: {} bytes per watch ({blocks} blocks, own estimate {}), a fire nobody waits for {nanoseconds} ns",
            shape.name,
            used / watches,
            estimate / watches,
        );
        assert!(used <= shape.bytes_max * watches, "{}: {} bytes per watch", shape.name, used / watches);
        assert!(estimate * 10 >= used * 7 && estimate * 7 <= used * 10, "{}: {estimate} is not {used}", shape.name);
        assert_eq!(allocated, 0, "{}", shape.name);

        for conn in 0..shape.connections {
            table.drop_connection(ConnId(conn as u64));
        }
        assert_eq!((table.watches(), table.paths(), table.connections()), (0, 0, 0));
    }
    a_page_of_one_connections_watches_takes_little_in_the_worst_order();
}

/// The worst order for listing one connection's watches.
///
/// Paths are numbered as they arrive, and a list follows these numbers. A client that watches them
/// in reverse order makes each look find a smaller number every time.
fn a_page_of_one_connections_watches_takes_little_in_the_worst_order() {
    const WATCHES: usize = 200_000;
    let mut table = WatchTable::new(u32::MAX, usize::MAX, 0x5eed);
    (0..WATCHES).for_each(|n| table.add(ConnId(2), &path(n), WatchKind::Data).unwrap());
    (0..WATCHES).rev().for_each(|n| table.add(ConnId(1), &path(n), WatchKind::Data).unwrap());
    table.drop_connection(ConnId(2));
    let (mut from, mut rows) = (Some(Mark::default()), 0);
    while let Some(mark) = from {
        let region = Region::new(COUNTED);
        from = table.page(ListedBy::Connection, mark, ROWS_MAX, &mut |_, _| rows += 1);
        let change = region.change();
        assert!(change.allocations + change.reallocations <= 20, "{change:?}");
        assert!(change.bytes_allocated <= 128 << 10, "{change:?}");
    }
    assert_eq!(rows, WATCHES);
}
