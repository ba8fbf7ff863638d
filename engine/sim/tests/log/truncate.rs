//! Truncation under load.
//!
//! Appends come before and behind a truncation in the same call, truncations reach far back in the
//! ring, and crashes strike at every step. Truncated entries never come back and take no space.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_model::Zxid;
use zoolet_sim::disk::SimDisk;
use zoolet_store::Strategy;
use zoolet_store::log::{AppendError, Log, LogError, Opened};
use zoolet_zab::AppendSeq;

/// Returns the appends with consecutive numbers.
fn numbered(log: &Log, appends: Vec<(Vec<LogRecord>, Zxid)>) -> Vec<Append> {
    let mut seq = log.appended().0;
    let number = |(records, watermark): (Vec<LogRecord>, Zxid)| {
        seq += records.len() as u64;
        Append { seq: AppendSeq(seq), records: records.into(), watermark, expect: None }
    };
    appends.into_iter().map(number).collect()
}

fn words(log: &Log, after: Zxid) -> Vec<(Zxid, u8)> {
    replay(log, after).into_iter().map(|(zxid, payload)| (zxid, payload[0])).collect()
}

/// Asserts that replay from `after` leads to the facts' chain hash.
fn assert_chained(log: &Log, after: Zxid, story: &str) {
    let start = log.chain_at(after).unwrap_or_else(|error| panic!("{story}: {error}"));
    let chain = replay(log, after).iter().fold(start, |chain, (zxid, payload)| chain_after(chain, *zxid, payload));
    assert_eq!(chain, log.facts().chain, "{story}");
}

/// Returns a log whose ring is full of old, uncommitted entries (`o`).
///
/// Only 1.1 is committed.
fn full_ring(disk: &SimDisk, strategy: Strategy) -> Log {
    let mut log = create(disk, small(strategy));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, vec![entry_saying(zxid(1, 1), b'o', 100)], zxid(1, 1)).unwrap();
    append(&mut log, Vec::new(), zxid(1, 1)).unwrap();
    log.recycle(zxid(1, 1));
    for counter in 2.. {
        match append(&mut log, vec![entry_saying(zxid(1, counter), b'o', 3000)], Zxid::ZERO) {
            Ok(_) => {}
            Err(AppendError::Stalled(_)) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(counter < 100);
    }
    log
}

/// A follower persists uncommitted entries until its ring is full. Then the next leader truncates
/// them all.
#[test]
fn truncated_entries_free_their_log_space() {
    for strategy in BOTH {
        for is_reopened in [false, true] {
            let disk = SimDisk::new(1);
            let mut log = full_ring(&disk, strategy);
            assert!(log.used_bytes() > log.capacity_bytes() - (8 << 10));
            // The truncation's own record needs space, but the ring is full to its last block.
            log.recycle(zxid(1, 1));
            let cut = append(&mut log, vec![LogRecord::Truncate { to: zxid(1, 1) }], Zxid::ZERO);
            if let Err(AppendError::Stalled(error)) = cut {
                panic!("{strategy:?}: {error}");
            }
            assert_eq!(log.used_bytes(), 0, "nothing is above the checkpoint");
            if is_reopened {
                drop(log);
                log = open(&disk.after_power_loss(0), small(strategy)).0;
                log.recycle(zxid(1, 1));
            }
            append(&mut log, open_epoch(2), Zxid::ZERO).unwrap();
            for counter in 1..12 {
                append(&mut log, vec![entry_saying(zxid(2, counter), b'n', 3000)], Zxid::ZERO)
                    .unwrap_or_else(|error| panic!("{strategy:?}, {is_reopened}, 2.{counter}: {error}"));
            }
            assert_eq!(zxids(&log, zxid(1, 1)), counters(2, 0..=11));
            assert_eq!(log.floor(), zxid(1, 1), "and peers can have it");
            assert_chained(&log, zxid(1, 1), "after a full ring");
        }
    }
}

/// A server that cannot write a promise cannot follow the leader whose commits would allow a
/// checkpoint.
#[test]
fn full_log_ring_accepts_promises_but_no_entry() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = full_ring(&disk, strategy);
        let last = log.facts().last;
        for promise in 2..5 {
            append(&mut log, vec![LogRecord::Promise(epoch(promise))], Zxid::ZERO).unwrap();
            let refused = append(&mut log, vec![entry(last.next().unwrap(), 10)], Zxid::ZERO);
            assert!(matches!(refused, Err(AppendError::Stalled(_))), "that room is for facts");
        }
        // With both in one call, the promise becomes durable and the entry waits.
        let waiting = numbered(&log, vec![(vec![LogRecord::Promise(epoch(5)), entry(last.next().unwrap(), 10)], last)]);
        assert!(matches!(log.append(&waiting), Err(AppendError::Stalled(_))));
        assert_eq!(open(&disk.after_power_loss(0), small(strategy)).1.facts.accepted, epoch(5));
        log.recycle(last);
        log.append(&waiting).unwrap();
        for counter in 2..40 {
            let zxid = zxid(1, last.counter() + counter);
            append(&mut log, vec![entry(zxid, 3000)], zxid).unwrap();
            log.recycle(zxid);
        }
        assert!(disk.used_bytes() <= log.capacity_bytes(), "the segment more is gone");
    }
}

/// A crash leaves a prefix of the appends around a truncation, and never a mixture. This holds at
/// every step of the disk, wherever the truncation ends.
#[test]
fn crash_at_any_step_around_a_truncation_leaves_one_history() {
    for strategy in BOTH {
        // Truncate within the newest segment, into the one before it, and all the way back.
        for to in [9, 6, 3, 1] {
            let history = |disk: &SimDisk| -> Result<usize, AppendError> {
                let mut log = Log::create(Arc::new(disk.clone()), small(strategy), birth())
                    .map_err(|error| AppendError::Stalled(std::io::Error::other(error.to_string())))?;
                append(&mut log, open_epoch(1), Zxid::ZERO)?;
                for counter in 1..=9 {
                    append(&mut log, vec![entry_saying(zxid(1, counter), b'o', 2500)], zxid(1, 1))?;
                }
                log.recycle(zxid(1, 1));
                // One call: an entry of the old leader, the truncation, the same zxid again, and a
                // new epoch.
                let calls = numbered(
                    &log,
                    vec![
                        (vec![entry_saying(zxid(1, 10), b'o', 100)], Zxid::ZERO),
                        (vec![LogRecord::Promise(epoch(2)), LogRecord::Truncate { to: zxid(1, to) }], Zxid::ZERO),
                        (vec![entry_saying(zxid(1, to + 1), b'n', 100)], Zxid::ZERO),
                        (vec![LogRecord::Epoch(epoch(2)), entry_saying(zxid(2, 0), b'n', 5000)], zxid(1, to + 1)),
                    ],
                );
                log.append(&calls)?;
                append(&mut log, vec![entry_saying(zxid(2, 1), b'n', 3000)], zxid(2, 0))?;
                Ok(1)
            };
            let whole = SimDisk::new(1);
            history(&whole).unwrap();
            let (mut before, mut after) = (0, 0);
            for step in 0..=whole.steps() {
                let disk = SimDisk::new(1);
                disk.set_crash_at(step);
                let outcome = history(&disk);
                for seed in 0..5 {
                    let image = if seed == 4 { disk.after_process_crash() } else { disk.after_power_loss(seed) };
                    let story = format!("{strategy:?}, to 1.{to}, step {step}, {seed}");
                    let (mut log, opened) = match try_open(&image, small(strategy)) {
                        Ok(opened) => opened,
                        Err(LogError::Empty) => continue,
                        Err(error) => panic!("{story}: {error}"),
                    };
                    let found = words(&log, Zxid::ZERO);
                    let old = found.iter().filter(|(zxid, word)| zxid.counter() > 0 && *word == b'o').count() as u64;
                    let new = found.iter().filter(|(_, word)| *word == b'n').count();
                    assert_chained(&log, Zxid::ZERO, &story);
                    if opened.facts.cuts == 0 {
                        assert_eq!(new, 0, "{story}: {found:?}");
                        before += 1;
                    } else {
                        assert_eq!(old, to, "{story}: {found:?}");
                        assert_eq!(opened.facts.accepted, epoch(2), "{story}");
                        assert!(new == 3 || outcome.is_err(), "{story}: {found:?}");
                        after += 1;
                    }
                    // The log continues with the next epoch.
                    let next = opened.facts.accepted.next().unwrap();
                    log.recycle(opened.facts.watermark);
                    append(&mut log, open_epoch(next.as_u32()), Zxid::ZERO).unwrap();
                    let again = open(&image.after_power_loss(0), small(strategy)).0;
                    assert_eq!(words(&again, Zxid::ZERO)[..found.len()], found, "{story}");
                    assert_chained(&again, Zxid::ZERO, &story);
                }
            }
            assert!(before > 20 && after > 20, "{before} {after}");
        }
    }
}

/// The acknowledged number never goes back. Each record gets its own number, even under a zxid used
/// before.
#[test]
fn append_truncate_and_reappend_get_increasing_append_numbers() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    let calls = numbered(
        &log,
        vec![
            (vec![entry_saying(zxid(1, 1), b'a', 10)], Zxid::ZERO),
            (vec![LogRecord::Truncate { to: zxid(1, 0) }], Zxid::ZERO),
            (vec![entry_saying(zxid(1, 1), b'b', 10)], Zxid::ZERO),
        ],
    );
    let mut durable = Vec::new();
    for call in &calls {
        durable.push(log.append(std::slice::from_ref(call)).unwrap().seq);
    }
    assert_eq!(durable, [AppendSeq(4), AppendSeq(5), AppendSeq(6)]);
    assert_eq!(log.append(&calls).unwrap().seq, AppendSeq(6), "said again it changes nothing");
    assert_eq!(words(&open(&disk.after_power_loss(0), small(Strategy::Recycle)).0, zxid(1, 0)), [(zxid(1, 1), b'b')]);
}

/// Appends ten entries of epoch 1, committed up to 1.2. One block of the segment is left.
fn ten_entries(log: &mut Log) -> Result<(), AppendError> {
    append(log, open_epoch(1), Zxid::ZERO)?;
    let mut records: Vec<_> = (1..=9).map(|counter| entry_saying(zxid(1, counter), b'o', 10)).collect();
    records.push(LogRecord::Promise(epoch(2)));
    append(log, records, zxid(1, 2))?;
    Ok(())
}

/// Cuts the power at every step of [`ten_entries`] and then `call`.
///
/// The watermark must be `before` while the tail is still there. After the cut it must be the last
/// entry. Both cases must occur.
fn crash_in_a_call(call: &dyn Fn() -> Vec<LogRecord>, cut: Zxid, before: Zxid, after: Zxid) {
    for strategy in BOTH {
        let history = |disk: &SimDisk| -> Result<(), AppendError> {
            let mut log = Log::create(Arc::new(disk.clone()), small(strategy), birth())
                .map_err(|error| AppendError::Stalled(std::io::Error::other(error.to_string())))?;
            ten_entries(&mut log)?;
            append(&mut log, call(), after)?;
            assert_eq!((log.facts().last, log.facts().watermark), (after, after));
            Ok(())
        };
        let whole = SimDisk::new(1);
        history(&whole).unwrap();
        let (mut split, mut done) = (0, 0);
        for step in 0..=whole.steps() {
            let disk = SimDisk::new(1);
            disk.set_crash_at(step);
            let _ = history(&disk);
            for seed in 0..4 {
                let image = disk.after_power_loss(seed);
                let Ok((_, Opened { facts, .. })) = try_open(&image, small(strategy)) else { continue };
                if facts.last == zxid(1, 9) && !facts.config_last_seen.is_empty() {
                    assert_eq!(facts.watermark, before, "{strategy:?}, step {step}, {seed}: the tail will be cut off");
                    split += 1;
                } else if facts.last >= cut && facts.cuts > 0 {
                    assert_eq!(facts.watermark, facts.last.min(after), "{strategy:?}, step {step}, {seed}");
                    done += 1;
                }
            }
        }
        assert!(split > 0 && done > 0, "the call is two batches: {split} {done}");
    }
}

/// In one turn, a learner hears from a peer that a configuration is committed. Its leader truncates
/// a tail that no quorum has, begins the epoch and reports its first entry as committed. All of
/// that is one append, and a batch ends before the truncation.
#[test]
fn watermark_commits_no_entry_truncated_later_in_its_append() {
    let call = || {
        vec![
            LogRecord::Config { committed: Bytes::from_static(b"c"), last_seen: Bytes::from_static(b"c") },
            LogRecord::Truncate { to: zxid(1, 3) },
            LogRecord::Epoch(epoch(2)),
            entry_saying(zxid(2, 0), b'n', 10),
        ]
    };
    // The entries that stay are committed, because the watermark's history contains them.
    crash_in_a_call(&call, zxid(1, 3), zxid(1, 3), zxid(2, 0));
}

/// The same with a snapshot that replaces the tail, in a segment without room for its record.
#[test]
fn watermark_commits_no_entry_replaced_by_a_snapshot_in_its_append() {
    let call = || {
        vec![
            // With its header, this record leaves 26 bytes of the last block. The record of a
            // snapshot takes 37.
            LogRecord::Config { committed: Bytes::new(), last_seen: Bytes::from(vec![b'c'; 3993]) },
            LogRecord::SnapEnd { base: 3, zxid: zxid(2, 5), chain: 9 },
            LogRecord::Epoch(epoch(2)),
            entry_saying(zxid(2, 6), b'n', 10),
        ]
    };
    crash_in_a_call(&call, zxid(2, 5), zxid(1, 2), zxid(2, 6));
}

/// A server may hold entries of more epochs than a history distinguishes. All of them may be
/// truncated, because each leader died before a quorum had its first entry.
#[test]
fn truncation_across_forgotten_epochs_ends_at_the_committed_history() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = create(&disk, small(strategy));
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        append(&mut log, vec![entry_saying(zxid(1, 1), b'o', 10)], zxid(1, 1)).unwrap();
        log.recycle(zxid(1, 0));
        for chunk in (2..=80).collect::<Vec<_>>().chunks(16) {
            append(&mut log, chunk.iter().flat_map(|&number| open_epoch(number)).collect(), zxid(1, 1)).unwrap();
        }
        append(&mut log, vec![LogRecord::Promise(epoch(81)), LogRecord::Truncate { to: zxid(1, 1) }], zxid(1, 1))
            .unwrap();
        append(&mut log, vec![LogRecord::Epoch(epoch(81)), entry_saying(zxid(81, 0), b'n', 10)], zxid(81, 0)).unwrap();
        // The next segments restate the shorter history.
        for counter in 1..=6 {
            append(&mut log, vec![entry_saying(zxid(81, counter), b'n', 4000)], zxid(81, counter)).unwrap();
            log.recycle(zxid(81, counter - 1));
        }
        let (log, opened) = open(&disk.after_power_loss(0), small(strategy));
        let spans: Vec<_> = opened.facts.spans.iter().map(|span| (span.epoch.as_u32(), span.last)).collect();
        assert_eq!(spans, [(1, 1), (81, 6)], "{strategy:?}");
        assert_eq!(words(&log, zxid(81, 5)), [(zxid(81, 6), b'n')]);
    }
}

/// A forgotten entry must not pass for one that never existed, nor the other way round.
#[test]
fn truncation_to_a_nonexistent_forgotten_epoch_is_refused() {
    let disk = SimDisk::new(1);
    let mut log = create(&disk, small(Strategy::Recycle));
    append(&mut log, open_epoch(1), zxid(1, 0)).unwrap();
    for chunk in (3..=80).collect::<Vec<_>>().chunks(16) {
        append(&mut log, chunk.iter().flat_map(|&number| open_epoch(number)).collect(), Zxid::ZERO).unwrap();
    }
    let refused = append(&mut log, vec![LogRecord::Truncate { to: zxid(2, 0) }], Zxid::ZERO);
    assert!(matches!(&refused, Err(AppendError::Fatal(error)) if error.kind() == std::io::ErrorKind::InvalidInput));
}
