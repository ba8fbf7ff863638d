//! Memory for scanning and merging runs with records as long as a frame.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{BASE_ID, Model, assert_holds};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::key;
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::state::Changes;
use zoolet_sim::disk::SimDisk;
use zoolet_store::base::{Base, Options};

const LARGE: u64 = 200_000;
const RUNS: usize = 12;

/// Returns a base of `RUNS` runs.
///
/// Each run has the same two large records between small ones.
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

/// Returns the peak of bytes allocated during `act`, beyond those allocated before.
fn most(act: impl FnOnce()) -> u64 {
    allocation_counter::measure(act).bytes_max
}

#[test]
fn scan_of_large_records_in_many_runs_loads_few_at_once() {
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
fn scan_or_lookup_past_large_records_skips_their_bytes() {
    let (disk, mut model) = (SimDisk::new(1), Model::default());
    let base = base(&disk, &mut model);
    let (reader, before) = (base.reader(), base.counters().base_bytes_read);
    // Records of ephemerals directly follow those of data, and the end of each session scans them.
    reader.keys(&[key::EPHEMERAL], Some(&[key::EPHEMERAL + 1]), &mut |_| panic!("there are no ephemerals")).unwrap();
    assert_eq!(reader.record(&key::data("/b0").unwrap()).unwrap(), None);
    let read = base.counters().base_bytes_read - before;
    assert!(read < LARGE / 2, "{read} bytes for {RUNS} runs");
    assert_holds(&base, &model, "walked");
}

#[test]
fn merge_of_runs_with_large_records_holds_few_in_memory() {
    let (disk, mut model) = (SimDisk::new(1), Model::default());
    let base = base(&disk, &mut model);
    let mut steps = 0;
    // A step holds its records, redb's copy of them, and the pages being written.
    let bytes = most(|| {
        while base.merge(false).unwrap() {
            steps += 1;
        }
    });
    assert!(steps > 1);
    assert!(bytes < 7 * LARGE, "{bytes} bytes for {RUNS} runs");
    assert_holds(&base, &model, "merged");
}
