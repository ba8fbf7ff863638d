//! The client port on real sockets, in front of a scripted engine stand-in.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops at the first surprise")]

use crate::bounds::small;
use crate::fake::{Server, encoded, eventually, get, handshake};
use crate::random::Random;
use bytes::{BufMut, BytesMut};
use std::net::Shutdown;
use std::time::Duration;
use zoolet_machine::budget::Part;
use zoolet_machine::{Budget, Limits};
use zoolet_model::*;
use zoolet_transport::client_port::*;
use zoolet_transport::wire::client_side::decode_connect_reply;

#[test]
fn pipelined_requests_are_submitted_as_a_batch_and_answered_in_order() {
    let server = Server::start();
    let mut client = server.client();
    // The port expects large answers to a new client's reads until it has answered some.
    for xid in 1..=64 {
        client.get(xid, "/a");
        assert_eq!(client.xid(), xid);
    }
    eventually("all is written", || server.traffic.read().writes == 65);
    let before = server.traffic.read();
    let mut batch = BytesMut::new();
    for xid in 1..=64 {
        batch.extend_from_slice(&encoded(xid, &get("/a")));
    }
    client.write(&batch);
    for xid in 1..=64 {
        assert_eq!(client.xid(), xid);
    }
    assert_eq!(server.machine.seen().batches[65..], [64]);
    eventually("one write", || server.traffic.read().writes == before.writes + 1);
    let after = server.traffic.read();
    assert_eq!(after.reads, before.reads + 1);
    assert_eq!((after.answered, after.outstanding), (128, 0));
}

#[test]
fn frames_are_accepted_byte_by_byte_and_in_large_pieces() {
    let server = Server::start();
    let mut client = server.stranger();
    for byte in handshake() {
        client.write(&[byte]);
    }
    assert_eq!(client.frame().map(|frame| frame.len()), Some(37));
    for byte in encoded(1, &get("/a")) {
        client.write(&[byte]);
    }
    assert_eq!(client.xid(), 1);
    // A frame far larger than any buffer, between small ones.
    let set = WriteOp::SetData { path: Text::from("/a"), data: Some(vec![1; 900_000].into()), version: -1 };
    let mut stream = encoded(2, &get("/a"));
    stream.extend_from_slice(&encoded(3, &Request::Write(set.clone())));
    stream.extend_from_slice(&encoded(4, &get("/a")));
    client.write(&stream);
    assert_eq!([client.xid(), client.xid(), client.xid()], [2, 3, 4]);
    assert_eq!(server.machine.seen().requests[2].2, Request::Write(set));
    drop(client);
    server.machine.wait("the connection's end", |seen| seen.disconnects.len() == 1);
    assert_eq!((server.budget.current(Part::Outstanding), server.budget.current(Part::Outbound)), (0, 0));
}

#[test]
fn requests_behind_the_handshake_wait_for_its_reply() {
    let server = Server::start();
    let mut client = server.stranger();
    let mut stream = handshake();
    stream.extend_from_slice(&encoded(1, &get("/a")));
    stream.extend_from_slice(&encoded(2, &get("/b")));
    client.write(&stream);
    assert_eq!(client.frame().map(|frame| frame.len()), Some(37));
    assert_eq!([client.xid(), client.xid()], [1, 2]);
}

#[test]
fn old_clients_get_no_read_only_byte() {
    let server = Server::start();
    let mut client = server.stranger();
    let mut old = handshake();
    old.truncate(old.len() - 1);
    old[3] -= 1;
    client.write(&old);
    assert_eq!(client.frame().map(|frame| frame.len()), Some(36));
}

#[test]
fn reply_waits_for_the_pending_reply_before_it() {
    let server = Server::start();
    let mut client = server.client();
    for (xid, path) in [(1, "/a"), (2, "/pending"), (3, "/b"), (4, "/pending"), (5, "/c")] {
        client.get(xid, path);
    }
    assert_eq!(client.xid(), 1);
    server.machine.wait("five requests", |seen| seen.requests.len() == 5);
    let conn = server.machine.seen().requests[0].0;
    let event = WatchEvent { kind: EventKind::NodeCreated, path: Text::from("/w"), zxid: 3 };
    server.machine.push([Output::Notify { conn, event }]);
    assert_eq!(server.traffic.read().outstanding, 4);
    // Fills the later hole first.
    server.machine.fill();
    assert_eq!([client.xid(), client.xid(), client.xid(), client.xid()], [2, 3, 4, 5]);
    assert_eq!(client.xid(), -1, "the event came last and stays last");
    assert_eq!(server.traffic.read().outstanding, 0);
}

#[test]
fn a_refused_session_is_answered_and_then_closed() {
    let server = Server::start();
    server.machine.refuse_sessions();
    let mut client = server.stranger();
    client.write(&handshake());
    let reply = decode_connect_reply(client.frame().expect("an answer")).unwrap();
    assert_eq!((reply.timeout_ms, reply.session), (0, SessionId(0)));
    assert!(client.is_closed());
    server.machine.wait("Disconnected", |seen| seen.disconnects.len() == 1);
}

#[test]
fn close_session_is_answered_and_then_closed() {
    let server = Server::start();
    let mut client = server.client();
    client.send(1, &Request::CloseSession);
    assert_eq!(client.xid(), 1);
    assert!(client.is_closed());
}

#[test]
fn unknown_opcode_closes_the_connection_and_a_malformed_body_does_not() {
    let server = Server::start();
    let mut client = server.client();
    client.send(1, &Request::Malformed { write: false });
    assert_eq!(client.xid(), 1);
    // The unread requests must not turn the close into a reset that destroys the answer.
    let mut stream = encoded(2, &Request::Unknown);
    (3..5000).for_each(|xid| stream.extend_from_slice(&encoded(xid, &get("/never"))));
    client.write(&stream);
    assert_eq!(client.xid(), 2);
    assert!(client.is_closed());
}

#[test]
fn random_traffic_keeps_reply_order_and_releases_all_memory() {
    let limits =
        Limits { outstanding_max: 50, outbound_bytes_max: 1 << 20, outstanding_bytes_max: 64 << 10, ..small() };
    let server = Server::limited(limits);
    let clients: Vec<_> = (0..8)
        .map(|seed| {
            let mut client = server.client();
            std::thread::spawn(move || {
                let mut random = Random::new(seed);
                let (mut sent, mut received) = (0, 0);
                while received < 600 {
                    let mut batch = BytesMut::new();
                    for _ in 0..random.below(40).min(600 - sent as usize) {
                        sent += 1;
                        let paths = ["/a", "/pending", "/pending", "/size/3000", "/size/70000"];
                        batch.extend_from_slice(&encoded(sent, &get(paths[random.below(5)])));
                    }
                    client.write(&batch);
                    for _ in 0..random.below((sent - received + 1) as usize) {
                        received += 1;
                        assert_eq!(client.xid(), received);
                    }
                }
                // Some clients close their session, some only the connection.
                if seed % 2 == 0 {
                    client.send(0, &Request::CloseSession);
                    assert_eq!(client.xid(), 0);
                    assert!(client.is_closed());
                }
            })
        })
        .collect();
    eventually("all have their answers", || {
        server.machine.fill();
        clients.iter().all(std::thread::JoinHandle::is_finished)
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.machine.wait("every end is told", |seen| seen.disconnects.len() == 8);
    let left = [Part::Outstanding, Part::Outbound].map(|part| server.budget.current(part));
    assert_eq!((left, server.traffic.read().outstanding), ([0, 0], 0));
}

#[test]
fn client_that_never_reads_does_not_hold_up_the_shutdown() {
    let settings = PortSettings { linger_ms: 100, limits: small(), ..PortSettings::default() };
    let mut server = Server::with(settings, 30_000);
    let mut deaf = server.client();
    (1..=64).for_each(|xid| deaf.get(xid, "/size/500000"));
    eventually("it is blocked", || server.budget.current(Part::Outbound) > 0);
    server.stop();
    assert_eq!(server.machine.seen().disconnects.len(), 1);
    assert_eq!(server.budget.current(Part::Outbound), 0);
}

/// Surface 1.1: invalid bytes close the connection that carried them.
#[test]
fn invalid_bytes_close_only_their_own_connection() {
    let server = Server::start();
    let mut bystander = server.client();
    let mut bad: Vec<Vec<u8>> = vec![
        vec![0, 0, 0, 0],                      // an empty first frame
        vec![0xff, 0xff, 0xff, 0xff],          // a negative length
        0x7fff_ffff_i32.to_be_bytes().into(),  // a length beyond all bounds
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),    // another protocol
        vec![0x16, 0x03, 0x01, 0x02, 0x00, 1], // TLS
        vec![0, 0, 0, 5, 0, 0, 0, 0, 0],       // a handshake cut short
    ];
    let established = bad.len();
    for body in [&[][..], &[0, 0, 0, 1], &[0; 7]] {
        let mut stream = handshake().to_vec();
        stream.put_i32(body.len() as i32);
        stream.extend_from_slice(body);
        bad.push(stream);
    }
    let mut oversized = handshake().to_vec();
    oversized.put_i32(1_048_576);
    bad.push(oversized);
    for (number, bytes) in bad.iter().enumerate() {
        let mut client = server.stranger();
        client.write(bytes);
        if number >= established {
            client.frame().expect("a connect reply");
        }
        assert!(client.is_closed(), "{bytes:?}");
    }
    bystander.get(1, "/a");
    assert_eq!(bystander.xid(), 1);
    server.machine.wait("every end is told once", |seen| seen.disconnects.len() == bad.len() - established);
    assert_eq!(server.machine.seen().connects.len(), bad.len() - established + 1);
    eventually("only the bystander is left", || server.budget.current(Part::Connections) == 1);
}

#[test]
fn garbage_never_harms_the_server_or_leaks_memory() {
    let server = Server::start();
    let mut bystander = server.client();
    let mut random = Random::new(6);
    for round in 0..300 {
        let mut client = server.stranger();
        let mut stream = BytesMut::new();
        if random.bool() {
            stream.extend_from_slice(&handshake());
        }
        for _ in 0..random.below(5) {
            let mut frame = encoded(round, &random.request());
            if random.bool() {
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
            }
            stream.extend_from_slice(&frame);
        }
        stream.extend_from_slice(&random.bytes());
        // The server may close before everything is written.
        let _ = std::io::Write::write_all(&mut client.stream, &stream);
        if random.bool() {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }
    bystander.get(1, "/a");
    assert_eq!(bystander.xid(), 1);
    eventually("all are gone", || server.budget.current(Part::Connections) == 1);
    let seen = server.machine.seen();
    assert_eq!(seen.disconnects.len(), seen.connects.len() - 1);
    let mut once = seen.disconnects.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), seen.disconnects.len(), "somebody was disconnected twice");
    drop(seen);
    assert_eq!((server.budget.current(Part::Outstanding), server.budget.current(Part::Outbound)), (0, 0));
    assert_eq!(server.traffic.read().outstanding, 0);
}

#[test]
fn connection_without_a_session_is_closed_at_the_handshake_timeout() {
    let settings = PortSettings { handshake_timeout_ms: 100, ..PortSettings::default() };
    let server = Server::with(settings, 30_000);
    let mut established = server.client();
    let mut silent = server.stranger();
    let mut slow = server.stranger();
    slow.write(&handshake()[..20]);
    assert!(silent.is_closed() && slow.is_closed());
    eventually("both are counted", || server.traffic.read().sessionless_expired == 2);
    established.get(1, "/a");
    assert_eq!(established.xid(), 1);
}

#[test]
fn silent_connection_is_closed_only_by_the_machine() {
    let server = Server::with(PortSettings::default(), 100);
    let mut silent = server.client();
    let mut drip = server.client();
    let request = encoded(1, &get("/a"));
    drip.write(&request[..6]);
    // The engine owns the sessions. The port's own clock must not end a session that the engine
    // keeps.
    std::thread::sleep(Duration::from_millis(400));
    assert!(server.machine.seen().disconnects.is_empty());
    drip.write(&request[6..]);
    assert_eq!(drip.xid(), 1);
    let conn = server.machine.seen().connects[0].0;
    server.machine.push([Output::Close { conn }]);
    assert!(silent.is_closed());
    server.machine.wait("its end", |seen| seen.disconnects == [conn]);
}

#[test]
fn shutdown_sends_queued_replies_and_frees_the_port() {
    let mut server = Server::start();
    let mut client = server.client();
    let mut stranger = server.stranger();
    client.get(1, "/size/800000");
    client.get(2, "/pending");
    server.machine.wait("both requests", |seen| seen.requests.len() == 2);
    server.ask_to_stop();
    server.machine.fill();
    assert_eq!([client.xid(), client.xid()], [1, 2]);
    assert!(client.is_closed() && stranger.is_closed());
    server.stop();
    assert_eq!(server.machine.seen().disconnects.len(), 1);
    let budget = std::sync::Arc::new(Budget::new(&Limits::default()));
    ClientPort::bind(&[server.address], PortSettings::default(), Default::default(), budget).unwrap();
}

#[test]
fn bind_fails_on_an_address_in_use() {
    let server = Server::start();
    let budget = std::sync::Arc::new(Budget::new(&Limits::default()));
    let error = ClientPort::bind(&[server.address], PortSettings::default(), Default::default(), budget).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn ipv6_address_can_be_bound_and_mapped_clients_count_as_ipv4() {
    let budget = std::sync::Arc::new(Budget::new(&Limits::default()));
    let bind = |address: &str| {
        let addresses = [address.parse().unwrap()];
        ClientPort::bind(&addresses, PortSettings::default(), Default::default(), budget.clone())
    };
    // A host without IPv6 skips this part.
    if let Ok(port) = bind("[::1]:0") {
        assert!(port.local_addresses()[0].is_ipv6());
    }
    let server = Server::start();
    let _client = server.client();
    assert_eq!(server.machine.seen().connects[0].1, Some([127, 0, 0, 1].into()));
}
