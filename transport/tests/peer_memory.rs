//! Bounds the memory of decoding by the bytes received.
//!
//! One test in a separate file, because the counting allocator sees all threads.
#![cfg(feature = "peer")]
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

#[path = "random/peer_targets.rs"]
mod peer_targets;
#[path = "random/peers.rs"]
mod peers;

use bytes::{Bytes, BytesMut};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use zoolet_machine::seam::peer::{Entries, Lane, PeerEntry, PeerMessage};
use zoolet_model::Zxid;
use zoolet_sim::fuzz::{damage, noise};
use zoolet_sim::workload::Random;
use zoolet_transport::peer::codec::*;
use zoolet_zab::{Attempt, Epoch, Message};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn counted(work: impl FnOnce()) -> Stats {
    let region = Region::new(ALLOCATOR);
    work();
    region.change()
}

/// Longer than any frame decoded here.
const FRAME_MAX: usize = 64 << 20;

/// Splits a stream into packets, as QUIC delivers it. Cloning a packet allocates nothing.
fn packets(stream: Vec<u8>) -> Vec<Bytes> {
    let mut stream = Bytes::from(stream);
    std::iter::from_fn(|| (!stream.is_empty()).then(|| stream.split_to(stream.len().min(1452)))).collect()
}

/// Decodes the pieces; returns the number of messages.
fn read(lane: Lane, pieces: &[Bytes]) -> usize {
    let (mut frames, mut messages) = (Frames::new(lane, FRAME_MAX), 0);
    for piece in pieces {
        frames.push(piece.clone());
        while let Ok(Some(message)) = frames.next() {
            black_box(message);
            messages += 1;
        }
    }
    messages
}

#[test]
fn decoding_peer_frames_allocates_in_proportion_to_their_bytes() {
    what_is_decoded_takes_no_more_than_what_came_justifies();
    a_length_alone_costs_no_more_than_one_shared_buffer();
    a_long_frame_has_one_buffer_of_its_own_and_shares_it_with_nobody();
    a_frame_of_entries_costs_at_most_two_allocations_and_its_encoding_none();
    an_ack_costs_its_box();
}

/// Maximum bytes of memory per byte received: an entry of 4 bytes becomes one `PeerEntry`.
const PER_BYTE: usize = size_of::<PeerEntry>() / 4;

fn what_is_decoded_takes_no_more_than_what_came_justifies() {
    let mut random = Random::new(7);
    let target = &peer_targets::TARGETS[0];
    let mut inputs: Vec<Vec<u8>> = (0..1000).map(|_| (target.valid)(&mut random)).collect();
    inputs.extend(inputs.clone().into_iter().map(|input| damage(&mut random, input)));
    inputs.extend((0..200).map(|_| noise(&mut random)));
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus").join(target.name);
    inputs.extend(std::fs::read_dir(corpus).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()));
    for input in inputs {
        let pieces = [Bytes::from(input.clone())];
        for lane in [Lane::Log, Lane::Forward] {
            let pieces = [pieces[0].slice(pieces[0].len().min(1)..)];
            let mut messages = 0;
            let taken = counted(|| messages = read(lane, &pieces)).bytes_allocated;
            // Protocol messages are boxed. The last message may be incomplete.
            let justified = PER_BYTE * input.len() + (messages + 1) * size_of::<Message>() + 2 * SHARED_BYTES;
            assert!(taken <= justified, "{taken} bytes for {messages} messages in {}", input.len());
        }
    }
}

fn a_length_alone_costs_no_more_than_one_shared_buffer() {
    for length in [100_u32, 40_000, 1 << 20, FRAME_MAX as u32] {
        for came in [0, 1, 1000, SHARED_BYTES - 4] {
            let stream = [&length.to_le_bytes()[..], &vec![48; came.min(length as usize - 1)]].concat();
            let pieces = packets(stream);
            let taken = counted(|| assert_eq!(read(Lane::Forward, &pieces), 0)).bytes_allocated;
            assert!(taken <= SHARED_BYTES + 256, "{taken} bytes for {came} of {length}");
        }
    }
    // A length above the maximum is refused at once, and costs no more memory either.
    let pieces = [Bytes::from_static(&[0xff; 8])];
    assert!(counted(|| assert_eq!(read(Lane::Log, &pieces), 0)).bytes_allocated <= SHARED_BYTES + 256);
}

fn a_long_frame_has_one_buffer_of_its_own_and_shares_it_with_nobody() {
    let message = entries(1, 1_000_000);
    let mut out = BytesMut::new();
    encode(&message, &mut out);
    let bytes = out.len();
    let pieces = packets(out.to_vec());
    let mut frames = Frames::new(Lane::Log, FRAME_MAX);
    let mut decoded = None;
    let taken = counted(|| {
        for piece in &pieces {
            frames.push(piece.clone());
            decoded = frames.next().unwrap();
        }
    });
    let Some(PeerMessage::Entries(mut decoded)) = decoded else { panic!("it came whole") };
    assert!(taken.bytes_allocated <= bytes + 2 * SHARED_BYTES, "{taken:?}");
    // The payload is the only user of its buffer.
    assert!(decoded.entries.pop().unwrap().payload.try_into_mut().is_ok());
}

/// Bounds the allocations for entries, the largest traffic between servers.
///
/// `benches/messages.rs` measures their time.
fn a_frame_of_entries_costs_at_most_two_allocations_and_its_encoding_none() {
    const ROUNDS: usize = 1000;
    let message = entries(64, 100);
    let mut out = BytesMut::new();
    encode(&message, &mut out);
    let written = counted(|| {
        for _ in 0..ROUNDS {
            out.clear();
            encode(&message, &mut out);
            black_box(&out);
        }
    });
    assert_eq!((written.allocations, written.reallocations), (0, 0));
    let received = out.freeze();
    let mut frames = Frames::new(Lane::Log, FRAME_MAX);
    // Keeps the last 16 messages, as the engine does.
    let mut kept: Vec<Option<PeerMessage>> = (0..16).map(|_| None).collect();
    let read = counted(|| {
        for round in 0..ROUNDS {
            frames.push(received.clone());
            kept[round % 16] = frames.next().unwrap();
        }
    });
    assert!(read.allocations <= 2 * ROUNDS && read.reallocations == 0, "{read:?}");
}

fn an_ack_costs_its_box() {
    const ROUNDS: usize = 1000;
    let acks: Vec<u8> = {
        let mut out = BytesMut::new();
        let (attempt, epoch) = (Attempt(1), Epoch::new(1).unwrap());
        encode(&PeerMessage::Zab(Box::new(Message::Ack { attempt, epoch, to: Zxid::ZERO })), &mut out);
        out.to_vec()
    };
    let received = Bytes::from(acks.repeat(10));
    let mut frames = Frames::new(Lane::Log, FRAME_MAX);
    let read = counted(|| {
        for _ in 0..ROUNDS {
            frames.push(received.clone());
            while let Ok(Some(ack)) = frames.next() {
                black_box(ack);
            }
        }
    });
    // One box per message, and a buffer that is reused.
    assert!(read.allocations <= 10 * ROUNDS + 3, "{read:?}");
}

fn entries(count: usize, payload_bytes: usize) -> PeerMessage {
    let from = Zxid::first_of(Epoch::new(3).unwrap());
    let mut next = from;
    let entries: Vec<_> = (0..count)
        .map(|_| {
            let zxid = next;
            next = next.next().unwrap();
            PeerEntry { zxid, payload: vec![7; payload_bytes].into() }
        })
        .collect();
    let to = entries.last().unwrap().zxid;
    let (attempt, epoch) = (Attempt(1), Epoch::new(4).unwrap());
    PeerMessage::Entries(Entries { attempt, epoch, from, to, committed: from, chain_before: 5, entries })
}
