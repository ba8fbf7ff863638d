//! Crashes of both kinds at every step of a base's life.
//!
//! The reopened base holds exactly one checkpoint, and is never reported as damaged.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{BASE_ID, Model, OPTIONS, assert_holds, create, merge, open};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use zoolet_machine::record::key;
use zoolet_machine::seam::action::Checkpoint;
use zoolet_sim::disk::{OperationKind, Random, SimDisk};
use zoolet_store::base::{Base, BaseError, Options};

/// Returns the power-loss seeds to try after a crash at this step.
///
/// Seed 0 keeps nothing unsynced and seed 1 keeps everything; the others tear and reorder writes.
/// Seed 1 shows no more than a process crash, after which a later loss can take more. So it takes
/// turns with the two that tear.
fn power_losses(step: u64) -> impl Iterator<Item = u64> + Clone {
    let in_turn: &[u64] = if (step / 2).is_multiple_of(2) { &[1, 2] } else { &[3] };
    [0].into_iter().chain(in_turn.iter().copied())
}

/// Checkpoints, and the model after each of them. `models[0]` is the empty model before the first.
struct History {
    checkpoints: Vec<Checkpoint>,
    models: Vec<Model>,
}

impl History {
    /// Draws five checkpoints with creates, overwrites, deletions and large data.
    fn new(seed: u64) -> Self {
        let (mut random, mut model) = (Random::new(seed), Model::default());
        let (mut checkpoints, mut models) = (Vec::new(), vec![model.clone()]);
        for round in 0..5 {
            let checkpoint = if round == 2 {
                let grown = |at: u64| (key::data(&format!("/large/{at}")).unwrap(), Some(Bytes::from(vec![7; 30_000])));
                model.checkpoint((0..3).map(grown).collect())
            } else {
                model.random_checkpoint(&mut random, 12, 20)
            };
            checkpoints.push(checkpoint);
            models.push(model.clone());
        }
        Self { checkpoints, models }
    }

    /// Runs until the disk dies; returns the number of completed actions.
    ///
    /// The first action is the creation, each other one a checkpoint. Merges come in between.
    fn run(&self, disk: &SimDisk) -> usize {
        let created = zoolet_store::base::Base::create(
            std::sync::Arc::new(disk.clone()),
            crate::base_support::BASE_ID,
            crate::base_support::OPTIONS,
        );
        let Ok(base) = created else { return 0 };
        let done = |checkpoint: &&Checkpoint| {
            let done = base.checkpoint(checkpoint).is_ok();
            // A failed merge changes nothing. If the disk died during it, the next checkpoint
            // fails.
            let _ = merge(&base, base.meta().zxid.to_bits() % 2 == 0);
            done
        };
        1 + self.checkpoints.iter().take_while(done).count()
    }

    /// Checks a disk that died after `done` actions.
    ///
    /// The base must hold the last completed action or the one in flight, and must continue.
    fn check(&self, disk: &SimDisk, done: usize, context: &str) {
        let base = match open(disk) {
            // No server opens a base whose creation was not reported as complete.
            _ if done == 0 => return,
            Ok(base) => base,
            Err(error) => panic!("{context}: {error}"),
        };
        let found = usize::try_from(base.meta().zxid.to_bits()).unwrap();
        assert!(found + 1 == done || found == done, "{context}: {done} done, checkpoint {found} found");
        assert_holds(&base, &self.models[found], context);
        if let Some(checkpoint) = self.checkpoints.get(found) {
            base.checkpoint(checkpoint).unwrap_or_else(|error| panic!("{context}: going on: {error}"));
            assert_holds(&base, &self.models[found + 1], context);
            merge(&base, true).unwrap_or_else(|error| panic!("{context}: merging: {error}"));
            assert_holds(&base, &self.models[found + 1], context);
            drop(base);
            let again = open(&disk.after_power_loss(0)).unwrap_or_else(|error| panic!("{context}: again: {error}"));
            assert_holds(&again, &self.models[found + 1], context);
        }
    }
}

fn steps_of(history: &History) -> u64 {
    let disk = SimDisk::new(0);
    assert_eq!(history.run(&disk), history.models.len());
    disk.steps()
}

fn crash_at_every(steps: impl Iterator<Item = u64>) {
    let history = History::new(11);
    for step in steps {
        let disk = SimDisk::new(step);
        disk.set_crash_at(step);
        let done = history.run(&disk);
        history.check(&disk.after_process_crash(), done, &format!("process crash at step {step}"));
        for seed in power_losses(step) {
            let lost = disk.after_power_loss(seed);
            history.check(&lost, done, &format!("power loss {seed} at step {step}"));
        }
    }
}

#[test]
fn crash_at_any_even_step_leaves_exactly_one_checkpoint() {
    crash_at_every((0..=steps_of(&History::new(11))).step_by(2));
}

#[test]
fn crash_at_any_odd_step_leaves_exactly_one_checkpoint() {
    crash_at_every((1..=steps_of(&History::new(11))).step_by(2));
}

/// The next process must not build on data that only the page cache holds. It must sync first.
#[test]
fn power_loss_after_a_process_crash_leaves_exactly_one_checkpoint() {
    let history = History::new(12);
    for step in (0..steps_of(&history)).step_by(3) {
        let disk = SimDisk::new(step);
        disk.set_crash_at(step);
        let done = history.run(&disk);
        if done == 0 {
            continue;
        }
        let disk = disk.after_process_crash();
        let base = open(&disk).unwrap();
        let found = usize::try_from(base.meta().zxid.to_bits()).unwrap();
        history.check(
            &disk.after_power_loss(0),
            found + 1,
            &format!("lost after reopening at step {step}, {done} done"),
        );
        let Some(checkpoint) = history.checkpoints.get(found) else { continue };
        for second in [1, 4, 9] {
            let disk = disk.after_process_crash();
            let base = open(&disk).unwrap();
            disk.set_crash_at(disk.steps() + second);
            let done = found + 1 + usize::from(base.checkpoint(checkpoint).is_ok());
            for seed in power_losses(step + second) {
                let context = format!("step {step}, then {second}, then power loss {seed}");
                history.check(&disk.after_power_loss(seed), done, &context);
            }
        }
    }
}

/// Crashes again and again at random steps of opening and writing.
fn many_crashes(seed: u64) {
    let mut random = Random::new(seed);
    let mut disk = SimDisk::new(seed);
    drop(create(&disk));
    let mut model = Model::default();
    for round in 0..25 {
        let context = format!("seed {seed}, round {round}");
        if random.below(3) == 0 {
            disk.set_crash_at(disk.steps() + random.below(60));
        }
        let (mut next, mut acknowledged) = (model.clone(), model.clone());
        if let Ok(base) = open(&disk) {
            for _ in 0..random.below(3) {
                let count = 5 + random.below(40);
                let checkpoint = next.random_checkpoint(&mut random, count, 60);
                if base.checkpoint(&checkpoint).is_err() {
                    break;
                }
                acknowledged = next.clone();
                let _ = merge(&base, random.coin());
            }
        }
        disk = if random.coin() { disk.after_process_crash() } else { disk.after_power_loss(random.below(40)) };
        let base = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        model = if base.meta() == acknowledged.meta() { acknowledged } else { next };
        assert_holds(&base, &model, &context);
    }
}

#[test]
fn many_crashes_in_a_row_lose_no_acked_checkpoint() {
    (100..110).for_each(many_crashes);
}

#[test]
#[ignore = "takes minutes"]
fn very_many_crashes_in_a_row_lose_no_acked_checkpoint() {
    (1000..1500).for_each(many_crashes);
}

/// Returns enough unmerged runs for a merge of several steps.
fn unmerged() -> (SimDisk, Model) {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(14));
    for eagerly in [true, false] {
        for _ in 0..2 {
            base.checkpoint(&model.random_checkpoint(&mut random, 150, 300)).unwrap();
        }
        if eagerly {
            merge(&base, true).unwrap();
        }
    }
    (disk, model)
}

/// Crashes strike inside redb, between its transactions, while it moves pages, and when the
/// manifest drops the runs.
#[test]
fn crash_at_any_merge_step_changes_no_record() {
    let (start, model) = unmerged();
    let trial = start.after_process_crash();
    let base = open(&trial).unwrap();
    let before = trial.steps();
    assert!(merge(&base, true).unwrap() > 3);
    let last = trial.steps();
    assert!(last > before + 30);
    // Every second step is enough: a write that one step leaves half done shows at the next step
    // too.
    for step in (before..=last).step_by(2) {
        let disk = start.after_process_crash();
        let base = open(&disk).unwrap();
        disk.set_crash_at(step);
        let _ = merge(&base, true);
        drop(base);
        let crashed = power_losses(step).map(|seed| disk.after_power_loss(seed));
        for (at, disk) in crashed.chain([disk.after_process_crash()]).enumerate() {
            let context = format!("crash {at} at step {step}");
            let base = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_holds(&base, &model, &context);
            merge(&base, true).unwrap_or_else(|error| panic!("{context}: merging: {error}"));
            assert_holds(&base, &model, &context);
            assert_eq!(base.counters().runs, 0, "{context}");
            let again = open(&disk.after_power_loss(0)).unwrap_or_else(|error| panic!("{context}: again: {error}"));
            assert_holds(&again, &model, &context);
        }
    }
}

/// The table of checksums has two blocks. When redb's file shrinks, it gives up the second one,
/// then it grows over it again. A new page must never meet an old checksum or a missing one.
#[test]
fn crash_at_any_checksum_write_around_a_file_shrink_is_harmless() {
    let options = Options { merge_step_bytes: 16 << 20, ..OPTIONS };
    let open = |disk: &SimDisk| Base::open(Arc::new(disk.clone()), BASE_ID, options);
    let name = |at: u64| key::data(&format!("/value/{at:05}")).unwrap();
    let values =
        |numbers: std::ops::Range<u64>, fill| numbers.map(move |at| (name(at), Some(Bytes::from(vec![fill; 3900]))));
    let (start, mut model) = (SimDisk::new(1), Model::default());
    let base = create(&start);
    base.checkpoint(&model.checkpoint(values(0..1100, 3).collect())).unwrap();
    merge(&base, true).unwrap();
    let mut models = vec![model.clone()];
    let changes = [(50..1100).map(|at| (name(at), None)).collect(), values(50..1100, 4).collect()];
    let checkpoints = changes.map(|changes| {
        let checkpoint = model.checkpoint(changes);
        models.push(model.clone());
        checkpoint
    });
    drop(base);

    let (trial, steps) = (start.after_process_crash(), Arc::new(Mutex::new(Vec::new())));
    let base = open(&trial).unwrap();
    trial.fail_with({
        let steps = Arc::clone(&steps);
        move |operation| {
            let is_change = !matches!(operation.kind, OperationKind::Open | OperationKind::Read | OperationKind::Sync);
            if is_change && operation.name.ends_with(".crc") {
                steps.lock().unwrap().push(operation.step);
            }
            None
        }
    });
    let lengths = checkpoints.each_ref().map(|checkpoint| {
        base.checkpoint(checkpoint).unwrap();
        merge(&base, true).unwrap();
        base.checksummed_bytes()
    });
    let table_block_bytes = 1020 * 4096;
    assert!(lengths[0] < table_block_bytes && lengths[1] > table_block_bytes, "{lengths:?}");
    let steps = steps.lock().unwrap().clone();
    assert!(steps.len() > 20, "{steps:?}");

    for step in steps {
        let disk = start.after_process_crash();
        let base = open(&disk).unwrap();
        disk.set_crash_at(step);
        let done = checkpoints
            .iter()
            .take_while(|checkpoint| base.checkpoint(checkpoint).is_ok() && merge(&base, true).is_ok());
        let done = done.count();
        drop(base);
        let crashed = power_losses(step).map(|seed| disk.after_power_loss(seed));
        for (at, disk) in crashed.chain([disk.after_process_crash()]).enumerate() {
            let context = format!("crash {at} at step {step}");
            let base = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = usize::try_from(base.meta().zxid.to_bits()).unwrap() - 1;
            assert!(found == done || found == done + 1, "{context}: {done} done, {found} found");
            assert_holds(&base, &models[found], &context);
            merge(&base, true).unwrap_or_else(|error| panic!("{context}: merging: {error}"));
            for checkpoint in &checkpoints[found..] {
                base.checkpoint(checkpoint).unwrap();
                merge(&base, true).unwrap_or_else(|error| panic!("{context}: going on: {error}"));
            }
            drop(base);
            let again = open(&disk.after_power_loss(0)).unwrap_or_else(|error| panic!("{context}: again: {error}"));
            assert_holds(&again, &model, &context);
        }
    }
}

/// Either the device fails once, or the disk is full from then on. Wherever the merge is, all
/// served data stays readable.
#[test]
fn io_failure_at_any_merge_step_changes_no_record() {
    let (start, model) = unmerged();
    let trial = start.after_process_crash();
    let base = open(&trial).unwrap();
    let before = trial.steps();
    merge(&base, true).unwrap();
    for failing in (before..trial.steps()).step_by(2) {
        for kind in [std::io::ErrorKind::Other, std::io::ErrorKind::StorageFull] {
            let disk = start.after_process_crash();
            let base = open(&disk).unwrap();
            let held = base.reader();
            let failed = AtomicBool::new(false);
            disk.fail_with(move |operation| {
                let is_full = kind == std::io::ErrorKind::StorageFull;
                let can_fail = match operation.kind {
                    OperationKind::Write | OperationKind::Allocate => true,
                    OperationKind::Sync | OperationKind::Read => !is_full,
                    _ => false,
                };
                let now = can_fail && operation.step >= failing && (is_full || !failed.swap(true, Ordering::Relaxed));
                now.then_some(kind)
            });
            let context = format!("step {failing}, {kind:?}");
            let _ = merge(&base, true);
            disk.heal();
            assert_holds(&base, &model, &context);
            assert!(crate::base_support::contents(&held).unwrap() == model.records, "{context}: held");
            if !base.sync_failed() {
                merge(&base, true).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_holds(&base, &model, &context);
                assert_eq!(base.counters().runs, 0, "{context}");
            }
            drop((held, base));
            assert_holds(&open(&disk.after_process_crash()).unwrap(), &model, &context);
        }
    }
}

#[test]
fn io_failure_at_any_checkpoint_step_leaves_no_partial_checkpoint() {
    let history = History::new(13);
    let base_disk = SimDisk::new(1);
    let base = create(&base_disk);
    base.checkpoint(&history.checkpoints[0]).unwrap();
    drop(base);
    let start = base_disk.steps();
    let trial = base_disk.after_process_crash();
    open(&trial).unwrap().checkpoint(&history.checkpoints[1]).unwrap();
    assert!(start > 0 && trial.steps() > 10);
    for failing in 0..trial.steps() {
        let disk = base_disk.after_process_crash();
        let base = open(&disk).unwrap();
        let failed = AtomicBool::new(false);
        disk.fail_with(move |operation| {
            let changes = !matches!(operation.kind, OperationKind::Open | OperationKind::Read);
            let now = changes && operation.step == failing && !failed.swap(true, Ordering::Relaxed);
            now.then_some(std::io::ErrorKind::Other)
        });
        let outcome = base.checkpoint(&history.checkpoints[1]);
        let found = usize::try_from(base.meta().zxid.to_bits()).unwrap();
        match outcome {
            Ok(()) => assert_eq!(found, 2),
            Err(BaseError::Io(_)) => assert!((1..=2).contains(&found)),
            Err(error) => panic!("step {failing}: {error}"),
        }
        assert_holds(&base, &history.models[found], &format!("step {failing} failed"));
        drop(base);
        disk.heal();
        let done = if outcome.is_ok() { 3 } else { found + 1 };
        // A failed sync leaves either state, so only the files as this process sees them are
        // checked.
        history.check(&disk, done, &format!("reopened after step {failing} failed"));
    }
}
