//! What the server does by itself, and what it remembers of sessions, each at its time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use zoolet_engine::{ConnId, Event, Now};
use zoolet_model::{
    ConnectRequest, Create, CreateKind, CreateMode, Perms, Reply, Request, RequestedAcl, SessionId, SessionSecret,
    WriteOp,
};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, Told, tiny_limits};

const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
const CONN: ConnId = ConnId(1);
const INTERVAL_MS: u64 = 60_000;

struct Joined {
    machine: Machine,
    id: SessionId,
    secret: SessionSecret,
}

/// Connects, to this session or a new one.
fn join(
    machine: &mut Machine,
    conn: ConnId,
    timeout_ms: i32,
    known: Option<(SessionId, SessionSecret)>,
) -> (SessionId, SessionSecret) {
    let request = ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms,
        session: known.map_or(SessionId(0), |(id, _)| id),
        password: known.map(|(_, secret)| secret.0.to_vec().into()),
        read_only: None,
    };
    machine.told.clear();
    machine.handle(Event::Connect { conn, peer: None, request }).unwrap();
    machine.settle().unwrap();
    let connected = machine.told.iter().find_map(|told| match told {
        Told::Connected(_, reply) => Some((reply.session, reply.secret)),
        Told::Reply(..) | Told::Closed(_) => None,
    });
    connected.expect("a session")
}

fn joined(disk: &SimDisk) -> Joined {
    let mut machine = Machine::start(disk, tiny_limits(), NOW).unwrap();
    let (id, secret) = join(&mut machine, CONN, 40_000, None);
    Joined { machine, id, secret }
}

fn write(machine: &mut Machine, op: WriteOp) {
    machine.told.clear();
    machine.handle(Event::Request { conn: CONN, xid: 1, request: Request::Write(op) }).unwrap();
    machine.settle().unwrap();
    assert!(matches!(&machine.told[..], [Told::Reply(_, _, _, Ok(_))]), "{:?}", machine.told);
}

fn create(path: &str, kind: CreateKind) -> WriteOp {
    let acl = RequestedAcl { perms: Perms::ALL, scheme: Some("world".into()), id: Some("anyone".into()) };
    let mode = CreateMode::Valid { kind, sequential: false };
    WriteOp::Create(Create { path: path.into(), data: None, acl: Some(vec![acl]), mode, with_stat: false })
}

fn is_there(machine: &mut Machine, path: &str) -> bool {
    machine.told.clear();
    let request = Request::Exists { path: path.into(), watch: false };
    machine.handle(Event::Request { conn: CONN, xid: 1, request }).unwrap();
    machine.settle().unwrap();
    matches!(&machine.told[..], [Told::Reply(_, _, _, Ok(Reply::Stat(_)))])
}

/// The owner goes on saying something.
fn wait(machine: &mut Machine, ms: u64) {
    for _ in 0..ms / 1000 {
        machine.advance(1000).unwrap();
        machine.handle(Event::Request { conn: CONN, xid: -2, request: Request::Ping }).unwrap();
        machine.settle().unwrap();
    }
}

#[test]
fn a_container_that_becomes_empty_after_an_idle_hour_stays_until_the_next_look() {
    let Joined { mut machine, .. } = joined(&SimDisk::new(1));
    write(&mut machine, create("/box", CreateKind::Container));
    write(&mut machine, create("/box/a", CreateKind::Persistent));
    // Half an interval behind a look.
    wait(&mut machine, 60 * INTERVAL_MS + INTERVAL_MS / 2);
    write(&mut machine, WriteOp::Delete { path: "/box/a".into(), version: -1 });
    wait(&mut machine, INTERVAL_MS / 2 - 2000);
    assert!(is_there(&mut machine, "/box"), "it has been empty for less than half an interval");
    wait(&mut machine, 4000);
    assert!(!is_there(&mut machine, "/box"), "the look came at its time");
    // And so does the next one.
    write(&mut machine, create("/box", CreateKind::Container));
    write(&mut machine, create("/box/a", CreateKind::Persistent));
    wait(&mut machine, 10 * INTERVAL_MS - 10_000);
    write(&mut machine, WriteOp::Delete { path: "/box/a".into(), version: -1 });
    wait(&mut machine, 5000);
    assert!(is_there(&mut machine, "/box"));
    wait(&mut machine, INTERVAL_MS);
    assert!(!is_there(&mut machine, "/box"));
}

#[test]
fn coming_back_with_another_timeout_costs_no_zxid_and_counts_until_a_restart() {
    let disk = SimDisk::new(1);
    let Joined { mut machine, id, secret } = joined(&disk);
    let applied = machine.server.applied();
    machine.handle(Event::Disconnected { conn: CONN }).unwrap();
    let conn = ConnId(2);
    join(&mut machine, conn, 4000, Some((id, secret)));
    assert_eq!(machine.server.applied(), applied, "nothing was written");
    machine.handle(Event::Disconnected { conn }).unwrap();
    machine.advance(3900).unwrap();
    assert_eq!(machine.server.sessions(), 1);
    join(&mut machine, ConnId(3), 4000, Some((id, secret)));
    machine.handle(Event::Disconnected { conn: ConnId(3) }).unwrap();
    drop(machine);
    // The server that starts knows the timeout that the session began with.
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).unwrap();
    machine.advance(39_900).unwrap();
    assert_eq!(machine.server.sessions(), 1);
    machine.advance(150).unwrap();
    assert_eq!(machine.server.sessions(), 0);
    drop(machine);
    // And the shorter one counts while the server runs.
    let disk = SimDisk::new(1);
    let Joined { mut machine, id, secret } = joined(&disk);
    machine.handle(Event::Disconnected { conn: CONN }).unwrap();
    join(&mut machine, conn, 4000, Some((id, secret)));
    machine.handle(Event::Disconnected { conn }).unwrap();
    machine.advance(4050).unwrap();
    assert_eq!(machine.server.sessions(), 0);
}
