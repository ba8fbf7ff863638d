//! Shared by the log's tests: a scripted history and its expected results.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate of its own and uses a part")]
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use bytes::Bytes;
use std::{convert::Infallible, sync::Arc};
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_model::Zxid;
use zoolet_sim::disk::SimDisk;
use zoolet_store::Strategy;
use zoolet_store::disk::Disk;
use zoolet_store::log::{AppendError, Facts, Log, LogError, LogOptions, Opened, Persisted};
use zoolet_zab::{AppendSeq, Epoch};

pub const BOTH: [Strategy; 2] = [Strategy::Recycle, Strategy::Append];
pub const DISK_INCARNATION: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

/// Returns options at which every few batches rotate the segments.
///
/// A segment has five blocks, the last of them for its end.
pub fn small(strategy: Strategy) -> LogOptions {
    LogOptions { segment_bytes: 20 << 10, segments: 4, strategy }
}

pub fn birth() -> Facts {
    Facts::birth(7, DISK_INCARNATION)
}

pub fn epoch(number: u32) -> Epoch {
    Epoch::new(number).unwrap()
}

pub fn zxid(number: u32, counter: u64) -> Zxid {
    Zxid::new(epoch(number), counter).unwrap()
}

pub fn entry(zxid: Zxid, bytes: usize) -> LogRecord {
    entry_saying(zxid, zxid.to_bits() as u8, bytes)
}

pub fn entry_saying(zxid: Zxid, word: u8, bytes: usize) -> LogRecord {
    LogRecord::Entry { zxid, payload: Bytes::from(vec![word; bytes]) }
}

pub fn create(disk: &SimDisk, options: LogOptions) -> Log {
    Log::create(Arc::new(disk.clone()), options, birth()).unwrap()
}

pub fn try_open(disk: &SimDisk, options: LogOptions) -> Result<(Log, Opened), LogError> {
    Log::open(Arc::new(disk.clone()), options)
}

pub fn open(disk: &SimDisk, options: LogOptions) -> (Log, Opened) {
    try_open(disk, options).unwrap()
}

/// Appends `records` as one call.
pub fn append(log: &mut Log, records: Vec<LogRecord>, watermark: Zxid) -> Result<Persisted, AppendError> {
    let seq = AppendSeq(log.appended().0 + records.len() as u64);
    log.append(&[Append { seq, records: records.into(), watermark, expect: None }])
}

/// Returns the records that open an epoch: promise, epoch and no-op entry.
pub fn open_epoch(number: u32) -> Vec<LogRecord> {
    vec![LogRecord::Promise(epoch(number)), LogRecord::Epoch(epoch(number)), entry(zxid(number, 0), 10)]
}

pub fn try_replay(log: &Log, after: Zxid) -> Result<Vec<(Zxid, Bytes)>, LogError> {
    let mut entries = Vec::new();
    log.replay(after, &mut |zxid, payload| {
        entries.push((zxid, payload));
        Ok::<(), Infallible>(())
    })?;
    Ok(entries)
}

pub fn replay(log: &Log, after: Zxid) -> Vec<(Zxid, Bytes)> {
    try_replay(log, after).unwrap()
}

pub fn zxids(log: &Log, after: Zxid) -> Vec<Zxid> {
    replay(log, after).into_iter().map(|(zxid, _)| zxid).collect()
}

pub fn counters(number: u32, counters: std::ops::RangeInclusive<u64>) -> Vec<Zxid> {
    counters.map(|counter| zxid(number, counter)).collect()
}

pub const BLOCK: u64 = 4096;

/// Damage to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Removed,
    Zeroed,
    /// Cut to this many bytes.
    Cut(u64),
}

pub const GONE: [Fate; 4] = [Fate::Removed, Fate::Zeroed, Fate::Cut(0), Fate::Cut(100)];
/// Leaves a segment's first two blocks whole.
pub const SHORT: Fate = Fate::Cut(2 * BLOCK);

impl Fate {
    pub fn strike(self, disk: &SimDisk, name: &str) {
        let file = disk.open(name).unwrap();
        match self {
            Self::Removed => disk.remove(name).unwrap(),
            Self::Zeroed => file.write_at(0, &vec![0; file.len().unwrap() as usize]).unwrap(),
            Self::Cut(bytes) => file.set_len(bytes).unwrap(),
        }
        file.sync().unwrap();
        disk.sync_directory().unwrap();
    }
}
