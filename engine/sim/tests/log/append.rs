//! Appending: its cost, the blocks it may write, and disk errors.
#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]

use crate::log_support::*;
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex},
};
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_model::Zxid;
use zoolet_sim::disk::{OperationKind, SimDisk};
use zoolet_store::Strategy;
use zoolet_store::log::{AppendError, Log, LogError, LogOptions};
use zoolet_zab::AppendSeq;

/// Returns `count` appends of one entry each, as from many connections.
fn single_entries(log: &Log, from: Zxid, count: u64) -> Vec<Append> {
    (0..count)
        .map(|position| Append {
            seq: AppendSeq(log.appended().0 + 1 + position),
            records: vec![entry(zxid(from.epoch().as_u32(), from.counter() + position), 100)].into(),
            watermark: Zxid::ZERO,
            expect: None,
        })
        .collect()
}

#[test]
fn all_pending_appends_share_one_write_and_one_fdatasync() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, LogOptions { segment_bytes: 1 << 20, segments: 4, strategy });
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let before = (disk.counters(), log.counters());
        let appends = single_entries(&log, zxid(1, 1), 300);
        let persisted = log.append(&appends).unwrap();
        assert_eq!(persisted.seq, appends[299].seq);
        let after = (disk.counters(), log.counters());
        assert_eq!((after.0.writes - before.0.writes, after.0.syncs - before.0.syncs), (1, 1));
        assert_eq!((after.1.batches - before.1.batches, after.1.fdatasyncs - before.1.fdatasyncs), (1, 1));
        assert_eq!(after.1.entries - before.1.entries, 300);
        let bytes = 300 * (100 + 8 + 5);
        assert_eq!(after.1.entry_bytes - before.1.entry_bytes, bytes);
        assert_eq!(after.0.written_bytes - before.0.written_bytes, (bytes + 64).next_multiple_of(4096));
    }
}

#[test]
fn byte_counters_by_cause_add_up_to_the_bytes_written() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        for counter in 1..40 {
            append(&mut log, vec![entry(zxid(1, counter), 3000)], Zxid::ZERO).unwrap();
            log.recycle(zxid(1, counter));
        }
        let counters = log.counters();
        let all = counters.entry_bytes + counters.fact_bytes + counters.padding_bytes + counters.prepared_bytes;
        assert_eq!(all, disk.counters().written_bytes);
        assert_eq!((counters.entries, counters.fdatasyncs), (40, disk.counters().syncs));
    }
}

#[test]
fn block_with_an_acked_record_is_never_rewritten() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let written: Arc<Mutex<Vec<(String, u64, u64)>>> = Arc::default();
        let seen = written.clone();
        disk.fail_with(move |operation| {
            if operation.kind == OperationKind::Write {
                seen.lock().unwrap().push((operation.name.to_owned(), operation.offset, operation.bytes));
            }
            None
        });
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let (mut counter, mut tails) = (0, std::collections::BTreeMap::new());
        for bytes in [10, 5000, 100, 4000, 4095, 4096, 1, 9000, 30, 12000, 10, 10, 10, 2000, 9000, 700] {
            counter += 1;
            append(&mut log, vec![entry(zxid(1, counter), bytes)], Zxid::ZERO).unwrap();
            log.recycle(zxid(1, counter));
        }
        for (name, offset, bytes) in written.lock().unwrap().drain(..) {
            assert_eq!(offset % 4096, 0, "a batch starts on a block");
            let tail = tails.entry(name).or_insert(0);
            let is_end = (offset, bytes) == (16 << 10, 4096) && offset > *tail;
            assert!(offset == 0 || offset == *tail || is_end, "a segment is written from its start, once");
            *tail = offset + bytes;
        }
    }
}

#[test]
fn failed_fdatasync_is_fatal() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        disk.fail(OperationKind::Sync, io::ErrorKind::StorageFull);
        let failed = append(&mut log, vec![entry(zxid(1, 1), 10)], Zxid::ZERO);
        assert!(matches!(failed, Err(AppendError::Fatal(_))), "even for a kind of error that a write may survive");
        disk.heal();
        let syncs = disk.counters().syncs;
        let refused = append(&mut log, vec![entry(zxid(1, 1), 10)], Zxid::ZERO);
        assert!(matches!(refused, Err(AppendError::Fatal(_))), "a second fdatasync would say yes to lost data");
        assert!(matches!(log.prepare_ahead(), Err(AppendError::Fatal(_))));
        assert_eq!(disk.counters().syncs, syncs, "nothing is tried again");
        assert_eq!(log.facts().last, zxid(1, 0));
    }
}

#[test]
fn append_stalls_on_a_full_or_read_only_disk_until_retried() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::QuotaExceeded] {
        for strategy in BOTH {
            let disk = SimDisk::new(1);
            let mut log = create(&disk, small(strategy));
            append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
            // Twelve blocks need two rotations, so a stall also hits a call whose first part is
            // durable.
            let appends: Vec<Append> = (1..=6)
                .map(|counter| Append {
                    seq: AppendSeq(log.appended().0 + counter),
                    records: vec![entry(zxid(1, counter), 6000)].into(),
                    watermark: zxid(1, counter - 1),
                    expect: None,
                })
                .collect();
            let mut allowed = 0;
            let persisted = loop {
                let after = disk.steps() + allowed;
                disk.fail_with(move |operation| {
                    let writes = matches!(
                        operation.kind,
                        OperationKind::Write | OperationKind::Allocate | OperationKind::Create
                    );
                    (writes && operation.step >= after).then_some(kind)
                });
                match log.append(&appends) {
                    Ok(persisted) => break persisted,
                    Err(AppendError::Stalled(error)) => assert_eq!(error.kind(), kind),
                    Err(error @ AppendError::Fatal(_)) => panic!("{error}"),
                }
                allowed += 1;
            };
            assert!(allowed > 2, "it stalled at several places");
            disk.heal();
            assert_eq!(persisted.seq, appends[5].seq);
            assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=6));
            let (log, opened) = open(&disk.after_power_loss(0), small(strategy));
            assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=6));
            assert_eq!((opened.appended, opened.facts.watermark), (persisted.seq, zxid(1, 5)));
        }
    }
}

#[test]
fn io_error_while_writing_is_fatal() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    disk.fail(OperationKind::Write, io::ErrorKind::Other);
    assert!(matches!(append(&mut log, vec![entry(zxid(1, 1), 10)], Zxid::ZERO), Err(AppendError::Fatal(_))));
    disk.heal();
    assert!(matches!(append(&mut log, vec![entry(zxid(1, 1), 10)], Zxid::ZERO), Err(AppendError::Fatal(_))));
}

#[test]
fn log_ring_full_of_unapplied_entries_stalls_until_a_checkpoint() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let mut counter = 1;
        let stalled = loop {
            match append(&mut log, vec![entry(zxid(1, counter), 3000)], Zxid::ZERO) {
                Ok(persisted) => assert!(persisted.used_bytes <= log.capacity_bytes()),
                Err(error) => break error,
            }
            counter += 1;
        };
        assert!(matches!(stalled, AppendError::Stalled(_)), "{stalled}");
        assert_eq!(counter, 15, "20 blocks, one for birth, one to open the epoch, four to end segments");
        assert_eq!(log.used_bytes(), log.capacity_bytes() - 4096, "the newest is not ended");
        assert!(disk.used_bytes() <= log.capacity_bytes());
        log.recycle(zxid(1, 7));
        assert!(log.used_bytes() < log.capacity_bytes());
        append(&mut log, vec![entry(zxid(1, counter), 3000)], Zxid::ZERO).unwrap();
        assert_eq!(zxids(&log, zxid(1, 7)), counters(1, 8..=15));
        log.recycle(zxid(1, 15));
        assert_eq!(log.used_bytes(), 0);
    }
}

/// Regression: the log called the first batch of a segment appended although the segment before it was
/// not ended. If the new segment was lost then, nobody noticed.
#[test]
fn first_batch_of_a_segment_is_not_appended_before_the_former_segment_ends() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        // In a young log, each segment's name is greater than those before.
        let newest = Mutex::new(String::new());
        disk.fail_with(move |operation| {
            let mut newest = newest.lock().unwrap();
            let is_end = operation.kind == OperationKind::Write && operation.name < newest.as_str();
            if operation.kind == OperationKind::Write && !is_end {
                *newest = operation.name.to_owned();
            }
            is_end.then_some(io::ErrorKind::StorageFull)
        });
        let stalls = (1..15).find(|counter| {
            let before = log.appended();
            let outcome = append(&mut log, vec![entry(zxid(1, *counter), 3000)], Zxid::ZERO);
            let is_stalled = matches!(outcome, Err(AppendError::Stalled(_)));
            assert_eq!(log.appended() == before, is_stalled, "{outcome:?}");
            is_stalled
        });
        let last = stalls.expect("it stalls when it rotates");
        disk.heal();
        append(&mut log, vec![entry(zxid(1, last), 3000)], Zxid::ZERO).unwrap();
        assert_eq!(zxids(&log, zxid(1, 0)), counters(1, 1..=last));
        drop(log);
        let (log, opened) = try_open(&disk.after_power_loss(0), small(strategy)).unwrap();
        assert_eq!((log.appended(), zxids(&log, zxid(1, 0))), (opened.appended, counters(1, 1..=last)));
    }
}

#[test]
fn repeating_a_persisted_append_writes_nothing() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    let appends = single_entries(&log, zxid(1, 1), 3);
    let persisted = log.append(&appends).unwrap();
    let writes = disk.counters().writes;
    assert_eq!(log.append(&appends).unwrap(), persisted);
    assert_eq!(log.append(&[]).unwrap(), persisted);
    assert_eq!(disk.counters().writes, writes);
}

#[test]
fn append_without_records_makes_its_watermark_durable() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, Vec::new(), zxid(1, 0)).unwrap();
    assert_eq!(open(&disk.after_power_loss(0), small(Strategy::Recycle)).1.facts.watermark, zxid(1, 0));
    let writes = disk.counters().writes;
    append(&mut log, Vec::new(), zxid(1, 0)).unwrap();
    assert_eq!(disk.counters().writes, writes, "once is enough: an idle server writes nothing");
}

#[test]
fn record_that_violates_a_log_rule_stops_the_log() {
    let gap = |log: &mut Log| append(log, vec![entry(zxid(1, 2), 1)], Zxid::ZERO);
    let old_promise = |log: &mut Log| append(log, vec![LogRecord::Promise(epoch(0))], Zxid::ZERO);
    let unpromised = |log: &mut Log| append(log, vec![LogRecord::Epoch(epoch(9))], Zxid::ZERO);
    let committed = |log: &mut Log| {
        append(log, vec![entry(zxid(1, 1), 1)], zxid(1, 1))?;
        append(log, vec![LogRecord::Truncate { to: zxid(1, 0) }], Zxid::ZERO)
    };
    let numbers = |log: &mut Log| {
        let seq = AppendSeq(log.appended().0 + 2);
        log.append(&[Append { seq, records: vec![entry(zxid(1, 1), 1)].into(), watermark: Zxid::ZERO, expect: None }])
    };
    let too_large = |log: &mut Log| append(log, vec![entry(zxid(1, 1), 16 << 10)], Zxid::ZERO);
    type Wish<'a> = &'a dyn Fn(&mut Log) -> Result<zoolet_store::log::Persisted, AppendError>;
    let wishes: [Wish<'_>; 6] = [&gap, &old_promise, &unpromised, &committed, &numbers, &too_large];
    for (number, wish) in wishes.into_iter().enumerate() {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(Strategy::Recycle));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let refused = wish(&mut log);
        assert!(matches!(&refused, Err(AppendError::Fatal(error)) if error.kind() == io::ErrorKind::InvalidInput));
        let after = append(&mut log, vec![entry(zxid(1, 1), 1)], Zxid::ZERO);
        assert!(matches!(after, Err(AppendError::Fatal(_))), "wish {number}");
    }
}

#[test]
fn segments_are_created_on_demand_and_one_ahead() {
    let disk = SimDisk::new(1);
    let options = LogOptions { segment_bytes: 1 << 20, segments: 16, strategy: Strategy::Recycle };
    let mut log = create(&disk, options);
    let files = || -> BTreeSet<String> {
        (0..20).map(|number| format!("seg-{number:02}.log")).filter(|name| disk.contents(name).is_some()).collect()
    };
    assert_eq!(files().len(), 1, "a new directory starts at once");
    let mut steps = 1;
    while log.prepare_ahead().unwrap() {
        steps += 1;
    }
    assert_eq!((files().len(), steps), (2, 7), "created, reserved, filled in four steps, then synced");
    assert!(!log.prepare_ahead().unwrap());
    assert_eq!(log.counters().prepared_bytes, 2 << 20);
}

#[test]
fn open_and_create_tell_an_empty_directory_from_a_log() {
    let disk = SimDisk::new(1);
    assert!(matches!(try_open(&disk, small(Strategy::Recycle)), Err(LogError::Empty)));
    create(&disk, small(Strategy::Recycle));
    let again = Log::create(Arc::new(disk.clone()), small(Strategy::Recycle), birth());
    assert!(matches!(again, Err(LogError::Exists)));
    let odd = LogOptions { segment_bytes: 5000, segments: 4, strategy: Strategy::Recycle };
    assert!(matches!(try_open(&disk, odd), Err(LogError::Options(_))));
}

#[test]
fn log_creation_that_ran_out_of_space_succeeds_on_retry() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(0));
        let refused = Log::create(Arc::new(disk.clone()), small(strategy), birth());
        assert!(matches!(refused, Err(LogError::Io { error, .. }) if error.kind() == io::ErrorKind::StorageFull));
        assert!(matches!(try_open(&disk, small(strategy)), Err(LogError::Empty)));
        disk.set_capacity(None);
        create(&disk, small(strategy));
        assert_eq!(open(&disk.after_power_loss(0), small(strategy)).1.facts, birth());
    }
}

#[test]
fn entry_of_the_maximum_size_fits_in_the_log() {
    let disk = SimDisk::new(1);
    let options = small(Strategy::Recycle);
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, vec![entry(zxid(1, 1), options.payload_bytes_max() as usize)], Zxid::ZERO).unwrap();
    assert_eq!(zxids(&open(&disk.after_power_loss(0), options).0, zxid(1, 0)), [zxid(1, 1)]);
}
