//! Files that a disk lost, zeroed or cut short.
//!
//! Either all acknowledged records are there, or the log refuses to start and says why. The only
//! exception is the end of the newest segment with [`Strategy::Append`], where files only grow.
//! docs/explanation/safety.md says why that loss cannot be detected.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use zoolet_model::Zxid;
use zoolet_sim::disk::{Random, SimDisk};
use zoolet_store::Strategy;
use zoolet_store::disk::Disk;
use zoolet_store::log::{LogError, LogOptions};

fn options(strategy: Strategy) -> LogOptions {
    LogOptions { segments: 8, ..small(strategy) }
}

/// Returns a disk with four live segments, and each one's last entry.
///
/// The segments are seg-00 to seg-03.
fn four_segments(strategy: Strategy) -> (SimDisk, [Zxid; 4]) {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, options(strategy));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    let mut ends = [Zxid::ZERO; 4];
    for counter in 1.. {
        append(&mut log, vec![entry(zxid(1, counter), 200)], zxid(1, counter - 1)).unwrap();
        let segments = disk.list().unwrap().len();
        ends[segments - 1] = zxid(1, counter);
        if segments == 4 && counter == ends[2].counter() + 3 {
            return (disk, ends);
        }
    }
    unreachable!()
}

/// Returns the entries after a base at `base`, or the start's error.
fn start(disk: &SimDisk, options: LogOptions, base: Zxid) -> Result<Vec<Zxid>, LogError> {
    let (log, _) = try_open(disk, options)?;
    Ok(try_replay(&log, base)?.into_iter().map(|(zxid, _)| zxid).collect())
}

/// Base, lost segment, and the expected results.
///
/// The first result is for a segment that is gone, the second for one that is cut short.
type Case = (Zxid, usize, Result<&'static str, &'static str>, Result<&'static str, &'static str>);

#[test]
fn lost_segment_is_refused_unless_the_base_has_its_entries() {
    let older = "entries after";
    let between = "records between here and";
    let newest = "the segment after this one is missing";
    let short = "this file has 8192 bytes instead of 20480";
    for strategy in BOTH {
        let (_, ends) = four_segments(strategy);
        // An empty base, one that ends in the middle of the log, and one that has every entry.
        let [none, middle, all] = [Zxid::ZERO, ends[1], ends[3]];
        let cut_end = if strategy == Strategy::Recycle { Err(short) } else { Ok("it looks like a torn tail") };
        let lost: [Case; 12] = [
            (none, 0, Err(older), Err(between)),
            (none, 1, Err(older), Err(between)),
            (none, 2, Err(older), Err(between)),
            (none, 3, Err(newest), cut_end),
            (middle, 0, Ok("the base has it"), Ok("the base has it")),
            (middle, 1, Ok("the base has it"), Ok("the base has it")),
            (middle, 2, Err(older), Err(between)),
            (middle, 3, Err(newest), cut_end),
            (all, 0, Ok("the base has it"), Ok("the base has it")),
            (all, 1, Ok("the base has it"), Ok("the base has it")),
            (all, 2, Ok("the base has it"), Ok("the base has it")),
            // The newest segment is needed all the same: it also holds promises and epochs.
            (all, 3, Err(newest), if strategy == Strategy::Recycle { Err(short) } else { Err("the base ends at") }),
        ];
        for (base, segment, when_gone, when_short) in lost {
            let fates = GONE.map(|fate| (fate, when_gone));
            for (fate, expected) in fates.into_iter().chain([(SHORT, when_short)]) {
                let (disk, _) = four_segments(strategy);
                fate.strike(&disk, &format!("seg-{segment:02}.log"));
                let story = format!("{strategy:?}, base at {base}, segment {segment} {fate:?}");
                match (start(&disk, options(strategy), base), expected) {
                    (Err(LogError::Damaged { what, .. }), Err(words)) => {
                        assert!(what.contains(words), "{story}: {what}");
                    }
                    (Ok(found), Ok("the base has it")) => {
                        let (whole, _) = four_segments(strategy);
                        assert_eq!(found, start(&whole, options(strategy), base).unwrap(), "{story}");
                    }
                    (Ok(found), Ok(_)) => {
                        assert_eq!(*found.last().unwrap(), zxid(1, ends[2].counter() + 2), "{story}");
                    }
                    (found, expected) => panic!("{story}: {found:?} instead of {expected:?}"),
                }
            }
        }
    }
}

/// In random histories, loses each file in turn after every acknowledged call.
#[test]
fn losing_any_file_never_silently_loses_acked_records() {
    for seed in 0..60 {
        let strategy = BOTH[seed as usize % 2];
        let options = options(strategy);
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut log = create(&disk, options);
        let mut next = zxid(1, 0);
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let mut base = Zxid::ZERO;
        for call in 0..30 {
            let mut records = Vec::new();
            for _ in 0..=random.below(3) {
                next = next.next().unwrap();
                records.push(entry(next, if random.below(4) == 0 { random.below(8000) } else { 100 } as usize));
            }
            append(&mut log, records, next).unwrap();
            if random.below(4) == 0 {
                base = next;
                log.recycle(base);
            }
            while random.below(3) == 0 && log.prepare_ahead().unwrap() {}
            let whole = start(&disk.after_process_crash(), options, base).unwrap();
            for name in disk.list().unwrap() {
                let bytes = disk.contents(&name).unwrap().len() as u64;
                let cut = BLOCK * random.below(bytes / BLOCK + 1);
                for fate in [Fate::Removed, Fate::Zeroed, Fate::Cut(0), Fate::Cut(cut)] {
                    let disk = disk.after_process_crash();
                    fate.strike(&disk, &name);
                    let story = format!("history {seed}, {strategy:?}, call {call}, {name} {fate:?}");
                    match start(&disk, options, base) {
                        Ok(found) if strategy == Strategy::Append && matches!(fate, Fate::Cut(1..)) => {
                            assert!(whole.starts_with(&found), "{story}");
                        }
                        Ok(found) => assert_eq!(found, whole, "{story}"),
                        // The directory's marker shows that there was a log: see `born.rs`.
                        Err(LogError::Empty | LogError::Damaged { .. }) => {}
                        Err(error) => panic!("{story}: {error}"),
                    }
                }
            }
        }
    }
}

/// A crash may come between the first batch of a segment and the end of the previous one. No record
/// was acknowledged in between. The start reports the records that it finds, and later ones are
/// acknowledged. None of them may be lost silently.
#[test]
fn segment_end_lost_in_a_crash_is_rewritten_by_the_start() {
    for strategy in BOTH {
        let (whole, _) = four_segments(strategy);
        let steps = whole.steps();
        for step in 0..steps {
            let disk = SimDisk::new(1);
            disk.set_crash_at(step);
            let history = || -> Result<(), Box<dyn std::error::Error>> {
                let shared = std::sync::Arc::new(disk.clone());
                let mut log = zoolet_store::log::Log::create(shared, options(strategy), birth())?;
                append(&mut log, open_epoch(1), Zxid::ZERO)?;
                for counter in 1..20 {
                    append(&mut log, vec![entry(zxid(1, counter), 200)], zxid(1, counter - 1))?;
                }
                Ok(())
            };
            let _ = history();
            for image in [disk.after_process_crash(), disk.after_power_loss(0), disk.after_power_loss(1)] {
                let Ok((mut log, opened)) = try_open(&image, options(strategy)) else { continue };
                let after_loss = image.after_power_loss(0);
                for name in after_loss.list().unwrap() {
                    let image = after_loss.after_process_crash();
                    image.remove(&name).unwrap();
                    match start(&image, options(strategy), Zxid::ZERO) {
                        Ok(found) => {
                            let last = found.last().copied().unwrap_or(Zxid::ZERO);
                            assert_eq!(last, opened.facts.last, "step {step}, {name}, nothing was appended");
                        }
                        Err(LogError::Empty | LogError::Damaged { .. }) => {}
                        Err(error) => panic!("step {step}, {name}: {error}"),
                    }
                }
                let accepted = opened.facts.accepted.next().unwrap();
                let records = vec![
                    zoolet_machine::seam::action::LogRecord::Promise(accepted),
                    zoolet_machine::seam::action::LogRecord::Epoch(accepted),
                    entry(Zxid::first_of(accepted), 10),
                ];
                append(&mut log, records, Zxid::ZERO).unwrap();
                let after_loss = image.after_power_loss(0);
                for name in after_loss.list().unwrap() {
                    let image = after_loss.after_process_crash();
                    image.remove(&name).unwrap();
                    match start(&image, options(strategy), Zxid::ZERO) {
                        Ok(found) => assert_eq!(found.last(), Some(&Zxid::first_of(accepted)), "step {step}, {name}"),
                        Err(LogError::Empty | LogError::Damaged { .. }) => {}
                        Err(error) => panic!("step {step}, {name}: {error}"),
                    }
                }
            }
        }
    }
}
