//! Drives each queue and table of bytes to its bound.
//!
//! The bytes that the server reports must equal the growth of its memory.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may unwrap, what they share too, and tell their figures"
)]

use crate::support::*;
use bytes::BytesMut;
use std::io::Write;
use std::time::Duration;
use zoolet_model::{CreateKind, Request, SetWatches, WriteOp};
use zoolet_transport::wire::client_side::encode_request;

const MIB: u64 = 1 << 20;

/// Small caches, so that they do not distort the measurements of other parts.
const PLAIN: &str = "record_cache_bytes = 65536\nbase_cache_bytes = 65536";

#[test]
fn memory_of_half_received_requests_is_charged_and_bounded() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, &with_roomy_frames(PLAIN));
    let mut clients: Vec<_> = (0..24).map(|_| server.client()).collect();
    let before = server.anonymous_bytes();
    let mut half = 1_000_000i32.to_be_bytes().to_vec();
    half.resize(900_000, 7);
    for client in &mut clients {
        client.stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // The server stops reading the last requests to their end.
        let _ = client.stream.write_all(&half);
    }
    eventually("the bound is reached", || server.figure("budget_outstanding_bytes") >= 4 * MIB);
    let charged = server.figure("budget_outstanding_bytes");
    assert_charged("outstanding", charged, server.anonymous_bytes() - before);
    assert!(charged < 6 * MIB, "{charged}");
}

/// All clients wait for the same free room: bytes that one of them takes are not available to the
/// others.
#[test]
fn partial_requests_of_400_clients_take_bounded_memory() {
    const CLIENTS: usize = 400;
    let scratch = Scratch::new();
    let server =
        Server::start_with(&scratch, &with_roomy_frames(&format!("{PLAIN}\nconnections_per_address_max = 1000")));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let before = server.anonymous_bytes();
    let mut beginning = 1_000_000i32.to_be_bytes().to_vec();
    beginning.resize(60_000, 7);
    clients.iter_mut().for_each(|client| client.stream.write_all(&beginning).unwrap());
    eventually("the bound is reached", || server.figure("budget_outstanding_bytes_peak") >= 4 * MIB);
    std::thread::sleep(Duration::from_millis(500));
    let charged = ["outstanding", "connection"].map(|part| server.figure(&format!("budget_{part}_bytes")));
    let resident = server.anonymous_bytes() - before;
    println!("{charged:?} charged, {resident} resident");
    let peak = server.figure("budget_outstanding_bytes_peak");
    assert!(peak <= server.figure("budget_outstanding_bytes_limit") + MIB, "{peak}");
    // Each connection also has a separate read-ahead.
    assert!(resident <= 8 * MIB, "{resident}");
}

#[test]
fn memory_of_unread_replies_is_charged_and_bounded() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, &with_roomy_frames(PLAIN));
    let mut writer = server.client();
    writer.create("/large", &vec![7; 900_000]).unwrap();
    assert_eq!(writer.get("/large").unwrap().unwrap().len(), 900_000);
    let before = server.anonymous_bytes();
    let mut deaf: Vec<_> = (0..20).map(|_| server.client()).collect();
    let mut out = BytesMut::new();
    encode_request(1, &get("/large"), &mut out);
    // More than sockets buffer.
    for _ in 0..16 {
        deaf.iter_mut().for_each(|client| client.stream.write_all(&out).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    eventually("each has its share waiting", || server.figure("budget_outbound_bytes") >= 16 * MIB);
    std::thread::sleep(Duration::from_millis(300));
    let charged = server.figure("budget_outbound_bytes");
    assert_charged("outbound", charged, server.anonymous_bytes() - before);
    assert!(server.figure("budget_outbound_bytes_peak") <= server.figure("budget_outbound_bytes_limit") + MIB);
    writer.ask(&set("/large", b"small")).unwrap();
}

/// Creates znodes of 100 bytes, a thousand per transaction.
fn populate(client: &mut Client, znodes: std::ops::Range<usize>) {
    for first in znodes.step_by(1000) {
        let create = |number| match create(&path(number), &[7; 100], CreateKind::Persistent) {
            Request::Write(operation) => operation,
            other => panic!("{other:?}"),
        };
        client.ask(&Request::Multi((first..first + 1000).map(create).collect::<Vec<WriteOp>>())).unwrap();
    }
}

/// A client of a server that may still be reading its log.
fn client_of(server: &Server) -> Client {
    let mut client = None;
    eventually("it serves", || {
        client = Client::ask_for_session(server.address, 40_000).join();
        client.is_some()
    });
    client.unwrap()
}

fn path(number: usize) -> String {
    format!("/site-7-device-{number:08}")
}

#[test]
fn memory_of_memtable_and_record_cache_is_charged() {
    const ZNODES: usize = 60_000;
    let scratch = Scratch::new();
    let roomy = with_roomy_frames(&format!("{PLAIN}\nmemtable_bytes = 67108864"));
    let mut server = Server::start_with(&scratch, &roomy.replace("log_segments = 8", "log_segments = 32"));
    let mut client = server.client();
    populate(&mut client, 0..1000);
    let (before, charged_before) = (server.anonymous_bytes(), server.figure("budget_memtable_bytes"));
    populate(&mut client, 1000..ZNODES);
    let charged = server.figure("budget_memtable_bytes") - charged_before;
    let resident = server.anonymous_bytes() - before;
    println!("memtable: {} KiB charged, {} KiB resident", charged >> 10, resident >> 10);
    assert_eq!(server.figure("checkpoints"), 0);

    // All of it goes to the base, and is read from there.
    server.restart_with(&with_roomy_frames(
        "memtable_bytes = 1048576\nbase_cache_bytes = 65536\nrecord_cache_bytes = 65536",
    ));
    let mut client = client_of(&server);
    client.create("/last", b"").unwrap();
    eventually("the base has it", || server.figure("budget_memtable_bytes") < MIB);
    server.restart_with(&with_roomy_frames("base_cache_bytes = 65536\nrecord_cache_bytes = 67108864"));
    let mut client = client_of(&server);
    let read = |client: &mut Client, numbers: std::ops::Range<usize>| {
        let mut out = BytesMut::new();
        numbers.clone().for_each(|number| encode_request(1, &get(&path(number)), &mut out));
        client.stream.write_all(&out).unwrap();
        numbers.for_each(|_| assert_eq!(client.header().unwrap().error, 0));
    };
    read(&mut client, 0..1000);
    let (before, cached_before) = (server.anonymous_bytes(), server.figure("budget_record_cache_bytes"));
    for first in (1000..ZNODES).step_by(1000) {
        read(&mut client, first..first + 1000);
    }
    let cached = server.figure("budget_record_cache_bytes") - cached_before;
    assert_charged("record cache", cached, server.anonymous_bytes() - before);
    assert_charged("memtable", charged, resident);
}

/// Fills the spare cache of a new server. Returns the server, a client, and the growth of charged and
/// of resident bytes.
fn fill_spare_cache(scratch: &Scratch, spare_cache_bytes: u64, znodes: usize) -> (Server, Client, u64, u64) {
    let lines =
        format!("{PLAIN}\nconnections_max = 16\nmemtable_bytes = 1048576\nspare_cache_bytes = {spare_cache_bytes}");
    let server = Server::start_with(scratch, &with_roomy_frames(&lines));
    let mut client = server.client();
    populate(&mut client, 0..1000);
    let (before, charged_before) = (server.anonymous_bytes(), server.figure("budget_spare_cache_bytes"));
    populate(&mut client, 1000..znodes);
    client.create("/last", b"").unwrap();
    eventually("the base has them", || server.figure("budget_memtable_bytes") < MIB);
    let charged = server.figure("budget_spare_cache_bytes");
    assert!(charged + MIB > spare_cache_bytes, "the spare cache is not full: {charged} bytes");
    let grown = server.anonymous_bytes() - before;
    (server, client, charged - charged_before, grown)
}

#[test]
fn memory_of_the_spare_cache_is_charged_and_shrinks_when_watches_grow() {
    const ZNODES: usize = 100_000;
    const SPARE: u64 = 16 * MIB;
    // The other memory that grows: tables of the base, and freed memory of the memtable.
    let (.., other) = fill_spare_cache(&Scratch::new(), 65_536, ZNODES);
    assert!(other < 5 * MIB, "{other} bytes");
    let scratch = Scratch::new();
    let (server, mut client, charged, grown) = fill_spare_cache(&scratch, SPARE, ZNODES);
    println!("growth: {} KiB, and {} KiB with a tiny spare cache", grown >> 10, other >> 10);
    assert_charged("spare cache", charged, grown.saturating_sub(other));

    let before = server.anonymous_bytes();
    for first in (0..ZNODES).step_by(10_000) {
        let exist = (first..first + 10_000).map(|number| format!("/absent-{number}").into()).collect();
        client.ask(&Request::SetWatches(SetWatches { exist, ..SetWatches::default() })).unwrap();
    }
    let [spare, watches] = ["spare_cache_bytes", "watch_bytes"].map(|part| server.figure(&format!("budget_{part}")));
    println!("then {} KiB, and {} KiB of watches", spare >> 10, watches >> 10);
    assert!(watches > 8 * MIB && spare + watches <= SPARE, "{spare} and {watches}");
    let grown = server.anonymous_bytes().saturating_sub(before);
    assert!(grown < 2 * MIB, "{grown} bytes more are resident");
}
