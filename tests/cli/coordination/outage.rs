//! Servers that do not answer: waits keep to their bounds, and go on after an outage.

use super::{Fixed, Running};
use crate::support::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use zoolet_model::{Request, WriteOp};

#[test]
fn wait_bounds_the_connection_too() {
    let scratch = Scratch::new();
    let [port] = free_ports();
    let server = format!("127.0.0.1:{port}");
    for (words, code) in [
        ("lock /a --wait 300ms -- true", 124),
        ("lock /a --no-wait -- true", 124),
        ("lock /a --no-wait --conflict-exit-code 7 -- true", 7),
        ("semaphore /a --permits 2 --no-wait -- true", 124),
        ("elect /a --wait 300ms -- true", 124),
        ("queue take /a --wait 300ms", 124),
        ("barrier wait /a --wait 300ms", 124),
    ] {
        let began = Instant::now();
        let mut given: Vec<_> = words.split(' ').collect();
        let rest = given.iter().position(|word| *word == "--").unwrap_or(given.len());
        given.splice(rest..rest, ["--server", &server, "--session-timeout", "60s"]);
        let (is, line) = refusal(&scratch, &given);
        assert_eq!(is, code, "{words}: {line}");
        assert!(line.contains("/a: no session ") && line.contains("Connection refused"), "{words}: {line}");
        assert!(began.elapsed() < Duration::from_secs(30), "{words}: {:?}", began.elapsed());
    }
}

/// All boxes that waited in a line gave up after a short outage.
#[test]
fn waiter_without_a_bound_goes_on_after_an_outage() {
    let mut server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    client.create("/l/other-lock-0000000000", b"").unwrap();
    let wait = |words: &str, script: &str| {
        let mut command = server.command(words, script);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    };
    let mut waiters = [
        wait("lock /l --session-timeout 1s", "exit 5"),
        wait("queue take /jobs --session-timeout 1s", "exit 6"),
        wait("elect /l --session-timeout 1s", "exit 7"),
    ];
    eventually("waiters", || client.children("/l").len() == 3 && client.children("/").contains(&"jobs".into()));
    server.signal("KILL");
    for waiter in &mut waiters {
        let mut line = String::new();
        BufReader::new(waiter.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("no session within 1 s") && line.contains("goes on trying"), "{line}");
    }
    server.restart("KILL");
    assert_eq!(server.run("queue put /jobs a", "").0, 0);
    let mut client = server.client();
    let path = "/l/other-lock-0000000000".into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    assert_eq!(waiters.each_mut().map(Running::code_soon), [5, 6, 7]);
}

/// The server cannot confirm that the lock is free, and the user has waited long enough.
#[test]
fn signal_ends_the_wait_for_the_release() {
    let server = Fixed::start();
    let script = format!("kill -STOP {}; echo $$ > pid; exit 4", server.child.id());
    let mut holder = server.start_command("lock /l --session-timeout 60s --grace 0ms", &script);
    let pid = server.pid("pid");
    eventually("the end of COMMAND", || !std::fs::exists(format!("/proc/{pid}")).unwrap());
    holder.signal("TERM");
    assert_eq!(holder.code_soon(), 4);
    server.signal("CONT");
}

/// HUP and USR1 make a service read its configuration again. A standby has none to read.
#[test]
fn signals_for_the_command_do_not_end_a_standby() {
    let server = Fixed::start();
    let mut client = server.client();
    client.create("/l", b"").unwrap();
    client.create("/l/other-lock-0000000000", b"").unwrap();
    let mut command = std::process::Command::new("setsid");
    let standby = server.command("elect /l --restart --forever", "echo $$ > pid; exec sleep 1000");
    command.arg(standby.get_program()).args(standby.get_args()).current_dir(server.scratch.path());
    command.env("ZOOLET_SERVER", format!("127.0.0.1:{}", server.port)).stdin(Stdio::null());
    let mut standby = Running(command.spawn().unwrap());
    eventually("a standby", || client.children("/l").len() == 2);
    for signal in ["HUP", "USR1", "USR2"] {
        standby.signal(signal);
    }
    let path = "/l/other-lock-0000000000".into();
    client.ask(&Request::Write(WriteOp::Delete { path, version: -1 })).unwrap();
    server.pid("pid");
    // Such a signal kills this COMMAND, so its sender wants an end.
    standby.signal("HUP");
    assert_eq!(standby.code_soon(), 129);
}
