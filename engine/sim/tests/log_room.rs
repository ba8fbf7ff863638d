//! The log's ring has room for whatever is proposed: it is checkpoints that writes wait for, not a log that is full.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use zoolet_engine::{ConnId, Event, Limits, Now};
use zoolet_model::{ConnectRequest, Create, CreateKind, CreateMode, Perms, Request, RequestedAcl, SessionId, WriteOp};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, Told};

const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
const CONN: ConnId = ConnId(1);

/// Entries of which two fit into a segment and waste a third of it, many of them before the log has persisted the first.
#[test]
fn a_burst_of_large_writes_waits_for_checkpoints_and_no_connection_is_lost() {
    let limits = Limits {
        frame_bytes_max: 100_000,
        log_segment_bytes: 256 << 10,
        log_segments: 8,
        memtable_bytes: 8 << 20,
        ..Limits::default()
    };
    let mut machine = Machine::start(&SimDisk::new(1), limits, NOW).unwrap();
    let request =
        ConnectRequest { last_zxid_seen: 0, timeout_ms: 9000, session: SessionId(0), password: None, read_only: None };
    machine.handle(Event::Connect { conn: CONN, peer: None, request }).unwrap();
    machine.settle().unwrap();
    machine.told.clear();
    for round in 0..20 {
        for n in 0..30 {
            let acl = RequestedAcl { perms: Perms::ALL, scheme: Some("world".into()), id: Some("anyone".into()) };
            let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
            let create = WriteOp::Create(Create {
                path: format!("/{round}-{n}").into(),
                data: Some(Bytes::from(vec![7; 90_000])),
                acl: Some(vec![acl]),
                mode,
                with_stat: false,
            });
            // As one read of a socket brings them: nothing is carried out in between.
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
