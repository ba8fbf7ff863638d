//! The patrol, which reads the whole base once a day.

use crate::base_support::{Model, create, merge};
use zoolet_machine::seam::event::{BaseFailure, Shortage};
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::base::Patrol;
use zoolet_store::disk::Disk;

const HOUR_MS: u64 = 3_600_000;

/// Steps the patrol once a second until a pass ends or `until_ms`.
///
/// Returns when the pass ended, and its outcome.
fn walk(
    patrol: &mut Patrol,
    base: &zoolet_store::base::Base,
    from_ms: u64,
    until_ms: u64,
) -> Option<(u64, Result<u64, BaseFailure>)> {
    (from_ms..until_ms).step_by(1000).find_map(|now_ms| patrol.step(base, now_ms).map(|outcome| (now_ms, outcome)))
}

#[test]
fn patrol_reads_the_whole_base_once_a_day_slowly_without_syncs() {
    let disk = SimDisk::new(1);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(1));
    for _ in 0..8 {
        base.checkpoint(&model.random_checkpoint(&mut random, 2000, 2000)).unwrap();
    }
    merge(&base, true).unwrap();
    base.checkpoint(&model.random_checkpoint(&mut random, 200, 2000)).unwrap();
    let mut patrol = Patrol::new(0);
    let before = disk.counters();
    assert_eq!(walk(&mut patrol, &base, 0, 599_000), None);
    assert_eq!(disk.counters(), before, "nothing is read before it is time");
    let (ended_ms, outcome) = walk(&mut patrol, &base, 599_000, HOUR_MS).unwrap();
    assert_eq!(outcome, Ok(model.records.len() as u64));
    let after = disk.counters();
    assert_eq!(after.syncs, before.syncs);
    // redb writes out pages of the last merge to make room for the pages that the patrol reads.
    assert!(after.written_bytes - before.written_bytes < 64 << 10);
    let seconds = (ended_ms - 600_000) / 1000;
    assert!(seconds > 5 && (after.read_bytes - before.read_bytes) / seconds < 2 << 20, "{seconds} s");
    assert_eq!(walk(&mut patrol, &base, ended_ms, 24 * HOUR_MS), None, "once a day");
    assert!(walk(&mut patrol, &base, 24 * HOUR_MS, 26 * HOUR_MS).is_some());
}

#[test]
fn patrol_finds_a_flipped_bit_in_a_record_no_client_reads() {
    let disk = SimDisk::new(2);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(2));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 300, 400)).unwrap();
    }
    merge(&base, true).unwrap();
    let names: Vec<_> = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".run")).collect();
    for name in names {
        // Inside a record of the first extent.
        assert!(disk.corrupt(&name, 4096 + 100, 1));
        let (_, outcome) = walk(&mut Patrol::new(0), &base, 0, HOUR_MS).unwrap();
        assert!(matches!(outcome, Err(BaseFailure::Damaged(_))), "{name}: {outcome:?}");
        assert!(disk.corrupt(&name, 4096 + 100, 1));
        assert!(walk(&mut Patrol::new(0), &base, 0, HOUR_MS).unwrap().1.is_ok());
    }
}

#[test]
fn abandoned_patrol_releases_merged_run_files() {
    let disk = SimDisk::new(3);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(3));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 2000, 2000)).unwrap();
    }
    let mut patrol = Patrol::new(0);
    assert_eq!(patrol.step(&base, HOUR_MS), None);
    merge(&base, true).unwrap();
    let files = || disk.list().unwrap().iter().filter(|name| name.ends_with(".run")).count();
    assert!(files() > 0);
    patrol.give_up(HOUR_MS);
    assert_eq!(files(), 0);
    assert!(walk(&mut patrol, &base, HOUR_MS, 3 * HOUR_MS).unwrap().1.is_ok());
}

/// A shortage of memory may last, and damage must still be found. But a reader that holds deleted
/// data keeps redb's file from being truncated.
#[test]
fn patrol_yields_to_a_memory_shortage_and_later_completes() {
    let disk = SimDisk::new(6);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(6));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 2000, 2000)).unwrap();
    }
    merge(&base, true).unwrap();
    let mut patrol = Patrol::new(0);
    assert_eq!(patrol.step(&base, HOUR_MS), None);
    let gone = model.records.keys().skip(1).map(|key| (key.clone(), None)).collect();
    base.checkpoint(&model.checkpoint(gone)).unwrap();
    merge(&base, true).unwrap();
    let held = base.checksummed_bytes();
    assert!(patrol.make_way(Shortage::Memory, &base, HOUR_MS));
    merge(&base, true).unwrap();
    assert!(base.checksummed_bytes() < held / 2, "{held} bytes before, {} now", base.checksummed_bytes());
    assert!(matches!(walk(&mut patrol, &base, HOUR_MS + 1000, HOUR_MS + 60_000), Some((_, Ok(_)))));

    let mut patrol = Patrol::new(0);
    assert_eq!(patrol.next_at_ms(), 600_000);
    assert!(!patrol.make_way(Shortage::Disk, &base, HOUR_MS), "on a full disk nothing begins either");
}

/// A pass over a large base takes long, and a busy server writes 100 MB a second meanwhile.
/// Everything that the pass held would stay on the disk until its end.
#[test]
fn patrol_on_a_busy_base_reads_everything_with_bounded_disk_use() {
    let disk = SimDisk::new(4);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(4));
    let write = |model: &mut Model, random: &mut Random| {
        base.checkpoint(&model.random_checkpoint(random, 1000, 300)).unwrap();
        merge(&base, true).unwrap();
    };
    (0..20).for_each(|_| write(&mut model, &mut random));
    let before = disk.used_bytes();
    let mut patrol = Patrol::new(0);
    let mut at_most = 0;
    let mut ended = None;
    for second in 0..200 {
        ended = patrol.step(&base, HOUR_MS + second * 1000);
        write(&mut model, &mut random);
        at_most = at_most.max(disk.used_bytes());
        if ended.is_some() {
            break;
        }
    }
    assert!(at_most < before * 3, "{at_most} bytes on the disk, {before} before the pass");
    assert!(matches!(ended, Some(Ok(records)) if records > 1000), "{ended:?}");
}

/// A pass that saw several states cannot check the digest of a state. The checksum of each record
/// must be enough.
#[test]
fn a_patrol_on_a_busy_base_finds_a_flipped_bit() {
    let disk = SimDisk::new(5);
    let base = create(&disk);
    let (mut model, mut random) = (Model::default(), Random::new(5));
    for _ in 0..4 {
        base.checkpoint(&model.random_checkpoint(&mut random, 2000, 2000)).unwrap();
    }
    merge(&base, true).unwrap();
    let name = format!("base-{}.redb", crate::base_support::BASE_ID);
    let bytes = base.file_bytes();
    drop(base);
    for block in 1..bytes / 4096 {
        disk.corrupt(&name, block * 4096 + 100, 1);
    }
    let Ok(base) = crate::base_support::open(&disk) else { return };
    let mut patrol = Patrol::new(0);
    let found = (0..200_u64).find_map(|second| {
        let outcome = patrol.step(&base, HOUR_MS + second * 1000);
        let _ = base.checkpoint(&model.random_checkpoint(&mut random, 1000, 2000));
        outcome
    });
    assert!(matches!(found, Some(Err(BaseFailure::Damaged(_)))), "{found:?}");
}
