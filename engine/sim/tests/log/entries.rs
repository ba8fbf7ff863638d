//! Reading entries for a peer, in chunks.
//!
//! A reader returns exactly the history, and never damaged data.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::LogRecord;
use zoolet_model::Zxid;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::log::{Entries, Log, LogError, LogOptions, LogReader, ReadError};
use zoolet_store::{FsDisk, Strategy};
use zoolet_zab::Epoch;

/// A zxid above every entry.
const END: Zxid = Zxid::new(Epoch::MAX, Zxid::COUNTER_MAX).unwrap();

/// Reads the entries between two zxids, and checks each chunk's chain hash.
fn catch_up(reader: &LogReader, mut after: Zxid, to: Zxid, bytes_max: usize) -> Result<Vec<(Zxid, Bytes)>, ReadError> {
    let mut all: Vec<(Zxid, Bytes)> = Vec::new();
    let mut chain = None;
    loop {
        let Entries { chain: before, entries } = reader.read_entries(after, to, bytes_max)?;
        assert!(chain.is_none_or(|chain| chain == before), "a chunk continues the one before");
        let Some(&(last, _)) = entries.last() else { return Ok(all) };
        assert!(entries.iter().all(|(zxid, _)| (after..=to).contains(zxid)));
        let bytes: usize = entries[..entries.len() - 1].iter().map(|(_, payload)| payload.len()).sum();
        assert!(bytes < bytes_max.max(1), "no more than asked for but for the last");
        chain = Some(entries.iter().fold(before, |chain, (zxid, payload)| chain_after(chain, *zxid, payload)));
        all.extend(entries);
        if last >= to {
            return Ok(all);
        }
        after = last;
    }
}

/// Appends a random history with epochs, truncations and snapshots.
///
/// Returns the expected history, kept the naive way: its start, the chain hash there, and its
/// entries.
fn random_history(log: &mut Log, random: &mut Random, calls: u32) -> (Zxid, u128, Vec<(Zxid, Bytes)>) {
    let (mut start, mut chain, mut history) = (Zxid::ZERO, 0, Vec::<(Zxid, Bytes)>::new());
    let last_of = |start: Zxid, history: &[(Zxid, Bytes)]| history.last().map_or(start, |(zxid, _)| *zxid);
    for _ in 0..calls {
        let last = last_of(start, &history);
        let records = match random.below(12) {
            0 => open_epoch(log.facts().accepted.max(last.epoch()).as_u32() + 1),
            1 => {
                let back = random.below(history.len() as u64 + 1) as usize;
                let to = last_of(start, &history[..back]);
                vec![LogRecord::Truncate { to: to.max(log.facts().watermark) }]
            }
            2 if random.below(4) == 0 => {
                let epoch = log.facts().accepted.max(last.epoch()).next().unwrap();
                let (zxid, base) = (Zxid::new(epoch, random.below(9)).unwrap(), log.facts().base_id + 1);
                let chain = u128::from(random.bits());
                vec![LogRecord::SnapBegin { zxid, base }, LogRecord::SnapEnd { base, zxid, chain }]
            }
            _ if last == Zxid::ZERO => open_epoch(1 + log.facts().accepted.as_u32()),
            _ => {
                let mut zxids = std::iter::successors(last.next(), |zxid| zxid.next());
                let bytes = if random.below(4) == 0 { 3000 } else { 100 };
                (0..=random.below(4)).map(|_| entry_saying(zxids.next().unwrap(), random.bits() as u8, bytes)).collect()
            }
        };
        for record in &records {
            match record {
                LogRecord::Entry { zxid, payload } => history.push((*zxid, payload.clone())),
                LogRecord::Truncate { to } => history.retain(|(zxid, _)| zxid <= to),
                LogRecord::SnapEnd { zxid, chain: at, .. } => {
                    history.clear();
                    (start, chain) = (*zxid, *at);
                }
                _ => {}
            }
        }
        let last = last_of(start, &history);
        let watermark = if random.below(6) == 0 { last } else { Zxid::ZERO };
        append(log, records, watermark).unwrap();
    }
    (start, chain, history)
}

#[test]
fn entries_read_between_any_two_zxids_equal_the_history() {
    let options = LogOptions { segment_bytes: 20 << 10, segments: 200, strategy: Strategy::Recycle };
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut log = create(&disk, LogOptions { strategy: BOTH[seed as usize % 2], ..options });
        let (start, chain, history) = random_history(&mut log, &mut random, 60);
        let reopened = open(&disk, LogOptions { strategy: BOTH[seed as usize % 2], ..options }).0;
        for log in [&log, &reopened] {
            let reader = log.reader();
            assert_eq!(log.floor(), start, "history {seed}: all of it is there");
            let mut ends = vec![(start, chain)];
            for (zxid, payload) in &history {
                ends.push((*zxid, chain_after(ends.last().unwrap().1, *zxid, payload)));
            }
            for _ in 0..30 {
                let from = random.below(ends.len() as u64) as usize;
                let to = from + random.below((ends.len() - from) as u64) as usize;
                let story = format!("history {seed}, from {} to {}", ends[from].0, ends[to].0);
                let found = catch_up(&reader, ends[from].0, ends[to].0, 1 + random.below(9000) as usize).unwrap();
                assert!(found == history[from..to], "{story}");
                assert_eq!(log.read_entries(ends[from].0, ends[to].0, 1).unwrap().chain, ends[from].1, "{story}");
                assert_eq!(log.chain_at(ends[to].0).unwrap(), ends[to].1, "{story}");
            }
        }
    }
}

#[test]
fn reading_after_truncated_or_unknown_entries_reports_gone_not_damage() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, (1..=5).map(|counter| entry(zxid(1, counter), 100)).collect(), Zxid::ZERO).unwrap();
    append(&mut log, vec![LogRecord::Truncate { to: zxid(1, 3) }], Zxid::ZERO).unwrap();
    append(&mut log, open_epoch(3), Zxid::ZERO).unwrap();
    for after in [zxid(1, 4), zxid(1, 5), zxid(2, 0), zxid(3, 1), END] {
        assert!(matches!(log.read_entries(after, END, 1000), Err(ReadError::Gone)), "{after}");
    }
    let read = log.read_entries(zxid(1, 2), END, usize::MAX).unwrap();
    assert_eq!(read.entries.iter().map(|(zxid, _)| *zxid).collect::<Vec<_>>(), [zxid(1, 3), zxid(3, 0)]);
    append(&mut log, vec![LogRecord::SnapBegin { zxid: zxid(4, 2), base: 1 }], Zxid::ZERO).unwrap();
    append(&mut log, vec![LogRecord::SnapEnd { base: 1, zxid: zxid(4, 2), chain: 5 }], Zxid::ZERO).unwrap();
    assert!(matches!(log.read_entries(zxid(1, 2), END, 1000), Err(ReadError::Gone)));
    assert!(matches!(log.read_entries(Zxid::ZERO, END, 1000), Err(ReadError::Gone)));
    assert_eq!((log.floor(), log.chain_at(zxid(4, 2)).unwrap()), (zxid(4, 2), 5));
}

/// Segments are recycled in order. Everything above the floor is readable, nothing below it.
#[test]
fn entries_above_the_log_floor_are_readable_and_none_below() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let mut floors = std::collections::BTreeSet::new();
        for counter in 1..=40 {
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
            let (floor, reader) = (log.floor(), log.reader());
            assert!(floors.last().is_none_or(|last| *last <= floor) && floor < zxid(1, counter));
            floors.insert(floor);
            let found = catch_up(&reader, floor, zxid(1, counter), 1).unwrap();
            assert_eq!(found.len() as u64, if floor == Zxid::ZERO { counter + 1 } else { counter - floor.counter() });
            if let Some(below) = floor.counter().checked_sub(1).filter(|_| floor > Zxid::ZERO) {
                assert!(matches!(reader.read_entries(zxid(1, below), END, 1), Err(ReadError::Gone)));
            }
            log.recycle(zxid(1, counter - 1));
        }
        assert!(floors.len() > 5, "{floors:?}");
    }
}

#[test]
fn reading_in_chunks_reads_the_log_at_most_about_once() {
    let disk = SimDisk::new(1);
    let options = LogOptions { segment_bytes: 1 << 20, segments: 8, strategy: Strategy::Recycle };
    let mut log = create(&disk, options);
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=1500 {
        append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
    }
    let before = disk.counters().read_bytes;
    let reader = log.reader();
    let found = catch_up(&reader, zxid(1, 3), zxid(1, 1500), 64 << 10).unwrap();
    assert_eq!(found.len(), 1497);
    let (read, is) = (disk.counters().read_bytes - before, 1497 * 4096);
    assert!(read < 2 * is, "{read} bytes for {is}");
    let before = disk.counters().read_bytes;
    reader.read_entries(zxid(1, 1400), zxid(1, 1401), 1).unwrap();
    assert!(disk.counters().read_bytes - before <= 2 << 20, "a segment at most");
}

#[test]
fn damaged_entries_are_reported_and_never_returned() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    for counter in 1..=8 {
        append(&mut log, vec![entry(zxid(1, counter), 1000)], zxid(1, counter)).unwrap();
    }
    let whole = catch_up(&log.reader(), Zxid::ZERO, END, usize::MAX).unwrap();
    let mut damaged = 0;
    for name in ["seg-00.log", "seg-01.log", "seg-02.log"] {
        for offset in (0..disk.contents(name).unwrap().len() as u64).filter(|offset| offset % 4096 < 1100).step_by(7) {
            assert!(disk.corrupt(name, offset, 1));
            for after in [Zxid::ZERO, zxid(1, 3), zxid(1, 6)] {
                let expected = whole.iter().position(|(zxid, _)| *zxid == after).map_or(0, |position| position + 1);
                match log.read_entries(after, END, usize::MAX) {
                    Ok(read) => assert!(read.entries == whole[expected..], "{name} byte {offset}"),
                    Err(ReadError::Log(LogError::Damaged { .. })) => damaged += 1,
                    Err(error) => panic!("{name} byte {offset}: {error}"),
                }
            }
            assert!(disk.corrupt(name, offset, 1));
        }
    }
    assert!(damaged > 500, "{damaged}");
}

/// A reader on another thread, like a peer's catch-up, while the ring recycles its segments.
#[test]
fn concurrent_reader_of_recycled_segments_reports_gone() {
    for strategy in BOTH {
        let path = std::env::temp_dir().join(format!("zoolet-entries-{}-{strategy:?}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut log = Log::create(Arc::new(FsDisk::open(&path).unwrap()), small(strategy), birth()).unwrap();
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let reader = Arc::new(std::sync::Mutex::new(log.reader()));
        let done = Arc::new(AtomicBool::new(false));
        let peer = std::thread::spawn({
            let (reader, done) = (reader.clone(), done.clone());
            move || {
                let (mut reads, mut gone) = (0, 0);
                while !done.load(Ordering::Relaxed) {
                    let reader = reader.lock().unwrap().clone();
                    match catch_up(&reader, reader.floor(), reader.last(), 4000) {
                        Ok(found) => {
                            assert!(found.iter().all(|(zxid, payload)| payload[0] == zxid.to_bits() as u8));
                            reads += 1;
                        }
                        Err(ReadError::Gone) => gone += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                (reads, gone)
            }
        });
        for counter in 1..=300 {
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
            log.recycle(zxid(1, counter));
            if counter % 5 == 0 {
                *reader.lock().unwrap() = log.reader();
            }
        }
        done.store(true, Ordering::Relaxed);
        let (reads, gone) = peer.join().unwrap();
        assert!(reads + gone > 0);
        drop(log);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

/// The same without threads, with a reader from long ago.
#[test]
fn old_reader_returns_its_entries_or_reports_gone() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        append(&mut log, (1..=4).map(|counter| entry(zxid(1, counter), 2000)).collect(), zxid(1, 4)).unwrap();
        let reader = log.reader();
        let whole = catch_up(&reader, Zxid::ZERO, END, 1).unwrap();
        assert_eq!(whole.len(), 5);
        let (mut same, mut gone) = (0, 0);
        for counter in 5..=40 {
            append(&mut log, vec![entry(zxid(1, counter), 3000)], zxid(1, counter)).unwrap();
            log.recycle(zxid(1, counter));
            match catch_up(&reader, Zxid::ZERO, END, 1) {
                Ok(found) => {
                    assert!(found == whole);
                    same += 1;
                }
                Err(ReadError::Gone) => gone += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(same > 0 && (gone > 0 || strategy == Strategy::Append), "{strategy:?}: {same}, {gone}");
    }
}

#[test]
fn reading_up_to_a_missing_zxid_ends_at_the_previous_entry() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    for number in [1, 2, 5] {
        append(&mut log, open_epoch(number), Zxid::ZERO).unwrap();
    }
    let read = log.read_entries(Zxid::ZERO, zxid(2, 7), usize::MAX).unwrap();
    assert_eq!(read.entries.iter().map(|(zxid, _)| zxid.epoch()).collect::<Vec<Epoch>>(), [epoch(1), epoch(2)]);
    assert_eq!(read.chain, 0, "of the empty history");
}
