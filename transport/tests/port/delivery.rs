//! Delivery of answers by a thread other than the port's.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::fake::{Client, Server, data, encoded, eventually, get, reply};
use crate::random::Random;
use bytes::{Bytes, BytesMut};
use zoolet_machine::Limits;
use zoolet_machine::budget::Part;
use zoolet_model::*;

#[test]
fn delivering_thread_sends_a_reply_while_the_port_thread_is_busy() {
    let server = Server::start();
    let (mut waiting, mut busy) = (server.client(), server.client());
    waiting.get(1, "/hold");
    server.machine.wait("the first request", |seen| seen.requests.len() == 1);
    let conn = server.machine.seen().requests[0].0;
    let go_on = server.machine.stop_the_port();
    busy.get(2, "/a");
    server.machine.wait("the second request", |seen| seen.requests.len() == 2);
    // No other thread could deliver it: the port's thread is blocked in the submit call.
    server.machine.deliver([reply(conn, 1, Ok(data(Bytes::new())))]);
    assert_eq!(waiting.xid(), 1);
    drop(go_on);
    assert_eq!(busy.xid(), 2);
}

#[test]
fn large_reply_waits_for_the_port_thread() {
    let server = Server::start();
    let (mut waiting, mut busy) = (server.client(), server.client());
    waiting.get(1, "/hold");
    waiting.get(2, "/hold");
    server.machine.wait("the first requests", |seen| seen.requests.len() == 2);
    let conn = server.machine.seen().requests[0].0;
    let go_on = server.machine.stop_the_port();
    busy.get(3, "/a");
    server.machine.wait("the third request", |seen| seen.requests.len() == 3);
    let written = server.traffic.read().bytes_sent;
    // A large answer is queued. The small one behind it does not justify sending both on this
    // thread.
    server.machine.push([reply(conn, 1, Ok(data(vec![7; 100_000].into())))]);
    server.machine.deliver([reply(conn, 2, Ok(data(Bytes::new())))]);
    assert_eq!(server.traffic.read().bytes_sent, written);
    drop(go_on);
    assert_eq!([waiting.xid(), waiting.xid(), busy.xid()], [1, 2, 3]);
}

#[test]
fn replies_delivered_by_both_threads_stay_in_order() {
    let server = Server::start();
    let mut client = server.client();
    (1..=500).for_each(|xid| client.send(xid, &Request::Multi(vec![set("/hold", 10)])));
    server.machine.wait("all requests", |seen| seen.requests.len() == 500);
    let conn = server.machine.seen().requests[0].0;
    for xid in 1..=500 {
        let answer = [reply(conn, xid, Ok(data(Bytes::new())))];
        if xid % 3 == 0 { server.machine.deliver(answer) } else { server.machine.push(answer) }
    }
    (1..=500).for_each(|xid| assert_eq!(client.xid(), xid));
}

/// Decoding stops at the limit. All answers have been delivered before the connection's task begins
/// to wait for them, and it must notice that.
#[test]
fn client_at_its_limit_resumes_if_replies_came_during_decoding() {
    let server = Server::limited(Limits { outstanding_max: 4, ..Limits::default() });
    let mut client = server.client();
    server.machine.deliver_at_once();
    let mut batch = BytesMut::new();
    (1..=9).for_each(|xid| batch.extend_from_slice(&encoded(xid, &Request::Write(set("/a", 10)))));
    client.write(&batch);
    (1..=9).for_each(|xid| assert_eq!(client.xid(), xid));
}

/// The limits are reached constantly. A client may wait for room just when the last answer has been
/// delivered, and must still notice the delivery.
#[test]
fn clients_at_their_limits_never_hang_with_concurrent_delivery() {
    let limits = Limits {
        outstanding_max: 4,
        outstanding_bytes_max: 2 << 10,
        outbound_bytes_max: 32 << 10,
        outbound_bytes_total_max: 64 << 20,
        connections_per_address_max: 0,
        ..Limits::default()
    };
    let server = Server::limited(limits);
    let clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    server.machine.deliver_elsewhere();
    let clients: Vec<_> =
        clients.into_iter().zip(0..).map(|(client, seed)| std::thread::spawn(move || talk(client, seed))).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    eventually("all is given back", || {
        [Part::Outstanding, Part::Outbound].map(|part| server.budget.current(part)) == [0, 0]
    });
    assert_eq!(server.traffic.read().outstanding, 0);
}

fn set(path: &'static str, bytes: usize) -> WriteOp {
    WriteOp::SetData { path: Text::from(path), data: Some(vec![1; bytes].into()), version: -1 }
}

fn talk(mut client: Client, seed: u64) {
    const REQUESTS: i32 = 3000;
    let mut random = Random::new(seed);
    let (mut sent, mut received) = (0, 0);
    while received < REQUESTS {
        let mut batch = BytesMut::new();
        for _ in 0..random.below(8).min((REQUESTS - sent) as usize) {
            sent += 1;
            match random.below(3) {
                0 => batch.extend_from_slice(&encoded(sent, &Request::Write(set("/a", 1500)))),
                1 => batch.extend_from_slice(&encoded(sent, &get("/size/3000"))),
                _ => batch.extend_from_slice(&encoded(sent, &get("/a"))),
            }
        }
        client.write(&batch);
        while received < sent {
            received += 1;
            assert_eq!(client.xid(), received);
        }
    }
}
