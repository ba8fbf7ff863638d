//! Floods of sessions against their bound: what one costs, what the next one is told, and that all of it goes away.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, what they share too, and tell their figures")]

mod support;

use support::*;

/// Promised for a session, its record in the memtable included.
const SESSION_BYTES_MAX: u64 = 512;
const SESSIONS: usize = 20_000;

#[test]
fn twenty_thousand_sessions_whose_clients_vanished_cost_512_bytes_each() {
    raise_open_files();
    let scratch = Scratch::new();
    let lines = "connections_per_address_max = 0\nsessions_max = 23000\nbase_cache_bytes = 65536";
    let server = Server::start_with(&scratch, &with_limits(lines));
    // What connections take is there before, and is used again.
    for _ in 0..5 {
        drop(crowd(&server, 500, 40_000));
    }
    let before = server.anonymous_bytes();
    let figures = |server: &Server| server.figure("budget_session_bytes") + server.figure("budget_memtable_bytes");
    let charged_before = figures(&server);
    for _ in 0..SESSIONS / 500 {
        drop(crowd(&server, 500, 40_000));
    }
    assert_eq!(server.figure("budget_sessions") as usize, SESSIONS + 2500);
    eventually("all have vanished", || server.figure("num_alive_connections") == 1);
    let grown = server.anonymous_bytes() - before;
    let charged = figures(&server) - charged_before;
    println!("{} bytes for a session", grown / SESSIONS as u64);
    assert_charged("sessions", charged, grown);
    assert!(grown / SESSIONS as u64 <= SESSION_BYTES_MAX);
}
