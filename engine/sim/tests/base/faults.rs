//! Transient errors met by several readers and a checkpoint at once.
//!
//! Every answer is the truth or an error, and the base recovers by itself.

use crate::base_support::{Model, assert_holds, contents, create, merge, open};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::seam::event::BaseFailure;
use zoolet_sim::disk::{OperationKind, Random, SimDisk};
use zoolet_store::base::BaseError;

#[test]
fn intermittent_read_errors_never_cause_wrong_answers() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(1));
    for _ in 0..3 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    }
    let reads = AtomicU64::new(0);
    disk.fail_with(move |operation| {
        let unlucky = operation.kind == OperationKind::Read && reads.fetch_add(1, Ordering::Relaxed) % 97 == 96;
        unlucky.then_some(io::ErrorKind::Other)
    });
    let stop = Arc::new(AtomicBool::new(false));
    let mut wrote = 0;
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (reader, truth, stop) = (base.reader(), model.records.clone(), stop.clone());
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let keys: Vec<_> = truth.keys().cloned().collect();
                while !stop.load(Ordering::Relaxed) {
                    let key = &keys[usize::try_from(random.below(keys.len() as u64)).unwrap()];
                    match reader.record(key) {
                        Ok(found) => assert_eq!(found.as_ref(), truth.get(key)),
                        // Either an error of the device, or the end of a generation, because
                        // checkpoints continue meanwhile.
                        Err(BaseFailure::Io(_)) => {}
                        Err(failure) => panic!("{failure:?}"),
                    }
                }
            });
        }
        for _ in 0..30 {
            let mut next = model.clone();
            let checkpoint = next.random_checkpoint(&mut random, 60, 400);
            match base.checkpoint(&checkpoint) {
                Ok(()) => {
                    model = next;
                    wrote += 1;
                    let _ = merge(&base, false);
                }
                Err(BaseError::Io(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    disk.heal();
    assert_holds(&base, &model, &format!("after {wrote} checkpoints that went well"));
    base.checkpoint(&model.random_checkpoint(&mut random, 60, 400)).unwrap();
    assert_holds(&base, &model, "healed");
}

#[test]
fn held_readers_keep_their_generation_after_a_failed_checkpoint() {
    let disk = SimDisk::new(2);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(2));
    base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    let (older, older_truth) = (base.reader(), model.records.clone());
    base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    let current = base.reader();

    disk.fail(OperationKind::Write, io::ErrorKind::Other);
    let mut next = model.clone();
    assert!(base.checkpoint(&next.random_checkpoint(&mut random, 300, 400)).is_err());
    assert!(merge(&base, true).is_err());
    disk.heal();
    assert!(contents(&current).unwrap() == model.records);
    assert!(contents(&older).unwrap() == older_truth);
    merge(&base, true).unwrap();
    assert!(contents(&older).unwrap() == older_truth);
}

#[test]
fn base_recovers_when_its_failing_disk_does() {
    let disk = SimDisk::new(3);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(3));
    base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    let reader = base.reader();
    disk.fail_with(|operation| (operation.kind != OperationKind::Sync).then_some(io::ErrorKind::Other));
    let mut next = model.clone();
    let checkpoint = next.random_checkpoint(&mut random, 300, 400);
    assert!(matches!(base.checkpoint(&checkpoint), Err(BaseError::Io(_))));
    assert!(matches!(contents(&reader), Err(BaseFailure::Io(_))));
    assert!(matches!(base.checkpoint(&checkpoint), Err(BaseError::Io(_))));
    disk.heal();
    assert!(contents(&reader).unwrap() == model.records);
    assert_holds(&base, &model, "healed");
    base.checkpoint(&checkpoint).unwrap();
    assert_holds(&base, &next, "and written");
}

/// The transaction of the merge step is durable, but the manifest is not. The merge then starts
/// over with newer writes. If the new step fails too, the number of the old transaction must not
/// stand for it.
#[test]
fn failed_merge_step_is_never_mistaken_for_an_earlier_durable_one() {
    let disk = SimDisk::new(4);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(4));
    base.checkpoint(&model.random_checkpoint(&mut random, 10, 20)).unwrap();
    disk.fail_with(|operation| {
        let names_runs = operation.kind == OperationKind::Create && operation.name.ends_with(".manifest.tmp");
        names_runs.then_some(io::ErrorKind::StorageFull)
    });
    assert_eq!(base.merge(true), Err(BaseError::NoSpace));
    disk.heal();
    base.checkpoint(&model.random_checkpoint(&mut random, 10, 20)).unwrap();
    for (end, kind) in [".redb", ".crc"].into_iter().zip([io::ErrorKind::StorageFull, io::ErrorKind::Other]) {
        disk.fail_with(move |operation| {
            let is_hit = operation.kind == OperationKind::Write && operation.name.ends_with(end);
            is_hit.then_some(kind)
        });
        assert!(base.merge(true).is_err(), "{end} took nothing");
        disk.heal();
        assert_holds(&base, &model, end);
    }
    merge(&base, true).unwrap();
    assert_eq!(base.counters().runs, 0);
    assert_holds(&base, &model, "merged");
    drop(base);
    assert_holds(&open(&disk.after_power_loss(0)).unwrap(), &model, "opened again");
}

/// The disk fails from the moment at which a step is durable, so the base cannot know that it is.
/// The retried step is larger, because there is more room.
#[test]
fn small_durable_merge_step_is_never_mistaken_for_its_larger_retry() {
    let disk = SimDisk::new(5);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(5));
    for _ in 0..2 {
        base.checkpoint(&model.random_checkpoint(&mut random, 60, 60)).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes() + (400 << 10)));
    // redb writes its header twice. Only the second header leads to the step.
    let (headers, shut) = (AtomicU64::new(0), AtomicBool::new(false));
    disk.fail_with(move |operation| {
        let is_copy =
            operation.kind == OperationKind::Write && operation.name.ends_with(".crc") && operation.offset == 4096;
        if is_copy && headers.fetch_add(1, Ordering::Relaxed) == 1 {
            shut.store(true, Ordering::Relaxed);
        }
        shut.load(Ordering::Relaxed).then_some(io::ErrorKind::Other)
    });
    assert!(base.merge(true).is_err());
    disk.heal();
    disk.set_capacity(None);
    disk.fail_with(|operation| {
        let is_hit = operation.kind == OperationKind::Write && operation.name.ends_with(".redb");
        is_hit.then_some(io::ErrorKind::Other)
    });
    assert!(base.merge(true).is_err());
    disk.heal();
    assert_holds(&base, &model, "after both");
    merge(&base, true).unwrap();
    assert_eq!(base.counters().runs, 0);
    assert_holds(&base, &model, "merged");
}

/// Regression: the sync of a header failed, so the header was in the page cache only. The next process
/// took it for durable: it published a manifest that named it, and overwrote the only durable copy.
#[test]
fn header_whose_sync_failed_is_not_trusted_after_a_restart() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let base = create(&disk);
        let (mut model, mut random) = (Model::default(), Random::new(seed));
        for _ in 0..2 {
            base.checkpoint(&model.random_checkpoint(&mut random, 60, 100)).unwrap();
        }
        let is_header_written = AtomicBool::new(false);
        disk.fail_with(move |operation| {
            let is_header = operation.name.ends_with(".crc") && operation.offset == 0;
            if operation.kind == OperationKind::Write && is_header {
                is_header_written.store(true, Ordering::Relaxed);
            }
            let is_hit = operation.kind == OperationKind::Sync && operation.name.ends_with(".crc");
            (is_hit && is_header_written.load(Ordering::Relaxed)).then_some(io::ErrorKind::Other)
        });
        assert!(merge(&base, true).is_err());
        drop(base);
        let mut next = model.clone();
        let checkpoint = next.random_checkpoint(&mut random, 60, 100);
        for step in 0.. {
            let disk = disk.after_process_crash();
            let base = open(&disk).unwrap();
            disk.set_crash_at(disk.steps() + step);
            let written = base.checkpoint(&checkpoint);
            let _ = merge(&base, true);
            drop(base);
            for loss in 0..3 {
                let context = format!("seed {seed}, step {step}, loss {loss}: {written:?}");
                let base = open(&disk.after_power_loss(loss)).unwrap_or_else(|error| panic!("{context}: {error}"));
                let is_next = written.is_ok() || base.meta() == next.meta();
                assert_holds(&base, if is_next { &next } else { &model }, &context);
            }
            if !disk.crashed() {
                assert!(step > 50, "only {step} steps");
                break;
            }
        }
    }
}

/// Returns whether a read-only file system refuses the operation.
///
/// It refuses every change. It also refuses to open files for writing, which is how the store opens
/// them.
fn is_refused(kind: OperationKind) -> bool {
    kind != OperationKind::Read
}

/// From some step of a checkpoint and merge on, the disk accepts nothing. Served data stays
/// readable, also for later readers. All of it is there when the disk has been mounted again.
#[test]
fn base_stays_readable_when_its_disk_turns_read_only_at_any_step() {
    let disk = SimDisk::new(6);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(6));
    for _ in 0..2 {
        base.checkpoint(&model.random_checkpoint(&mut random, 60, 100)).unwrap();
    }
    drop(base);
    let mut next = model.clone();
    let checkpoint = next.random_checkpoint(&mut random, 60, 100);
    let mut failing = 0;
    loop {
        let trial = disk.after_process_crash();
        let base = open(&trial).unwrap();
        let held = base.reader();
        let from = trial.steps() + failing;
        trial.fail_with(move |operation| {
            (is_refused(operation.kind) && operation.step >= from).then_some(io::ErrorKind::ReadOnlyFilesystem)
        });
        let written = base.checkpoint(&checkpoint);
        let merged = merge(&base, true);
        let context = format!("read-only from step {failing} on: {written:?}, {merged:?}");
        let truth = if written.is_ok() { &next } else { &model };
        assert_holds(&base, truth, &context);
        assert!(contents(&held).unwrap() == model.records, "{context}: held");
        assert!(base.checkpoint(&checkpoint).is_err() || merged.is_ok(), "{context}");
        assert_holds(&base, truth, &context);
        drop((held, base));
        for found in [trial.after_process_crash(), trial.after_power_loss(0), trial.after_power_loss(failing + 2)] {
            let base = open(&found).unwrap();
            // The disk may hold a checkpoint that was never acknowledged. That is correct, because
            // the log has the same entries.
            let truth = if base.meta() == next.meta() { &next } else { truth };
            assert_holds(&base, truth, &context);
        }
        if merged.is_ok() {
            break;
        }
        failing += 1;
    }
    assert!(failing > 50, "only {failing} steps");
}
