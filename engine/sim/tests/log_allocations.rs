//! Appends allocate nothing once the buffer has its size.
//!
//! There is a single test, because the counting allocator counts the whole process.
#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]

mod log_support;

use log_support::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::{alloc::System, sync::Arc};
use zoolet_machine::seam::action::Append;
use zoolet_model::Zxid;
use zoolet_store::log::{Log, LogOptions};
use zoolet_store::{FsDisk, Strategy};
use zoolet_zab::AppendSeq;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn steady_appends_allocate_nothing() {
    let path = std::env::temp_dir().join(format!("zoolet-log-allocations-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let disk = Arc::new(FsDisk::open(&path).unwrap());
    let options = LogOptions { segment_bytes: 1 << 20, segments: 4, strategy: Strategy::Recycle };
    let mut log = Log::create(disk, options, birth()).unwrap();
    append(&mut log, open_epoch(1), Zxid::ZERO).unwrap();
    let calls: Vec<Vec<Append>> = (0..20)
        .map(|call| {
            let records = |counter| vec![entry(zxid(1, counter), 100)];
            (call * 50 + 1..=call * 50 + 50)
                .map(|counter| Append {
                    seq: AppendSeq(3 + counter),
                    records: records(counter).into(),
                    watermark: Zxid::ZERO,
                    expect: None,
                })
                .collect()
        })
        .collect();
    log.append(&calls[0]).unwrap();
    let region = Region::new(COUNTED);
    for appends in &calls[1..] {
        log.append(appends).unwrap();
    }
    let change = region.change();
    std::fs::remove_dir_all(&path).unwrap();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
    assert_eq!(log.facts().last, zxid(1, 1000));
}
