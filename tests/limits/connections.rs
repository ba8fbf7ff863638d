//! Thousands of connections against their bound.
//!
//! The tests measure the cost of a connection, the refusal of the next one, and the service of
//! those inside.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may unwrap, what they share too, and tell their figures"
)]

use crate::support::*;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use zoolet_model::Request;

const CONNECTIONS: usize = 5000;
/// Promised bound of an idle connection, without its session.
const CONNECTION_BYTES_MAX: u64 = 8 << 10;

#[test]
fn five_thousand_connections_take_8_kib_each_and_no_more_fit() {
    raise_open_files();
    let scratch = Scratch::new();
    // A few more for the test and for four-letter words.
    let lines = format!("connections_max = {}\nconnections_per_address_max = 0\nsessions_max = 6000", CONNECTIONS + 8);
    let server = Server::start_with(&scratch, &with_limits(&lines));
    let mut inside = server.client();
    inside.create("/x", b"").unwrap();
    let before = server.anonymous_bytes();
    let figures = |server: &Server| server.figure("budget_connection_bytes") + server.figure("budget_session_bytes");
    let charged_before = figures(&server);

    let mut crowd = crowd(&server, CONNECTIONS, 40_000);
    for _ in 0..2 {
        for client in &mut crowd {
            client.send(&Request::Ping);
            client.send(&set("/x", b"0123456789"));
        }
        for client in &mut crowd {
            for _ in 0..2 {
                assert_eq!(client.header().unwrap().error, 0);
            }
        }
    }
    assert!(server.figure("num_alive_connections") as usize > CONNECTIONS);
    let charged = figures(&server) - charged_before;
    let grown = server.anonymous_bytes() - before;
    let each = grown / CONNECTIONS as u64;
    println!("{each} bytes for a connection with its session");
    assert!(each <= CONNECTION_BYTES_MAX, "{each} bytes each");
    assert_charged("connections", charged, grown);

    // The last places are taken. A new connection is closed before the handshake, and the others
    // notice nothing.
    let enter = || Client::ask_for_session(server.address, 40_000).join();
    let last: Vec<_> = std::iter::from_fn(enter).collect();
    assert!((1..8).contains(&last.len()), "{}", last.len());
    for _ in 0..50 {
        let mut refused = server.stream();
        let _ = refused.write_all(&[0, 0, 0, 45]);
        assert!(closes(&mut refused));
    }
    inside.ask(&set("/x", b"y")).unwrap();
    drop(last);
    eventually("there is room again", || enter().is_some());
    assert!(server.figure("connection_rejected") >= 50);

    // All leave at once.
    drop(crowd);
    eventually("only the others are left", || server.figure("num_alive_connections") <= 3);
    assert!(figures(&server) < charged_before + (CONNECTIONS as u64 + 3) * 512, "sessions stay, connections do not");
    inside.ask(&set("/x", b"z")).unwrap();
}

#[test]
fn server_raises_its_open_files_limit_and_warns_if_too_low() {
    let scratch = Scratch::new();
    let log_of = |limit: &str| {
        let data = scratch.join(limit);
        let serve = format!("ulimit {limit} && exec \"$0\" serve --listen 127.0.0.1:0 --log warn --data \"$1\"");
        let binary = env!("CARGO_BIN_EXE_zoolet");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &serve, binary, data.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        child.kill().unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    };
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if hard.is_none_or(|files| files >= 4200) {
        assert_eq!(log_of("-Sn 256"), "");
    }
    let log = log_of("-n 256");
    assert!(log.contains("connections_max is 4096") && log.contains("enough for"), "{log}");
}
