//! A grant in doubt or lost: COMMAND is told, and ends before another participant may be granted.

use super::{Fixed, is_gone, runs};
use crate::support::*;
use std::time::{Duration, Instant};
use zoolet_model::{Request, WriteOp};

const TIMEOUT: Duration = Duration::from_secs(4);
const LOCK: &str = "lock /locks/a --session-timeout 4s";

/// Writes its process id, then runs for ever.
const FOR_EVER: &str = "echo $$ > pid; while :; do sleep 0.01; done";

#[test]
fn command_is_told_and_ends_before_a_stopped_server_may_end_the_session() {
    let server = Fixed::start();
    let script = format!("trap 'echo told > told; exit 0' TERM; {FOR_EVER}");
    let mut holder = server.start_command(LOCK, &script);
    let pid = server.pid("pid");
    let began = Instant::now();
    server.signal("STOP");
    is_gone(pid);
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(server.lines("told"), ["told"]);
    server.signal("CONT");
    // Although COMMAND ended well.
    assert_eq!(holder.code(), 125);
    assert_eq!(server.run("lock /locks/a --wait 20s", "exit 3").0, 3);
}

#[test]
fn command_that_ignores_the_signal_is_killed_with_its_children() {
    let server = Fixed::start();
    let script = format!("trap '' TERM; sleep 1000 & echo $! > child; {FOR_EVER}");
    let mut holder = server.start_command(&format!("{LOCK} --grace 100ms"), &script);
    let (pid, child) = (server.pid("pid"), server.pid("child"));
    let began = Instant::now();
    server.signal("STOP");
    is_gone(pid);
    is_gone(child);
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    server.signal("CONT");
    assert_eq!(holder.code(), 125);
}

/// A stopped zoolet cannot end COMMAND; its watchdog can.
#[test]
fn command_ends_before_the_session_of_a_stopped_zoolet() {
    let server = Fixed::start();
    let mut holder = server.start_command(LOCK, FOR_EVER);
    let pid = server.pid("pid");
    let began = Instant::now();
    holder.signal("STOP");
    is_gone(pid);
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(server.run("lock /locks/a --wait 20s", "exit 3").0, 3);
    holder.signal("CONT");
    assert_eq!(holder.code(), 125);
}

#[test]
fn short_doubt_pauses_the_command_and_its_end_continues_it() {
    let mut server = Fixed::start();
    let script = "echo $$ > pid; while [ ! -e done ]; do echo x >> beats; sleep 0.01; done; exit 8";
    // A long timeout: a busy machine may take a while to restart the server.
    let mut holder = server.start_command("lock /locks/a --session-timeout 30s --doubt-signal STOP", script);
    let pid = server.pid("pid");
    let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    server.signal("KILL");
    eventually("a pause of COMMAND", is_stopped);
    server.restart("KILL");
    eventually("the end of the pause", || !is_stopped());
    let beats = server.lines("beats").len();
    eventually("work", || server.lines("beats").len() > beats);
    std::fs::write(server.scratch.join("done"), "").unwrap();
    assert_eq!(holder.code(), 8);
}

#[test]
fn command_survives_a_restart_of_the_server() {
    let mut server = Fixed::start();
    let mut holder = server.start_command("lock /locks/a --session-timeout 30s", FOR_EVER);
    let pid = server.pid("pid");
    server.restart("KILL");
    let mut client = server.client();
    assert_eq!(client.children("/locks/a").len(), 1);
    assert_eq!(server.run("lock /locks/a --no-wait", "exit 0").0, 124);
    assert!(runs(pid));
    holder.signal("TERM");
    assert_eq!(holder.code(), 143);
    assert!(client.children("/locks/a").is_empty());
}

/// What COMMAND left in its group has worked without the lock.
#[test]
fn loss_after_the_end_of_the_command_ends_the_rest_at_once_and_is_told() {
    let server = Fixed::start();
    let script = "trap '' TERM; sleep 1000 & echo $! > child; echo $$ > pid; exit 4";
    let mut holder = server.start_command("lock /locks/a --session-timeout 40s --grace 8s", script);
    is_gone(server.pid("pid"));
    let mut client = server.client();
    let name = client.children("/locks/a").remove(0);
    assert!(runs(server.pid("child")));
    let path = format!("/locks/a/{name}").as_str().into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    let began = Instant::now();
    assert_eq!(holder.code_soon(), 125);
    assert!(began.elapsed() < Duration::from_secs(7), "the rest ended after its grace: {:?}", began.elapsed());
    assert!(!runs(server.pid("child")));
}

#[test]
fn command_is_killed_once_another_client_breaks_the_lock() {
    let server = Fixed::start();
    let mut holder = server.start_command(LOCK, &format!("trap '' TERM; {FOR_EVER}"));
    let pid = server.pid("pid");
    let mut client = server.client();
    let name = client.children("/locks/a").remove(0);
    let path = format!("/locks/a/{name}").as_str().into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    is_gone(pid);
    assert_eq!(holder.code(), 125);
}
