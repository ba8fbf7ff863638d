//! Guarantees of a checkpoint while nothing fails.

use crate::base_support::{BASE_ID, Model, OPTIONS, assert_holds, contents, create, merge, open};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::key;
use zoolet_machine::record::znode::{Data, Kind, Znode};
use zoolet_machine::seam::action::{BaseRead, Checkpoint, CheckpointMeta, FetchWhat, Generation, WEIGHTS_MAX};
use zoolet_machine::seam::event::Fetched;
use zoolet_machine::state::Changes;
use zoolet_model::Zxid;
use zoolet_sim::disk::{OperationKind, Random, SimDisk};
use zoolet_store::FsDisk;
use zoolet_store::base::{Base, BaseError, Options, Scrubbed};
use zoolet_store::disk::Disk;

const ZNODE: Znode<'static> = Znode {
    czxid: 1,
    mzxid: 1,
    pzxid: 1,
    ctime: 0,
    mtime: 0,
    version: 0,
    creates: 0,
    aversion: 0,
    num_children: 0,
    kind: Kind::Persistent,
    data: Data::Null,
    acl: &[],
};

#[test]
fn next_process_opens_the_last_checkpoint() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(1));
    assert_eq!(base.meta().zxid, model.meta().zxid);
    for round in 0..20 {
        base.checkpoint(&model.random_checkpoint(&mut random, 100, 400)).unwrap();
        assert_eq!(base.generation(), Generation(round + 1));
        assert_holds(&base, &model, "in the process that wrote it");
        merge(&base, round % 7 == 0).unwrap();
        assert_eq!(base.generation(), Generation(round + 1));
        assert_holds(&base, &model, "merged");
    }
    drop(base);
    assert_holds(&open(&disk).unwrap(), &model, "in the next process");
}

/// The count of a quota reads them, at most 1,024 at once.
#[test]
fn lengths_of_znodes_are_read_in_order_from_runs_and_merged_records() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let znode = |length: usize| Znode { data: Data::Inline(&[7; 64][..length]), ..ZNODE }.encode();
    let path = |number: usize| key::znode(&format!("/a/{number:05}")).unwrap();
    for (zxid, numbers, length) in [(1, 0..2000, 3), (2, 100..200, 5), (3, 150..160, 0)] {
        let meta = CheckpointMeta { zxid: Zxid::from_bits(zxid).unwrap(), digest: 0, totals: Bytes::new() };
        let record = |number| (path(number), (length > 0).then(|| znode(length)));
        let changes = Arc::new(Changes::from_iter(numbers.map(record)));
        base.checkpoint(&Checkpoint { changes, meta }).unwrap();
        if zxid == 1 {
            merge(&base, true).unwrap();
        }
    }
    let lengths = |from: usize, to: usize| {
        let what = FetchWhat::Weights { from: path(from), to: path(to) };
        match base.reader().fetch(&what).unwrap() {
            Fetched::Weights(found, is_end) => (found, is_end),
            other => panic!("{other:?}"),
        }
    };
    let expected: Vec<_> = (98..102).map(|number| (path(number), if number < 100 { 3 } else { 5 })).collect();
    assert_eq!(lengths(98, 102), (expected, true));
    assert_eq!(lengths(150, 161), (vec![(path(160), 5)], true));
    let (first, is_end) = lengths(160, 1900);
    assert_eq!((first.len(), is_end, &first[1023].0), (WEIGHTS_MAX, false, &path(160 + 1023)));
    assert_eq!((lengths(160, 160 + 1024).1, lengths(160, 161 + 1024).1), (true, false));
}

/// A name may be as long as a frame.
#[test]
fn long_names_end_the_lengths_of_znodes_early() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let path = |number: usize| key::znode(&format!("/a/{number}{}", "x".repeat(10_000))).unwrap();
    let record = Znode { data: Data::Inline(b"1234"), ..ZNODE }.encode();
    let changes = Arc::new(Changes::from_iter((0..9).map(|number| (path(number), Some(record.clone())))));
    let meta = CheckpointMeta { zxid: Zxid::from_bits(1).unwrap(), digest: 0, totals: Bytes::new() };
    base.checkpoint(&Checkpoint { changes, meta }).unwrap();
    let expected: Vec<_> = (0..7).map(|number| (path(number), 4)).collect();
    let answer = |to| base.reader().fetch(&FetchWhat::Weights { from: path(0), to: path(to) }).unwrap();
    assert_eq!(answer(8), Fetched::Weights(expected.clone(), false));
    assert_eq!(answer(7), Fetched::Weights(expected, true));
}

#[test]
fn a_reader_keeps_its_generation_while_later_ones_are_written() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(2));
    let mut held = Vec::new();
    for _ in 0..6 {
        base.checkpoint(&model.random_checkpoint(&mut random, 80, 200)).unwrap();
        held.push((base.reader(), model.clone()));
        merge(&base, true).unwrap();
    }
    for (reader, model) in &held {
        assert_eq!(reader.generation(), Generation(model.zxid));
        assert!(contents(reader).unwrap() == model.records);
    }
}

#[test]
fn readers_run_concurrently_with_checkpoints() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(3));
    base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    let before = model.clone();
    let reader = base.reader();
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| (0..5).all(|_| contents(&reader.clone()).unwrap() == before.records));
        for _ in 0..5 {
            base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
        }
        assert!(reads.join().unwrap());
    });
    assert_holds(&base, &model, "after all");
}

#[test]
fn scan_yields_keys_in_order_and_stops_on_request() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let mut model = Model::default();
    let keys: [&[u8]; 8] = [b"a", b"c\xff", b"d", b"d/a\0b", b"d\xff", b"e", b"n\0", b"n/\0a"];
    let changes = keys.iter().map(|&key| (key.into(), Some(Bytes::copy_from_slice(key)))).collect();
    base.checkpoint(&model.checkpoint(changes)).unwrap();
    let reader = base.reader();
    for (from, &low) in keys.iter().enumerate() {
        for (to, &high) in keys.iter().enumerate() {
            let mut seen: Vec<Vec<u8>> = Vec::new();
            reader
                .keys(low, Some(high), &mut |key| {
                    seen.push(key.to_vec());
                    true
                })
                .unwrap();
            assert_eq!(seen, keys.get(from..to).unwrap_or_default(), "{low:?}..{high:?}");
        }
    }
    let mut seen = 0;
    reader
        .keys(b"", None, &mut |_| {
            seen += 1;
            seen < 4
        })
        .unwrap();
    assert_eq!(seen, 4);
}

#[test]
fn opening_a_base_writes_nothing() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let mut model = Model::default();
    base.checkpoint(&model.random_checkpoint(&mut Random::new(4), 300, 400)).unwrap();
    drop(base);
    let before = disk.counters();
    let base = open(&disk).unwrap();
    assert_holds(&base, &model, "opened");
    drop(base);
    assert_eq!(disk.counters().writes, before.writes);
    assert_eq!(disk.counters().written_bytes, before.written_bytes);
}

#[test]
fn opening_after_a_crash_reads_little_of_a_large_base() {
    let disk = SimDisk::new(1);
    let options = Options { merge_step_bytes: 1 << 20, ..OPTIONS };
    let base = Base::create(Arc::new(disk.clone()), BASE_ID, options).unwrap();
    let (mut model, mut random) = (Model::default(), Random::new(10));
    for _ in 0..6 {
        base.checkpoint(&model.random_checkpoint(&mut random, 4000, 4000)).unwrap();
        merge(&base, false).unwrap();
    }
    disk.set_crash_at(disk.steps() + 5);
    assert!(base.checkpoint(&model.clone().random_checkpoint(&mut random, 4000, 4000)).is_err());
    let base = open(&disk.after_process_crash()).unwrap();
    let (read, bytes) = (base.counters().base_bytes_read, base.file_bytes());
    assert!(bytes > 4 << 20 && read < bytes / 40, "read {read} of {bytes} bytes");
    assert_holds(&base, &model, "after the crash");
}

/// A merge takes many steps. Each step leaves the state unchanged, and checkpoints come in between.
#[test]
fn checkpoints_between_merge_steps_survive_the_merge() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(12));
    let mut between = 0;
    for round in 0..10 {
        base.checkpoint(&model.random_checkpoint(&mut random, 150, 300)).unwrap();
        while base.merge(round % 5 == 4).unwrap() {
            if random.below(3) == 0 && between < round * 3 {
                base.checkpoint(&model.random_checkpoint(&mut random, 20, 300)).unwrap();
                between += 1;
            }
            assert_holds(&base, &model, "between two steps");
        }
    }
    assert!(between > 10, "{between}");
    drop(base);
    assert_holds(&open(&disk).unwrap(), &model, "in the next process");
}

#[test]
fn merged_run_files_are_removed_once_their_last_reader_is_gone() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(13));
    base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    let held = base.reader();
    let before = contents(&held).unwrap();
    for _ in 0..10 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    }
    merge(&base, true).unwrap();
    assert!(contents(&held).unwrap() == before);
    let files = || disk.list().unwrap().iter().filter(|name| name.ends_with(".run")).count();
    assert!(files() > 0);
    drop(held);
    assert_eq!((files(), base.counters().runs), (0, 0));
    assert_holds(&base, &model, "merged");
}

#[test]
fn deleting_every_record_frees_almost_all_disk_space() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(14));
    for _ in 0..5 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
        merge(&base, true).unwrap();
    }
    let gone = model.records.keys().cloned().map(|key| (key, None)).collect();
    base.checkpoint(&model.checkpoint(gone)).unwrap();
    assert_holds(&base, &model, "deleted");
    merge(&base, true).unwrap();
    assert_holds(&base, &model, "merged");
    assert_eq!(disk.list().unwrap(), ["crc", "manifest", "redb"].map(|end| format!("base-{BASE_ID}.{end}")));
    assert!(disk.used_bytes() < 1 << 20, "{}", disk.used_bytes());
    base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    merge(&base, true).unwrap();
    assert_holds(&base, &model, "and goes on");
}

/// Repeated changes of 100 keys must not rewrite a large base again and again.
#[test]
fn frequent_changes_of_few_keys_do_not_rewrite_a_large_base() {
    let disk = SimDisk::new(1);
    let options = Options { runs_max: 4, merge_step_bytes: 64 << 10, ..OPTIONS };
    let base = Base::create(Arc::new(disk.clone()), BASE_ID, options).unwrap();
    let mut model = Model::default();
    let znode = |at: u64, fill: u8| (key::znode(&format!("/app/{at:05}")).unwrap(), Some(Bytes::from(vec![fill; 200])));
    base.checkpoint(&model.checkpoint((0..10_000).map(|at| znode(at, 0)).collect())).unwrap();
    merge(&base, true).unwrap();
    let (before, bytes) = (base.counters().base_bytes_written, base.file_bytes());
    for round in 0..40_u8 {
        base.checkpoint(&model.checkpoint((0..100).map(|at| znode(at * 97, round)).collect())).unwrap();
        merge(&base, false).unwrap();
    }
    let written = base.counters().base_bytes_written - before;
    assert!(written < bytes * 2, "{written} bytes written for 40 small checkpoints of a base of {bytes}");
    assert_holds(&base, &model, "after all");
}

/// A single run of all these changes would need a table that grows with the base.
#[test]
fn runs_with_large_tables_are_merged_even_into_a_large_base() {
    let disk = SimDisk::new(1);
    let options = Options { runs_max: 4, merge_step_bytes: 64 << 10, table_bytes_max: 16 << 10, ..OPTIONS };
    let base = Base::create(Arc::new(disk), BASE_ID, options).unwrap();
    let mut model = Model::default();
    let znode = |at: u64, fill: u8| (key::znode(&format!("/app/{at:05}")).unwrap(), Some(Bytes::from(vec![fill; 100])));
    base.checkpoint(&model.checkpoint((0..20_000).map(|at| znode(at, 0)).collect())).unwrap();
    merge(&base, true).unwrap();
    let before = base.memory_bytes();
    for round in 0..30_u8 {
        base.checkpoint(&model.checkpoint((0..200).map(|at| znode(at * 97, round)).collect())).unwrap();
        merge(&base, false).unwrap();
        // 16 KiB of tables, and 48 KiB for variation in redb's pages.
        let tables = base.memory_bytes().saturating_sub(before);
        assert!(base.counters().runs < 8 && tables < (16 << 10) + (48 << 10), "{tables} bytes of tables");
    }
    assert_holds(&base, &model, "after all");
    // Without checkpoints in between, a merge leaves no run with a sizable table.
    base.checkpoint(&model.checkpoint((0..2000).map(|at| znode(at * 9, 99)).collect())).unwrap();
    merge(&base, false).unwrap();
    assert_eq!(base.counters().runs, 0, "one run is enough when its table is large");
    assert_holds(&base, &model, "and then");
}

#[test]
fn cloned_record_value_shares_memory_with_the_original() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let mut model = Model::default();
    let key = key::znode("/a").unwrap();
    let changes = Changes::from([(key.clone(), Some(Bytes::from_static(b"value")))]);
    base.checkpoint(&model.checkpoint(changes)).unwrap();
    let value = base.reader().record(&key).unwrap().unwrap();
    assert_eq!(value, "value");
    assert_eq!(value.clone().as_ptr(), value.as_ptr());
    assert_eq!(base.reader().record(b"n/\0b").unwrap(), None);
}

#[test]
fn scrub_passes_a_sound_base_and_reports_a_wrong_digest() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let mut model = Model::default();
    base.checkpoint(&model.random_checkpoint(&mut Random::new(5), 500, 400)).unwrap();
    let mut scrub = base.scrub();
    let mut steps = 0;
    while scrub.step(1000).unwrap() == Scrubbed::More {
        steps += 1;
    }
    assert!(steps > 10);

    let mut wrong = model.random_checkpoint(&mut Random::new(6), 10, 400);
    wrong.meta.digest ^= 1;
    base.checkpoint(&wrong).unwrap();
    let mut scrub = base.scrub();
    let end = loop {
        match scrub.step(1000) {
            Ok(Scrubbed::More) => {}
            end => break end,
        }
    };
    assert!(matches!(end, Err(zoolet_machine::seam::event::BaseFailure::Damaged(_))), "{end:?}");
}

#[test]
fn create_refuses_an_existing_base_until_it_is_removed() {
    let disk = SimDisk::new(1);
    drop(create(&disk));
    assert_eq!(Base::list(&disk).unwrap(), [BASE_ID]);
    assert!(matches!(Base::create(Arc::new(disk.clone()), BASE_ID, OPTIONS), Err(BaseError::Io(_))));
    // The refused attempt must leave the existing base unchanged.
    open(&disk).unwrap();
    Base::remove(&disk, BASE_ID).unwrap();
    assert!(Base::list(&disk).unwrap().is_empty());
    assert!(matches!(open(&disk), Err(BaseError::Damaged(_))));
    drop(create(&disk));
}

#[test]
fn base_works_on_a_real_file_system() {
    let path = std::env::temp_dir().join(format!("zoolet-base-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::open(&path).unwrap());
    let base = Base::create(disk.clone(), BASE_ID, OPTIONS).unwrap();
    let (mut model, mut random) = (Model::default(), Random::new(9));
    for _ in 0..5 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 4000)).unwrap();
    }
    assert_holds(&base, &model, "in the process that wrote it");
    drop(base);
    assert_holds(&Base::open(disk, BASE_ID, OPTIONS).unwrap(), &model, "in the next process");
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn failed_sync_refuses_later_checkpoints_while_reads_continue() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(7));
    base.checkpoint(&model.random_checkpoint(&mut random, 100, 400)).unwrap();
    let before = model.clone();
    let reader = base.reader();
    disk.fail(OperationKind::Sync, std::io::ErrorKind::Other);
    let next = model.random_checkpoint(&mut random, 100, 400);
    assert!(matches!(base.checkpoint(&next), Err(BaseError::Io(_))));
    disk.heal();
    assert!(matches!(base.checkpoint(&next), Err(BaseError::Io(_))));
    assert!(base.sync_failed());
    assert!(contents(&reader).unwrap() == before.records);
    assert_holds(&base, &before, "after the failed sync");
}

#[test]
fn reads_continue_when_the_disk_turns_read_only() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(8));
    base.checkpoint(&model.random_checkpoint(&mut random, 100, 400)).unwrap();
    let (before, reader) = (model.clone(), base.reader());
    disk.fail_with(|operation| {
        let changes = matches!(operation.kind, OperationKind::Write | OperationKind::SetLen | OperationKind::Allocate);
        changes.then_some(std::io::ErrorKind::ReadOnlyFilesystem)
    });
    let next: Checkpoint = model.random_checkpoint(&mut random, 100, 400);
    for _ in 0..3 {
        assert!(matches!(base.checkpoint(&next), Err(BaseError::Io(_))));
        assert!(contents(&reader).unwrap() == before.records);
        assert_holds(&base, &before, "read-only");
    }
    disk.heal();
    base.checkpoint(&next).unwrap();
    assert_holds(&base, &model, "writable again");
    assert!(contents(&reader).unwrap() == before.records, "a held generation stays");
}

#[test]
fn base_limited_to_no_runs_merges_during_checkpoints() {
    let disk = SimDisk::new(1);
    let options = Options { runs_max: 0, ..OPTIONS };
    let base = Base::create(Arc::new(disk.clone()), BASE_ID, options).unwrap();
    let (mut model, mut random) = (Model::default(), Random::new(15));
    for _ in 0..6 {
        base.checkpoint(&model.random_checkpoint(&mut random, 50, 300)).unwrap();
    }
    assert!(base.counters().runs <= 4);
    assert_holds(&base, &model, "no runs");
}

/// A base never creates a file with the largest possible number. Such a file must not keep it from
/// opening.
#[test]
fn stray_run_file_numbered_u64_max_is_removed_on_open() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(16));
    base.checkpoint(&model.random_checkpoint(&mut random, 50, 300)).unwrap();
    drop(base);
    let stranger = format!("base-{BASE_ID}-{}.run", u64::MAX);
    disk.create(&stranger).unwrap();
    let base = open(&disk).unwrap();
    assert_eq!(disk.contents(&stranger), None);
    for _ in 0..6 {
        base.checkpoint(&model.random_checkpoint(&mut random, 50, 300)).unwrap();
        merge(&base, false).unwrap();
    }
    assert_holds(&base, &model, "after the stranger");
    drop(base);
    assert_holds(&open(&disk).unwrap(), &model, "opened again");
}

/// When writes outpace merges, each checkpoint waits for a small part of a merge, and none for a
/// whole one.
#[test]
fn back_to_back_checkpoints_merge_in_small_equal_parts() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(17));
    let mut merged = Vec::new();
    for _ in 0..72 {
        let before = base.counters().merge_bytes_written;
        base.checkpoint(&model.random_checkpoint(&mut random, 1000, 300)).unwrap();
        merged.push(base.counters().merge_bytes_written - before);
        assert!(base.counters().runs <= 12);
    }
    let merged = &merged[12..];
    let (longest, sum) = (*merged.iter().max().unwrap(), merged.iter().sum::<u64>());
    assert!(longest * 60 < sum * 4, "{longest} bytes of {sum} in one of 60 checkpoints: {merged:?}");
    assert_holds(&base, &model, "after all");
}
