//! Memory of the base: blocks of its runs and of redb, tables, filters.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may unwrap, what they share too, and tell their figures"
)]

use crate::support::*;
use bytes::BytesMut;
use std::io::Write;
use std::time::Duration;
use zoolet_model::{CreateKind, Request, WriteOp};
use zoolet_transport::wire::client_side::encode_request;

const ZNODES: usize = 60_000;

fn path(number: usize) -> String {
    format!("/site-7-device-{number:08}")
}

fn populate(client: &mut Client) {
    for first in (0..ZNODES).step_by(1000) {
        let create = |number| match create(&path(number), &[7; 100], CreateKind::Persistent) {
            Request::Write(operation) => operation,
            other => panic!("{other:?}"),
        };
        client.ask(&Request::Multi((first..first + 1000).map(create).collect::<Vec<WriteOp>>())).unwrap();
    }
}

/// Reads `times` times, spread over `znodes` znodes.
fn read(client: &mut Client, times: usize, znodes: usize) {
    for first in (0..times).step_by(1000) {
        let mut out = BytesMut::new();
        let numbers = first..first + 1000;
        numbers.clone().for_each(|number| encode_request(1, &get(&path(number * 7919 % znodes)), &mut out));
        client.stream.write_all(&out).unwrap();
        numbers.for_each(|_| assert_eq!(client.header().unwrap().error, 0));
    }
}

/// Waits until merges have ended.
///
/// A running merge uses additional memory. Memory that it leaves in redb's cache belongs to another
/// thread's arena, so the allocator keeps it after a free.
fn merges_are_done(server: &Server) {
    let mut written = u64::MAX;
    while written != server.figure("base_merge_bytes_written") {
        written = server.figure("base_merge_bytes_written");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn memory_of_base_blocks_and_tables_is_charged_and_bounded() {
    let scratch = Scratch::new();
    let lines = "memtable_bytes = 1048576\nrecord_cache_bytes = 65536\nbase_cache_bytes = 8388608";
    let mut server = Server::start_with(&scratch, &with_roomy_frames(lines));
    populate(&mut server.client());
    server.restart_with(&with_roomy_frames(lines));
    merges_are_done(&server);
    server.restart_with(&with_roomy_frames(lines));
    let mut client = server.client();
    // Memory that reading takes apart from the base.
    read(&mut client, 2000, 1);
    let (before, held_before) = (server.anonymous_bytes(), server.figure("budget_base_memory_bytes"));
    println!("{held_before} bytes held after opening, {} runs, {before} resident", server.figure("base_runs"));
    read(&mut client, ZNODES, ZNODES);
    let held = server.figure("budget_base_memory_bytes");
    assert_charged("base", held - held_before, server.anonymous_bytes() - before);
    assert!(held <= server.figure("budget_base_memory_bytes_limit"));
}
