//! A million watches against their bound.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may unwrap, what they share too, and tell their figures"
)]

use crate::support::*;
use zoolet_model::{AddWatchMode, ErrorCode, Reply, Request, SetWatches, Text};

const WATCHES: usize = 1_000_000;
const WATCH_BYTES_MAX: u64 = 100;

fn path(number: usize) -> Text {
    format!("/site-7/locks/device-{number:08}").into()
}

fn none() -> SetWatches {
    SetWatches {
        relative_zxid: 0,
        data: Vec::new(),
        exist: Vec::new(),
        child: Vec::new(),
        persistent: Vec::new(),
        persistent_recursive: Vec::new(),
    }
}

fn set_watches(client: &mut Client, watches: SetWatches) -> Result<Reply, ErrorCode> {
    client.ask(&Request::SetWatches(watches))
}

/// Frames of a megabyte, and small caches that do not distort the measurement.
fn server(scratch: &Scratch, watches_max: usize) -> Server {
    let lines = format!("watches_max = {watches_max}\nrecord_cache_bytes = 65536\nbase_cache_bytes = 65536");
    Server::start_with(scratch, &with_roomy_frames(&lines))
}

#[test]
fn million_watches_take_100_bytes_each_and_the_next_is_refused() {
    let scratch = Scratch::new();
    let server = server(&scratch, WATCHES);
    let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
    clients[0].create("/here", b"").unwrap();
    let before = server.anonymous_bytes();
    let share = WATCHES / clients.len();
    for (number, client) in clients.iter_mut().enumerate() {
        for first in (number * share..(number + 1) * share).step_by(20_000) {
            let paths = (first..first + 20_000).map(path).collect();
            let request = match number {
                0..4 => SetWatches { exist: paths, ..none() },
                4..7 => SetWatches { persistent: paths, ..none() },
                _ => SetWatches { persistent_recursive: paths, ..none() },
            };
            assert_eq!(set_watches(client, request), Ok(Reply::Empty));
        }
    }
    assert_eq!(server.figure("watch_count") as usize, WATCHES);
    let grown = server.anonymous_bytes() - before;
    let charged = server.figure("budget_watch_bytes");
    println!("{} bytes for a watch", grown / WATCHES as u64);
    assert_charged("watches", charged, grown);
    assert!(charged <= WATCHES as u64 * WATCH_BYTES_MAX, "{charged} bytes");

    // The table is full: a request that would add a watch of any kind is refused. Existing watches
    // may be requested again.
    let client = &mut clients[0];
    let exists = |path: Text| Request::Exists { path, watch: true };
    assert_eq!(client.ask(&exists("/absent".into())), Err(ErrorCode::SystemError));
    assert_eq!(client.ask(&exists("/here".into())), Err(ErrorCode::SystemError));
    for mode in [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive] {
        assert_eq!(client.ask(&Request::AddWatch { path: "/here".into(), mode }), Err(ErrorCode::SystemError));
    }
    assert_eq!(client.ask(&exists(path(7))), Err(ErrorCode::NoNode), "it is watched already");
    assert!(client.exists("/here"));

    // All of them can be listed by both keys, in pieces.
    let before = server.resident_bytes_peak();
    for word in ["wchc", "wchp"] {
        let text = server.word(word);
        let groups = if word == "wchc" { 10 } else { WATCHES };
        assert_eq!(text.lines().count(), groups + WATCHES + 1, "{word}: {} bytes", text.len());
    }
    let grown = server.resident_bytes_peak() - before;
    println!("a list of all of them took {} KiB", grown >> 10);
    assert!(grown < 4 << 20, "{grown} bytes");
    assert_eq!(server.word("wchs"), "10 connections watching 1000000 paths\nTotal watches:1000000\n");

    // A client that leaves makes room, and its memory is reused.
    drop(clients);
    eventually("all watches are gone", || server.figure("watch_count") == 0);
    assert_eq!(server.figure("budget_watch_bytes"), 0);
    let mut client = server.client();
    assert_eq!(client.ask(&exists("/here".into())).map(drop), Ok(()));
}

#[test]
fn set_watches_registers_all_watches_or_none() {
    let scratch = Scratch::new();
    let server = server(&scratch, 3000);
    let mut client = server.client();
    client.create("/changed", b"").unwrap();
    client.ask(&Request::AddWatch { path: path(5000), mode: AddWatchMode::Persistent }).unwrap();
    // One watch exists: 2999 more fit.
    let request =
        |count| SetWatches { persistent: (1..count).map(path).collect(), exist: vec!["/changed".into()], ..none() };
    assert_eq!(set_watches(&mut client, request(3000)), Err(ErrorCode::SystemError));
    assert_eq!(server.figure("watch_count"), 1);
    assert_eq!(client.events.len(), 1, "/changed is there, and its client may wait for it");
    assert_eq!(set_watches(&mut client, request(2999)), Ok(Reply::Empty));
    assert_eq!(client.events.len(), 2, "/changed is there");
    assert_eq!(server.figure("watch_count"), 2999);
}

#[test]
fn watches_on_long_paths_stay_within_the_watch_memory_bound() {
    let scratch = Scratch::new();
    let server = server(&scratch, 10_000);
    let mut client = server.client();
    let before = server.anonymous_bytes();
    let mut refused = 0;
    for number in 0..100 {
        let path: Text = format!("/{number}{}", "x".repeat(100_000)).into();
        if let Err(code) = client.ask(&Request::AddWatch { path, mode: AddWatchMode::Persistent }) {
            assert_eq!(code, ErrorCode::SystemError);
            refused += 1;
        }
    }
    assert!(refused > 80, "{refused}");
    assert!(server.figure("budget_watch_bytes") <= server.figure("budget_watch_bytes_limit"));
    let grown = server.anonymous_bytes() - before;
    assert!(grown < 4 << 20, "{grown} bytes");
    client.ask(&Request::AddWatch { path: path(0), mode: AddWatchMode::Persistent }).unwrap();
}

#[test]
fn set_watches_of_95000_absent_paths_fetches_in_bounded_memory() {
    let scratch = Scratch::new();
    let server = server(&scratch, 100_000);
    let mut client = server.client();
    let absent = |number: usize| -> Text { format!("/{number:x}").into() };
    for _ in 0..3 {
        let request = SetWatches { exist: (0..95_000).map(absent).collect(), ..none() };
        assert_eq!(set_watches(&mut client, request), Ok(Reply::Empty));
        client = server.client();
        eventually("the watches of the other are gone", || server.figure("watch_count") == 0);
    }
    let fetches = server.figure("budget_fetch_bytes_peak");
    assert!((1..1 << 20).contains(&fetches), "{fetches} bytes");
    let grown = server.resident_bytes_peak() >> 20;
    assert!(grown < 64, "{grown} MB");
}
