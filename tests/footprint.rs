//! What an embedded node takes at its start, of the disk and of memory.
//!
//! A process of its own, so that no other test's memory counts. The figures of
//! `docs/explanation/measurements.md`:
//! `cargo test --release --no-default-features --features embed --test footprint -- --nocapture`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise, and prints figures")]

mod scratch;

use scratch::Scratch;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use zoolet::{Bytes, Config, Node, Wait, path};

const MIB: u64 = 1 << 20;

/// Parts of the smallest profile: the reserve, two segments of the log, and 1 MiB for the rest.
const DISK_BYTES_MAX: u64 = (8 + 2 * 2 + 1) * MIB;

/// The smallest server of an ensemble has 1.1 MiB of its own.
const OWN_BYTES_MAX: u64 = 3 * MIB / 2;

#[test]
fn node_starts_within_the_disk_and_memory_of_the_smallest_profile() {
    let scratch = Scratch::new();
    let before = own_bytes();
    let node = Node::start(Config::new(scratch.join("data"))).unwrap();
    node.ready().wait().unwrap();
    let session = node.session().wait().unwrap();
    session.create(path!("/door"), Bytes::from_static(b"shut")).wait().unwrap();
    let (disk, own) = (disk_bytes(&scratch.join("data")), own_bytes() - before);
    println!("data directory {} KiB, memory of its own {} KiB", disk >> 10, own >> 10);
    for line in fs::read_to_string("/proc/self/smaps_rollup").unwrap().lines().filter(|line| line.contains("ss:")) {
        println!("{line}");
    }
    assert!(disk <= DISK_BYTES_MAX, "{disk} bytes of disk");
    assert!(own <= OWN_BYTES_MAX, "{own} bytes of memory");
    node.shutdown(Duration::from_secs(5)).unwrap();
}

/// Returns the disk space of a directory's files, as `du` counts it.
fn disk_bytes(directory: &Path) -> u64 {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// Returns the memory of this process that is no file, bytes.
fn own_bytes() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
