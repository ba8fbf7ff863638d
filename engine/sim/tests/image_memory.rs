//! A snapshot's memory does not depend on the size of the tree.
//!
//! The test has its own file, because the counting allocator sees all threads.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod base_support;

use base_support::{BASE_ID, Model, OPTIONS, merge};
use bytes::Bytes;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::path::Path;
use std::sync::Arc;
use zoolet_machine::record::key;
use zoolet_store::base::{Base, Options};
use zoolet_store::{FsDisk, SnapshotSource};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHUNK: usize = 128 << 10;
const SMALL_CACHE: Options = Options { cache_bytes: 128 << 10, ..OPTIONS };

fn held() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Returns a base of `znodes` znodes without data, all in redb.
fn base(directory: &Path, znodes: u32) -> Base {
    let disk = Arc::new(FsDisk::open(directory).unwrap());
    let base = Base::create(disk, BASE_ID, SMALL_CACHE).unwrap();
    let mut model = Model::default();
    let all: Vec<u32> = (0..znodes).collect();
    for some in all.chunks(10_000) {
        let znode =
            |number: &u32| (key::znode(&format!("/site/box-{number:08}")).unwrap(), Some(Bytes::from_static(&[7; 40])));
        base.checkpoint(&model.checkpoint(some.iter().map(znode).collect())).unwrap();
        merge(&base, true).unwrap();
    }
    base
}

/// Returns the peak of memory during a transfer, in bytes.
///
/// The second figure is the memory that the new base keeps.
fn transfer(directory: &Path, znodes: u32) -> (usize, usize) {
    let (from, to) = (directory.join("from"), directory.join("to"));
    std::fs::create_dir_all(&from).unwrap();
    std::fs::create_dir_all(&to).unwrap();
    let base = base(&from, znodes);
    let before = held();
    let source = SnapshotSource::open(base.reader(), 0).unwrap();
    let mut most = held();
    let mut sink = Base::receive(Arc::new(FsDisk::open(&to).unwrap()), BASE_ID, SMALL_CACHE).unwrap();
    while sink.received() < source.bytes() {
        let chunk = source.read(sink.received(), CHUNK).unwrap();
        sink.write(&chunk).unwrap();
        most = most.max(held());
    }
    drop(source);
    let source_gone = held();
    let (received, _) = sink.finish().unwrap();
    assert_eq!(received.meta(), base.meta());
    let kept = held();
    drop(received);
    std::fs::remove_dir_all(directory).unwrap();
    (most.max(source_gone) - before, kept - before)
}

#[test]
fn snapshot_memory_does_not_grow_with_the_number_of_znodes() {
    let directory = std::env::temp_dir().join(format!("zoolet-image-memory-{}", std::process::id()));
    let (few, many) = (transfer(&directory, 30_000), transfer(&directory, 130_000));
    // In memory there is a checksum of 4 bytes for each 4 KiB of redb's file, with room to grow.
    let of_checksums = 128 << 10;
    assert!(many.0 < few.0 + of_checksums, "{few:?} {many:?}: held while it is sent and taken in");
    assert!(many.1 < few.1 + of_checksums, "{few:?} {many:?}: held of it afterwards");
}
