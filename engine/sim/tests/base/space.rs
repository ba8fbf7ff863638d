//! A full disk stops checkpoints and nothing else.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{Model, OPTIONS, assert_holds, contents, create, merge, open};
use bytes::Bytes;
use zoolet_machine::record::key;
use zoolet_machine::seam::action::{BaseRead, Checkpoint};
use zoolet_machine::state::Changes;
use zoolet_sim::disk::{OperationKind, Random, SimDisk};
use zoolet_store::base::BaseError;

fn large(count: u64) -> Changes {
    let one = |at: u64| (key::data(&format!("/large/{at}")).unwrap(), Some(Bytes::from(vec![3; 60_000])));
    (0..count).map(one).collect()
}

#[test]
fn reads_continue_after_a_checkpoint_runs_out_of_space() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(1));
    base.checkpoint(&model.random_checkpoint(&mut random, 200, 400)).unwrap();
    let older = (base.reader(), model.clone());
    base.checkpoint(&model.random_checkpoint(&mut random, 200, 400)).unwrap();
    let held = (base.reader(), model.clone());
    disk.set_capacity(Some(disk.used_bytes() + (1 << 20)));

    let mut tried = model.clone();
    let checkpoint = tried.checkpoint(large(100));
    for _ in 0..3 {
        assert_eq!(base.checkpoint(&checkpoint), Err(BaseError::NoSpace));
        assert!(contents(&held.0).unwrap() == held.1.records, "a reader from before");
        assert!(contents(&base.reader()).unwrap() == held.1.records, "a reader from after");
        assert_holds(&base, &held.1, "after running out of space");
    }
    assert!(contents(&older.0).unwrap() == older.1.records, "an older generation");

    disk.set_capacity(None);
    base.checkpoint(&checkpoint).unwrap();
    assert_holds(&base, &tried, "with space again");
    drop(base);
    assert_holds(&open(&disk).unwrap(), &tried, "reopened");
}

/// Deleting a page-sized value writes little. On a full disk a delete must count by the space it
/// frees.
#[test]
fn deleting_half_of_the_values_frees_their_disk_space() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let key = |at: u64| key::data(&format!("/value/{at}")).unwrap();
    let mut model = Model::default();
    let values = (0..2000).map(|at| (key(at), Some(Bytes::from(vec![3; 3900])))).collect();
    base.checkpoint(&model.checkpoint(values)).unwrap();
    merge(&base, true).unwrap();
    let full = disk.used_bytes();
    base.checkpoint(&model.checkpoint((0..1000).map(|at| (key(2 * at), None)).collect())).unwrap();
    merge(&base, true).unwrap();
    let left = disk.used_bytes();
    assert!(left < full * 2 / 3, "{full} bytes before, {left} now");
    assert_holds(&base, &model, "compacted");
}

/// Space runs out in the middle of a checkpoint, at any of its writes.
#[test]
fn reads_continue_when_space_runs_out_at_any_checkpoint_step() {
    let disk = SimDisk::new(2);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(2));
    base.checkpoint(&model.random_checkpoint(&mut random, 100, 200)).unwrap();
    let before = model.clone();
    let checkpoint = model.random_checkpoint(&mut random, 60, 200);
    let trial = disk.after_process_crash();
    open(&trial).unwrap().checkpoint(&checkpoint).unwrap();
    for failing in 0..trial.steps() {
        let disk = disk.after_process_crash();
        let base = open(&disk).unwrap();
        let reader = base.reader();
        disk.fail_with(move |operation| {
            let needs_space = matches!(operation.kind, OperationKind::Write | OperationKind::Allocate);
            (needs_space && operation.step >= failing).then_some(std::io::ErrorKind::StorageFull)
        });
        let outcome = base.checkpoint(&checkpoint);
        let context = format!("from step {failing} on");
        if outcome.is_ok() {
            assert_holds(&base, &model, &context);
            continue;
        }
        assert_eq!(outcome, Err(BaseError::NoSpace), "{context}");
        assert!(contents(&reader).unwrap() == before.records, "{context}");
        assert_holds(&base, &before, &context);
        disk.heal();
        base.checkpoint(&checkpoint).unwrap();
        assert_holds(&base, &model, &context);
    }
}

#[test]
fn checkpoint_without_enough_space_writes_nothing() {
    let disk = SimDisk::new(3);
    let base = create(&disk);
    let mut model = Model::default();
    base.checkpoint(&model.checkpoint(large(1))).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (1 << 20)));
    let checkpoint = model.checkpoint(large(100));
    assert_eq!(base.checkpoint(&checkpoint), Err(BaseError::NoSpace));
    let before = disk.counters();
    for _ in 0..10 {
        assert_eq!(base.checkpoint(&checkpoint), Err(BaseError::NoSpace));
    }
    assert_eq!(disk.counters(), before);
}

#[test]
fn merge_without_space_changes_nothing_and_completes_with_space() {
    let disk = SimDisk::new(4);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(4));
    for _ in 0..8 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 3000)).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes() + (4 << 10)));
    assert_eq!(base.merge(true), Err(BaseError::NoSpace));
    assert_holds(&base, &model, "no room");
    // The data of merged runs and of the completed steps is on the disk twice until the merge ends.
    disk.set_capacity(Some(disk.used_bytes() + base.file_bytes() * 3));
    merge(&base, true).unwrap();
    assert_holds(&base, &model, "merged");
    assert_eq!(base.counters().runs, 0);
    assert!(base.reader().record(b"n/\0absent").unwrap().is_none());
}

/// Returns all bytes that a merge writes if its step `failing` fails once.
///
/// Asserts that the merge completes.
fn merge_bytes(start: &SimDisk, failing: Option<usize>) -> u64 {
    let disk = start.after_process_crash();
    let base = open(&disk).unwrap();
    let before = base.counters().base_bytes_written;
    let mut steps = 0;
    loop {
        if failing == Some(steps) {
            disk.fail(OperationKind::Write, std::io::ErrorKind::Other);
            assert!(base.merge(true).is_err());
            disk.heal();
        }
        steps += 1;
        if !base.merge(true).unwrap() {
            break;
        }
    }
    assert!(failing.is_none_or(|failing| failing < steps));
    assert_eq!(base.counters().runs, 0);
    base.counters().base_bytes_written - before
}

/// On a nearly full or an unreliable disk, a merge that restarted after each error would never end.
#[test]
fn merge_resumes_after_an_error_without_starting_over() {
    let start = SimDisk::new(5);
    let base = create(&start);
    let (mut model, mut random) = (Model::default(), Random::new(5));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 600, 3000)).unwrap();
    }
    drop(base);
    let undisturbed = merge_bytes(&start, None);
    for failing in [1, 5, 10] {
        let disturbed = merge_bytes(&start, Some(failing));
        assert!(disturbed < undisturbed + undisturbed / 8, "step {failing}: {disturbed}, {undisturbed} undisturbed");
    }
}

/// With any amount of space, a merge makes progress, or there is no space even for its smallest
/// step.
#[test]
fn merge_shrinks_its_steps_to_the_free_space() {
    let start = SimDisk::new(6);
    let base = create(&start);
    let (mut model, mut random) = (Model::default(), Random::new(6));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 600, 3000)).unwrap();
    }
    drop(base);
    let mut refused = 0;
    for room in (300 << 10..1200 << 10).step_by(4 << 10) {
        let disk = start.after_process_crash();
        let base = open(&disk).unwrap();
        disk.set_capacity(Some(disk.used_bytes() + room));
        let first = base.merge(true);
        if first.is_err() {
            refused = room;
        }
        assert_holds(&base, &model, &format!("room {room}"));
    }
    assert!(refused < 400 << 10, "no step in {refused} bytes");
}

/// Two records of 1,400 bytes share a block and leave a third of it empty.
#[test]
fn run_that_wastes_block_space_is_refused_before_it_is_written() {
    let disk = SimDisk::new(7);
    let base = create(&disk);
    let mut model = Model::default();
    let awkward = |bytes: usize| -> Changes {
        let one = |at: usize| (key::data(&format!("/awkward/{at}")).unwrap(), Some(Bytes::from(vec![3; bytes])));
        (0..1000).map(one).collect()
    };
    for bytes in [1100, 1400, 2100, 3000, 4200] {
        let checkpoint = model.clone().checkpoint(awkward(bytes));
        let before = disk.counters();
        let used = disk.used_bytes();
        let trial = disk.after_process_crash();
        let written = open(&trial).unwrap().checkpoint(&checkpoint).map(|()| trial.used_bytes() - used).unwrap();
        disk.set_capacity(Some(used + written - 1));
        assert_eq!(base.checkpoint(&checkpoint), Err(BaseError::NoSpace), "{bytes} bytes each");
        assert_eq!(disk.counters(), before, "{bytes} bytes each");
        disk.set_capacity(None);
    }
    base.checkpoint(&model.checkpoint(awkward(10))).unwrap();
}

/// Returns as many runs as make checkpoints merge a part, and the model.
///
/// With `above_much`, redb holds much data, and a merge turns the runs into one run.
fn runs_piled_up(seed: u64, above_much: bool) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(seed));
    if above_much {
        base.checkpoint(&model.checkpoint(large(200))).unwrap();
        merge(&base, true).unwrap();
    }
    for _ in 0..2 * OPTIONS.runs_max {
        base.checkpoint(&model.random_checkpoint(&mut random, 200, 3000)).unwrap();
    }
    assert_eq!(base.counters().runs, 2 * OPTIONS.runs_max as u64);
    (disk, model)
}

/// Returns a checkpoint that deletes up to 20 records.
fn deletes(model: &mut Model) -> Checkpoint {
    let gone: Vec<_> = model.records.keys().step_by(7).take(20).cloned().collect();
    model.checkpoint(gone.into_iter().map(|key| (key, None)).collect())
}

/// Otherwise deletes would fill the log and memory with no checkpoint to empty them. The space that
/// they free would never become free.
#[test]
fn checkpoint_succeeds_when_only_its_merge_step_lacks_space() {
    for above_much in [false, true] {
        let (disk, mut model) = runs_piled_up(8, above_much);
        let base = open(&disk).unwrap();
        disk.set_capacity(Some(disk.used_bytes() + (200 << 10)));
        for runs in 2 * OPTIONS.runs_max as u64..4 * OPTIONS.runs_max as u64 {
            let context = format!("{runs} runs, above much: {above_much}");
            assert_eq!(base.checkpoint(&deletes(&mut model)), Ok(()), "{context}");
            assert_holds(&base, &model, &context);
            assert_eq!(base.counters().runs, runs + 1, "{context}");
        }
        // If merges had room, there would be no more runs than these. Without room there may be
        // twice as many: each run takes memory, and every lookup probes it.
        let mut rounds = 0;
        while base.counters().runs < 8 * OPTIONS.runs_max as u64 && rounds < 8 * OPTIONS.runs_max {
            disk.set_capacity(Some(disk.used_bytes() + (80 << 10)));
            let context = format!("{} runs, above much: {above_much}", base.counters().runs);
            assert_eq!(base.checkpoint(&deletes(&mut model)), Ok(()), "{context}");
            assert_holds(&base, &model, &context);
            rounds += 1;
        }
        let mut tried = model.clone();
        let checkpoint = tried.checkpoint(large(1));
        assert_eq!(base.checkpoint(&checkpoint), Err(BaseError::NoSpace));
        assert_holds(&base, &model, "at the limit");
        disk.set_capacity(None);
        base.checkpoint(&checkpoint).unwrap();
        assert!(base.counters().runs < 4 * OPTIONS.runs_max as u64);
        assert_holds(&base, &tried, "with room");
    }
}

/// This holds for any amount of space beyond the checkpoint's own need.
#[test]
fn merge_step_of_a_checkpoint_leaves_space_for_the_checkpoint() {
    for above_much in [false, true] {
        let (start, mut model) = runs_piled_up(9, above_much);
        let checkpoint = model.checkpoint(large(6));
        // Records of 60,000 bytes take 15 blocks. A checkpoint requires an eighth and 64 KiB more.
        let needed = 6 * (64 << 10) + (128 << 10);
        let mut merged = false;
        for room in (needed..needed + (1 << 20)).step_by(64 << 10) {
            let disk = start.after_process_crash();
            let base = open(&disk).unwrap();
            let before = disk.counters().written_bytes;
            disk.set_capacity(Some(disk.used_bytes() + room));
            let context = format!("{room} bytes free, {needed} are enough, above much: {above_much}");
            assert_eq!(base.checkpoint(&checkpoint), Ok(()), "{context}");
            assert_holds(&base, &model, &context);
            merged |= disk.counters().written_bytes - before > needed;
        }
        assert!(merged, "no part of a merge was done, above much: {above_much}");
    }
}
