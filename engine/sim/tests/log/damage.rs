//! Damage to the log.
//!
//! Whichever bit flips, the log never returns a record that was not appended, and never silently
//! loses an acknowledged one.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use std::{io, sync::Arc};
use zoolet_model::Zxid;
use zoolet_sim::disk::{OperationKind, Random, SimDisk};
use zoolet_store::Strategy;
use zoolet_store::log::{Facts, LogError};

/// Returns the disk and the facts of a log over three segments.
///
/// The newest segment has `newest` batches.
fn history(strategy: Strategy, newest: u64) -> (SimDisk, Facts) {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(strategy));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=6 + newest {
        append(&mut log, vec![entry(zxid(1, counter), 200)], zxid(1, counter - 1)).unwrap();
    }
    let facts = log.facts().clone();
    (disk, facts)
}

#[test]
fn flipped_bit_in_the_log_is_found_or_harmless() {
    for strategy in BOTH {
        for newest in 1..=4 {
            let (disk, facts) = history(strategy, newest);
            let last = facts.last;
            let before_last = zxid(1, last.counter() - 1);
            let (whole, _) = open(&disk.after_process_crash(), small(strategy));
            let entries = replay(&whole, Zxid::ZERO);
            let mut random = Random::new(newest);
            let mut damaged = 0;
            for segment in 0..3 {
                let name = format!("seg-{segment:02}.log");
                let Some(contents) = disk.contents(&name) else { continue };
                for offset in (0..contents.len()).filter(|offset| offset % 4096 < 400) {
                    let disk = disk.after_process_crash();
                    assert!(disk.corrupt(&name, offset as u64, 1 << random.below(8)));
                    let story = format!("{strategy:?}, {newest} batches in the newest segment, {name} byte {offset}");
                    let recovered = try_open(&disk, small(strategy))
                        .and_then(|(log, opened)| Ok((try_replay(&log, Zxid::ZERO)?, opened)));
                    match recovered {
                        Ok((found, opened)) if opened.facts.last == last => {
                            assert_eq!((found, opened.facts), (entries.clone(), facts.clone()), "{story}");
                        }
                        // A damaged last batch looks like a torn one.
                        Ok((found, opened)) => {
                            assert_eq!(opened.facts.last, before_last, "{story}");
                            assert_eq!(found, entries[..entries.len() - 1], "{story}");
                        }
                        Err(LogError::Damaged { .. }) => damaged += 1,
                        Err(error) => panic!("{story}: {error}"),
                    }
                }
            }
            assert!(damaged > 1000, "{damaged}");
        }
    }
}

#[test]
fn damage_message_is_one_line_with_file_and_byte() {
    let (disk, _) = history(Strategy::Recycle, 3);
    assert!(disk.corrupt("seg-02.log", 4096 + 70, 1));
    let error = try_open(&disk, small(Strategy::Recycle)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log is damaged: seg-02.log at byte 4096: this batch is not intact, and an intact batch follows at byte 8192"
    );
    assert!(disk.corrupt("seg-02.log", 4096 + 70, 1));
    assert!(disk.corrupt("seg-02.log", 70, 1));
    let error = try_open(&disk, small(Strategy::Recycle)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log is damaged: seg-02.log at byte 0: the first batch is not intact, and an intact batch follows at byte 4096"
    );
}

#[test]
fn damage_below_the_checkpoint_does_not_prevent_a_start() {
    for strategy in BOTH {
        let (disk, facts) = history(strategy, 3);
        assert!(disk.corrupt("seg-00.log", 4096 + 70, 1));
        let (log, _) = open(&disk, small(strategy));
        let error = try_replay(&log, Zxid::ZERO).unwrap_err();
        let line = "the log is damaged: seg-00.log at byte 4096: records between here and seg-01.log are missing";
        assert_eq!(error.to_string(), line);
        assert_eq!(zxids(&log, zxid(1, 6)), counters(1, 7..=facts.last.counter()));
    }
}

#[test]
fn read_error_is_reported_and_truncates_nothing() {
    let (disk, facts) = history(Strategy::Recycle, 3);
    for name in ["seg-00.log", "seg-01.log", "seg-02.log"] {
        disk.fail_with(move |operation| {
            (operation.kind == OperationKind::Read && operation.name == name).then_some(io::ErrorKind::Other)
        });
        assert!(matches!(try_open(&disk, small(Strategy::Recycle)), Err(LogError::Io { .. })), "{name}");
    }
    disk.heal();
    assert_eq!(open(&disk, small(Strategy::Recycle)).1.facts, facts);
}

#[test]
fn segment_of_another_disk_is_refused() {
    let (disk, _) = history(Strategy::Recycle, 3);
    let other = SimDisk::new(1);
    let log = zoolet_store::log::Log::create(
        Arc::new(other.clone()),
        small(Strategy::Recycle),
        Facts::birth(7, DISK_INCARNATION + 1),
    );
    log.unwrap();
    let foreign = other.contents("seg-00.log").unwrap();
    zoolet_store::disk::Disk::open(&disk, "seg-01.log").unwrap().write_at(0, &foreign).unwrap();
    let error = try_open(&disk, small(Strategy::Recycle)).unwrap_err();
    assert!(error.to_string().contains("another disk"), "{error}");
}

#[test]
fn restart_reports_only_the_durable_part_of_a_failed_batch() {
    for strategy in BOTH {
        let mut seen = (0, 0);
        for seed in 0..40 {
            let disk = SimDisk::new(seed);
            let mut log = create(&disk, small(strategy));
            append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
            disk.fail(OperationKind::Sync, io::ErrorKind::Other);
            append(&mut log, vec![entry(zxid(1, 1), 6000)], Zxid::ZERO).unwrap_err();
            disk.heal();
            // Only the process restarts. The page cache shows the whole batch as clean, while the
            // device has a part of it.
            let disk = disk.after_process_crash();
            let (_, opened) = open(&disk, small(strategy));
            let (_, durable) = open(&disk.after_power_loss(0), small(strategy));
            assert_eq!(opened.facts, durable.facts, "what is reported stays");
            if opened.facts.last == zxid(1, 1) { seen.0 += 1 } else { seen.1 += 1 }
        }
        assert!(seen.1 > 0, "{seen:?}");
    }
}
