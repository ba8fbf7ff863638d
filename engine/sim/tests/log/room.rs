//! The log's ring has room for every proposed entry. Writes wait for checkpoints, never for the
//! log.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use zoolet_machine::{Event, Limits};
use zoolet_model::{CreateKind, Request};
use zoolet_sim::client::{CONN, NOW, create};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, Told};

/// Two of these entries fit into a segment and waste a third of it. Many arrive before the log has
/// persisted the first.
#[test]
fn burst_of_large_writes_waits_for_checkpoints_and_completes() {
    let limits = Limits {
        frame_bytes_max: 100_000,
        log_segment_bytes: 256 << 10,
        log_segments: 8,
        memtable_bytes: 8 << 20,
        ..Limits::default()
    };
    let mut machine = Machine::connected(&SimDisk::new(1), limits);
    for round in 0..20 {
        for n in 0..30 {
            let create = create(format!("/{round}-{n}"), 90_000, CreateKind::Persistent);
            // The requests arrive as from one read of a socket: no action is carried out in
            // between.
            machine.server.handle(NOW, Event::Request { conn: CONN, xid: n, request: Request::Write(create) });
        }
        machine.settle().unwrap();
        let answers = machine.told.drain(..).map(|told| match told {
            Told::Reply(_, _, _, result) => result.map(drop),
            other => panic!("round {round}: {other:?}"),
        });
        assert_eq!(answers.collect::<Vec<_>>(), vec![Ok(()); 30], "round {round}");
    }
}
