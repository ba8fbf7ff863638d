//! Cost of the log on a real disk. Prints results; asserts nothing about time.
//!
//! ```text
//! cargo test --release -p zoolet-sim --test log measure:: -- --ignored --nocapture
//! ```
#![allow(clippy::print_stderr, reason = "measurements are read by people")]
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::*;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use zoolet_machine::seam::action::Append;
use zoolet_model::Zxid;
use zoolet_store::FsDisk;
use zoolet_store::log::{Log, LogOptions};
use zoolet_zab::AppendSeq;

fn calls(log: &Log, count: u64, entries: u64) -> Vec<Vec<Append>> {
    let (first, seq) = (log.facts().last.counter() + 1, log.appended().0 + 1);
    (0..count)
        .map(|call| {
            (call * entries..(call + 1) * entries)
                .map(|position| Append {
                    seq: AppendSeq(seq + position),
                    records: vec![entry(zxid(1, first + position), 150)].into(),
                    watermark: Zxid::ZERO,
                    expect: None,
                })
                .collect()
        })
        .collect()
}

fn measure(log: &mut Log, name: &str, count: u64, entries: u64) {
    let calls = calls(log, count, entries);
    let mut times: Vec<Duration> = Vec::new();
    let before = log.counters();
    for appends in &calls {
        let start = Instant::now();
        log.append(appends).unwrap();
        times.push(start.elapsed());
        log.recycle(Zxid::from_bits(log.facts().last.to_bits().saturating_sub(1000)).unwrap());
    }
    times.sort_unstable();
    let after = log.counters();
    let at = |part: usize| times[(times.len() - 1) * part / 1000];
    let bytes = after.entry_bytes + after.fact_bytes + after.padding_bytes
        - (before.entry_bytes + before.fact_bytes + before.padding_bytes);
    eprintln!(
        "{name}: {entries} entries a call: p50 {:?} p99 {:?} max {:?}; {} bytes and {:.3} fdatasyncs a call",
        at(500),
        at(990),
        at(1000),
        bytes / count,
        (after.fdatasyncs - before.fdatasyncs) as f64 / count as f64
    );
}

#[test]
#[ignore = "a measurement"]
fn measures_appends_restarts_and_log_creation() {
    for strategy in BOTH {
        let path = std::env::temp_dir().join(format!("zoolet-log-measure-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let options = LogOptions { segment_bytes: 4 << 20, segments: 16, strategy };
        let start = Instant::now();
        let mut log = Log::create(Arc::new(FsDisk::open(&path).unwrap()), options, birth()).unwrap();
        eprintln!("{strategy:?}: birth in an empty directory {:?}", start.elapsed());
        append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
        let name = format!("{strategy:?}");
        measure(&mut log, &name, 3000, 1);
        measure(&mut log, &name, 1000, 50);
        measure(&mut log, &name, 1000, 500);
        // Fill the ring with entries that the base does not have.
        let from = log.facts().last;
        log.recycle(from);
        'full: loop {
            for appends in calls(&log, 10, 500) {
                if log.append(&appends).is_err() {
                    break 'full;
                }
            }
        }
        drop(log);
        for name in ["open", "open again"] {
            let start = Instant::now();
            let (log, _) = Log::open(Arc::new(FsDisk::open(&path).unwrap()), options).unwrap();
            let opened = start.elapsed();
            let mut count = 0u64;
            log.replay(from, &mut |_, payload| {
                count += u64::from(!payload.is_empty());
                Ok::<(), std::convert::Infallible>(())
            })
            .unwrap();
            eprintln!("{strategy:?}: {name} {opened:?}, then replay of {count} entries {:?}", start.elapsed() - opened);
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}
