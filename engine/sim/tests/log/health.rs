//! A member with a damaged store: its report and its repair.
//!
//! The tests also check which data the member keeps.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::base_support::{Model, contents};
use crate::log_support::{append, entry, epoch, open_epoch, zxid};
use bytes::Bytes;
use std::{
    convert::Infallible,
    ops::Range,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use zoolet_machine::record::key;
use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta, LogRecord};
use zoolet_machine::state::Changes;
use zoolet_machine::{Event, Limits};
use zoolet_model::Zxid;
use zoolet_sim::{
    disk::{OperationKind, SimDisk},
    machine::tiny_limits,
};
use zoolet_store::base::Base;
use zoolet_store::disk::Disk;
use zoolet_store::log::Log;
use zoolet_store::{Health, SnapshotSink, SnapshotSource, Store, Strategy};
use zoolet_zab::{Config, EnsembleId, Incarnation, Kind, Member};

const BORN: u128 = 77;

fn limits() -> Limits {
    Limits { log_segment_bytes: 20 << 10, log_segments: 4, disk_reserve_bytes: 0, ..tiny_limits() }
}

fn alone(disk: &SimDisk) -> Result<Store, String> {
    Store::open(Arc::new(disk.clone()), Strategy::Recycle, &limits(), BORN).map_err(|error| error.to_string())
}

/// Opens the store as a member. Each start draws a new incarnation.
fn member(disk: &SimDisk, incarnation: u128) -> Result<Store, String> {
    Store::open_member(Arc::new(disk.clone()), Strategy::Recycle, &limits(), incarnation)
        .map_err(|error| error.to_string())
}

fn checkpoint(model: &mut Model, zxid: Zxid, znodes: u64) -> Checkpoint {
    let znode = |at: u64| (key::znode(&format!("/{at}")).unwrap(), Some(Bytes::from(vec![7; 300])));
    let Checkpoint { changes, meta } = model.checkpoint((0..znodes).map(znode).collect::<Changes>());
    Checkpoint { changes, meta: CheckpointMeta { zxid, totals: Bytes::from(vec![0; 44]), ..meta } }
}

fn config() -> LogRecord {
    LogRecord::Config { committed: Bytes::from_static(b"abc"), last_seen: Bytes::from_static(b"abd") }
}

/// Returns the disk of a member with a base at 1.4.
///
/// Its log of three segments ends at 1.12 and has a promise of epoch 3 in the newest one.
fn set_up() -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut store, mut model) = (member(&disk, BORN).unwrap(), Model::default());
    assert_eq!(store.health, Health::Whole);
    append(&mut store.log, vec![LogRecord::Birth { ensemble: 9 }, config()], Zxid::ZERO).unwrap();
    append(&mut store.log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=11 {
        append(&mut store.log, vec![entry(zxid(1, counter), 700)], zxid(1, counter - 1)).unwrap();
    }
    store.base.checkpoint(&checkpoint(&mut model, zxid(1, 4), 20)).unwrap();
    store.log.recycle(zxid(1, 4));
    append(&mut store.log, vec![LogRecord::Promise(epoch(3))], Zxid::ZERO).unwrap();
    append(&mut store.log, vec![entry(zxid(1, 12), 700)], zxid(1, 11)).unwrap();
    drop(store);
    disk
}

/// Returns the same disk with a base at 1.12, and without the log's last batch.
///
/// The log opens, but it has lost its end.
fn set_up_without_the_end() -> SimDisk {
    let disk = set_up();
    let store = member(&disk, BORN).unwrap();
    store.base.checkpoint(&checkpoint(&mut Model::default(), zxid(1, 12), 20)).unwrap();
    drop(store);
    assert!(disk.corrupt("seg-03.log", 3 * 4096 + 90, 1));
    let store = member(&disk.after_process_crash(), 500).unwrap();
    let Health::LogLost { what, .. } = store.health else { panic!("{:?}", store.health) };
    assert!(what.ends_with("the log ends at 0x1000000000b"), "{what}");
    disk
}

fn replayed(store: &Store) -> Vec<Zxid> {
    let mut found = Vec::new();
    store
        .replay(|event| {
            if let Event::Recovered { zxid, .. } = event {
                found.push(zxid);
            }
            Ok::<(), Infallible>(())
        })
        .unwrap();
    found
}

fn files(disk: &SimDisk, start: &str) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.starts_with(start)).collect()
}

/// Repairs a member with a snapshot at 4.2 and the entries after it.
///
/// Asserts that the store is whole afterwards.
fn repair(disk: &SimDisk, store: Store, story: &str) {
    let mut model = Model::default();
    let leader = Base::create(Arc::new(SimDisk::new(9)), 0, crate::base_support::OPTIONS).unwrap();
    leader.checkpoint(&checkpoint(&mut model, zxid(4, 2), 30)).unwrap();
    let source = SnapshotSource::open(leader.reader(), 5).unwrap();
    let Store { mut log, base, .. } = store;
    let (id, zxid_in) = (base.id() + 1, zxid(4, 2));
    append(&mut log, vec![LogRecord::Promise(epoch(4)), LogRecord::SnapBegin { zxid: zxid_in, base: id }], Zxid::ZERO)
        .unwrap();
    let mut sink = SnapshotSink::begin(Arc::new(disk.clone()), id, &limits()).unwrap();
    sink.write(&source.read(0, 1 << 30).unwrap()).unwrap();
    let received = sink.finish().unwrap();
    append(&mut log, vec![LogRecord::SnapEnd { base: id, zxid: zxid_in, chain: received.chain }], Zxid::ZERO).unwrap();
    base.retire();
    drop(base);
    append(&mut log, vec![LogRecord::Epoch(epoch(4)), entry(zxid(4, 3), 700)], zxid(4, 2)).unwrap();
    drop((log, received));
    let store = member(&disk.after_power_loss(0), 501).unwrap();
    assert_eq!(store.health, Health::Whole, "{story}");
    assert!(contents(&store.base.reader()).unwrap() == model.records, "{story}");
    assert_eq!((replayed(&store), store.chain_at_base), (vec![zxid(4, 3)], 5), "{story}");
    drop(store);
    let store = alone(disk).unwrap_or_else(|error| panic!("{story}: {error}"));
    assert_eq!(Base::list(disk).unwrap(), [store.base.id()], "{story}: leftovers are gone");
    assert_eq!(files(disk, "lost-"), [""; 0], "{story}");
}

#[test]
fn standalone_server_refuses_damage_that_a_member_reports() {
    let disk = set_up();
    assert_eq!(member(&disk.after_process_crash(), 500).unwrap().health, Health::Whole);
    alone(&disk.after_process_crash()).unwrap();
    let manifest = |disk: &SimDisk| assert!(disk.corrupt("base-0.manifest", 20, 1));
    let middle = |disk: &SimDisk| assert!(disk.corrupt("seg-01.log", 8192 + 90, 1));
    let end = |disk: &SimDisk| assert!(disk.corrupt("seg-03.log", 4096 + 90, 1));
    let gone = |disk: &SimDisk| files(disk, "seg-").iter().for_each(|name| disk.remove(name).unwrap());
    let strikes: [&dyn Fn(&SimDisk); 4] = [&manifest, &middle, &end, &gone];
    for (number, strike) in strikes.into_iter().enumerate() {
        let disk = disk.after_process_crash();
        strike(&disk);
        let refused = alone(&disk).and_then(|store| {
            store
                .log
                .replay(store.base.meta().zxid, &mut |_, _| Ok::<(), Infallible>(()))
                .map_err(|error| error.to_string())
        });
        assert!(refused.is_err(), "strike {number}");
        assert!(!member(&disk, 500).unwrap().health.is_whole(), "strike {number}");
    }
}

#[test]
fn member_with_a_lost_base_keeps_its_log_and_promises() {
    let whole = set_up();
    let before = member(&whole.after_process_crash(), 500).unwrap();
    let run = files(&whole, "base-0-").pop().unwrap();
    for (name, is_removed) in
        [("base-0.manifest", true), ("base-0.manifest", false), ("base-0.crc", true), (&*run, true), (&*run, false)]
    {
        let disk = whole.after_process_crash();
        if is_removed {
            disk.remove(name).unwrap();
        } else {
            assert!(disk.corrupt(name, 20, 1));
        }
        let mut next = None;
        for start in 500..503 {
            let store = member(&disk, start).unwrap();
            assert!(matches!(store.health, Health::BaseLost { .. }), "{name}: {:?}", store.health);
            assert_eq!(store.facts, before.facts, "{name}");
            assert_eq!((store.recovered.history.last(), store.recovered.is_whole), (zxid(1, 12), false));
            assert_eq!((store.base.meta().zxid, store.state.is_none()), (Zxid::ZERO, true));
            assert_eq!(replayed(&store), [], "{name}: there is nothing that it could follow");
            let read = store.log.read_entries(store.log_floor, zxid(1, 12), usize::MAX).unwrap();
            assert_eq!(read.entries.last().unwrap().0, zxid(1, 12), "{name}: peers may have it");
            next = Some(store);
        }
        repair(&disk, next.unwrap(), name);
    }
}

/// Returns the byte range of a run's records.
///
/// They are read after the run is opened.
fn records(disk: &SimDisk, run: &str) -> Range<u64> {
    4096..u64::from_le_bytes(disk.contents(run).unwrap()[40..48].try_into().unwrap())
}

/// Makes the first `failures` reads of `part` of a file fail.
///
/// With `is_everything`, every operation after the first of these fails too.
fn break_reads(disk: &SimDisk, file: &str, part: Range<u64>, failures: usize, is_everything: bool) {
    let (file, left) = (file.to_owned(), AtomicUsize::new(failures));
    disk.fail_with(move |operation| {
        let is_record =
            operation.kind == OperationKind::Read && operation.name == file && part.contains(&operation.offset);
        let has_begun = is_everything && left.load(Relaxed) < failures;
        let fails = has_begun || is_record && left.load(Relaxed) > 0;
        if fails && is_record {
            left.store(left.load(Relaxed).saturating_sub(1), Relaxed);
        }
        fails.then_some(std::io::ErrorKind::Other)
    });
}

/// Peers have the unreadable records, and the rest of the medium stays readable.
#[test]
fn member_with_an_unreadable_base_sector_keeps_the_base_files() {
    let whole = set_up();
    let run = files(&whole, "base-0-").pop().unwrap();
    let records = records(&whole, &run);
    let parts = [
        (run.as_str(), records.clone()),
        (&run, 0..records.start),
        (&run, records.end..u64::MAX),
        ("base-0.redb", 0..u64::MAX),
        ("base-0.manifest", 0..u64::MAX),
    ];
    for (file, part) in parts {
        let disk = whole.after_process_crash();
        let before = files(&disk, "base-0");
        break_reads(&disk, file, part.clone(), usize::MAX, false);
        assert!(alone(&disk.after_process_crash()).is_ok());
        let refused = alone(&disk).err().unwrap();
        assert!(refused.contains("cannot be read"), "{file}, {part:?}: {refused}");
        let store = member(&disk, 500).unwrap();
        assert!(matches!(store.health, Health::BaseLost { .. }), "{file}, {part:?}: {:?}", store.health);
        assert_eq!(files(&disk, "base-0"), before);
        // The old base is whole once its disk reads again, as long as no other base has replaced
        // it.
        assert_eq!(member(&disk.after_process_crash(), 501).unwrap().health, Health::Whole);
        repair(&disk, store, &format!("a bad sector of {file}, {part:?}"));
    }
}

/// A snapshot may take long to arrive, and the server may start many times until then.
#[test]
fn restarts_with_a_lost_base_create_only_one_empty_base() {
    let disk = set_up();
    let run = files(&disk, "base-0-").pop().unwrap();
    break_reads(&disk, &run, records(&disk, &run), usize::MAX, false);
    let others = || disk.list().unwrap().iter().filter(|name| !name.starts_with("base-0")).count();
    drop(member(&disk, 500).unwrap());
    let once = others();
    for start in 501..504 {
        drop(member(&disk, start).unwrap());
        assert_eq!(others(), once, "start {start}");
    }
}

#[test]
fn member_with_an_unreadable_disk_does_not_start_and_discards_nothing() {
    let disk = set_up();
    let run = files(&disk, "base-0-").pop().unwrap();
    let before = disk.files();
    break_reads(&disk, &run, records(&disk, &run), 1000, true);
    assert!(member(&disk, 500).is_err());
    disk.heal();
    assert_eq!(disk.files(), before);
    assert_eq!(member(&disk, 501).unwrap().health, Health::Whole);
}

#[test]
fn member_with_one_failed_disk_read_starts_whole() {
    let disk = set_up();
    let run = files(&disk, "base-0-").pop().unwrap();
    break_reads(&disk, &run, records(&disk, &run), 1, false);
    assert_eq!(member(&disk, 500).unwrap().health, Health::Whole);
}

#[test]
fn member_that_lost_log_entries_keeps_its_facts_and_promises() {
    let whole = set_up();
    let before = member(&whole.after_process_crash(), 500).unwrap();
    let last_old = before.facts.last;
    for strike in 0..2 {
        let disk = whole.after_process_crash();
        if strike == 0 {
            assert!(disk.corrupt("seg-01.log", 8192 + 90, 1));
        } else {
            disk.remove("seg-01.log").unwrap();
        }
        for start in 500..502 {
            let store = member(&disk, start).unwrap();
            assert!(matches!(store.health, Health::LogDamaged { .. }), "{:?}", store.health);
            assert_eq!((&store.facts, store.recovered.is_whole), (&before.facts, false));
            assert!(store.log_floor > zxid(1, 4) && store.log_floor < last_old, "{}", store.log_floor);
            assert_eq!(store.recovered.floor, store.log_floor);
            let read = store.log.read_entries(store.log_floor, zxid(1, 12), usize::MAX).unwrap();
            assert_eq!(read.entries.len() as u64, 12 - store.log_floor.counter());
            assert!(store.log.read_entries(zxid(1, 4), zxid(1, 12), 1).is_err());
            assert_eq!(store.base.meta().zxid, zxid(1, 4));
        }
        let store = member(&disk, 502).unwrap();
        repair(&disk, store, "damage in the middle");
    }
}

/// The newest segment, which holds the promise, is damaged. The promise is still recovered, unless
/// the segment is gone.
#[test]
fn lost_log_gives_the_member_a_new_disk_id_and_keeps_its_promise() {
    let whole = set_up();
    let remove_newest = |disk: &SimDisk| disk.remove("seg-03.log").unwrap();
    let first_batch = |disk: &SimDisk| assert!(disk.corrupt("seg-03.log", 90, 1));
    // Batches of the newest segment: the facts, 1.11 or so, the promise, 1.12.
    let before_promise = |disk: &SimDisk| assert!(disk.corrupt("seg-03.log", 4096 + 90, 1));
    type Strike<'a> = (&'a dyn Fn(&SimDisk), u32);
    let strikes: [Strike<'_>; 3] = [(&remove_newest, 1), (&first_batch, 3), (&before_promise, 3)];
    for (number, (strike, promised)) in strikes.into_iter().enumerate() {
        let disk = whole.after_process_crash();
        strike(&disk);
        let base_before = contents(
            &Base::open(Arc::new(disk.after_process_crash()), 0, crate::base_support::OPTIONS).unwrap().reader(),
        )
        .unwrap();
        let store = member(&disk, 500).unwrap();
        assert!(matches!(&store.health, Health::LogLost { former: Some(BORN), .. }), "{number}: {:?}", store.health);
        let facts = &store.facts;
        assert_eq!(
            (facts.disk_incarnation, facts.accepted, facts.current),
            (500, epoch(promised), epoch(0)),
            "{number}"
        );
        assert_eq!(
            (facts.last, facts.watermark, facts.chain, facts.base_id),
            (Zxid::ZERO, Zxid::ZERO, 0, 1),
            "{number}"
        );
        assert_eq!((facts.ensemble_id, &facts.config_last_seen[..]), (9, &b"abd"[..]), "{number}");
        assert!(!store.recovered.is_whole && store.state.is_none());
        assert!(!files(&disk, "lost-seg-").is_empty(), "{number}: nothing is thrown away");
        drop(store);
        // The new log is durable, and the old base is still there.
        let disk = disk.after_power_loss(0);
        let store = member(&disk, 501).unwrap();
        assert_eq!(
            (&store.health, store.facts.disk_incarnation, store.facts.accepted),
            (&Health::Unrepaired, 500, epoch(promised)),
            "{number}: an empty log in the place of a lost one is not that of a new disk"
        );
        let old = Base::open(Arc::new(disk.after_process_crash()), 0, crate::base_support::OPTIONS).unwrap();
        assert!(contents(&old.reader()).unwrap() == base_before, "{number}");
        let store = member(&disk, 502).unwrap();
        repair(&disk, store, "a log that was lost");
    }
    // Without any segment, the marker shows that there was a log.
    let disk = whole.after_process_crash();
    files(&disk, "seg-").iter().for_each(|name| disk.remove(name).unwrap());
    let store = member(&disk, 500).unwrap();
    assert!(matches!(&store.health, Health::LogLost { former: Some(BORN), .. }), "{:?}", store.health);
    repair(&disk, store, "no segments");
}

/// Returns a configuration of one voter, committed by the entry `version`.
fn config_of(version: Zxid) -> LogRecord {
    let member = Member { id: zoolet_model::ServerId::STANDALONE, kind: Kind::Voter, disk: Incarnation(BORN) };
    let committed = Bytes::copy_from_slice(&Config::new(EnsembleId(9), version, &[member]).unwrap().encode());
    LogRecord::Config { last_seen: committed.clone(), committed }
}

/// An ensemble is born once. A member whose log was lost must not pass for a new disk, not even at
/// its second start.
#[test]
fn disk_with_a_lost_log_keeps_its_ensemble_and_never_counts() {
    let disk = SimDisk::new(1);
    let mut store = member(&disk, BORN).unwrap();
    append(&mut store.log, open_epoch(1)[..2].to_vec(), Zxid::ZERO).unwrap();
    append(&mut store.log, vec![LogRecord::Birth { ensemble: 9 }, config_of(zxid(1, 0))], Zxid::ZERO).unwrap();
    append(&mut store.log, vec![entry(zxid(1, 0), 10)], Zxid::ZERO).unwrap();
    drop(store);
    assert!(member(&disk, 499).unwrap().recovered.is_whole);
    assert!(disk.corrupt("seg-00.log", 90, 1));
    let mut lost = None;
    for (start, steps) in [(500, "first"), (501, "second"), (502, "third")] {
        let store = member(&disk, start).unwrap();
        lost = lost.or(Some(store.health.clone()));
        let recovered = &store.recovered;
        assert!(!recovered.is_whole, "{steps}: {:?}", store.health);
        assert_eq!((recovered.ensemble, recovered.config.version), (EnsembleId(9), zxid(1, 0)), "{steps}");
    }
    assert!(matches!(lost, Some(Health::LogLost { .. })), "{lost:?}");
    assert!(alone(&disk).err().unwrap().contains("only a snapshot"), "and it does not begin anew alone");
}

/// The append numbers of a replacement begin again at 1, so they cannot tell which configuration is
/// newer.
#[test]
fn log_that_is_lost_twice_keeps_the_newest_configuration() {
    let disk = SimDisk::new(1);
    let mut store = member(&disk, BORN).unwrap();
    append(&mut store.log, vec![LogRecord::Birth { ensemble: 9 }, config_of(zxid(1, 0))], Zxid::ZERO).unwrap();
    append(&mut store.log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=11 {
        append(&mut store.log, vec![entry(zxid(1, counter), 700)], zxid(1, counter - 1)).unwrap();
    }
    drop(store);
    disk.remove(files(&disk, "seg-").last().unwrap()).unwrap();
    let mut store = member(&disk, 500).unwrap();
    assert!(matches!(&store.health, Health::LogLost { .. }), "{:?}", store.health);
    assert_eq!(store.recovered.config.version, zxid(1, 0));
    append(&mut store.log, vec![config_of(zxid(2, 0))], Zxid::ZERO).unwrap();
    drop(store);
    assert!(disk.corrupt(files(&disk, "seg-").last().unwrap(), 90, 1));
    let store = member(&disk, 501).unwrap();
    assert!(matches!(&store.health, Health::LogLost { .. }), "{:?}", store.health);
    assert_eq!(store.recovered.config.version, zxid(2, 0));
}

/// A snapshot may be older than the configuration sent with it. The configuration's entry follows
/// later.
#[test]
fn member_with_a_history_older_than_its_config_stays_a_member() {
    let disk = SimDisk::new(1);
    let mut store = member(&disk, BORN).unwrap();
    append(&mut store.log, vec![LogRecord::Birth { ensemble: 9 }], Zxid::ZERO).unwrap();
    append(&mut store.log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut store.log, vec![LogRecord::Promise(epoch(3)), config_of(zxid(2, 5))], zxid(1, 0)).unwrap();
    append(&mut store.log, vec![LogRecord::Epoch(epoch(3))], zxid(1, 0)).unwrap();
    drop(store);
    let recovered = member(&disk, 500).unwrap().recovered;
    assert_eq!((recovered.ensemble, recovered.config.version), (EnsembleId(9), zxid(2, 5)));
    assert_eq!((recovered.history.last(), recovered.pending, recovered.is_whole), (zxid(1, 0), None, true));
}

/// A server that entered the epoch without its first entry took part in a birth that never
/// completed. A server that did not enter it learned of a real birth, and the entry is still to
/// come.
#[test]
fn birth_torn_by_a_crash_leaves_the_ensemble_unborn() {
    for (is_entered, ensemble) in [(true, EnsembleId::UNBORN), (false, EnsembleId(9))] {
        let disk = SimDisk::new(1);
        let mut store = member(&disk, BORN).unwrap();
        let entered = is_entered.then_some(LogRecord::Epoch(epoch(1)));
        let birth = [LogRecord::Birth { ensemble: 9 }, config_of(zxid(1, 0))];
        let records = [LogRecord::Promise(epoch(1))].into_iter().chain(entered).chain(birth).collect();
        append(&mut store.log, records, Zxid::ZERO).unwrap();
        drop(store);
        let recovered = member(&disk, 500).unwrap().recovered;
        assert_eq!((recovered.ensemble, recovered.config.is_born()), (ensemble, !is_entered));
        assert!(recovered.is_whole);
    }
}

#[test]
fn divergent_history_stays_marked_after_a_restart() {
    let disk = set_up();
    let mut store = member(&disk, 500).unwrap();
    append(&mut store.log, vec![LogRecord::Damaged], Zxid::ZERO).unwrap();
    drop(store);
    for start in 501..503 {
        let store = member(&disk.after_power_loss(0), start).unwrap();
        assert_eq!((&store.health, store.recovered.is_whole), (&Health::Unrepaired, false));
        assert_eq!((store.facts.disk_incarnation, store.recovered.history.last()), (BORN, zxid(1, 12)));
    }
    let store = member(&disk, 503).unwrap();
    repair(&disk, store, "a history that differs");
}

#[test]
fn replacement_log_never_reuses_the_lost_disk_incarnation() {
    let disk = set_up();
    assert!(disk.corrupt("seg-03.log", 4096 + 90, 1));
    let store = member(&disk, BORN).unwrap();
    assert!(matches!(store.health, Health::LogLost { former: Some(BORN), .. }), "{:?}", store.health);
    assert_ne!(store.facts.disk_incarnation, BORN);
}

/// A crash leaves either the damaged old log or the whole new one. Both hold the promise.
#[test]
fn crash_at_any_step_of_replacing_a_log_keeps_the_promise() {
    let [middle, first_batch, of_one] = [set_up(), set_up(), set_up()];
    assert!(middle.corrupt("seg-03.log", 4096 + 90, 1));
    assert!(first_batch.corrupt("seg-03.log", 90, 1));
    // One old segment is left, and its first batch, which names the ensemble, is damaged.
    files(&of_one, "seg-").iter().filter(|name| *name != "seg-03.log").for_each(|name| of_one.remove(name).unwrap());
    of_one.sync_directory().unwrap();
    assert!(of_one.corrupt("seg-03.log", 90, 1));
    for (lost, ensemble) in [(middle, 9), (first_batch, 9), (of_one, 0), (set_up_without_the_end(), 9)] {
        crash_while_the_log_is_replaced(&lost, 3, ensemble);
    }
    let gone = set_up();
    files(&gone, "seg-").iter().for_each(|name| gone.remove(name).unwrap());
    gone.sync_directory().unwrap();
    crash_while_the_log_is_replaced(&gone, 0, 0);
}

/// `promised` and `ensemble` are what can be salvaged.
fn crash_while_the_log_is_replaced(whole: &SimDisk, promised: u32, ensemble: u128) {
    let steps = {
        let disk = whole.after_process_crash();
        member(&disk, 500).unwrap();
        disk.steps()
    };
    let mut lost = 0;
    for step in 0..=steps {
        let disk = whole.after_process_crash();
        disk.set_crash_at(step);
        let _ = member(&disk, 500);
        for seed in 0..4 {
            let image = if seed == 3 { disk.after_process_crash() } else { disk.after_power_loss(seed) };
            let story = format!("step {step}, {seed}");
            let store = member(&image, 600).unwrap_or_else(|error| panic!("{story}: {error}"));
            let facts = &store.facts;
            assert_eq!(
                (facts.accepted, facts.ensemble_id, facts.last),
                (epoch(promised), ensemble, Zxid::ZERO),
                "{story}"
            );
            assert_ne!(facts.disk_incarnation, BORN, "{story}");
            let is_lost_now = matches!(store.health, Health::LogLost { .. });
            lost += u32::from(is_lost_now);
            assert!(is_lost_now || store.health == Health::Unrepaired, "{story}: {:?}", store.health);
            assert_eq!(is_lost_now, facts.disk_incarnation == 600, "{story}");
            drop(store);
            let store = member(&image.after_power_loss(0), 700).unwrap();
            assert_eq!((&store.health, store.facts.accepted), (&Health::Unrepaired, epoch(promised)), "{story}");
        }
    }
    assert!(lost > 10, "{lost}");
}

/// Without a base, no checkpoint frees the log. It must still accept the promises and the snapshot
/// that repair the server.
#[test]
fn log_without_a_base_frees_committed_entries_and_takes_promises() {
    for strategy in [Strategy::Recycle, Strategy::Append] {
        let disk = set_up();
        disk.remove("base-0.manifest").unwrap();
        let mut store = Store::open_member(Arc::new(disk.clone()), strategy, &limits(), 500).unwrap();
        assert!(matches!(store.health, Health::BaseLost { .. }));
        let floor = store.log_floor;
        for promise in 4..12 {
            append(&mut store.log, vec![LogRecord::Promise(epoch(promise))], Zxid::ZERO).unwrap();
        }
        assert!(
            store.log.floor() > floor && store.log.floor() <= zxid(1, 11),
            "what is committed yields, the tail does not"
        );
        let read = store.log.read_entries(zxid(1, 11), zxid(1, 12), usize::MAX).unwrap();
        assert_eq!(read.entries.len(), 1);
    }
}

/// Whichever bit flips, the member starts and either is unchanged or reports the damage.
#[test]
fn member_with_a_flipped_bit_starts_unchanged_or_reports_damage() {
    let whole = set_up();
    let before = member(&whole.after_process_crash(), 500).unwrap();
    let (facts, records) = (before.facts.clone(), contents(&before.base.reader()).unwrap());
    let entries = replayed(&before);
    let mut found = [0; 4];
    let names = whole.list().unwrap();
    for name in
        names.iter().filter(|name| name.starts_with("seg-") || name.ends_with(".manifest") || name.ends_with(".run"))
    {
        let bytes = whole.contents(name).unwrap().len() as u64;
        for offset in (0..bytes).filter(|offset| offset % 4096 < 800).step_by(47) {
            let disk = whole.after_process_crash();
            assert!(disk.corrupt(name, offset, 1 << (offset % 8)));
            let story = format!("{name} byte {offset}");
            let store = member(&disk, 500).unwrap_or_else(|error| panic!("{story}: {error}"));
            match &store.health {
                Health::Whole => {
                    found[0] += 1;
                    // A damaged last batch looks like a torn one.
                    let is_cut = store.facts.last == zxid(1, 11);
                    assert!(store.facts == facts || is_cut, "{story}");
                    assert!(entries.starts_with(&replayed(&store)), "{story}");
                    let read = contents(&store.base.reader());
                    assert!(read.is_err() || read.unwrap() == records, "{story}");
                }
                Health::BaseLost { .. } => {
                    found[1] += 1;
                    assert_eq!(store.facts, facts, "{story}");
                }
                Health::LogDamaged { .. } => {
                    found[2] += 1;
                    assert_eq!(store.facts, facts, "{story}");
                }
                Health::LogLost { .. } => {
                    found[3] += 1;
                    assert!(store.facts.accepted == epoch(3) || store.facts.accepted == epoch(1), "{story}");
                    assert_eq!((store.facts.last, store.facts.disk_incarnation), (Zxid::ZERO, 500), "{story}");
                }
                Health::Unrepaired => panic!("{story}: this log says nothing like it"),
            }
        }
    }
    assert!(found.iter().all(|&count| count > 5), "{found:?}");
}

/// Files of another machine, or a card copied over another one, are not damage.
#[test]
fn member_refuses_the_log_of_another_directory() {
    let (disk, other) = (set_up(), SimDisk::new(2));
    drop(member(&other, 88).unwrap());
    files(&disk, "seg-").iter().for_each(|name| disk.remove(name).unwrap());
    let file = disk.create("seg-00.log").unwrap();
    file.write_at(0, &other.contents("seg-00.log").unwrap()).unwrap();
    let refused = member(&disk, 500).err().unwrap();
    assert!(refused.contains("the log belongs to another directory"), "{refused}");
    let _ = Log::salvage(&disk, None).unwrap();
}
