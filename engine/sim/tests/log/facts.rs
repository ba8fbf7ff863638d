//! The facts that an opened store reports to the protocol.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::{BOTH, append, create, entry, epoch, open, open_epoch, zxid};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::{chain_after, key};
use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta, LogRecord};
use zoolet_machine::state::Changes;
use zoolet_machine::{Event, Limits};
use zoolet_model::Zxid;
use zoolet_sim::{disk::SimDisk, machine::tiny_limits};
use zoolet_store::disk::Disk;
use zoolet_store::log::{LogOptions, Receiving};
use zoolet_store::{Store, Strategy};

fn open_store(disk: &SimDisk, limits: &Limits) -> Store {
    Store::open(Arc::new(disk.clone()), Strategy::Recycle, limits, 77).unwrap()
}

#[test]
fn reopened_store_reports_all_facts_the_protocol_needs() {
    let (disk, limits) = (SimDisk::new(1), tiny_limits());
    let mut store = open_store(&disk, &limits);
    assert_eq!((store.log_floor, store.chain_at_base, store.facts.disk_incarnation), (Zxid::ZERO, 0, 77));
    append(&mut store.log, open_epoch(1), Zxid::ZERO).unwrap();
    let config = LogRecord::Config { committed: Bytes::from_static(b"abc"), last_seen: Bytes::from_static(b"abd") };
    append(&mut store.log, vec![LogRecord::Birth { ensemble: 9 }, config], Zxid::ZERO).unwrap();
    let mut chains = vec![chain_after(0, zxid(1, 0), &[zxid(1, 0).to_bits() as u8; 10])];
    for counter in 1..=60 {
        append(&mut store.log, vec![entry(zxid(1, counter), 900)], zxid(1, counter - 1)).unwrap();
        chains.push(store.log.facts().chain);
        if counter % 20 == 0 {
            let changes =
                Changes::from([(key::znode(&format!("/{counter}")).unwrap(), Some(Bytes::from_static(b"x")))]);
            let digest = u128::from(counter);
            let meta = CheckpointMeta { zxid: zxid(1, counter), digest, totals: Bytes::from(vec![0; 44]) };
            store.base.checkpoint(&Checkpoint { changes: Arc::new(changes), meta }).unwrap();
            store.log.recycle(zxid(1, counter));
        }
    }
    append(
        &mut store.log,
        vec![LogRecord::Promise(epoch(3)), LogRecord::SnapBegin { zxid: zxid(3, 9), base: 4 }],
        Zxid::ZERO,
    )
    .unwrap();
    append(&mut store.log, vec![entry(zxid(1, 61), 10), entry(zxid(1, 62), 10)], Zxid::ZERO).unwrap();
    chains.extend([chain_after(chains[60], zxid(1, 61), &[zxid(1, 61).to_bits() as u8; 10]), store.log.facts().chain]);
    drop(store);

    let store = open_store(&disk.after_power_loss(0), &limits);
    let facts = &store.facts;
    assert_eq!((facts.ensemble_id, facts.disk_incarnation), (9, 77));
    assert_eq!((&facts.config_committed[..], &facts.config_last_seen[..]), (&b"abc"[..], &b"abd"[..]));
    assert_eq!((facts.accepted, facts.current, facts.watermark), (epoch(3), epoch(1), zxid(1, 59)));
    assert_eq!(facts.receiving, Some(Receiving { zxid: zxid(3, 9), base_id: 4 }));
    assert!(store.log_floor > Zxid::ZERO && store.log_floor <= zxid(1, 60), "{}", store.log_floor);
    assert_eq!(store.base.meta().zxid, zxid(1, 60));
    let mut chain = store.chain_at_base;
    assert_eq!(chain, chains[60]);
    let mut counter = 60;
    store
        .replay(|event| {
            let Event::Recovered { zxid, payload } = event else { return Err(()) };
            (chain, counter) = (chain_after(chain, zxid, &payload), counter + 1);
            assert_eq!((chain, zxid.counter()), (chains[counter], counter as u64));
            Ok(())
        })
        .unwrap();
    assert_eq!((counter, chain), (62, facts.chain));
}

/// Each segment restates the facts, and an opening log compares them with the recorded facts.
/// The restated history does not show that a longer one was truncated. If the recorded history
/// did, the two would differ and the log would not open.
#[test]
fn log_of_a_truncated_history_of_80_epochs_opens_again() {
    for strategy in BOTH {
        let (disk, options) = (SimDisk::new(1), LogOptions { segment_bytes: 64 << 10, segments: 16, strategy });
        let mut log = create(&disk, options);
        for number in 1..=80 {
            append(&mut log, open_epoch(number), Zxid::ZERO).unwrap();
        }
        append(&mut log, vec![LogRecord::Truncate { to: zxid(70, 0) }], Zxid::ZERO).unwrap();
        let segments = |disk: &SimDisk| disk.list().unwrap().len();
        let before = segments(&disk);
        append(&mut log, open_epoch(81), Zxid::ZERO).unwrap();
        for counter in 1..40 {
            append(&mut log, vec![entry(zxid(81, counter), 10)], zxid(81, counter - 1)).unwrap();
        }
        assert!(segments(&disk) > before + 1, "segments restate the truncated history");
        let facts = log.facts().clone();
        drop(log);

        let (log, opened) = open(&disk.after_power_loss(0), options);
        assert_eq!((&opened.facts, log.floor()), (&facts, Zxid::ZERO), "{strategy:?}");
        let spans = &opened.facts.spans;
        assert_eq!((spans.oldest(), spans.last()), (Some(zxid(17, 0)), zxid(81, 39)));
        assert!(spans.forgotten() >= zxid(16, 0), "{strategy:?}: {}", spans.forgotten());
    }
}
