//! Crashes of both kinds at every step of random histories.
//!
//! The log also crashes while it recovers. After each crash it holds exactly the acknowledged
//! records, plus at most a prefix of the call in flight, and continues.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_model::Zxid;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::Strategy;
use zoolet_store::log::{AppendError, Facts, Log, LogError, LogOptions, Receiving};
use zoolet_zab::{AppendSeq, Epoch};

/// The expected state of a log, kept the naive way.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    /// All entries after `start`.
    history: Vec<(Zxid, Bytes)>,
    start: Zxid,
    accepted: Epoch,
    current: Epoch,
    config: (Bytes, Bytes),
    base_id: u64,
    receiving: Option<Receiving>,
    watermark: Zxid,
    /// Last entry that the base durably holds.
    checkpoint: Zxid,
    /// Number of records appended so far.
    appended: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            history: Vec::new(),
            start: Zxid::ZERO,
            accepted: Epoch::ZERO,
            current: Epoch::ZERO,
            config: (Bytes::new(), Bytes::new()),
            base_id: 0,
            receiving: None,
            watermark: Zxid::ZERO,
            checkpoint: Zxid::ZERO,
            appended: 0,
        }
    }

    fn last(&self) -> Zxid {
        self.history.last().map_or(self.start, |(zxid, _)| *zxid)
    }

    fn pass(&mut self, record: &LogRecord, watermark: Zxid) {
        self.appended += 1;
        match record {
            LogRecord::Entry { zxid, payload } => self.history.push((*zxid, payload.clone())),
            LogRecord::Promise(epoch) => self.accepted = *epoch,
            LogRecord::Epoch(epoch) => self.current = *epoch,
            LogRecord::Truncate { to } => self.history.retain(|(zxid, _)| zxid <= to),
            LogRecord::Config { committed, last_seen } => self.config = (committed.clone(), last_seen.clone()),
            LogRecord::SnapBegin { zxid, base } => {
                self.receiving = Some(Receiving { zxid: *zxid, base_id: *base });
            }
            LogRecord::SnapEnd { base, zxid, .. } => {
                self.history.clear();
                (self.start, self.base_id, self.receiving) = (*zxid, *base, None);
                (self.watermark, self.checkpoint) = (*zxid, *zxid);
            }
            LogRecord::Birth { .. } | LogRecord::Damaged => {}
        }
        self.watermark = self.watermark.max(watermark.min(self.last()));
    }

    /// Returns every state that a crash during `appends` may leave.
    ///
    /// A watermark applies to the history after its append. While records of that append are
    /// missing, it commits nothing that one of them cuts off.
    fn beginnings_of(&self, appends: &[Append]) -> Vec<Self> {
        let mut states = vec![self.clone()];
        let mut state = self.clone();
        for append in appends {
            for (at, record) in append.records.iter().enumerate() {
                let cuts = append.records[at + 1..].iter().filter_map(|later| match later {
                    LogRecord::Truncate { to } => Some(*to),
                    LogRecord::SnapEnd { .. } => Some(Zxid::ZERO),
                    _ => None,
                });
                state.pass(record, cuts.fold(append.watermark, Zxid::min));
                states.push(state.clone());
            }
            if append.records.is_empty() {
                state.watermark = state.watermark.max(append.watermark.min(state.last()));
                states.push(state.clone());
            }
        }
        states
    }

    /// Returns a short copy for messages, with the last zxid only.
    fn summary(&self) -> Self {
        Self {
            history: self.history.iter().rev().take(1).map(|(zxid, _)| (*zxid, Bytes::new())).collect(),
            ..self.clone()
        }
    }

    fn describes(&self, facts: &Facts, appended: AppendSeq) -> bool {
        (facts.accepted, facts.current, facts.base_id) == (self.accepted, self.current, self.base_id)
            && (&facts.config_committed, &facts.config_last_seen) == (&self.config.0, &self.config.1)
            && (facts.receiving, facts.watermark, facts.last) == (self.receiving, self.watermark, self.last())
            && (facts.ensemble_id, facts.disk_incarnation) == (7, DISK_INCARNATION)
            && appended.0 == self.appended
    }

    /// Draws the appends of the next call.
    fn wish(&self, random: &mut Random) -> Vec<Append> {
        let mut after = self.clone();
        let mut appends = Vec::new();
        for _ in 0..=random.below(3) {
            let mut records = Vec::new();
            // A server hands over at once everything that follows from up to 256 events.
            for _ in 0..random.below(4) {
                after.wish_for(random, &mut records);
            }
            // A leader's watermark is mostly the newest entry, even after a truncation.
            let watermark = match random.below(4) {
                0 | 1 => after.last(),
                2 => after
                    .history
                    .get(random.below(after.history.len().max(1) as u64) as usize)
                    .map_or(Zxid::ZERO, |(zxid, _)| *zxid),
                _ => Zxid::ZERO,
            };
            let watermark = watermark.max(after.watermark);
            after.watermark = watermark.min(after.last());
            appends.push(Append { seq: AppendSeq(after.appended), records: records.into(), watermark, expect: None });
        }
        appends
    }

    /// Draws the next records, as a correct server would write them.
    ///
    /// No record cuts off entries that an earlier append reports as committed.
    fn wish_for(&mut self, random: &mut Random, records: &mut Vec<LogRecord>) {
        let mut wishes = Vec::new();
        let next = self.accepted.max(self.last().epoch()).next().unwrap();
        match random.below(16) {
            0 | 1 => {
                wishes.extend([LogRecord::Promise(next), LogRecord::Epoch(next)]);
                wishes.push(entry(Zxid::first_of(next), 9));
            }
            2..=4 => {
                let stays = |zxid: &Zxid| *zxid >= self.watermark && *zxid >= self.checkpoint;
                let ends = [self.start].into_iter().chain(self.history.iter().map(|(zxid, _)| *zxid));
                let ends: Vec<Zxid> = ends.filter(stays).collect();
                wishes.push(LogRecord::Truncate { to: ends[random.below(ends.len() as u64) as usize] });
            }
            5 | 6 => wishes.push(LogRecord::Config {
                committed: self.config.1.clone(),
                last_seen: Bytes::from(random.bits().to_le_bytes().to_vec()),
            }),
            7 if random.below(4) == 0 => {
                let (zxid, base) = (Zxid::new(next, random.below(100)).unwrap(), self.base_id + 1);
                wishes.push(LogRecord::SnapBegin { zxid, base });
                wishes.push(LogRecord::SnapEnd { base, zxid, chain: u128::from(random.bits()) });
            }
            _ => {
                let mut last = self.last();
                for _ in 0..=random.below(4) {
                    let bytes = if random.below(4) == 0 { random.below(9000) } else { random.below(200) };
                    let Some(zxid) = last.next().filter(|_| last > Zxid::ZERO) else { break };
                    wishes.push(entry_saying(zxid, random.bits() as u8, bytes as usize));
                    last = zxid;
                }
            }
        }
        wishes.iter().for_each(|record| self.pass(record, Zxid::ZERO));
        records.append(&mut wishes);
    }
}

/// The states that a disk may hold after a run. `None` is a log that was never born.
type Ends = Vec<Option<Model>>;

/// Runs random calls on a log until the disk dies, at most `calls`.
///
/// `model` describes the log to open; `None` creates one. `before` lists the states that the disk
/// may hold until it is opened.
fn run(
    disk: &SimDisk,
    options: LogOptions,
    model: Option<Model>,
    before: &Ends,
    random: &mut Random,
    calls: u32,
) -> Ends {
    let shared = Arc::new(disk.clone());
    let opened = match &model {
        Some(_) => Log::open(shared, options).map(|(log, _)| log),
        None => Log::create(shared, options, birth()),
    };
    let mut log = match opened {
        Ok(log) => log,
        Err(error) => {
            assert!(disk.crashed(), "{error}");
            let mut ends = before.clone();
            if model.is_none() {
                ends.push(Some(Model::new()));
            }
            return ends;
        }
    };
    let mut model = model.unwrap_or_else(Model::new);
    log.recycle(model.checkpoint);
    for _ in 0..calls {
        let appends = model.wish(random);
        let beginnings = model.beginnings_of(&appends);
        match log.append(&appends) {
            Ok(persisted) => {
                model = beginnings.last().unwrap().clone();
                assert_eq!(persisted.seq.0, model.appended);
            }
            Err(AppendError::Stalled(error)) => {
                // The ring is full: checkpoint the committed entries and repeat the call.
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                model.checkpoint = model.watermark;
                log.recycle(model.checkpoint);
                if log.append(&appends).is_err() {
                    // This test does not cover an unapplied tail that is longer than the ring.
                    return run_out(disk, &beginnings, model.checkpoint);
                }
                let end = beginnings.last().unwrap().clone();
                model = Model { checkpoint: model.checkpoint.max(end.checkpoint), ..end };
            }
            Err(AppendError::Fatal(error)) => {
                assert!(disk.crashed(), "{error}");
                return run_out(disk, &beginnings, model.checkpoint);
            }
        }
        if random.below(3) == 0 {
            model.checkpoint = model.watermark;
            log.recycle(model.checkpoint);
        }
        if random.below(3) == 0 && log.prepare_ahead().is_err() {
            break;
        }
        assert_eq!(log.facts().last, model.last());
    }
    vec![Some(model)]
}

fn run_out(disk: &SimDisk, beginnings: &[Model], checkpoint: Zxid) -> Ends {
    disk.crash();
    beginnings
        .iter()
        .map(|model| Some(Model { checkpoint: model.checkpoint.max(checkpoint), ..model.clone() }))
        .collect()
}

/// Opens a log after a crash; returns the allowed state that it has.
fn recover(disk: &SimDisk, options: LogOptions, ends: &Ends, story: &str) -> Option<Model> {
    let (log, opened) = match Log::open(Arc::new(disk.clone()), options) {
        Ok(opened) => opened,
        Err(LogError::Empty) if ends.contains(&None) => return None,
        Err(error) => panic!("{story}: {error}"),
    };
    let found = ends.iter().flatten().find(|model| model.describes(&opened.facts, opened.appended));
    let Some(model) = found else {
        let ends: Vec<_> = ends.iter().map(|end| end.as_ref().map(Model::summary)).collect();
        panic!("{story}: {opened:?} is none of {ends:?}")
    };
    let entries = try_replay(&log, model.checkpoint).unwrap_or_else(|error| panic!("{story}: {error}"));
    let expected: Vec<_> = model.history.iter().filter(|(zxid, _)| *zxid > model.checkpoint).cloned().collect();
    assert_eq!(entries, expected, "{story}");
    Some(model.clone())
}

/// Returns the disk after a process crash and after several power losses.
fn images(disk: &SimDisk, seeds: std::ops::Range<u64>) -> impl Iterator<Item = (String, SimDisk)> {
    let processes = [("process".to_owned(), disk.after_process_crash())];
    processes.into_iter().chain(seeds.map(|seed| (format!("power {seed}"), disk.after_power_loss(seed))))
}

fn crash_everywhere(strategy: Strategy, seed: u64, calls: u32) {
    let options = small(strategy);
    let whole = SimDisk::new(seed);
    run(&whole, options, None, &vec![None], &mut Random::new(seed), calls);
    for step in 0..whole.steps() {
        let disk = SimDisk::new(seed);
        disk.set_crash_at(step);
        let ends = run(&disk, options, None, &vec![None], &mut Random::new(seed), calls);
        for (kind, image) in images(&disk, 0..8) {
            let story = format!("{strategy:?}, history {seed}, step {step}, {kind}");
            let found = recover(&image, options, &ends, &story);
            // Crash again while the log recovers and continues.
            for second in 0..5 {
                let image = if kind == "process" { disk.after_process_crash() } else { image.after_process_crash() };
                image.set_crash_at(second);
                let ends = run(&image, options, found.clone(), &ends, &mut Random::new(seed ^ step), 2);
                for (kind, image) in images(&image, 0..3) {
                    recover(&image, options, &ends, &format!("{story}, then step {second}, {kind}"));
                }
            }
        }
    }
}

#[test]
fn crash_at_any_step_loses_no_acked_record_when_recycling_segments() {
    for seed in 0..4 {
        crash_everywhere(Strategy::Recycle, seed, 20);
    }
}

#[test]
fn crash_at_any_step_loses_no_acked_record_when_appending_segments() {
    for seed in 100..104 {
        crash_everywhere(Strategy::Append, seed, 20);
    }
}

#[test]
fn long_histories_with_many_crashes_lose_no_acked_record() {
    for seed in 0..40 {
        let options = small(BOTH[seed as usize % 2]);
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new(seed);
        let (mut model, mut ends) = (None, vec![None]);
        for life in 0..40 {
            disk.set_crash_at(1 + random.below(60));
            ends = run(&disk, options, model, &ends, &mut random, 20);
            disk = if random.coin() { disk.after_process_crash() } else { disk.after_power_loss(random.bits()) };
            model = recover(&disk, options, &ends, &format!("history {seed}, life {life}"));
        }
    }
}

/// These histories expose a watermark that counts before the truncations of the same append.
#[cfg(feature = "mutations")]
#[test]
#[should_panic(expected = "a truncation removes committed entries")]
fn crash_histories_expose_the_watermark_at_first_record_mutation() {
    zoolet_zab::mutation::set(Some(zoolet_zab::Mutation::WatermarkAtFirstRecord));
    long_histories_with_many_crashes_lose_no_acked_record();
}

/// Changed options leave files of the wrong size. Some are removed. Others are zeroed from the
/// front, while batches of earlier uses remain behind the zeroes.
#[test]
fn crashes_with_changing_options_lose_no_acked_record() {
    for seed in 200..230 {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new(seed);
        let (mut model, mut ends) = (None, vec![None]);
        for life in 0..40 {
            let segment_bytes = [16 << 10, 16 << 10, 24 << 10][random.below(3) as usize];
            let options = LogOptions { segment_bytes, ..small(BOTH[random.below(2) as usize]) };
            disk.set_crash_at(1 + random.below(60));
            ends = run(&disk, options, model, &ends, &mut random, 20);
            disk = if random.coin() { disk.after_process_crash() } else { disk.after_power_loss(random.bits()) };
            model = recover(&disk, options, &ends, &format!("history {seed}, life {life}"));
        }
    }
}
