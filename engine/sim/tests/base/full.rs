//! A disk that the server's own writes have filled.
//!
//! Writes are refused and deletes are not. The space that deletes free admits writes again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use zoolet_machine::{Event, Limits};
use zoolet_model::{CreateKind, ErrorCode, Reply, Request};
use zoolet_sim::client;
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, tiny_limits};
use zoolet_store::Reserve;

fn limits() -> Limits {
    Limits { memtable_bytes: 64 << 10, log_segment_bytes: 64 << 10, disk_reserve_bytes: 512 << 10, ..tiny_limits() }
}

fn create(machine: &mut Machine, path: &str, bytes: usize) -> Result<Reply, ErrorCode> {
    machine.write(client::create(path, bytes, CreateKind::Persistent))
}

fn delete(machine: &mut Machine, path: &str) -> Result<Reply, ErrorCode> {
    machine.write(client::delete(path))
}

/// Creates znodes until writes are refused; returns their number.
///
/// Calls `look` before each create.
fn fill(machine: &mut Machine, bytes: usize, look: impl Fn()) -> usize {
    for number in 0..20_000 {
        look();
        match create(machine, &format!("/n{number}"), bytes) {
            Ok(_) => {}
            Err(ErrorCode::SystemError) => return number,
            Err(error) => panic!("create {number}: {error:?}"),
        }
    }
    panic!("the disk never was full");
}

/// Size of a small disk, in bytes.
const CAPACITY: u64 = 8 << 20;
/// Bound for the data directory on a large disk, in bytes.
///
/// A second base must fit beside the first one. It needs an eighth more than its records, and 4
/// MiB.
const BOUND: u64 = CAPACITY + (4 << 20);

/// Asserts that the files take at most `bound` bytes of the disk.
fn within(disk: &SimDisk, bound: u64) {
    assert!(disk.used_bytes() <= bound, "{} bytes are taken of {bound}", disk.used_bytes());
}

fn deletes_make_room(bytes: usize, deleted_of_ten: usize, limits: Limits, capacity: Option<u64>) {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, limits);
    disk.set_capacity(capacity);
    let bound = capacity.unwrap_or(limits.disk_bytes_max);
    for round in 0..4 {
        let count = fill(&mut machine, bytes, || within(&disk, bound));
        // A bound also leaves room for a second base, so fewer znodes fit.
        let least = if capacity.is_some() { 2 << 20 } else { 1 << 20 };
        assert!(count * bytes > least, "round {round}: full after {count} of {bytes} bytes");
        let gone: Vec<usize> = (0..count).filter(|number| number % 10 < deleted_of_ten).collect();
        for (at, number) in gone.iter().enumerate() {
            let deleted = delete(&mut machine, &format!("/n{number}"));
            assert_eq!(deleted, Ok(Reply::Empty), "round {round}: delete {at} of {}", gone.len());
            let read = machine.ask(Request::Exists { path: "/".into(), watch: false });
            assert!(read.is_ok(), "reads go on: {read:?}");
            within(&disk, bound);
        }
        for _ in 0..3 {
            machine.advance(1001).unwrap();
        }
        for number in &gone {
            let created = create(&mut machine, &format!("/n{number}"), bytes);
            assert!(created.is_ok() || number * 3 > count, "round {round}: {number} of {count}: {created:?}");
            if created.is_err() {
                break;
            }
        }
        for number in 0..count {
            let _ = delete(&mut machine, &format!("/n{number}"));
            within(&disk, bound);
        }
        for _ in 0..3 {
            machine.advance(1001).unwrap();
        }
    }
    drop(machine);
    // None of this needs a disk larger than before.
    let again = disk.after_process_crash();
    again.set_capacity(capacity);
    let mut machine = Machine::connected(&again, limits);
    assert!(create(&mut machine, "/after", bytes).is_ok());
}

#[test]
fn deleting_small_znodes_on_a_full_disk_readmits_writes() {
    deletes_make_room(300, 5, limits(), Some(CAPACITY));
}

#[test]
fn deleting_large_znodes_on_a_full_disk_readmits_writes() {
    deletes_make_room(20_000, 5, limits(), Some(CAPACITY));
}

/// With nothing stored, free space is never more than at the start. It must be enough to admit
/// writes.
#[test]
fn disk_hardly_larger_than_log_and_reserve_readmits_writes() {
    // As in a profile, an empty redb is small beside the reserve.
    let limits = Limits { memtable_bytes: 512 << 10, disk_reserve_bytes: 8 << 20, ..limits() };
    let newborn = SimDisk::new(1);
    drop(Machine::connected(&newborn, limits));
    let ring = u64::from(limits.log_segments * limits.log_segment_bytes);
    let reserve = u64::from(limits.disk_reserve_bytes);
    let least = newborn.used_bytes() + ring + reserve;
    // Below the eighth of the reserve that must be free as well on a larger disk.
    for more in (4..8).map(|part| part * reserve / 64) {
        let disk = newborn.after_process_crash();
        disk.set_capacity(Some(least + more));
        let mut machine = Machine::connected(&disk, limits);
        for round in 0..3 {
            let count = fill(&mut machine, 10_000, || {});
            assert!(count > 10, "round {round} with {more} bytes more: full after {count}");
            for number in 0..count {
                assert_eq!(delete(&mut machine, &format!("/n{number}")), Ok(Reply::Empty));
            }
            for _ in 0..5 {
                machine.advance(1001).unwrap();
            }
            assert!(disk.contents("reserve").is_some(), "round {round} with {more} bytes more");
        }
    }
}

/// The server keeps a smaller reserve. Without any, deletes could not be merged, and the files
/// would hold the space that deletes free.
#[test]
fn disk_too_small_for_the_reserve_readmits_writes_after_deletes() {
    let limits = Limits { memtable_bytes: 512 << 10, disk_reserve_bytes: 8 << 20, ..limits() };
    let newborn = SimDisk::new(1);
    drop(Machine::connected(&newborn, Limits { disk_reserve_bytes: 0, ..limits }));
    let ring = u64::from(limits.log_segments * limits.log_segment_bytes);
    let reserve = u64::from(limits.disk_reserve_bytes);
    // Start at four memtables of space beyond the log's ring.
    for of_reserve in (2..8).map(|part| part * reserve / 8) {
        let disk = newborn.after_process_crash();
        disk.set_capacity(Some(newborn.used_bytes() + ring + of_reserve));
        let mut machine = Machine::connected(&disk, limits);
        for round in 0..3 {
            let count = fill(&mut machine, 10_000, || {});
            assert!(count > 10, "round {round} with {of_reserve} bytes of the reserve: full after {count}");
            for number in 0..count {
                assert_eq!(delete(&mut machine, &format!("/n{number}")), Ok(Reply::Empty));
            }
            for _ in 0..5 {
                machine.advance(1001).unwrap();
            }
            assert_eq!(refusing_writes(&mut machine), None, "round {round} with {of_reserve} bytes of the reserve");
        }
    }
}

/// Another program has taken the free space. If a start removed the reserve to create one that
/// fits, that space would be lost too.
#[test]
fn restart_on_a_full_disk_keeps_the_whole_reserve() {
    let limits = Limits { memtable_bytes: 512 << 10, disk_reserve_bytes: 8 << 20, ..limits() };
    let mut disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, limits);
    create_until_checkpoint(&mut machine, 0);
    drop(machine);
    for restart in 0..3 {
        disk = disk.after_process_crash();
        disk.set_capacity(Some(disk.used_bytes()));
        let mut machine = Machine::connected(&disk, limits);
        machine.advance(1001).unwrap();
        let bytes = disk.contents("reserve").map(|contents| contents.len());
        assert_eq!(bytes, Some(8 << 20), "after restart {restart}");
    }
}

/// Regression: the log of a young server does not have all its segments. The next one found no
/// space, so deletes were refused beside an unused reserve.
#[test]
fn young_log_on_a_full_disk_accepts_deletes_from_the_reserve() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::connected(&disk, Limits { memtable_bytes: 512 << 10, ..limits() });
    machine.advance(1001).unwrap();
    assert!(disk.contents("reserve").is_some());
    disk.set_capacity(Some(disk.used_bytes()));
    // When writes are refused, the log has run out of segments, and no checkpoint has begun.
    let end = fill(&mut machine, 1000, || {});
    assert_eq!(refusing_writes(&mut machine), Some("the disk is full"));
    for number in 0..end {
        assert_eq!(delete(&mut machine, &format!("/n{number}")), Ok(Reply::Empty), "delete {number} of {end}");
    }
    disk.set_capacity(None);
    for _ in 0..5 {
        machine.advance(1001).unwrap();
    }
    assert_eq!(refusing_writes(&mut machine), None);
    assert!(create(&mut machine, "/again", 1000).is_ok() && disk.contents("reserve").is_some());
}

#[test]
fn restart_resizes_the_reserve_to_its_configured_size() {
    let with =
        |reserve_mib: u32| Limits { memtable_bytes: 512 << 10, disk_reserve_bytes: reserve_mib << 20, ..limits() };
    let (mut disk, mut next) = (SimDisk::new(1), 0);
    for mib in [4, 8, 2, 3] {
        let mut machine = Machine::connected(&disk, with(mib));
        next = create_until_checkpoint(&mut machine, next);
        assert_eq!(disk.contents("reserve").map(|contents| contents.len()), Some((mib as usize) << 20));
        disk = disk.after_process_crash();
    }
}

/// The disk has more space, but this server may not use all of it.
#[test]
fn data_directory_stays_below_disk_bytes_max_and_deletes_free_room() {
    let limits = Limits { disk_bytes_max: BOUND, ..limits() };
    for bytes in [300, 20_000] {
        deletes_make_room(bytes, 5, limits, None);
    }
}

fn refusing_writes(machine: &mut Machine) -> Option<&'static str> {
    machine.handle(Event::Status { ticket: 1 }).unwrap();
    machine.status.take().unwrap().refusing_writes
}

/// Creates znodes until the next checkpoint; returns the next number.
fn create_until_checkpoint(machine: &mut Machine, from: usize) -> usize {
    let before = machine.base().generation();
    for number in from..from + 1000 {
        create(machine, &format!("/n{number}"), 1000).unwrap();
        if machine.base().generation() != before {
            return number + 1;
        }
    }
    panic!("no checkpoint");
}

#[test]
fn checkpoint_that_uses_the_reserve_stops_ordinary_writes_at_once() {
    for checkpoints in 20..26 {
        let disk = SimDisk::new(3);
        let mut machine = Machine::connected(&disk, limits());
        // By then the log has all its segments and need not grow.
        let next = (0..checkpoints).fold(0, |next, _| create_until_checkpoint(&mut machine, next));
        assert_eq!(refusing_writes(&mut machine), None);
        disk.set_capacity(Some(disk.used_bytes()));
        let next = create_until_checkpoint(&mut machine, next);
        assert_eq!(disk.contents("reserve"), None, "the checkpoint had no other room");
        assert_eq!(refusing_writes(&mut machine), Some("the disk is full"), "after {checkpoints} checkpoints");
        assert_eq!(create(&mut machine, &format!("/n{next}"), 1000), Err(ErrorCode::SystemError));
        assert_eq!(delete(&mut machine, "/n0"), Ok(Reply::Empty));
        disk.set_capacity(None);
        machine.advance(2000).unwrap();
        assert_eq!(refusing_writes(&mut machine), None);
        assert!(create(&mut machine, &format!("/n{next}"), 1000).is_ok());
    }
}

/// Other programs fill the disk too. Deletes then rely on the reserve.
#[test]
fn disk_filled_by_other_programs_accepts_deletes_and_then_resumes() {
    let disk = SimDisk::new(2);
    let mut machine = Machine::connected(&disk, limits());
    for number in 0..400 {
        create(&mut machine, &format!("/n{number}"), 1000).unwrap();
    }
    // docs/explanation/safety.md describes a log that cannot grow.
    disk.set_capacity(Some(disk.used_bytes() + (512 << 10)));
    let more = (0..2000).map(|number| create(&mut machine, &format!("/m{number}"), 1000));
    let admitted = more.take_while(Result::is_ok).count();
    assert!(admitted < 1000, "{admitted} writes of 1,000 bytes went into no space");
    for number in 0..300 {
        assert_eq!(delete(&mut machine, &format!("/n{number}")), Ok(Reply::Empty), "delete {number}");
    }
    disk.set_capacity(None);
    machine.advance(2000).unwrap();
    machine.advance(2000).unwrap();
    assert!(create(&mut machine, "/room", 1000).is_ok());
}

#[test]
fn refusal_reason_is_updated_when_the_cause_of_no_room_changes() {
    let disk = SimDisk::new(4);
    let mut machine = Machine::connected(&disk, Limits { disk_bytes_max: BOUND, ..limits() });
    fill(&mut machine, 1000, || {});
    let look = |machine: &mut Machine| {
        machine.advance(2000).unwrap();
        refusing_writes(machine)
    };
    assert_eq!(look(&mut machine), Some("the data directory is as large as disk_bytes_max allows"));
    // Other programs take the space that the bound leaves, and free it again.
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(look(&mut machine), Some("the disk is full"));
    disk.set_capacity(None);
    assert_eq!(look(&mut machine), Some("the data directory is as large as disk_bytes_max allows"));
}

/// UBIFS reserves space only for written data, and compresses it.
#[test]
fn reserve_made_by_writing_is_incompressible() {
    let disk = SimDisk::new(1);
    disk.reserve_by_writing();
    let machine = Machine::connected(&disk, limits());
    Reserve::open(Arc::new(disk.clone()), &limits()).recheck(machine.base());
    let reserve = disk.contents("reserve").unwrap();
    assert_eq!(reserve.len(), limits().disk_reserve_bytes as usize);
    let words: BTreeSet<&[u8]> = reserve.chunks(8).collect();
    assert_eq!(words.len(), reserve.len() / 8, "some of it is there twice");
    let mut bytes = [0_usize; 256];
    reserve.iter().for_each(|&byte| bytes[usize::from(byte)] += 1);
    let even = reserve.len() / 256;
    assert!(bytes.iter().all(|&count| (even / 2..even * 2).contains(&count)), "{bytes:?}");
}
