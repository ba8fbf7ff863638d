//! Periodic work of the server, and changed session timeouts.

use zoolet_machine::{ConnId, Event};
use zoolet_model::{ConnectReply, ConnectRequest, CreateKind, Request};
use zoolet_sim::client::{CONN, NOW, TIMEOUT_MS, create, delete};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::machine::{Machine, tiny_limits};

const INTERVAL_MS: u64 = 60_000;

/// Lets time pass while the session's owner keeps pinging.
fn wait(machine: &mut Machine, ms: u64) {
    for _ in 0..ms / 1000 {
        machine.advance(1000).expect("it goes on");
        machine.ask(Request::Ping).expect("it lives");
    }
}

fn is_there(machine: &mut Machine, path: &str) -> bool {
    machine.ask(Request::Exists { path: path.into(), watch: false }).is_ok()
}

#[test]
fn container_emptied_after_idle_hours_is_reaped_at_the_next_check() {
    let mut machine = Machine::connected(&SimDisk::new(1), tiny_limits());
    let empties = |machine: &mut Machine| machine.write(delete("/box/a")).expect("deleted");
    let fills = |machine: &mut Machine| {
        machine.write(create("/box", 1, CreateKind::Container)).expect("created");
        machine.write(create("/box/a", 1, CreateKind::Persistent)).expect("created");
    };
    fills(&mut machine);
    // Half an interval after a check.
    wait(&mut machine, 60 * INTERVAL_MS + INTERVAL_MS / 2);
    empties(&mut machine);
    wait(&mut machine, INTERVAL_MS / 2 - 2000);
    assert!(is_there(&mut machine, "/box"), "it has been empty for less than half an interval");
    wait(&mut machine, 4000);
    assert!(!is_there(&mut machine, "/box"), "the look came at its time");
    // A later check is also on time.
    fills(&mut machine);
    wait(&mut machine, 10 * INTERVAL_MS - 10_000);
    empties(&mut machine);
    wait(&mut machine, 5000);
    assert!(is_there(&mut machine, "/box"));
    wait(&mut machine, INTERVAL_MS);
    assert!(!is_there(&mut machine, "/box"));
}

/// Reattaches the session to `conn` with this timeout, then disconnects.
fn back(machine: &mut Machine, conn: ConnId, timeout_ms: i32, known: &ConnectReply) {
    let request = ConnectRequest {
        session: known.session,
        password: Some(known.secret.0.to_vec().into()),
        ..ConnectRequest::for_new_session(timeout_ms)
    };
    assert_eq!(machine.connect(conn, request).timeout_ms, timeout_ms);
    machine.handle(Event::Disconnected { conn }).expect("it goes on");
}

#[test]
fn changed_session_timeout_is_logged_and_survives_a_restart() {
    let disk = SimDisk::new(1);
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).expect("it starts");
    let known = machine.connect(CONN, ConnectRequest::for_new_session(TIMEOUT_MS));
    let applied = machine.server.applied();
    back(&mut machine, ConnId(2), 5000, &known);
    assert!(machine.server.applied() > applied, "the next process has to know it");
    let applied = machine.server.applied();
    machine.advance(4900).expect("it goes on");
    assert_eq!(machine.server.sessions(), 1);
    back(&mut machine, ConnId(3), 5000, &known);
    assert_eq!(machine.server.applied(), applied, "the same timeout costs nothing");
    drop(machine);
    let mut machine = Machine::start(&disk, tiny_limits(), NOW).expect("it starts");
    machine.advance(4900).expect("it goes on");
    assert_eq!(machine.server.sessions(), 1);
    // In steps: a server that is far too late takes that for its own pause.
    (0..3).for_each(|_| machine.advance(100).expect("it goes on"));
    assert_eq!(machine.server.sessions(), 0);
}
