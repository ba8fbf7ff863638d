//! A full disk stops checkpoints and nothing else.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

mod base_support;

use base_support::{Model, assert_holds, contents, create, merge, open};
use bytes::Bytes;
use zoolet_engine::{
    action::{BaseRead, Changes},
    store::{base::BaseError, key},
};
use zoolet_sim::disk::{OperationKind, Random, SimDisk};

fn large(count: u64) -> Changes {
    let one = |at: u64| (key::data(&format!("/large/{at}")).unwrap(), Some(Bytes::from(vec![3; 60_000])));
    (0..count).map(one).collect()
}

#[test]
fn reads_survive_a_checkpoint_that_ran_out_of_space() {
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

/// Space that ends in the middle of a checkpoint, whichever write that is.
#[test]
fn reads_survive_a_write_that_ran_out_of_space_wherever_it_is() {
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
fn a_checkpoint_bound_to_fail_writes_nothing() {
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
fn a_merge_without_room_changes_nothing_and_one_with_room_for_a_part_goes_on() {
    let disk = SimDisk::new(4);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(4));
    for _ in 0..8 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 3000)).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes() + (4 << 10)));
    assert_eq!(base.merge(true), Err(BaseError::NoSpace));
    assert_holds(&base, &model, "no room");
    // What merged runs hold and what the steps so far wrote is there twice until the end.
    disk.set_capacity(Some(disk.used_bytes() + base.file_bytes() * 3));
    merge(&base, true).unwrap();
    assert_holds(&base, &model, "merged");
    assert_eq!(base.counters().runs, 0);
    assert!(base.reader().record(b"n/\0absent").unwrap().is_none());
}
