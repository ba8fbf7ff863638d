//! Disk space for a base that is received as a snapshot.
//!
//! The receiver checks for it before it writes the first record, and it is enough.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests may unwrap, and tell what they measured")]

use crate::base_support::{BASE_ID, Model, OPTIONS, create};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::key;
use zoolet_sim::disk::SimDisk;
use zoolet_store::SnapshotSource;
use zoolet_store::base::Base;
use zoolet_store::image::ImageError;

/// Bytes received at a time.
const CHUNK: usize = 64 << 10;

/// Returns a snapshot of about `bytes` bytes.
///
/// Its records have the sizes `sizes` in turn, and their paths `path_bytes` bytes of padding.
fn snapshot(bytes: usize, path_bytes: usize, sizes: &[usize]) -> Vec<u8> {
    let disk = SimDisk::new(1);
    let (base, mut model) = (create(&disk), Model::default());
    let padding = "p".repeat(path_bytes);
    let of_one = |&size: &usize| size + path_bytes + 30;
    let rounds = (bytes / sizes.iter().map(of_one).sum::<usize>()).max(1);
    let changes = sizes.iter().cycle().take(rounds * sizes.len()).enumerate();
    let changes = changes.map(|(at, &size)| {
        let path = format!("/{at:07}{padding}");
        let key = if size > 1024 { key::data(&path) } else { key::znode(&path) };
        (key.unwrap(), Some(Bytes::from(vec![3; size])))
    });
    base.checkpoint(&model.checkpoint(changes.collect())).unwrap();
    let source = SnapshotSource::open(base.reader(), 1).unwrap();
    source.read(0, usize::MAX / 2).unwrap()
}

/// Returns snapshots whose disk usage is hard to predict.
///
/// Their records have these sizes:
/// - the smallest possible
/// - sizes that fill pages badly
/// - just above a power of two of pages
/// - larger than one allocation of redb
/// - several sizes mixed.
fn snapshots() -> impl Iterator<Item = (String, Vec<u8>)> {
    const ALONE: [usize; 13] =
        [0, 100, 1000, 1330, 2000, 4100, 8300, 17_000, 33_000, 66_000, 264_000, 1 << 20, 5 << 20];
    let mixed: [&[usize]; 3] = [&[20, 66_000], &[1330, 4100, 10, 264_000], &[1 << 20, 4000, 3, 3]];
    let shapes = ALONE.chunks(1).chain(mixed);
    let trees = [(64 << 10, 10), (1 << 20, 10), (9 << 20, 10), (2 << 20, 1000), (2 << 20, 5000)];
    shapes.flat_map(move |sizes| {
        trees.map(|(bytes, path_bytes)| {
            (format!("{bytes} bytes, paths of {path_bytes}, {sizes:?}"), snapshot(bytes, path_bytes, sizes))
        })
    })
}

/// Receives a snapshot; returns the peak disk usage and the result.
fn receive(disk: &SimDisk, bytes: &[u8]) -> (u64, Result<Base, ImageError>) {
    let mut sink = Base::receive(Arc::new(disk.clone()), BASE_ID, OPTIONS).unwrap();
    let mut most = disk.used_bytes();
    for chunk in bytes.chunks(CHUNK) {
        let written = sink.write(chunk);
        most = most.max(disk.used_bytes());
        if let Err(error) = written {
            return (most, Err(error));
        }
    }
    let finished = sink.finish().map(|(base, _)| base);
    (most.max(disk.used_bytes()), finished)
}

/// Returns the smallest free space that the receiver accepts at the beginning.
fn asked(bytes: &[u8]) -> u64 {
    let (mut refused, mut taken) = (0, 1 << 30);
    while refused + 4096 < taken {
        let room = (refused + taken) / 2 / 4096 * 4096;
        let disk = SimDisk::new(2);
        let mut sink = Base::receive(Arc::new(disk.clone()), BASE_ID, OPTIONS).unwrap();
        disk.set_capacity(Some(disk.used_bytes() + room));
        if sink.write(&bytes[..4096]).is_ok() { taken = room } else { refused = room }
    }
    taken
}

#[test]
fn snapshot_fits_the_announced_room_and_one_block_less_is_refused() {
    for (story, bytes) in snapshots() {
        let asked = asked(&bytes);
        let disk = SimDisk::new(3);
        let sink = Base::receive(Arc::new(disk.clone()), BASE_ID, OPTIONS).unwrap();
        let newborn = disk.used_bytes();
        drop(sink);
        for (room, is_enough) in [(asked - 4096, false), (asked, true)] {
            let disk = SimDisk::new(4);
            // Add the space of the files that exist before the first byte arrives.
            disk.set_capacity(Some(newborn + room));
            let (most, outcome) = receive(&disk, &bytes);
            match outcome {
                Ok(_) => assert!(is_enough, "{story}"),
                Err(error) => {
                    assert!(!is_enough, "{story}: {asked} bytes are free, {most} were taken, of {}", bytes.len());
                    assert!(matches!(error, ImageError::NoRoom { .. }), "{story}: {error}");
                    assert_eq!(most, newborn, "{story}");
                }
            }
        }
    }
}

/// Prints the figures for `docs/explanation/measurements.md`.
#[test]
#[ignore = "measures"]
fn measure() {
    for (story, bytes) in snapshots() {
        let (most, outcome) = receive(&SimDisk::new(2), &bytes);
        let (length, asked) = (outcome.unwrap().file_bytes(), asked(&bytes));
        let of = |part: u64| part as f64 / bytes.len() as f64;
        eprintln!(
            "{story}: {} bytes come; taken {most}, {:.2} of them; redb's file {:.2}; asked for {asked}, {:.2}",
            bytes.len(),
            of(most),
            of(length),
            of(asked)
        );
    }
}
