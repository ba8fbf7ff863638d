//! The facts that an opened store reports to the protocol.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::log_support::{append, entry, epoch, zxid};
use bytes::Bytes;
use std::sync::Arc;
use zoolet_machine::record::{chain_after, key};
use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta, LogRecord};
use zoolet_machine::state::Changes;
use zoolet_machine::{Event, Limits};
use zoolet_model::Zxid;
use zoolet_sim::{disk::SimDisk, machine::tiny_limits};
use zoolet_store::log::Receiving;
use zoolet_store::{Store, Strategy};

fn open(disk: &SimDisk, limits: &Limits) -> Store {
    Store::open(Arc::new(disk.clone()), Strategy::Recycle, limits, 77).unwrap()
}

#[test]
fn reopened_store_reports_all_facts_the_protocol_needs() {
    let (disk, limits) = (SimDisk::new(1), tiny_limits());
    let mut store = open(&disk, &limits);
    assert_eq!((store.log_floor, store.chain_at_base, store.facts.disk_incarnation), (Zxid::ZERO, 0, 77));
    append(&mut store.log, crate::log_support::open_epoch(1), Zxid::ZERO).unwrap();
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

    let store = open(&disk.after_power_loss(0), &limits);
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
