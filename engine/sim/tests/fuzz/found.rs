//! Bugs that fuzzing has found, one test each. The inputs are in tests/fuzz/corpus.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::{append, create, entry, open_epoch, small, try_open, zxid};
use zoolet_machine::{ConnId, Limits};
use zoolet_model::{AddWatchMode, ConnectRequest, Request, SetWatches, Zxid};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::one_server::{Conditions, World};
use zoolet_store::Strategy;
use zoolet_store::disk::Disk;
use zoolet_store::log::LogError;

/// A device returned zeroes for the first block of the newest segment. The log took the file for an
/// unused one, and opened without the acknowledged entries in it.
#[test]
fn segment_with_a_zeroed_first_block_is_damage_not_unused() {
    let disk = SimDisk::new(1);
    let options = small(Strategy::Recycle);
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=6 {
        append(&mut log, vec![entry(zxid(1, counter), 100)], Zxid::ZERO).unwrap();
    }
    drop(log);
    disk.open("seg-01.log").unwrap().write_at(0, &[0; 4096]).unwrap();
    assert!(matches!(try_open(&disk, options), Err(LogError::Damaged { .. })));
}

/// A setWatches was admitted and waited for a record; meanwhile another client used up the limit.
/// The setWatches was refused, but never released the records that it had found. From then on the
/// record cache evicted nothing.
#[test]
fn set_watches_refused_after_a_fetch_releases_its_records() {
    let limits = Limits { watches_max: 1, ..Limits::default() };
    let mut world = World::new(Conditions { limits, fetch_ms_max: 100, ..Conditions::default() }, 1);
    world.start();
    world.run_for(10);
    let (one, two) = (ConnId(1), ConnId(2));
    for conn in [one, two] {
        world.connect(conn, None, ConnectRequest::for_new_session(4000));
    }
    world.run_for(10);
    let watches = SetWatches { data: vec!["/not/in/memory".into()], ..SetWatches::default() };
    world.request(one, 1, Request::SetWatches(watches));
    world.request(two, 1, Request::AddWatch { path: "/".into(), mode: AddWatchMode::Persistent });
    world.run_until_quiet();
    world.disconnect(one);
    world.disconnect(two);
    world.run_until_quiet();
    assert_eq!(world.server().under_way(), 0);
}
