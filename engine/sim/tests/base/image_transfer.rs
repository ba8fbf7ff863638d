//! The transfer of a snapshot between servers.
//!
//! The source reads one generation while its base continues. The receiver trusts the snapshot only
//! once it has verified all of it.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{BASE_ID, Model, OPTIONS, Records, Source, assert_holds, contents, create, merge};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::key;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::state::Changes;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::SnapshotSource;
use zoolet_store::base::{Base, BaseSink};
use zoolet_store::disk::Disk;
use zoolet_store::image::{self, ImageError};

const NEW_ID: u64 = BASE_ID + 1;

/// Returns a base of several runs over redb.
///
/// It has large values, a key longer than a block, and an empty record.
fn base(disk: &SimDisk) -> (Base, Model) {
    let (base, mut model, mut random) = (create(disk), Model::default(), Random::new(3));
    for round in 0..6 {
        base.checkpoint(&model.random_checkpoint(&mut random, 150, 60)).unwrap();
        if round == 3 {
            merge(&base, true).unwrap();
        }
    }
    let changes = Changes::from([
        (key::data("/large").unwrap(), Some(Bytes::from(vec![9; 70_000]))),
        (key::znode(&format!("/{}", "n".repeat(9000))).unwrap(), Some(Bytes::from_static(b"long"))),
        (key::reapable("/app"), Some(Bytes::new())),
        (key::znode("/").unwrap(), Some(Bytes::from_static(b"root"))),
    ]);
    base.checkpoint(&model.checkpoint(changes)).unwrap();
    (base, model)
}

fn whole(source: &SnapshotSource) -> Vec<u8> {
    source.read(0, usize::MAX / 2).unwrap()
}

fn begin(disk: &SimDisk) -> BaseSink {
    Base::receive(Arc::new(disk.clone()), NEW_ID, OPTIONS).unwrap()
}

fn receive(disk: &SimDisk, bytes: &[u8], chunk: usize) -> Result<(Base, u128), ImageError> {
    let mut sink = begin(disk);
    for chunk in bytes.chunks(chunk) {
        sink.write(chunk)?;
    }
    sink.finish()
}

fn files(disk: &SimDisk, id: u64) -> Vec<String> {
    let names = disk.list().unwrap();
    names.into_iter().filter(|name| name.starts_with(&format!("base-{id}"))).collect()
}

#[test]
fn snapshot_stream_is_the_image_file_without_its_table() {
    let disk = SimDisk::new(1);
    let (base, model) = base(&disk);
    let source = SnapshotSource::open(base.reader(), 0).unwrap();
    let streamed = whole(&source);
    image::write(&disk, "image", &Source(&model.records), &model.meta()).unwrap();
    let written = disk.contents("image").unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (sparse, totals) = (word(&written, 40), word(&written, 56));
    assert!(streamed[8..40] == written[8..40] && streamed[4096..sparse] == written[4096..sparse]);
    assert_eq!((word(&streamed, 40), word(&streamed, 48)), (sparse, 0));
    let totals_bytes = word(&written, 64);
    assert!(streamed[sparse..sparse + totals_bytes] == written[totals..totals + totals_bytes]);
    assert_eq!(streamed.len(), sparse + 4096);
    let empty = SnapshotSource::open(create(&SimDisk::new(2)).reader(), 0).unwrap();
    assert_eq!(whole(&empty).len() as u64, empty.bytes());
}

/// A server of an earlier build sends the whole image.
#[test]
fn receiver_accepts_a_whole_image_with_its_table() {
    let disk = SimDisk::new(1);
    let (_, model) = base(&disk);
    image::write(&disk, "image", &Source(&model.records), &model.meta()).unwrap();
    let (received, _) = receive(&SimDisk::new(2), &disk.contents("image").unwrap(), 5000).unwrap();
    assert_holds(&received, &model, "as received");
}

/// The same while checkpoints and merges replace the base's files during the transfer.
#[test]
fn stream_ranges_have_the_same_bytes_despite_checkpoints_and_merges() {
    let disk = SimDisk::new(1);
    let (base, mut model) = base(&disk);
    let source = SnapshotSource::open(base.reader(), 77).unwrap();
    let bytes = whole(&source);
    let mut random = Random::new(5);
    let before = disk.counters().written_bytes;
    for _ in 0..200 {
        let from = random.below(bytes.len() as u64 + 1);
        let count_max = if random.coin() { 20_000 } else { 300 };
        let count = random.below(count_max) as usize;
        let to = bytes.len().min(from as usize + count);
        assert!(source.read(from, count).unwrap() == bytes[from as usize..to], "{count} bytes from {from}");
    }
    assert_eq!(disk.counters().written_bytes, before, "nothing is written for it");
    for round in 0..6 {
        base.checkpoint(&model.random_checkpoint(&mut random, 150, 60)).unwrap();
        merge(&base, round % 2 == 0).unwrap();
        let from = random.below(bytes.len() as u64);
        assert!(source.read(from, 30_000).unwrap() == bytes[from as usize..bytes.len().min(from as usize + 30_000)]);
    }
    assert!(whole(&source) == bytes);
    assert_eq!((source.zxid(), source.chain()), (zoolet_model::Zxid::from_bits(7).unwrap(), 77));
}

#[test]
fn snapshot_received_in_any_chunk_size_equals_the_sent_one() {
    let disk = SimDisk::new(1);
    let (base, model) = base(&disk);
    let source = SnapshotSource::open(base.reader(), 77).unwrap();
    let bytes = whole(&source);
    for chunk in [1, 100, 4096, 5000, 64 << 10, bytes.len()] {
        let other = SimDisk::new(2);
        let (received, chain) = receive(&other, &bytes, chunk).unwrap();
        assert_eq!(chain, 77);
        assert_holds(&received, &model, "as received");
        drop(received);
        for image in [other.after_process_crash(), other.after_power_loss(0)] {
            let opened = Base::open(Arc::new(image), NEW_ID, OPTIONS).unwrap();
            assert_holds(&opened, &model, "as opened");
        }
    }
}

#[test]
fn received_base_can_be_written_merged_reopened_and_sent_on() {
    let disk = SimDisk::new(1);
    let (base, mut model) = base(&disk);
    let source = SnapshotSource::open(base.reader(), 1).unwrap();
    let other = SimDisk::new(2);
    let (received, _) = receive(&other, &whole(&source), 9999).unwrap();
    let mut random = Random::new(6);
    for round in 0..12 {
        received.checkpoint(&model.random_checkpoint(&mut random, 60, 80)).unwrap();
        merge(&received, round == 5).unwrap();
        assert_holds(&received, &model, "going on");
    }
    drop(received);
    let opened = Base::open(Arc::new(other.after_power_loss(0)), NEW_ID, OPTIONS).unwrap();
    assert_holds(&opened, &model, "after a power loss");
    // A received base can be sent on.
    let again = SnapshotSource::open(opened.reader(), 2).unwrap();
    let third = SimDisk::new(3);
    assert_holds(&receive(&third, &whole(&again), 7777).unwrap().0, &model, "sent on");
}

#[test]
fn empty_snapshot_makes_an_empty_base() {
    let disk = SimDisk::new(1);
    let source = SnapshotSource::open(create(&disk).reader(), 0).unwrap();
    let other = SimDisk::new(2);
    let (received, chain) = receive(&other, &whole(&source), 1000).unwrap();
    assert_eq!(
        (contents(&received.reader()).unwrap(), received.meta(), chain),
        (Records::new(), Model::default().meta(), 0)
    );
}

#[test]
fn altered_snapshot_is_refused_and_leaves_no_files() {
    let disk = SimDisk::new(1);
    let (base, _) = base(&disk);
    let bytes = whole(&SnapshotSource::open(base.reader(), 77).unwrap());
    let other = SimDisk::new(2);
    let refused = |bytes: &[u8], story: &str| {
        match receive(&other, bytes, 4096) {
            Err(ImageError::Damaged(_)) => {}
            outcome => panic!("{story}: {outcome:?}"),
        }
        assert_eq!(files(&other, NEW_ID), [""; 0], "{story}");
    };
    for at in (0..bytes.len()).step_by(9973).chain((0..130).step_by(5)).chain(bytes.len() - 10..bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        refused(&flipped, &format!("byte {at} of {}", bytes.len()));
    }
    for end in (0..bytes.len()).step_by(19_999).chain([bytes.len() - 1]) {
        refused(&bytes[..end], &format!("cut at {end}"));
    }
    refused(&[&bytes[..], b"x"].concat(), "a byte more");
    // Whole blocks are swapped.
    let mut moved = bytes.clone();
    moved[4096..3 * 4096].rotate_left(4096);
    refused(&moved, "blocks have changed places");
}

/// A receiver must not allocate memory or disk space for false claims in the header.
#[test]
fn snapshot_header_with_excessive_claims_is_refused() {
    let disk = SimDisk::new(1);
    let (base, _) = base(&disk);
    let bytes = whole(&SnapshotSource::open(base.reader(), 77).unwrap());
    let other = SimDisk::new(2);
    let with = |at, value| begin(&other).write(&forged(&bytes, at, value)[..4096]);
    assert!(matches!(with(32, 1 << 50), Err(ImageError::Damaged(_))), "records");
    other.set_capacity(Some(64 << 20));
    assert!(matches!(with(88, 1 << 40), Err(ImageError::NoRoom { .. })), "bytes");
    assert!(with(88, bytes.len() as u64).is_ok());
    assert_eq!(files(&other, NEW_ID), [""; 0]);
}

#[test]
fn snapshot_header_that_does_not_match_its_records_is_refused() {
    let disk = SimDisk::new(1);
    let (base, _) = base(&disk);
    let bytes = whole(&SnapshotSource::open(base.reader(), 77).unwrap());
    let records = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
    for (at, value) in [(16, 1), (24, 1), (32, records - 1), (32, records + 1), (96, 1)] {
        let outcome = receive(&SimDisk::new(2), &forged(&bytes, at, value), 4096);
        assert!(matches!(outcome, Err(ImageError::Damaged(_))), "byte {at}");
    }
    assert!(receive(&SimDisk::new(2), &forged(&bytes, 32, records), 4096).is_ok());
}

/// Returns the bytes with another word in the header and a correct checksum.
fn forged(bytes: &[u8], at: usize, value: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let checksum = crc32c(&bytes[..4092]);
    bytes[4092..4096].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Computes CRC32C (Castagnoli) bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

#[test]
fn snapshot_without_disk_room_is_refused_and_leaves_no_files() {
    let disk = SimDisk::new(1);
    let (base, model) = base(&disk);
    let bytes = whole(&SnapshotSource::open(base.reader(), 77).unwrap());
    let other = SimDisk::new(2);
    other.set_capacity(Some(4 << 20));
    assert!(matches!(receive(&other, &bytes, 4096), Err(ImageError::NoRoom { .. })));
    assert_eq!((files(&other, NEW_ID).len(), other.used_bytes()), (0, 0));
    other.set_capacity(None);
    assert_holds(&receive(&other, &bytes, 4096).unwrap().0, &model, "with room");
}

#[test]
fn damaged_generation_is_not_streamed() {
    let disk = SimDisk::new(1);
    let (base, _) = base(&disk);
    let source = SnapshotSource::open(base.reader(), 77).unwrap();
    let runs = files(&disk, BASE_ID).into_iter().filter(|name| name.ends_with(".run"));
    for name in runs {
        for offset in (4096..disk.contents(&name).unwrap().len() as u64).step_by(4096) {
            assert!(disk.corrupt(&name, offset + 3, 1));
        }
    }
    assert!(source.read(0, 4096).is_ok());
    assert!(matches!(source.read(4096, 1 << 30), Err(ImageError::Source(BaseFailure::Damaged(_)))));
    assert!(matches!(SnapshotSource::open(base.reader(), 77), Err(ImageError::Source(BaseFailure::Damaged(_)))));
}

#[test]
fn replaced_base_keeps_its_files_until_its_last_reader_is_gone() {
    let disk = SimDisk::new(1);
    let (base, model) = base(&disk);
    let reader = base.reader();
    let expected = contents(&reader).unwrap();
    base.retire();
    assert!(base.checkpoint(&model.clone().checkpoint(Changes::default())).is_err(), "nothing more is written to it");
    assert!(base.merge(true).is_err());
    drop(base);
    assert_eq!(contents(&reader).unwrap(), expected, "who reads reads on");
    assert!(files(&disk, BASE_ID).len() > 2);
    drop(reader);
    assert_eq!(files(&disk, BASE_ID), [""; 0]);
}
