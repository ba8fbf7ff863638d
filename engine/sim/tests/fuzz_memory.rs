//! A decoder's memory is bounded by its input.
//!
//! The test has its own file, because the counting allocator sees all threads.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use zoolet_machine::record::acl;
use zoolet_machine::record::znode::Znode;
use zoolet_machine::sessions::prove;
use zoolet_machine::txn;
use zoolet_sim::disk::SimDisk;
use zoolet_sim::fuzz::{TARGETS, damage, noise};
use zoolet_sim::workload::Random;
use zoolet_store::Strategy;
use zoolet_store::base::{Base, Options};
use zoolet_store::disk::Disk;
use zoolet_store::image::Image;
use zoolet_store::log::{Log, LogOptions};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the bytes that `decode` allocates in all, freed or not.
fn taken(decode: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    decode();
    region.change().bytes_allocated
}

/// Memory bound of one decoder: per byte of input, plus a constant.
struct Bound {
    target: &'static str,
    decode: fn(&[u8]),
    per_byte: usize,
    besides: usize,
}

const BOUNDS: [Bound; 7] = [
    // An operation of 10 bytes becomes an `Op` of about 90, and a vector grows by doubling.
    Bound { target: "entry", decode: |bytes| drop(black_box(txn::decode(bytes))), per_byte: 40, besides: 256 },
    // An entry of 12 bytes becomes two texts.
    Bound { target: "acl", decode: |bytes| drop(black_box(acl::decode(bytes))), per_byte: 24, besides: 1024 },
    Bound { target: "record", decode: |bytes| take(Znode::decode(bytes).is_ok()), per_byte: 0, besides: 0 },
    Bound {
        target: "auth",
        decode: |bytes| drop(black_box(prove(Some("digest"), Some(bytes), None))),
        per_byte: 8,
        besides: 256,
    },
    // The simulated disk holds the file in four copies. A window of 16 KiB grows to at most 256
    // KiB.
    Bound { target: "log_bytes", decode: open_log, per_byte: 24, besides: 1 << 20 },
    Bound { target: "image", decode: open_image, per_byte: 24, besides: 1 << 16 },
    Bound { target: "base_sealed", decode: open_base, per_byte: 24, besides: 1 << 20 },
];

fn take<T>(decoded: T) {
    black_box(decoded);
}

fn file(name: &str, bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create(name).and_then(|file| file.write_at(0, bytes)).unwrap();
    disk
}

fn open_log(bytes: &[u8]) {
    let options = LogOptions { segment_bytes: 16 << 10, segments: 4, strategy: Strategy::Append };
    take(Log::open(Arc::new(file("seg-00.log", bytes)), options).is_ok());
}

fn open_image(bytes: &[u8]) {
    if let Ok(image) = Image::open_pread(&file("tree.img", bytes), "tree.img") {
        take(image.verify().is_ok());
    }
}

fn open_base(bytes: &[u8]) {
    let disk = Arc::new(file("base-3.manifest", bytes));
    take(
        Base::open(
            disk,
            3,
            Options { cache_bytes: 1 << 16, merge_step_bytes: 1 << 14, runs_max: 2, table_bytes_max: 1 << 20 },
        )
        .is_ok(),
    );
}

#[test]
fn decoders_allocate_memory_in_proportion_to_their_input() {
    let mut random = Random::new(7);
    for Bound { target, decode, per_byte, besides } in BOUNDS {
        let target = TARGETS.iter().find(|known| known.name == target).unwrap();
        let mut inputs: Vec<Vec<u8>> = (0..200).map(|_| (target.valid)(&mut random)).collect();
        inputs.extend(inputs.clone().into_iter().map(|input| damage(&mut random, input)));
        inputs.extend((0..100).map(|_| noise(&mut random)));
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target.name);
        inputs.extend(std::fs::read_dir(corpus).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()));
        // Thousands of the smallest possible elements take the most memory for each byte.
        let header = [&[0; 16][..], &[2], &[0; 10]].concat();
        let refused = [6, 0xff, 0xff, 0xff, 0xff].repeat(20_000);
        inputs.push([&header[..], &[0; 4], &20_000_u32.to_le_bytes(), &refused].concat());
        inputs.push([&header[..], &10_000_u32.to_le_bytes(), &[0; 80_000]].concat());
        inputs.push(vec![0; 120_000]);
        for input in inputs {
            let bytes = taken(|| decode(&input));
            let most = per_byte * input.len() + besides;
            assert!(bytes <= most, "{}: {bytes} bytes for an input of {}", target.name, input.len());
        }
    }
}
