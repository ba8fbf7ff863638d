//! A snapshot replaces a server's state.
//!
//! A crash at any step of the disk leaves all of the old state or all of the new one, and nothing
//! else.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{Model, contents};
use crate::log_support::{append, entry, open_epoch, zxid};
use bytes::Bytes;
use std::{convert::Infallible, sync::Arc};
use zoolet_machine::record::{chain_after, key};
use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta, LogRecord};
use zoolet_machine::state::Changes;
use zoolet_machine::{Event, Limits};
use zoolet_model::Zxid;
use zoolet_sim::{disk::SimDisk, machine::tiny_limits};
use zoolet_store::base::Base;
use zoolet_store::disk::Disk;
use zoolet_store::log::Receiving;
use zoolet_store::{SnapshotSink, SnapshotSource, Store, Strategy};

const CHAIN: u128 = 0x77;

fn limits() -> Limits {
    Limits { log_segment_bytes: 20 << 10, log_segments: 4, disk_reserve_bytes: 0, ..tiny_limits() }
}

fn open(disk: &SimDisk) -> Result<Store, String> {
    Store::open(Arc::new(disk.clone()), Strategy::Recycle, &limits(), 77).map_err(|error| error.to_string())
}

/// Returns a checkpoint of `znodes` znodes filled with `word`.
fn checkpoint(model: &mut Model, zxid: Zxid, znodes: u64, word: u8) -> Checkpoint {
    let znode = |at: u64| (key::znode(&format!("/{at}")).unwrap(), Some(Bytes::from(vec![word; 300])));
    let Checkpoint { changes, meta } = model.checkpoint((0..znodes).map(znode).collect::<Changes>());
    Checkpoint { changes, meta: CheckpointMeta { zxid, totals: Bytes::from(vec![0; 44]), ..meta } }
}

/// A leader's snapshot and the records in it.
struct Leader {
    model: Model,
    bytes: Vec<u8>,
}

impl Leader {
    fn new() -> Self {
        let (disk, mut model) = (SimDisk::new(9), Model::default());
        let base = Base::create(Arc::new(disk), 0, crate::base_support::OPTIONS).unwrap();
        base.checkpoint(&checkpoint(&mut model, zxid(2, 4), 40, b'l')).unwrap();
        let source = SnapshotSource::open(base.reader(), CHAIN).unwrap();
        let bytes = source.read(0, 1 << 30).unwrap();
        Self { model, bytes }
    }
}

/// Progress of a learner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Old,
    /// The log has acknowledged SnapEnd.
    New,
    /// The log has also acknowledged the entries up to 2.6.
    More,
}

/// Prepares a learner with a different history and a base at 1.3.
fn set_up(disk: &SimDisk) -> Model {
    let (mut store, mut model) = (open(disk).unwrap(), Model::default());
    append(&mut store.log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut store.log, (1..=6).map(|counter| entry(zxid(1, counter), 700)).collect(), zxid(1, 5)).unwrap();
    store.base.checkpoint(&checkpoint(&mut model, zxid(1, 3), 20, b'o')).unwrap();
    store.log.recycle(zxid(1, 3));
    model
}

/// Installs the snapshot and continues.
fn take_in(disk: &SimDisk, leader: &Leader, stage: &mut Stage) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let Store { mut log, base, .. } = open(disk)?;
    let (zxid_in, id) = (zxid(2, 4), base.id() + 1);
    append(
        &mut log,
        vec![LogRecord::Promise(crate::log_support::epoch(2)), LogRecord::SnapBegin { zxid: zxid_in, base: id }],
        Zxid::ZERO,
    )
    .map_err(|e| say(&e))?;
    let mut sink = SnapshotSink::begin(Arc::new(disk.clone()), id, &limits()).map_err(|e| say(&e))?;
    for chunk in leader.bytes.chunks(5000) {
        sink.write(chunk).map_err(|e| say(&e))?;
    }
    let received = sink.finish().map_err(|e| say(&e))?;
    let end = LogRecord::SnapEnd { base: id, zxid: zxid_in, chain: received.chain };
    append(&mut log, vec![end], Zxid::ZERO).map_err(|e| say(&e))?;
    *stage = Stage::New;
    base.retire();
    drop(base);
    append(&mut log, vec![LogRecord::Epoch(crate::log_support::epoch(2))], Zxid::ZERO).map_err(|e| say(&e))?;
    append(&mut log, vec![entry(zxid(2, 5), 700), entry(zxid(2, 6), 700)], zxid(2, 5)).map_err(|e| say(&e))?;
    *stage = Stage::More;
    let mut model = leader.model.clone();
    received.base.checkpoint(&checkpoint(&mut model, zxid(2, 5), 50, b'm')).map_err(|e| say(&e))?;
    log.recycle(zxid(2, 5));
    append(&mut log, vec![entry(zxid(2, 7), 700)], zxid(2, 6)).map_err(|e| say(&e))?;
    Ok(())
}

/// Asserts that the disk holds exactly one of the states; returns which.
fn check(disk: &SimDisk, old: &Model, leader: &Leader, stage: Stage, story: &str) -> Stage {
    let store = open(disk).unwrap_or_else(|error| panic!("{story}: {error}"));
    let facts = &store.facts;
    let is_new = facts.base_id == 1;
    assert!(is_new || stage == Stage::Old, "{story}: SnapEnd was acknowledged");
    let mut entries = Vec::new();
    let mut chain = store.chain_at_base;
    store
        .replay(|event| {
            if let Event::Recovered { zxid, payload } = event {
                chain = chain_after(chain, zxid, &payload);
                entries.push(zxid);
            }
            Ok::<(), Infallible>(())
        })
        .unwrap_or_else(|error| panic!("{story}: {error}"));
    assert_eq!(chain, facts.chain, "{story}: the history is what the facts say");
    let found = contents(&store.base.reader()).unwrap();
    let mut later = leader.model.clone();
    checkpoint(&mut later, zxid(2, 5), 50, b'm');
    if is_new {
        let base = store.base.meta().zxid;
        assert_eq!(facts.receiving, None, "{story}");
        assert!(
            found == if base == zxid(2, 4) { leader.model.records.clone() } else { later.records },
            "{story}: {base}"
        );
        let expected = crate::log_support::counters(2, base.counter() + 1..=7);
        assert!(expected.starts_with(&entries), "{story}: {entries:?}");
        assert!(entries.len() + base.counter() as usize >= 6 || stage < Stage::More, "{story}: {entries:?}");
        assert_eq!(store.log.chain_at(base).unwrap() == CHAIN, base == zxid(2, 4), "{story}");
    } else {
        assert!(found == old.records, "{story}");
        assert_eq!(entries, crate::log_support::counters(1, 4..=6), "{story}");
        assert!([None, Some(Receiving { zxid: zxid(2, 4), base_id: 1 })].contains(&facts.receiving), "{story}");
        assert_eq!(facts.watermark, zxid(1, 5), "{story}");
    }
    assert_eq!(Base::list(disk).unwrap(), [facts.base_id], "{story}: nothing else is left");
    if is_new { Stage::New } else { Stage::Old }
}

#[test]
fn crash_at_any_snapshot_switch_step_leaves_old_or_new_state() {
    let leader = Leader::new();
    let prepared = SimDisk::new(1);
    let old = set_up(&prepared);
    let steps = {
        let disk = prepared.after_process_crash();
        take_in(&disk, &leader, &mut Stage::Old).unwrap();
        disk.steps()
    };
    assert!(steps > 40, "{steps}");
    let mut seen = [0, 0];
    for step in 0..=steps {
        let disk = prepared.after_process_crash();
        disk.set_crash_at(step);
        let mut stage = Stage::Old;
        let outcome = take_in(&disk, &leader, &mut stage);
        assert!(outcome.is_err() || step >= steps, "step {step}");
        // Seed 1 loses nothing, like a process crash, but then nothing is left unsynced for a later
        // loss.
        let seeds = [0, 1, 2 + step];
        let losses = seeds.iter().map(|seed| (format!("power loss {seed}"), disk.after_power_loss(*seed)));
        for (kind, image) in [("process crash".to_owned(), disk.after_process_crash())].into_iter().chain(losses) {
            let story = format!("{kind} at step {step}, after {stage:?}");
            let copy = image.after_process_crash();
            let found = check(&image, &old, &leader, stage, &story);
            seen[found as usize] += 1;
            // The transfer can be repeated.
            if found == Stage::Old && step % 4 == 0 && kind != "power loss 1" {
                take_in(&image, &leader, &mut Stage::Old).unwrap_or_else(|error| panic!("{story}, again: {error}"));
                check(&image.after_power_loss(0), &old, &leader, Stage::More, &format!("{story}, again"));
            }
            // The next process dies too while it opens the store.
            for second in (0..6).filter(|second| (second + step) % 6 == 0 && kind != "power loss 1") {
                let image = copy.after_process_crash();
                image.set_crash_at(second);
                let _ = open(&image);
                check(&image.after_process_crash(), &old, &leader, stage, &format!("{story}, then step {second}"));
                check(
                    &image.after_power_loss(step),
                    &old,
                    &leader,
                    stage,
                    &format!("{story}, then power at step {second}"),
                );
            }
        }
    }
    assert!(seen[0] > 20 && seen[1] > 20, "{seen:?}");
}

#[test]
fn io_failure_at_any_snapshot_step_leaves_the_old_files() {
    use zoolet_sim::disk::OperationKind;
    let leader = Leader::new();
    let prepared = SimDisk::new(1);
    set_up(&prepared);
    let steps = {
        let disk = prepared.after_process_crash();
        let mut sink = SnapshotSink::begin(Arc::new(disk.clone()), 1, &limits()).unwrap();
        sink.write(&leader.bytes).unwrap();
        sink.finish().unwrap();
        disk.steps()
    };
    for failing in 0..steps {
        let disk = prepared.after_process_crash();
        let before = disk.list().unwrap();
        disk.fail_with(move |operation| {
            let is_step = !matches!(operation.kind, OperationKind::Open | OperationKind::Read);
            (is_step && operation.step == failing).then_some(std::io::ErrorKind::StorageFull)
        });
        let outcome = SnapshotSink::begin(Arc::new(disk.clone()), 1, &limits()).and_then(|mut sink| {
            sink.write(&leader.bytes)?;
            sink.finish()
        });
        disk.heal();
        match outcome {
            // The failed operation was not needed.
            Ok(received) => {
                assert!(contents(&received.base.reader()).unwrap() == leader.model.records, "step {failing}")
            }
            Err(_) => assert_eq!(disk.list().unwrap(), before, "step {failing}"),
        }
    }
}
