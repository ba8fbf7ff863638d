//! Floods of sessions against their bound.
//!
//! The tests measure the cost of a session, the refusal of the next one, and that all memory is
//! returned.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may unwrap, what they share too, and tell their figures"
)]

use crate::support::*;
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Reply, Request};

/// Promised bound of a session, including its record in the memtable.
const SESSION_BYTES_MAX: u64 = 512;
const SESSIONS: usize = 20_000;

#[test]
fn twenty_thousand_abandoned_sessions_take_512_bytes_each() {
    raise_open_files();
    let scratch = Scratch::new();
    let lines = "connections_per_address_max = 0\nsessions_max = 23000\nbase_cache_bytes = 65536\n\
                 record_cache_bytes = 65536\nmemtable_bytes = 1048576";
    let server = Server::start_with(&scratch, &with_roomy_frames(lines));
    // Allocates the memory of connections in advance, so that later ones reuse it.
    for _ in 0..5 {
        drop(crowd(&server, 500, 40_000));
    }
    let before = server.anonymous_bytes();
    let parts = ["session_bytes", "memtable_bytes", "record_cache_bytes", "base_memory_bytes"];
    let figures = |server: &Server| parts.map(|part| server.figure(&format!("budget_{part}"))).iter().sum::<u64>();
    let charged_before = figures(&server);
    for _ in 0..SESSIONS / 500 {
        drop(crowd(&server, 500, 40_000));
    }
    assert_eq!(server.figure("budget_sessions") as usize, SESSIONS + 2500);
    eventually("all have vanished", || server.figure("num_alive_connections") == 1);
    let grown = server.anonymous_bytes() - before;
    let charged = figures(&server) - charged_before;
    println!("{} bytes for a session, {} checkpoints", grown / SESSIONS as u64, server.figure("checkpoints"));
    assert_charged("sessions", charged, grown);
    assert!(grown / SESSIONS as u64 <= SESSION_BYTES_MAX);
}

#[test]
fn session_above_sessions_max_is_refused_and_logged_until_expiry() {
    let scratch = Scratch::new();
    let server = Server::start_logging(&scratch, &with_limits("connections_per_address_max = 0\nsessions_max = 50"));
    let mut clients = crowd(&server, 50, 2000);
    for _ in 0..500 {
        assert!(Client::ask_for_session(server.address, 2000).join().is_none(), "closed, without an answer");
    }
    assert_eq!(server.figure("sessions_refused"), 500);
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("cannot open more sessions")).collect();
    assert_eq!(lines.len(), 1, "{log}");

    // The owners of sessions are served, even when all of them reconnect at once several times.
    for _ in 0..10 {
        let sessions: Vec<_> = clients.iter().map(|client| client.session).collect();
        let again = sessions.iter().map(|session| Client::reconnect(server.address, session).expect("its own session"));
        let again: Vec<_> = again.collect();
        clients = again;
    }
    assert!(clients.iter_mut().all(|client| client.exists("/")));
    // A stranger that guesses passwords gets no session and ends none.
    for number in 0..500 {
        let owner = &clients[number % 50].session;
        let guess = hello(owner.session, Some(Bytes::from(vec![number as u8; 16])), 2000);
        assert_eq!(Client::connect_with(server.address, &guess).unwrap().session.timeout_ms, 0);
    }
    assert!(clients.iter_mut().all(|client| client.exists("/")));

    // The clients vanish; after their timeout there is room.
    drop(clients);
    eventually("they expire", || server.figure("budget_sessions") == 0);
    assert_eq!(server.figure("budget_session_bytes"), 0);
    crowd(&server, 50, 2000);
}

#[test]
fn session_with_10000_ephemerals_closes_in_one_step() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, &with_roomy_frames(""));
    let mut client = server.client();
    let multi = |numbers: std::ops::Range<usize>| {
        let create = |number| match create(&format!("/ephemeral-{number:08}"), b"", CreateKind::Ephemeral) {
            Request::Write(operation) => operation,
            other => panic!("{other:?}"),
        };
        Request::Multi(numbers.map(create).collect())
    };
    for first in (0..10_000).step_by(1000) {
        assert!(matches!(client.ask(&multi(first..first + 1000)), Ok(Reply::Multi(_))));
    }
    assert_eq!(client.ask(&multi(10_000..10_001)), Err(ErrorCode::SystemError));
    let began = std::time::Instant::now();
    assert_eq!(client.ask(&Request::CloseSession), Ok(Reply::Empty));
    println!("10,000 ephemerals end within {:?}", began.elapsed());
    assert!(server.client().children("/").iter().all(|name| !name.starts_with("ephemeral")));
}
