//! What fuzzing has found, one story each. The inputs themselves are in tests/fuzz/corpus.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

mod log_support;

use log_support::{append, create, entry, open_epoch, small, try_open, zxid};
use zoolet_engine::store::{Strategy, disk::Disk, log::LogError};
use zoolet_model::Zxid;
use zoolet_sim::disk::SimDisk;

/// A device showed zeroes where the first block of the newest segment had been: the file was taken for one that was never used, and the log
/// opened without the acknowledged entries in it.
#[test]
#[ignore = "waits for a mend of the store"]
fn a_segment_whose_first_block_reads_as_zeroes_is_damage_and_not_an_unused_one() {
    let disk = SimDisk::new(1);
    let options = small(Strategy::Recycle);
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=6 {
        append(&mut log, vec![entry(zxid(1, counter), 100)], Zxid::ZERO).unwrap();
    }
    drop(log);
    disk.open("seg-01.log").unwrap().write_at(0, &[0; 4096]).unwrap();
    assert!(matches!(try_open(&disk, options), Err(LogError::Damaged { .. })));
}
