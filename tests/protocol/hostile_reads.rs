//! Reads with answers thousands of times larger than the request, at the default limits.
//!
//! The server's memory stays bounded, and it answers other clients meanwhile.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::support::*;
use zoolet_model::{CreateKind, ReadOp, Request, SessionId, WriteOp};

/// Memory that a machine of 512 MB can spare for the whole process.
const RESIDENT_BYTES_MAX: u64 = 160 << 20;
/// Znodes under one parent, created in transactions of a thousand.
const ZNODES: usize = 20_000;

fn populate(client: &mut Client, parent: &str) {
    client.create(parent, b"").unwrap();
    for first in (0..ZNODES).step_by(1000) {
        let operations = (first..first + 1000).map(|number| {
            match create(&format!("{parent}/znode-{number:010}"), b"", CreateKind::Persistent) {
                Request::Write(operation) => operation,
                other => panic!("{other:?}"),
            }
        });
        client.ask(&Request::Multi(operations.collect::<Vec<WriteOp>>())).unwrap();
    }
}

fn assert_bounded(server: &Server) {
    let peak = server.resident_bytes_peak();
    assert!(peak < RESIDENT_BYTES_MAX, "{} MB", peak >> 20);
}

/// Connects with the longest session timeout.
///
/// The client sends all its requests at once, and the answers may take longer than a usual timeout
/// on a busy machine.
fn hostile_client(server: &Server) -> Client {
    Client::connect_with(server.address, &hello(SessionId(0), None, 40_000)).unwrap()
}

/// Sends from another thread, so that neither side waits for the other to read.
fn pipeline(client: &mut Client, requests: &[Request], mut answered: impl FnMut(i32)) {
    let mut stream = client.stream.try_clone().unwrap();
    let mut out = bytes::BytesMut::new();
    for request in requests {
        zoolet_transport::wire::client_side::encode_request(1, request, &mut out);
    }
    std::thread::scope(|threads| {
        threads.spawn(move || std::io::Write::write_all(&mut stream, &out).unwrap());
        for _ in requests {
            answered(client.header().expect("an answer").error);
        }
    });
}

#[test]
fn thousands_of_large_tree_counts_and_lists_take_bounded_memory() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, "");
    let mut hostile = hostile_client(&server);
    populate(&mut hostile, "/large");
    let count = Request::GetAllChildrenNumber { path: "/".into() };
    let list = Request::GetChildren { path: "/large".into(), watch: false, with_stat: false };
    let requests = [vec![count; 900], vec![list; 300]].concat();
    while_served(&server, || pipeline(&mut hostile, &requests, |error| assert_eq!(error, 0)));
    assert_bounded(&server);
}

#[test]
fn replies_of_hundreds_of_megabytes_are_refused_in_bounded_memory() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, "");
    let mut hostile = hostile_client(&server);
    hostile.create("/large", &vec![b'x'; 1_000_000]).unwrap();
    let read = ReadOp::GetData { path: "/large".into() };
    let requests = vec![Request::MultiRead(vec![read; 400]); 10];
    while_served(&server, || pipeline(&mut hostile, &requests, |error| assert_ne!(error, 0)));
    assert_bounded(&server);
}
