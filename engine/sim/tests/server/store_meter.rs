//! Bytes handed to the device, by cause.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::sync::Arc;
use zoolet_machine::Limits;
use zoolet_machine::status::{Cause, Written};
use zoolet_sim::disk::SimDisk;
use zoolet_store::disk::Disk;
use zoolet_store::{Meter, MeteredDisk, Store, Strategy};

const BLOCK: u64 = 4096;

fn metered() -> (SimDisk, Arc<Meter>, MeteredDisk<SimDisk>) {
    let (disk, meter) = (SimDisk::new(1), Arc::<Meter>::default());
    (disk.clone(), Arc::clone(&meter), MeteredDisk::new(disk, meter))
}

fn bytes(written: &Written) -> Vec<(&'static str, u64)> {
    let all = Cause::ALL.into_iter().map(|cause| (cause.name(), written.of(cause)));
    all.filter(|(_, bytes)| *bytes > 0).collect()
}

#[test]
fn written_bytes_are_counted_by_the_cause_in_the_file_name() {
    let (_, meter, disk) = metered();
    let write = |name: &str| disk.create(name).unwrap().write_at(0, &[1; 4096]).unwrap();
    ["seg-00.log", "base-3.redb", "base-3.crc", "base-3-7.run", "base-3.manifest.tmp", "else"]
        .into_iter()
        .for_each(write);
    assert_eq!(bytes(&meter.written()), [("log", BLOCK), ("base", 4 * BLOCK), ("other", BLOCK)]);
    // From here on, only writes to the current base count as a checkpoint's. Its files may have
    // been opened before.
    let coming = disk.create("base-4-1.run").unwrap();
    meter.serve_base(3);
    coming.write_at(0, &[1; 4096]).unwrap();
    disk.open("base-3-7.run").unwrap().write_at(4096, &[1; 4096]).unwrap();
    assert_eq!(bytes(&meter.written())[1..3], [("base", 5 * BLOCK), ("snapshot", BLOCK)]);
    meter.serve_base(4);
    coming.write_at(4096, &[1; 4096]).unwrap();
    assert_eq!(bytes(&meter.written())[1..3], [("base", 6 * BLOCK), ("snapshot", BLOCK)]);
    let images = MeteredDisk::all_for(SimDisk::new(2), Arc::clone(&meter), Cause::Image);
    images.create("conf.image").unwrap().write_at(0, &[1]).unwrap();
    assert_eq!(meter.written().of(Cause::Image), BLOCK);
    assert_eq!(meter.written().total(), 10 * BLOCK);
}

#[test]
fn page_written_many_times_counts_once_per_sync() {
    let (disk, meter, counted) = metered();
    let file = counted.create("else").unwrap();
    for at in 0..10 {
        file.write_at(at * 1000, &[1; 1000]).unwrap();
    }
    file.sync().unwrap();
    assert_eq!((meter.written().total(), disk.counters().synced_bytes), (3 * BLOCK, 3 * BLOCK));
    file.write_at(10_000, &[1; 10]).unwrap();
    file.sync().unwrap();
    assert_eq!((meter.written().total(), disk.counters().synced_bytes), (4 * BLOCK, 4 * BLOCK));
    // An empty write touches no page.
    file.write_at(0, &[]).unwrap();
    assert_eq!(meter.written().total(), 4 * BLOCK);
}

#[test]
fn prepared_bytes_are_counted_apart_from_recurring_ones() {
    let (disk, meter, counted) = metered();
    let limits = Limits { log_segment_bytes: 64 << 10, log_segments: 8, ..Limits::default() };
    let mut store = Store::open(Arc::new(counted), Strategy::Recycle, &limits, 1).unwrap();
    while store.log.prepare_ahead().unwrap() {}
    let (written, log) = (meter.written(), store.log.counters());
    assert_eq!(written.of(Cause::Prepared), log.prepared_bytes);
    assert_eq!(written.of(Cause::Log), log.entry_bytes + log.fact_bytes + log.padding_bytes);
    assert_eq!(written.recurring() + written.of(Cause::Prepared), written.total());
    assert!(written.of(Cause::Prepared) >= 64 << 10 && written.of(Cause::Log) >= BLOCK);
    // Space that is reserved without being written does not count.
    let before = meter.written();
    assert!(!store.reserve.recheck(&store.base));
    assert_eq!(meter.written(), before);
    assert!(disk.files().iter().any(|(name, bytes)| name == "reserve" && *bytes > 0));
}

/// Regression: the noise in the reserve counted as other bytes, which recur. It comes once, so the
/// life of the medium looked shorter, and a start could exceed the budget of a day.
#[test]
fn a_reserve_that_must_be_written_counts_as_prepared() {
    let (disk, meter, counted) = metered();
    disk.reserve_by_writing();
    let limits = Limits { log_segment_bytes: 64 << 10, log_segments: 8, ..Limits::default() };
    let store = Store::open(Arc::new(counted), Strategy::Append, &limits, 1).unwrap();
    let before = meter.written();
    assert!(!store.reserve.recheck(&store.base));
    let after = meter.written();
    let reserve = u64::from(limits.disk_reserve_bytes);
    assert_eq!(after.of(Cause::Prepared) - before.of(Cause::Prepared), 2 * reserve, "zeroes, then noise");
    assert_eq!(after.recurring(), before.recurring());
}
