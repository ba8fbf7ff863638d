//! The state of a log after a restart.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use bytes::Bytes;
use std::{io, sync::Arc};
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::LogRecord;
use zoolet_model::Zxid;
use zoolet_sim::disk::{OperationKind, SimDisk};
use zoolet_store::disk::Disk;
use zoolet_store::log::{AppendError, Facts, Log, LogError, Receiving};
use zoolet_store::{FsDisk, Strategy};

#[test]
fn reopened_log_returns_its_entries_in_order_with_their_bytes() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        for counter in 1..=9 {
            append(&mut log, vec![entry(zxid(1, counter), 2000)], zxid(1, counter - 1)).unwrap();
        }
        let (log, opened) = open(&disk.after_power_loss(0), small(strategy));
        let entries = replay(&log, Zxid::ZERO);
        assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=9));
        assert!(entries[1..].iter().all(|(zxid, payload)| payload[..] == [zxid.to_bits() as u8; 2000]));
        assert_eq!(zxids(&log, zxid(1, 4)), counters(1, 5..=9));
        assert_eq!(zxids(&log, zxid(1, 9)), []);
        assert_eq!((opened.facts.accepted, opened.facts.current), (epoch(1), epoch(1)));
        assert_eq!((opened.facts.watermark, opened.torn_tail), (zxid(1, 8), None));
        let mut chain = 0;
        for (zxid, payload) in &entries {
            chain = chain_after(chain, *zxid, payload);
        }
        assert_eq!(opened.facts.chain, chain);
    }
}

#[test]
fn recovery_keeps_the_uncommitted_tail_above_the_watermark() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, vec![entry(zxid(1, 1), 10)], zxid(1, 0)).unwrap();
    append(&mut log, vec![entry(zxid(1, 2), 10), entry(zxid(1, 3), 10)], zxid(1, 1)).unwrap();
    let (log, opened) = open(&disk.after_process_crash(), small(Strategy::Recycle));
    // These entries are durable but not known to be committed. They belong to the history and count
    // in votes. Only entries up to the watermark may be applied.
    assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=3));
    assert_eq!((opened.facts.watermark, opened.facts.last), (zxid(1, 1), zxid(1, 3)));
}

#[test]
fn recovered_watermark_never_exceeds_the_last_entry() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), zxid(1, 7)).unwrap();
    // If a segment's end splits a batch, only the second part carries the watermark of the whole
    // call.
    append(&mut log, (1..=3).map(|counter| entry(zxid(1, counter), 5000)).collect(), zxid(1, 3)).unwrap();
    for step in 0..disk.steps() {
        let again = SimDisk::new(1);
        again.set_crash_at(step);
        run_split(&again);
        if let Ok((_, opened)) = try_open(&again.after_power_loss(1), small(Strategy::Recycle)) {
            assert!(opened.facts.watermark <= opened.facts.last);
        }
    }
    assert_eq!(log.facts().watermark, zxid(1, 3));
}

fn run_split(disk: &SimDisk) {
    let Ok(mut log) =
        zoolet_store::log::Log::create(std::sync::Arc::new(disk.clone()), small(Strategy::Recycle), birth())
    else {
        return;
    };
    let _ = append(&mut log, open_epoch(1), zxid(1, 7))
        .and_then(|_| append(&mut log, (1..=3).map(|counter| entry(zxid(1, counter), 5000)).collect(), zxid(1, 3)));
}

#[test]
fn recovered_tail_is_synced_before_it_is_reported() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        // The process dies between write and fdatasync, so only the page cache has the entry.
        disk.set_crash_at(disk.steps() + 1);
        append(&mut log, vec![entry(zxid(1, 1), 10)], Zxid::ZERO).unwrap_err();
        let disk = disk.after_process_crash();
        assert_eq!(open(&disk.after_power_loss(0), small(strategy)).1.facts.last, zxid(1, 0));
        let (_, opened) = open(&disk, small(strategy));
        assert_eq!(opened.facts.last, zxid(1, 1), "a vote may now report it");
        assert_eq!(open(&disk.after_power_loss(0), small(strategy)).1.facts.last, zxid(1, 1), "so it must stay");

        disk.fail(OperationKind::Sync, io::ErrorKind::Other);
        assert!(matches!(try_open(&disk, small(strategy)), Err(LogError::Io { .. })), "or nothing is reported");
    }
}

#[test]
fn torn_tail_is_truncated_and_overwritten() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        disk.set_crash_at(disk.steps() + 1);
        append(&mut log, vec![entry_saying(zxid(1, 1), b'x', 7000)], Zxid::ZERO).unwrap_err();
        let mut torn = 0;
        for seed in 2..60 {
            let disk = disk.after_power_loss(seed);
            let (mut log, opened) = open(&disk, small(strategy));
            if opened.facts.last == zxid(1, 1) {
                continue;
            }
            torn += u32::from(opened.torn_tail.is_some());
            assert_eq!(opened.facts.last, zxid(1, 0));
            append(&mut log, vec![entry_saying(zxid(1, 1), b'y', 100)], Zxid::ZERO).unwrap();
            append(&mut log, vec![entry_saying(zxid(1, 2), b'z', 100)], Zxid::ZERO).unwrap();
            let (log, opened) = open(&disk.after_power_loss(0), small(strategy));
            assert_eq!(opened.torn_tail, None);
            let words: Vec<u8> = replay(&log, zxid(1, 0)).iter().map(|(_, payload)| payload[0]).collect();
            assert_eq!(words, b"yz");
        }
        assert!(torn > 5);
    }
}

/// Power failed during a segment's first batch, and its first block did not arrive. In a new file,
/// the rest of the batch may follow the zeroes. In a reused file, batches of its earlier use may
/// follow too.
#[test]
fn zeroed_first_block_of_a_segment_just_begun_is_not_damage() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let mut begun = 0;
        for counter in 1..=24 {
            let (before, facts) = (disk.after_process_crash(), log.facts().clone());
            append(&mut log, vec![entry(zxid(1, counter), 5000)], zxid(1, counter - 1)).unwrap();
            for name in (0..4).map(|number| format!("seg-{number:02}.log")) {
                let [old, new] = [&before, &disk].map(|disk| disk.contents(&name).unwrap_or_default());
                let is_begun = !new.is_empty() && new.get(..64) != old.get(..64);
                if !is_begun {
                    continue;
                }
                begun += 1;
                // The previous segment was not ended yet.
                let torn = before.after_process_crash();
                let file = torn.open(&name).or_else(|_| torn.create(&name)).unwrap();
                file.write_at(0, &[&[0; 4096], &new[4096..]].concat()).unwrap();
                torn.sync_directory().unwrap();
                let (mut log, opened) = open(&torn, small(strategy));
                assert_eq!(opened.facts, facts, "{strategy:?}, {name}, entry {counter}");
                // Overwritten or not, data behind the zeroes never counts again.
                for counter in counter..counter + 9 {
                    log.recycle(zxid(1, counter - 1));
                    append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter - 1)).unwrap();
                    let (log, opened) = open(&torn.after_power_loss(0), small(strategy));
                    assert_eq!(opened.facts.last, zxid(1, counter));
                    assert_eq!(zxids(&log, zxid(1, counter - 1)), [zxid(1, counter)]);
                }
            }
            log.recycle(zxid(1, counter - 1));
            while log.prepare_ahead().unwrap() {}
        }
        assert!(begun > 8, "{strategy:?}: {begun} segments were begun");
    }
}

#[test]
fn recycled_segment_never_resurrects_old_records() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        // Each batch takes one block, so the ring's segments hold old batches exactly where new
        // ones go.
        let mut counter = 0;
        for _ in 0..60 {
            counter += 1;
            append(&mut log, vec![entry_saying(zxid(1, counter), b'o', 100)], zxid(1, counter)).unwrap();
            log.recycle(zxid(1, counter - 1));
            for image in [disk.after_process_crash(), disk.after_power_loss(0), disk.after_power_loss(1)] {
                let (log, opened) = open(&image, small(strategy));
                assert_eq!((opened.facts.last, opened.torn_tail), (zxid(1, counter), None));
                assert_eq!(zxids(&log, zxid(1, counter - 1)), [zxid(1, counter)]);
            }
        }
        assert!(disk.used_bytes() <= log.capacity_bytes(), "the ring went round");
        // Power fails during the newest segment's first batch. Older contents of its file must not
        // come back as the tail.
        let steps = disk.steps();
        while !log.counters().batches.is_multiple_of(4) {
            counter += 1;
            append(&mut log, vec![entry_saying(zxid(1, counter), b'o', 100)], zxid(1, counter)).unwrap();
        }
        assert!(disk.steps() >= steps);
        log.recycle(zxid(1, counter));
        let rotate = disk.steps();
        for step in rotate..rotate + 8 {
            let disk = disk.after_process_crash();
            let (mut log, _) = open(&disk, small(strategy));
            log.recycle(zxid(1, counter));
            disk.set_crash_at(step - rotate + disk.steps());
            let acknowledged =
                append(&mut log, vec![entry_saying(zxid(1, counter + 1), b'n', 100)], Zxid::ZERO).is_ok();
            for seed in 0..20 {
                let (log, opened) = open(&disk.after_power_loss(seed), small(strategy));
                assert!(opened.facts.last == zxid(1, counter + 1) || !acknowledged);
                assert!(opened.facts.last >= zxid(1, counter));
                assert!(replay(&log, zxid(1, counter)).iter().all(|(_, payload)| payload[0] == b'n'));
            }
        }
    }
}

#[test]
fn facts_survive_the_recycling_of_segments() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        append(&mut log, open_epoch(2), zxid(1, 0)).unwrap();
        let config = LogRecord::Config { committed: Bytes::from_static(b"abc"), last_seen: Bytes::from_static(b"abd") };
        append(
            &mut log,
            vec![config, LogRecord::Birth { ensemble: 7 }, LogRecord::Promise(epoch(5)), LogRecord::Damaged],
            Zxid::ZERO,
        )
        .unwrap();
        append(&mut log, vec![LogRecord::SnapBegin { zxid: zxid(9, 9), base: 4 }], Zxid::ZERO).unwrap();
        for counter in 1..=100 {
            append(&mut log, vec![entry(zxid(2, counter), 1000)], zxid(2, counter - 1)).unwrap();
            log.recycle(zxid(2, counter - 1));
        }
        let (log, Facts { spans, chain, .. }) = {
            let (log, opened) = open(&disk.after_power_loss(0), small(strategy));
            (log, opened.facts)
        };
        let facts = Facts {
            ensemble_id: 7,
            disk_incarnation: DISK_INCARNATION,
            accepted: epoch(5),
            current: epoch(2),
            config_committed: Bytes::from_static(b"abc"),
            config_last_seen: Bytes::from_static(b"abd"),
            base_id: 0,
            receiving: Some(Receiving { zxid: zxid(9, 9), base_id: 4 }),
            watermark: zxid(2, 99),
            last: zxid(2, 100),
            chain,
            spans,
            is_damaged: true,
            cuts: 0,
        };
        assert_eq!(*log.facts(), facts);
        assert_eq!(
            facts.spans.iter().map(|span| (span.epoch, span.last)).collect::<Vec<_>>(),
            [(epoch(1), 0), (epoch(2), 100)]
        );
    }
}

#[test]
fn replay_yields_the_surviving_history_only() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        for counter in 1..=6 {
            append(&mut log, vec![entry_saying(zxid(1, counter), b'a', 1500)], zxid(1, 1)).unwrap();
        }
        let truncate = |to| LogRecord::Truncate { to };
        append(&mut log, vec![truncate(zxid(1, 4))], Zxid::ZERO).unwrap();
        let chain = log.facts().chain;
        append(&mut log, vec![entry_saying(zxid(1, 5), b'b', 1500)], Zxid::ZERO).unwrap();
        // The same zxid is appended, truncated and appended again, with a truncation in the middle
        // of a call.
        append(
            &mut log,
            vec![truncate(zxid(1, 4)), entry_saying(zxid(1, 5), b'c', 10), truncate(zxid(1, 5)), truncate(zxid(1, 4))],
            Zxid::ZERO,
        )
        .unwrap();
        assert_eq!(log.facts().chain, chain, "the same history has the same chain hash");
        append(&mut log, vec![truncate(zxid(1, 2)), entry_saying(zxid(1, 3), b'd', 10)], Zxid::ZERO).unwrap();
        append(&mut log, open_epoch(3), Zxid::ZERO).unwrap();
        for (image, name) in [(disk.after_process_crash(), "process"), (disk.after_power_loss(0), "power")] {
            let (log, opened) = open(&image, small(strategy));
            let words: Vec<(Zxid, u8)> =
                replay(&log, zxid(1, 0)).into_iter().map(|(zxid, payload)| (zxid, payload[0])).collect();
            let survivors =
                [(zxid(1, 1), b'a'), (zxid(1, 2), b'a'), (zxid(1, 3), b'd'), (zxid(3, 0), zxid(3, 0).to_bits() as u8)];
            assert_eq!(words, survivors, "{name}");
            assert_eq!((opened.facts.last, opened.facts.cuts), (zxid(3, 0), 5));
            assert_eq!(zxids(&log, zxid(1, 2)), [zxid(1, 3), zxid(3, 0)]);
        }
    }
}

#[test]
fn truncation_to_an_entry_that_never_existed_is_refused() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, open_epoch(3), Zxid::ZERO).unwrap();
    let refused = append(&mut log, vec![LogRecord::Truncate { to: zxid(2, 0) }], Zxid::ZERO);
    assert!(matches!(refused, Err(AppendError::Fatal(_))));
}

#[test]
fn only_a_complete_snapshot_replaces_the_history() {
    let disk = SimDisk::new(1);
    let options = small(Strategy::Recycle);
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, vec![entry(zxid(1, 1), 10), entry(zxid(1, 2), 10)], zxid(1, 1)).unwrap();
    append(&mut log, vec![LogRecord::SnapBegin { zxid: zxid(4, 9), base: 2 }], Zxid::ZERO).unwrap();
    let (_, opened) = open(&disk.after_power_loss(0), options);
    assert_eq!((opened.facts.last, opened.facts.base_id), (zxid(1, 2), 0));
    assert_eq!(opened.facts.receiving, Some(Receiving { zxid: zxid(4, 9), base_id: 2 }));

    append(&mut log, vec![LogRecord::SnapEnd { base: 2, zxid: zxid(4, 9), chain: 99 }], Zxid::ZERO).unwrap();
    append(&mut log, vec![entry(zxid(4, 10), 10)], Zxid::ZERO).unwrap();
    let (log, opened) = open(&disk.after_power_loss(0), options);
    assert_eq!((opened.facts.base_id, opened.facts.receiving, opened.facts.watermark), (2, None, zxid(4, 9)));
    assert_eq!(zxids(&log, zxid(4, 9)), [zxid(4, 10)]);
    assert!(matches!(try_replay(&log, zxid(1, 1)), Err(LogError::Damaged { .. })), "the old base is not continued");
}

#[test]
fn snapshot_replaces_a_longer_history() {
    let disk = SimDisk::new(1);
    let options = small(Strategy::Recycle);
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=9 {
        append(&mut log, vec![entry(zxid(1, counter), 1000)], zxid(1, 2)).unwrap();
    }
    append(&mut log, vec![LogRecord::SnapBegin { zxid: zxid(1, 4), base: 1 }], Zxid::ZERO).unwrap();
    append(&mut log, vec![LogRecord::SnapEnd { base: 1, zxid: zxid(1, 4), chain: 99 }], Zxid::ZERO).unwrap();
    assert_eq!(log.checkpoint(), zxid(1, 4));
    append(&mut log, vec![entry_saying(zxid(1, 5), b'n', 10)], Zxid::ZERO).unwrap();
    let (log, opened) = open(&disk.after_power_loss(0), options);
    assert_eq!((opened.facts.last, opened.facts.watermark, opened.facts.cuts), (zxid(1, 5), zxid(1, 4), 1));
    assert_eq!(replay(&log, zxid(1, 4)), [(zxid(1, 5), Bytes::from(vec![b'n'; 10]))]);
    assert_eq!(log.chain_at(zxid(1, 4)).unwrap(), 99);
}

/// A held segment can be read until the log itself needs the space.
#[test]
fn held_entries_stay_readable_until_the_ring_needs_their_space() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        append(&mut log, vec![entry(zxid(1, 1), 3000)], zxid(1, 1)).unwrap();
        log.hold(Some(zxid(1, 1)));
        let mut readable = 1;
        for counter in 2..=60 {
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
            log.recycle(zxid(1, counter));
            while log.prepare_ahead().unwrap() {}
            if log.floor() <= zxid(1, 1) {
                readable = counter;
            }
        }
        assert!(
            (10..=20).contains(&readable),
            "{strategy:?}: {readable} of a ring of four segments, not of one or two"
        );
        assert!(disk.used_bytes() <= log.capacity_bytes());
        log.hold(None);
        assert!(strategy == Strategy::Recycle || log.floor() > zxid(1, 50), "{}", log.floor());
    }
}

#[test]
fn base_that_the_log_does_not_continue_is_damage() {
    let disk = SimDisk::new(1);
    let options = small(Strategy::Recycle);
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=30 {
        append(&mut log, vec![entry(zxid(1, counter), 2000)], zxid(1, counter)).unwrap();
        log.recycle(zxid(1, counter));
    }
    for (after, what) in [
        (zxid(1, 31), "the base is ahead of the log"),
        (zxid(2, 0), "the base is of another epoch"),
        (zxid(1, 3), "entries between base and log are gone"),
        (Zxid::ZERO, "the base is empty and the log is not whole"),
    ] {
        assert!(matches!(try_replay(&log, after), Err(LogError::Damaged { .. })), "{what}");
    }
    assert_eq!(zxids(&log, zxid(1, 28)), counters(1, 29..=30));
}

#[test]
fn missing_segment_in_the_middle_is_damage() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        for counter in 1..=12 {
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
        }
        for name in ["seg-01.log", "seg-02.log"] {
            let disk = disk.after_process_crash();
            zoolet_store::disk::Disk::remove(&disk, name).unwrap();
            let (log, _) = open(&disk, small(strategy));
            assert!(matches!(try_replay(&log, Zxid::ZERO), Err(LogError::Damaged { .. })), "{name}");
        }
    }
}

#[test]
fn log_opens_with_the_other_strategy_and_another_segment_size() {
    for (first, second) in [(Strategy::Recycle, Strategy::Append), (Strategy::Append, Strategy::Recycle)] {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(first));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let mut counter = 0;
        for _ in 0..6 {
            counter += 1;
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
        }
        for options in [small(second), zoolet_store::log::LogOptions { segment_bytes: 32 << 10, ..small(second) }] {
            let (mut log, _) = open(&disk, options);
            assert_eq!(zxids(&log, Zxid::ZERO).len() as u64, counter + 1);
            for _ in 0..4 {
                counter += 1;
                append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
            }
            assert_eq!(zxids(&log, Zxid::ZERO).len() as u64, counter + 1);
        }
        let options = zoolet_store::log::LogOptions { segment_bytes: 32 << 10, ..small(second) };
        let (mut log, _) = open(&disk, options);
        for _ in 0..40 {
            log.recycle(zxid(1, counter));
            counter += 1;
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
        }
        assert!(disk.used_bytes() <= log.capacity_bytes(), "files of the old size are gone");
        let (log, _) = open(&disk.after_power_loss(0), options);
        assert_eq!(zxids(&log, zxid(1, counter - 1)), [zxid(1, counter)]);
    }
}

#[test]
fn log_in_a_real_directory_returns_the_appended_entries() {
    for strategy in BOTH {
        let path = std::env::temp_dir().join(format!("zoolet-log-{}-{strategy:?}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut log = Log::create(Arc::new(FsDisk::open(&path).unwrap()), small(strategy), birth()).unwrap();
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        for counter in 1..=40 {
            append(&mut log, vec![entry(zxid(1, counter), 2000)], zxid(1, counter)).unwrap();
            log.recycle(zxid(1, counter - 1));
            while log.prepare_ahead().unwrap() {}
        }
        let facts = log.facts().clone();
        drop(log);
        let (log, opened) = Log::open(Arc::new(FsDisk::open(&path).unwrap()), small(strategy)).unwrap();
        assert_eq!((opened.facts, opened.torn_tail), (facts, None));
        assert_eq!(zxids(&log, zxid(1, 38)), counters(1, 39..=40));
        let bytes: u64 = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= log.capacity_bytes() + 4096, "{bytes}");
        drop(log);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
