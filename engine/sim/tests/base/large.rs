//! Records as long as a frame: how much memory walking and merging many runs of them takes.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{BASE_ID, Model, assert_holds};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_engine::{
    action::{BaseRead, Changes},
    store::{
        base::{Base, Options},
        key,
    },
};
use zoolet_sim::disk::SimDisk;

const LARGE: u64 = 200_000;
const RUNS: usize = 12;

/// A base of so many runs, in each of which are the same two large records, between small ones.
fn base(disk: &SimDisk, model: &mut Model) -> Base {
    let options = Options { cache_bytes: 64 << 10, merge_step_bytes: 16 << 10, runs_max: RUNS, ..Options::default() };
    let base = Base::create(Arc::new(disk.clone()), BASE_ID, options).unwrap();
    for round in 0..RUNS as u8 {
        let large = |name: &str| (key::data(name).unwrap(), Some(Bytes::from(vec![round; LARGE as usize])));
        let small = |name: &str| (key::znode(name).unwrap(), Some(Bytes::from(vec![round; 20])));
        let changes = [large("/a"), large("/b"), small("/a"), small("/b"), small(&format!("/c{round}"))];
        base.checkpoint(&model.checkpoint(Changes::from_iter(changes))).unwrap();
    }
    base
}

/// The most that was allocated at one time beyond what there was before.
fn most(act: impl FnOnce()) -> u64 {
    allocation_counter::measure(act).bytes_max
}

#[test]
fn walking_runs_that_all_stand_on_a_large_record_reads_one_of_them_at_a_time() {
    let (disk, mut model) = (SimDisk::new(1), Model::default());
    let base = base(&disk, &mut model);
    let reader = base.reader();
    let bytes = most(|| {
        let mut seen = 0;
        reader
            .keys(b"", None, &mut |_| {
                seen += 1;
                true
            })
            .unwrap();
        assert_eq!(seen, model.records.len());
    });
    assert!(bytes < 3 * LARGE, "{bytes} bytes for {RUNS} runs");
    assert_holds(&base, &model, "walked");
}

#[test]
fn a_walk_or_a_look_up_behind_large_records_reads_none_of_them() {
    let (disk, mut model) = (SimDisk::new(1), Model::default());
    let base = base(&disk, &mut model);
    let (reader, before) = (base.reader(), base.counters().base_bytes_read);
    // Records of ephemerals come directly behind those of data: the end of each session looks for some.
    reader.keys(&[key::EPHEMERAL], Some(&[key::EPHEMERAL + 1]), &mut |_| panic!("there are no ephemerals")).unwrap();
    assert_eq!(reader.record(&key::data("/b0").unwrap()).unwrap(), None);
    let read = base.counters().base_bytes_read - before;
    assert!(read < LARGE / 2, "{read} bytes for {RUNS} runs");
    assert_holds(&base, &model, "walked");
}

#[test]
fn merging_them_does_too() {
    let (disk, mut model) = (SimDisk::new(1), Model::default());
    let base = base(&disk, &mut model);
    let mut steps = 0;
    // What one step gathers, redb's copy of it, and what it writes.
    let bytes = most(|| {
        while base.merge(false).unwrap() {
            steps += 1;
        }
    });
    assert!(steps > 1);
    assert!(bytes < 7 * LARGE, "{bytes} bytes for {RUNS} runs");
    assert_holds(&base, &model, "merged");
}
