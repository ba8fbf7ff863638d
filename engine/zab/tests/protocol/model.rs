//! The model of a log behaves as the engine's log does.

use crate::net::log::{Entry, Log, Record, chain_after};
use crate::net::server_id;
use std::rc::Rc;
use zoolet_zab::{Config, EnsembleId, Epoch, Incarnation, Kind, Member, Zxid};

fn entry() -> Entry {
    let zxid = Zxid::first_of(Epoch::ZERO.next().unwrap());
    Entry { zxid, payload: 1, chain: chain_after(0, zxid, 1), config: None }
}

#[test]
fn a_damaged_log_is_whole_again_once_a_snapshot_is_durable() {
    let member = Member { id: server_id(1), kind: Kind::Voter, disk: Incarnation(0) };
    let file = Config::new(EnsembleId::UNBORN, Zxid::ZERO, &[member]).unwrap();
    let is_whole = |log: &Log| log.recovered(&file).is_whole;
    let mut log = Log::empty(Incarnation(1));
    for damage in [
        |log: &mut Log| log.rot(1),
        |log: &mut Log| {
            log.append(Record::Damaged, Zxid::ZERO);
            log.crash(1);
        },
    ] {
        damage(&mut log);
        assert!(!is_whole(&log));
        let repaired = log.append(Record::SnapEnd(Rc::new(vec![entry()])), Zxid::ZERO);
        assert!(!is_whole(&log), "the snapshot is not durable");
        log.persist(repaired);
        assert!(is_whole(&log));
    }
}
