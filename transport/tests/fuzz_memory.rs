//! Bounds the codec's memory by the length of the frame.
//!
//! In a separate file, because the counting allocator sees all threads.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod random;
#[path = "random/targets.rs"]
mod targets;

use bytes::Bytes;
use random::Random;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use zoolet_sim::fuzz::{damage, noise};
use zoolet_transport::wire::client_side::{decode_connect_reply, decode_event, decode_reply};
use zoolet_transport::wire::{DecodeOptions, decode_connect, decode_request};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Maximum bytes of memory per byte of a frame.
///
/// An empty string is 4 bytes on the wire and one `Text` in memory. Invalid UTF-8 triples in size.
const PER_BYTE: usize = 16;
const BESIDES: usize = 1024;

fn decode(target: &str, frame: Bytes) {
    match target {
        "wire_request" => drop(black_box(decode_request(frame, &DecodeOptions { extended_types: true }))),
        "wire_reply" => {
            for shape in targets::SHAPES {
                drop(black_box(decode_reply(frame.clone(), shape)));
            }
        }
        "wire_connect" => {
            drop(black_box(decode_connect(frame.clone())));
            let _ = black_box(decode_connect_reply(frame));
        }
        _ => drop(black_box(decode_event(frame))),
    }
}

#[test]
fn decoding_client_frames_allocates_in_proportion_to_their_bytes() {
    let mut numbers = zoolet_sim::workload::Random::new(7);
    let _ = Random::new(1);
    for target in targets::TARGETS.iter().filter(|target| target.name.starts_with("wire_")) {
        let mut inputs: Vec<Vec<u8>> = (0..500).map(|_| (target.valid)(&mut numbers)).collect();
        inputs.extend(inputs.clone().into_iter().map(|input| damage(&mut numbers, input)));
        inputs.extend((0..100).map(|_| noise(&mut numbers)));
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus").join(target.name);
        inputs.extend(std::fs::read_dir(corpus).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()));
        for input in inputs {
            let (length, frame) = (input.len(), Bytes::from(input));
            let region = Region::new(ALLOCATOR);
            decode(target.name, frame);
            let taken = region.change().bytes_allocated;
            // A reply's frame is decoded once per shape.
            let times = if target.name == "wire_reply" { targets::SHAPES.len() } else { 1 };
            assert!(taken <= times * (PER_BYTE * length + BESIDES), "{}: {taken} bytes for {length}", target.name);
        }
    }
}
