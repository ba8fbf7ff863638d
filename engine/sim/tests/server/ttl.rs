//! Znodes with a time to live, on one server with the real log and base.

use zoolet_machine::seam::action::FIRST_KEYS_MAX;
use zoolet_machine::{Event, Limits, Now};
use zoolet_model::{ConnectRequest, CreateKind, ErrorCode, Reply, Request, TTL_MAX_MS, TimeToLive};
use zoolet_sim::client::{CONN, NOW, create, delete, set};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, tiny_limits};

const TTL_MS: u64 = 60_000;
const TTL: CreateKind = CreateKind::Ttl { ttl_ms: TTL_MS };

fn is_there(machine: &mut Machine, path: &str) -> bool {
    machine.ask(Request::Exists { path: path.into(), watch: false }).is_ok()
}

/// Returns a machine whose sessions do not expire during a test.
fn patient(disk: &SimDisk, limits: Limits, now: Now) -> Machine {
    let mut machine = Machine::start(disk, limits, now).unwrap();
    machine.connect(CONN, ConnectRequest::for_new_session(40_000));
    machine
}

/// Lets time pass while the session's owner keeps pinging.
fn wait(machine: &mut Machine, ms: u64) {
    let mut left_ms = ms;
    while left_ms > 0 {
        // A server that is late for its deadline by 200 ms takes that for a pause.
        let step_ms = left_ms.min(100);
        machine.advance(step_ms).unwrap();
        machine.ask(Request::Ping).unwrap();
        left_ms -= step_ms;
    }
}

/// Carries out everything due now.
fn work(machine: &mut Machine) {
    for _ in 0..1000 {
        machine.advance(1).unwrap();
    }
}

fn left(machine: &mut Machine, path: &str) -> TimeToLive {
    match machine.ask(Request::GetTtl { path: path.into() }) {
        Ok(Reply::Ttl(left)) => left,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ttl_znode_is_deleted_within_a_millisecond_of_its_time() {
    let mut machine = patient(&SimDisk::new(1), tiny_limits(), NOW);
    machine.write(create("/t", 1, TTL)).unwrap();
    assert_eq!(left(&mut machine, "/t"), TimeToLive { ttl_ms: Some(TTL_MS), left_ms: Some(TTL_MS) });
    wait(&mut machine, TTL_MS / 2);
    assert_eq!(left(&mut machine, "/t").left_ms, Some(TTL_MS / 2));
    machine.write(set("/t", 2)).unwrap();
    wait(&mut machine, TTL_MS - 1);
    assert!(is_there(&mut machine, "/t"), "its time counts from the change of its data");
    wait(&mut machine, 2);
    assert!(!is_there(&mut machine, "/t"));
    assert_eq!(machine.ask(Request::GetTtl { path: "/t".into() }), Err(ErrorCode::NoNode));
}

#[test]
fn children_hold_a_ttl_znode_and_the_last_one_gives_it_its_time_anew() {
    let mut machine = patient(&SimDisk::new(1), tiny_limits(), NOW);
    machine.write(create("/t", 1, TTL)).unwrap();
    machine.write(create("/t/x", 1, CreateKind::Persistent)).unwrap();
    wait(&mut machine, 3 * TTL_MS);
    assert_eq!(left(&mut machine, "/t"), TimeToLive { ttl_ms: Some(TTL_MS), left_ms: None });
    assert_eq!(left(&mut machine, "/t/x"), TimeToLive::default());
    machine.write(delete("/t/x")).unwrap();
    wait(&mut machine, TTL_MS - 1);
    assert!(is_there(&mut machine, "/t"));
    wait(&mut machine, 2);
    assert!(!is_there(&mut machine, "/t"));
}

/// Only sessions set deadlines otherwise, and here all are closed.
#[test]
fn idle_server_waits_for_the_first_ttl_znode_alone_and_without_one_for_nothing() {
    let mut machine = Machine::connected(&SimDisk::new(1), tiny_limits());
    machine.write(create("/p", 1, CreateKind::Persistent)).unwrap();
    let close = |machine: &mut Machine| machine.ask(Request::CloseSession).unwrap();
    close(&mut machine);
    assert_eq!(machine.server.next_deadline(), None, "without a TTL znode");
    machine.connect(CONN, ConnectRequest::for_new_session(9000));
    machine.write(create("/t", 1, CreateKind::Ttl { ttl_ms: 500_000 })).unwrap();
    machine.write(create("/u", 1, CreateKind::Ttl { ttl_ms: 400_000 })).unwrap();
    close(&mut machine);
    machine.advance(0).unwrap();
    let asked = machine.server.fetches_asked();
    assert_eq!(machine.server.next_deadline(), Some(NOW.mono_ms + 400_000));
    machine.advance(400_000).unwrap();
    work(&mut machine);
    assert_eq!(machine.server.next_deadline(), Some(NOW.mono_ms + 500_000));
    // Two looks into the index, and the record.
    let asked = machine.server.fetches_asked() - asked;
    assert!(asked <= 4, "{asked}");
}

#[test]
fn thousands_due_at_once_are_deleted_in_batches_while_others_write() {
    let limits = Limits { memtable_bytes: 64 << 10, log_segment_bytes: 64 << 10, ..tiny_limits() };
    let mut machine = patient(&SimDisk::new(1), limits, NOW);
    const MANY: u64 = 3000;
    for number in 0..MANY {
        machine.write(create(format!("/t{number}"), 1, TTL)).unwrap();
    }
    assert_eq!(machine.server.counts().ttl, MANY);
    wait(&mut machine, TTL_MS);
    let mut before = machine.server.counts().ttl;
    for step in 0..MANY {
        machine.advance(1).unwrap();
        machine.write(set("/", step as usize % 10)).unwrap();
        let now = machine.server.counts().ttl;
        assert!(before - now <= FIRST_KEYS_MAX as u64, "{} at once", before - now);
        before = now;
    }
    assert_eq!((before, machine.server.counts().znodes), (0, 4));
}

#[test]
fn times_to_live_survive_checkpoints_and_restarts() {
    let disk = SimDisk::new(1);
    let mut machine = patient(&disk, tiny_limits(), NOW);
    for number in 0..200 {
        machine.write(create(format!("/t{number}"), 50, TTL)).unwrap();
    }
    machine.write(create("/later", 1, CreateKind::Ttl { ttl_ms: 10 * TTL_MS })).unwrap();
    wait(&mut machine, TTL_MS / 2);
    machine.write(set("/t7", 3)).unwrap();
    assert!(machine.base().generation().0 > 2, "checkpoints were written");
    drop(machine);
    // The wall clock jumps, and the monotonic one starts anew.
    let mut machine = patient(&disk, tiny_limits(), Now { mono_ms: 50, wall_ms: NOW.wall_ms + 9_000_000_000 });
    assert_eq!(machine.server.counts().ttl, 201);
    wait(&mut machine, TTL_MS / 2 - 1000);
    assert_eq!(machine.server.counts().ttl, 201, "the jump deletes nothing");
    wait(&mut machine, 10_000);
    assert_eq!(machine.server.counts().ttl, 2);
    assert!(is_there(&mut machine, "/t7") && is_there(&mut machine, "/later"));
    wait(&mut machine, TTL_MS / 2);
    assert_eq!(machine.server.counts().ttl, 1);
}

#[test]
fn write_in_flight_when_the_deletion_is_proposed_saves_the_znode() {
    let mut machine = patient(&SimDisk::new(1), tiny_limits(), NOW);
    machine.write(create("/t", 1, TTL)).unwrap();
    wait(&mut machine, TTL_MS - 1000);
    // The write is proposed, and not yet applied when the znode is due.
    let request = Request::Write(set("/t", 2));
    machine.handle(Event::Request { conn: CONN, xid: 9, request }).unwrap();
    machine.advance(1000).unwrap();
    work(&mut machine);
    assert!(is_there(&mut machine, "/t"));
    assert!(machine.server.counts().ttl == 1);
}

#[test]
fn pause_of_the_server_does_not_count() {
    let mut machine = patient(&SimDisk::new(1), tiny_limits(), NOW);
    machine.write(create("/t", 1, TTL)).unwrap();
    wait(&mut machine, TTL_MS / 2);
    // SIGSTOP.
    machine.advance(1000 * TTL_MS).unwrap();
    work(&mut machine);
    assert_eq!(machine.server.counts().ttl, 1);
    machine.connect(CONN, ConnectRequest::for_new_session(40_000));
    wait(&mut machine, TTL_MS / 2);
    assert_eq!(machine.server.counts().ttl, 0, "the rest of its time is over");
}

/// The deadline of the count lies before the start of the process, and the next turn is late.
#[test]
fn late_turn_at_the_begin_of_a_count_does_not_stop_time() {
    const UP_MS: u64 = 60 * 24 * 3_600_000;
    let mut machine = patient(&SimDisk::new(1), tiny_limits(), Now { mono_ms: UP_MS, ..NOW });
    machine.write(create("/q", 1, CreateKind::Persistent)).unwrap();
    // More than one step counts.
    for number in 0..1100 {
        machine.write(create(format!("/q/{number}"), 1, CreateKind::Persistent)).unwrap();
    }
    machine.write(create("/t", 1, TTL)).unwrap();
    for path in ["/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_limits", "/zookeeper/quota/q/zookeeper_stats"] {
        machine.write(create(path, 1, CreateKind::Persistent)).unwrap();
    }
    assert!(machine.server.next_deadline().unwrap() < UP_MS, "a count has begun");
    machine.advance(500).unwrap();
    let before = left(&mut machine, "/t").left_ms.unwrap();
    wait(&mut machine, 1000);
    assert_eq!(left(&mut machine, "/t").left_ms.unwrap(), before - 1000);
}

#[test]
fn time_to_live_out_of_range_is_refused() {
    let mut machine = patient(&SimDisk::new(1), tiny_limits(), NOW);
    for ttl_ms in [0, TTL_MAX_MS + 1, u64::MAX] {
        let refused = machine.write(create("/t", 1, CreateKind::Ttl { ttl_ms }));
        assert_eq!(refused, Err(ErrorCode::BadArguments));
    }
    assert!(machine.write(create("/t", 1, CreateKind::Ttl { ttl_ms: TTL_MAX_MS })).is_ok());
}
