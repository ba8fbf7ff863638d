//! A disk with a bound on the space that may be taken.
//!
//! The bound is never exceeded, no operation that has its space is refused, and removals free
//! space.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::ErrorKind;
use std::sync::Arc;
use zoolet_sim::disk::SimDisk;
use zoolet_sim::workload::Random;
use zoolet_store::capped;
use zoolet_store::disk::{Disk, DiskFile};

const BLOCK: u64 = 4096;
const BOUND: u64 = 64 * BLOCK;

fn bounded() -> (SimDisk, Arc<dyn Disk>) {
    let disk = SimDisk::new(1);
    (disk.clone(), capped(Arc::new(disk), BOUND))
}

fn write(file: &dyn DiskFile, block: u64, blocks: u64) -> Result<(), ErrorKind> {
    file.write_at(block * BLOCK, &vec![1; (blocks * BLOCK) as usize]).map_err(|error| error.kind())
}

#[test]
fn write_above_the_space_bound_fails_as_on_a_full_disk() {
    let (disk, bounded) = bounded();
    let file = bounded.create("a.log").unwrap();
    file.allocate(60 * BLOCK).unwrap();
    let other = bounded.create("b").unwrap();
    assert_eq!(bounded.free_bytes().unwrap(), 4 * BLOCK);
    assert_eq!(write(&*other, 0, 5), Err(ErrorKind::StorageFull));
    assert_eq!(file.allocate(65 * BLOCK).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.write_zeroes(60 * BLOCK..65 * BLOCK).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.used_bytes(), 60 * BLOCK);
    assert_eq!(write(&*other, 0, 4), Ok(()));
    assert_eq!((disk.used_bytes(), bounded.free_bytes().unwrap()), (BOUND, 0));
    // Overwriting allocated space needs no more space.
    assert_eq!(write(&*file, 20, 40), Ok(()));
    assert_eq!(write(&*other, 0, 4), Ok(()));
    assert_eq!(write(&*other, 4, 1), Err(ErrorKind::StorageFull));
    other.set_len(2 * BLOCK).unwrap();
    assert_eq!(write(&*other, 3, 1), Ok(()), "and what was cut off left its own");
    bounded.remove("a.log").unwrap();
    assert_eq!(bounded.free_bytes().unwrap(), BOUND - disk.used_bytes());
    // The disk itself may have less space than the bound leaves.
    disk.set_capacity(Some(disk.used_bytes() + 3 * BLOCK));
    assert_eq!(bounded.free_bytes().unwrap(), 3 * BLOCK);
}

#[test]
fn file_hole_takes_space_only_when_written() {
    let (disk, bounded) = bounded();
    let file = bounded.create("base-1.redb").unwrap();
    file.set_len(1000 * BLOCK).unwrap();
    assert_eq!(disk.used_bytes(), 0);
    for block in 0..64 {
        assert_eq!(write(&*file, 10 * block, 1), Ok(()));
    }
    assert_eq!(write(&*file, 5, 1), Err(ErrorKind::StorageFull));
    assert_eq!(disk.used_bytes(), BOUND);
}

#[test]
fn directory_above_its_bound_can_be_opened_and_shrunk() {
    let disk = SimDisk::new(1);
    disk.create("a").unwrap().allocate(2 * BOUND).unwrap();
    let bounded = capped(Arc::new(disk.clone()), BOUND);
    assert_eq!(bounded.free_bytes().unwrap(), 0);
    let file = bounded.open("a").unwrap();
    assert_eq!(write(&*file, 0, 10), Ok(()));
    assert_eq!(write(&*bounded.create("b").unwrap(), 0, 1), Err(ErrorKind::StorageFull));
    bounded.remove("a").unwrap();
    assert_eq!(write(&*bounded.open("b").unwrap(), 0, 1), Ok(()));
    assert!(capped(Arc::new(disk), 0).free_bytes().unwrap() > BOUND, "0 is no bound");
}

/// No sequence of operations exceeds the bound, and no operation that has its space is refused.
#[test]
fn random_operations_never_exceed_the_space_bound() {
    let names = ["a.log", "base-1.redb", "base-1-1.run", "reserve"];
    let (mut refused, mut written) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (disk, bounded) = bounded();
        let mut files: Vec<(&str, Arc<dyn DiskFile>)> = Vec::new();
        for step in 0..100 {
            let what = format!("seed {seed}, step {step}");
            if files.is_empty() || random.one_in(8) {
                let name = *random.pick(&names);
                let file = bounded.create(name).or_else(|_| bounded.open(name)).unwrap();
                files.retain(|(other, _)| *other != name);
                files.push((name, file));
            }
            let (name, file) = random.pick(&files).clone();
            let (block, blocks) = (random.below(40), 1 + random.below(20));
            let before = disk.used_bytes();
            let outcome = match random.below(10) {
                0 => {
                    bounded.remove(name).unwrap();
                    files.retain(|(other, _)| *other != name);
                    continue;
                }
                1 => {
                    // Only redb's file is extended in this way.
                    let len = file.len().unwrap();
                    let to = if name.ends_with(".redb") { block * BLOCK } else { len.min(block * BLOCK) };
                    file.set_len(to).map_err(|error| error.kind())
                }
                2 => file.allocate((block + blocks) * BLOCK).map(drop).map_err(|error| error.kind()),
                _ => write(&*file, block, blocks),
            };
            assert!(disk.used_bytes() <= BOUND, "{what}: {} bytes", disk.used_bytes());
            match outcome {
                Ok(()) => written += 1,
                Err(kind) => {
                    assert_eq!(kind, ErrorKind::StorageFull, "{what}");
                    // A write beyond the end of a file may also take the space in between.
                    assert!(before + (block + blocks) * BLOCK > BOUND, "{what}: refused with {before} bytes taken");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && written > 5000, "{refused} refused, {written} written");
}

/// Space that another thread is about to take is not in the disk's figures yet.
#[test]
fn concurrent_writers_never_exceed_the_space_bound() {
    for seed in 0..50 {
        let (disk, bounded) = bounded();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let bounded = &bounded;
                scope.spawn(move || {
                    let file = bounded.create(&format!("{thread}")).unwrap();
                    let mut random = Random::new(seed * 4 + thread);
                    (0..64).map(|_| write(&*file, random.below(60), 1)).filter(Result::is_ok).count()
                });
            }
        });
        assert!(disk.used_bytes() <= BOUND, "seed {seed}: {} bytes", disk.used_bytes());
    }
}
