//! An append that continues another history is never written.
//!
//! Nothing after it is written either.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use zoolet_machine::record::chain_after;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_model::Zxid;
use zoolet_sim::disk::SimDisk;
use zoolet_store::log::{AppendError, Log};
use zoolet_zab::AppendSeq;

fn expecting(seq: u64, records: Vec<LogRecord>, expect: u128) -> Append {
    Append { seq: AppendSeq(seq), records: records.into(), watermark: Zxid::ZERO, expect: Some(expect) }
}

fn plain(seq: u64, records: Vec<LogRecord>) -> Append {
    Append { seq: AppendSeq(seq), records: records.into(), ..Append::default() }
}

/// Returns a log with six records, among them entries 1.0 to 1.3.
fn four_entries(disk: &SimDisk, strategy: zoolet_store::Strategy) -> Log {
    let mut log = create(disk, small(strategy));
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    append(&mut log, (1..=3).map(|counter| entry(zxid(1, counter), 10)).collect(), zxid(1, 1)).unwrap();
    log
}

/// Returns the chain hash after entry 1.`counter`, computed from the payloads alone.
fn chain_at(counter: u64) -> u128 {
    (0..=counter).fold(0, |chain, counter| {
        let zxid = zxid(1, counter);
        chain_after(chain, zxid, &[zxid.to_bits() as u8; 10])
    })
}

#[test]
fn append_of_another_history_is_refused_with_all_later_appends() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = four_entries(&disk, strategy);
        let facts = log.facts().clone();
        let waiting = [
            plain(7, vec![entry(zxid(1, 4), 10)]),
            expecting(8, vec![entry(zxid(1, 5), 10)], 99),
            plain(9, vec![entry(zxid(1, 6), 10)]),
        ];
        for _ in 0..2 {
            let refused = log.append(&waiting).unwrap_err();
            assert!(matches!(refused, AppendError::Fatal(_)), "{refused}");
            assert!(refused.to_string().contains("continues another history"), "{refused}");
        }
        assert_eq!((log.appended(), log.facts().last), (AppendSeq(7), zxid(1, 4)), "what came before it counts");
        for image in [disk.after_process_crash(), disk.after_power_loss(0)] {
            let (log, opened) = open(&image, small(strategy));
            assert_eq!((opened.appended, zxids(&log, Zxid::ZERO)), (AppendSeq(7), counters(1, 0..=4)));
        }
        assert_ne!(facts.chain, 99);
    }
}

#[test]
fn expected_chain_hash_covers_earlier_appends_of_the_same_call() {
    for strategy in BOTH {
        let disk = SimDisk::new(1);
        let mut log = four_entries(&disk, strategy);
        assert_eq!(log.facts().chain, chain_at(3));
        let waiting = [
            expecting(7, vec![entry(zxid(1, 4), 10)], chain_at(3)),
            expecting(8, vec![entry(zxid(1, 5), 10)], chain_at(4)),
            plain(9, vec![LogRecord::Truncate { to: zxid(1, 2) }]),
            expecting(10, vec![entry(zxid(1, 3), 10)], chain_at(2)),
        ];
        let batches = log.counters().batches;
        log.append(&waiting[..2]).unwrap();
        assert_eq!(log.counters().batches, batches + 1, "nobody waits for a sync to know a chain hash");
        log.append(&waiting).unwrap();
        assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=3));
        assert_eq!(log.facts().chain, chain_at(3));
        assert_eq!(log.append(&waiting).unwrap().seq, AppendSeq(10), "what is durable may be said again");
    }
}

#[test]
fn watermark_before_a_diverging_append_becomes_durable() {
    let disk = SimDisk::new(1);
    let mut log = four_entries(&disk, BOTH[0]);
    let watermark = Append { seq: AppendSeq(6), watermark: zxid(1, 3), ..Append::default() };
    log.append(&[watermark, expecting(7, vec![entry(zxid(1, 4), 10)], 99)]).unwrap_err();
    assert_eq!(open(&disk.after_power_loss(0), small(BOTH[0])).1.facts.watermark, zxid(1, 3));
}

/// The first part of a divided append is durable, so its chain hash was right. The log's chain hash
/// has changed since.
#[test]
fn append_divided_by_a_stall_resumes_with_its_rest() {
    let disk = SimDisk::new(1);
    let mut log = four_entries(&disk, BOTH[0]);
    let records = (4..=7).map(|counter| entry(zxid(1, counter), if counter == 4 { 10 } else { 6000 })).collect();
    let waiting = [expecting(10, records, chain_at(3))];
    disk.set_capacity(Some(disk.used_bytes()));
    assert!(matches!(log.append(&waiting), Err(AppendError::Stalled(_))));
    assert!(log.appended() > AppendSeq(6), "a part of it is there");
    disk.set_capacity(None);
    assert_eq!(log.append(&waiting).unwrap().seq, AppendSeq(10));
    assert_eq!(zxids(&log, Zxid::ZERO), counters(1, 0..=7));
}
