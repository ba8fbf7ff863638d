//! The client port on real sockets, in front of a scripted engine stand-in.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops at the first surprise")]

use crate::fake::{Client, Server, encoded, eventually, get, handshake};
use crate::random::Random;
use bytes::{BufMut, BytesMut};
use std::net::Shutdown;
use std::time::Duration;
use zoolet_machine::budget::Part;
use zoolet_machine::{Budget, Limits};
use zoolet_model::*;
use zoolet_transport::server::*;
use zoolet_transport::wire::client::decode_connect_reply;

#[test]
fn requests_of_one_read_are_submitted_in_one_call_and_answered_in_order() {
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
fn frames_may_arrive_byte_by_byte_and_in_large_pieces() {
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
fn requests_behind_the_handshake_wait_for_its_answer() {
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
fn a_reply_waits_for_the_completion_before_it() {
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
fn an_unknown_opcode_closes_and_a_malformed_body_does_not() {
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
fn random_traffic_keeps_its_order_and_leaves_nothing_behind() {
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
fn a_client_that_never_reads_does_not_hold_up_the_end() {
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
fn bad_bytes_close_their_connection_and_no_other() {
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
fn the_largest_frame_is_accepted() {
    let server = Server::start();
    let mut client = server.client();
    let overhead = encoded(1, &Request::Write(set_data(0))).len() - 4;
    client.send(1, &Request::Write(set_data(1_048_575 - overhead)));
    assert_eq!(client.xid(), 1);
}

fn set_data(bytes: usize) -> WriteOp {
    WriteOp::SetData { path: Text::from("/a"), data: Some(vec![1; bytes].into()), version: -1 }
}

#[test]
fn garbage_never_takes_the_server_down() {
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

fn small() -> Limits {
    Limits {
        outbound_bytes_max: 256 << 10,
        outbound_bytes_total_max: 64 << 20,
        outstanding_max: 4000,
        outstanding_bytes_max: 16 << 20,
        connections_per_address_max: 0,
        ..Limits::default()
    }
}

/// Answers are paced, so the client never has much queued. But if it takes nothing for its session
/// timeout, it is dropped even if it still sends.
#[test]
fn a_client_that_never_reads_is_dropped_and_others_go_on() {
    let server = Server::with(PortSettings { limits: small(), ..PortSettings::default() }, 500);
    let mut bystander = server.client();
    let mut deaf = server.client();
    // 32 MB of answers, more than the system buffers for a socket.
    for xid in 1..=64 {
        deaf.get(xid, "/size/500000");
    }
    eventually("the drop", || {
        let _ = std::io::Write::write_all(&mut deaf.stream, &encoded(-2, &Request::Ping));
        bystander.get(1, "/a");
        assert_eq!(bystander.xid(), 1);
        !server.machine.seen().disconnects.is_empty()
    });
    eventually("it is counted", || server.traffic.read().dropped == 1);
    let peak = server.budget.snapshot()[Part::Outbound as usize].peak;
    assert!((1..=1 << 20).contains(&peak), "{peak} bytes were queued");
    assert_eq!(server.budget.current(Part::Outbound), 0);
    bystander.get(2, "/a");
    assert_eq!(bystander.xid(), 2);
}

/// Watch events cannot be paced. A client that has more than its share queued and takes none is
/// dropped soon.
#[test]
fn a_client_drowned_in_events_is_dropped_long_before_its_session_timeout() {
    let server = Server::limited(small());
    let _deaf = server.client();
    let conn = server.machine.seen().connects[0].0;
    let event = WatchEvent { kind: EventKind::NodeCreated, path: Text::from("x".repeat(100_000)), zxid: 3 };
    server.machine.push((0..200).map(|_| Output::Notify { conn, event: event.clone() }));
    server.machine.wait("the drop", |seen| seen.disconnects == [conn]);
    eventually("it is counted", || server.traffic.read().dropped == 1);
}

#[test]
fn answers_larger_than_the_bound_reach_a_client_that_reads() {
    let server = Server::limited(small());
    let mut client = server.client();
    for xid in 1..=100 {
        client.get(xid, "/size/300000");
    }
    for xid in 1..=100 {
        let frame = client.frame().expect("not dropped");
        assert_eq!((frame[..4].to_vec(), frame.len() > 300_000), (i32::to_be_bytes(xid).to_vec(), true));
    }
}

/// A thousand reads fit into one segment. Their answers, 100 MB, exceed the limits and must be
/// paced.
#[test]
fn a_burst_of_reads_is_paced_so_that_its_answers_fit() {
    let server = Server::limited(Limits { connections_per_address_max: 0, ..Limits::default() });
    let mut client = server.client();
    // A small answer before must not keep the estimate too low for long.
    client.get(0, "/a");
    assert_eq!(client.xid(), 0);
    let mut stream = BytesMut::new();
    (1..=1000).for_each(|xid| stream.extend_from_slice(&encoded(xid, &get("/size/100000"))));
    client.write(&stream);
    for xid in 1..=1000 {
        assert_eq!(client.xid(), xid);
    }
    let peak = server.budget.snapshot()[Part::Outbound as usize].peak;
    assert!(peak <= 4 << 20, "{peak} bytes were queued");
}

#[test]
fn when_all_together_have_too_much_the_greediest_goes() {
    let limits = Limits { outbound_bytes_max: 64 << 20, outbound_bytes_total_max: 24 << 20, ..small() };
    let server = Server::limited(limits);
    let mut modest = server.client();
    modest.get(1, "/size/100000");
    // Answers are paced, watch events are not.
    let _greedy = server.client();
    let conn = server.machine.seen().connects[1].0;
    let event = WatchEvent { kind: EventKind::NodeCreated, path: Text::from("x".repeat(1_000_000)), zxid: 3 };
    server.machine.push((0..90).map(|_| Output::Notify { conn, event: event.clone() }));
    server.machine.wait("the drop", |seen| seen.disconnects == [conn]);
    assert_eq!(modest.xid(), 1);
    modest.get(2, "/a");
    assert_eq!(modest.xid(), 2);
    let peak = server.budget.snapshot()[Part::Outbound as usize].peak;
    assert!(peak < (24 << 20) + 2_000_000, "{peak} bytes were queued");
}

#[test]
fn a_connection_with_too_much_unanswered_is_not_read_but_its_pings_are_when_it_has_waited_for_long() {
    let settings =
        PortSettings { limits: Limits { outstanding_max: 10, ..Limits::default() }, ..PortSettings::default() };
    let server = Server::with(settings, 300);
    let mut client = server.client();
    let mut stream = BytesMut::new();
    for xid in 1..=50 {
        stream.extend_from_slice(&encoded(xid, &get("/hold")));
    }
    stream.extend_from_slice(&encoded(-2, &Request::Ping));
    client.write(&stream);
    // Forty requests before the ping are held back. The ping is still submitted in time, although
    // nothing else happens.
    server.machine.wait("the ping", |seen| seen.pings == 1);
    assert_eq!(server.machine.seen().requests.len(), 10);
    client.send(-2, &Request::Ping);
    server.machine.wait("the second ping", |seen| seen.pings == 2);
    assert_eq!(server.machine.release(), 12);
    for xid in (1..=10).chain([-2, -2]) {
        assert_eq!(client.xid(), xid);
    }
    let mut answered = 10;
    while answered < 50 {
        let released = server.machine.release();
        assert!(released <= 10);
        for _ in 0..released {
            answered += 1;
            assert_eq!(client.xid(), answered);
        }
    }
    let seen = server.machine.seen();
    assert_eq!((seen.requests.len(), seen.pings), (50, 2), "no ping is answered twice");
}

/// A request may be held back for a moment. For example, the next answer is expected to be as large
/// as the last one. Pings behind the request must then keep their order.
#[test]
fn a_ping_keeps_its_place_behind_requests_that_wait_for_a_moment() {
    let server = Server::limited(Limits { outstanding_max: 10, ..Limits::default() });
    let mut client = server.client();
    let mut stream = BytesMut::new();
    for xid in 1..=50 {
        stream.extend_from_slice(&encoded(xid, &get("/hold")));
        if xid % 5 == 0 {
            stream.extend_from_slice(&encoded(-2, &Request::Ping));
        }
    }
    client.write(&stream);
    let expected: Vec<i32> = (1..=50).flat_map(|xid| [Some(xid), (xid % 5 == 0).then_some(-2)]).flatten().collect();
    let mut answers = Vec::new();
    while answers.len() < expected.len() {
        let released = server.machine.release();
        answers.extend((0..released).map(|_| client.xid()));
    }
    assert_eq!(answers, expected);
}

#[test]
fn the_sum_of_unanswered_bytes_is_bounded_and_shuts_nobody_out() {
    let server = Server::limited(Limits { outstanding_bytes_max: 1 << 20, ..small() });
    // Ten requests of 100,000 bytes fill the limit.
    let mut holder = server.client();
    for xid in 1..=10 {
        holder.send(xid, &hold_with(100_000));
    }
    server.machine.wait("ten requests", |seen| seen.requests.len() == 10);
    // A large request must wait, complete or not. A small one and a ping need not.
    let mut large = server.client();
    large.send(1, &hold_with(100_000));
    let mut modest = server.client();
    for xid in 1..=5 {
        modest.get(xid, "/a");
        assert_eq!(modest.xid(), xid);
    }
    holder.send(-2, &Request::Ping);
    server.machine.wait("the ping", |seen| seen.pings == 1);
    assert_eq!(server.machine.seen().requests.len(), 15);
    // As soon as one request is answered, there is room for the next.
    assert_eq!(server.machine.release(), 11);
    server.machine.wait("the large one", |seen| seen.requests.len() == 16);
    server.machine.release();
    assert_eq!(large.xid(), 1);
    for xid in (1..=10).chain([-2]) {
        assert_eq!(holder.xid(), xid);
    }
    let peak = server.budget.snapshot()[Part::Outstanding as usize].peak;
    assert!(peak <= (1 << 20) + 100_000, "{peak} bytes were held");
}

/// Incomplete frames may fill the limit, but only until their sessions expire: the engine never
/// sees them, so they keep no session alive.
#[test]
fn begun_frames_do_not_hold_the_bound_for_ever() {
    let limits = Limits { outstanding_bytes_max: 256 << 10, ..small() };
    let server = Server::limited(limits);
    let begun = &encoded(1, &Request::Write(set_data(100_000)))[..90_000];
    let mut hogs: Vec<Client> = (0..4)
        .map(|_| {
            let mut hog = server.client();
            hog.write(begun);
            hog
        })
        .collect();
    eventually("the bound is reached", || server.budget.is_full(Part::Outstanding));
    let mut modest = server.client();
    modest.get(1, "/a");
    assert_eq!(modest.xid(), 1);
    let expired: Vec<_> = server.machine.seen().connects[..4].iter().map(|connect| connect.0).collect();
    server.machine.push(expired.into_iter().map(|conn| Output::Close { conn }));
    assert!(hogs.iter_mut().all(Client::is_closed));
    eventually("all is given back", || server.budget.current(Part::Outstanding) == 0);
    let mut client = server.client();
    client.send(1, &Request::Write(set_data(100_000)));
    assert_eq!(client.xid(), 1);
}

/// A request of about `bytes` bytes that the stand-in holds back.
fn hold_with(bytes: usize) -> Request {
    let data = Some(vec![0; bytes].into());
    Request::Multi(vec![WriteOp::SetData { path: Text::from("/hold"), data, version: -1 }])
}

#[test]
fn connections_of_one_address_and_of_all_are_bounded() {
    let server = Server::limited(Limits { connections_per_address_max: 3, ..Limits::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    assert!(server.stranger().is_closed());
    clients.pop();
    eventually("room again", || server.budget.current(Part::Connections) == 2);
    clients.push(server.client());
    assert_eq!(server.traffic.read().rejected, 1);

    let server = Server::limited(Limits { connections_max: 2, connections_per_address_max: 0, ..Limits::default() });
    let _clients: Vec<Client> = (0..2).map(|_| server.client()).collect();
    assert!(server.stranger().is_closed());
}

#[test]
fn a_full_port_still_tells_this_machine_how_the_server_is() {
    for limits in [
        Limits { connections_per_address_max: 2, ..Limits::default() },
        Limits { connections_max: 2, connections_per_address_max: 0, ..Limits::default() },
    ] {
        let server = Server::limited(limits);
        let _clients = [server.client(), server.client()];
        for _ in 0..20 {
            assert!(server.word("zool").contains("\"version\""), "one after another, for ever");
        }
        let mut with_session = server.stranger();
        with_session.write(&handshake());
        assert!(with_session.is_closed());
        // Silent connections keep the few words-only places only for a while.
        let mut silent: Vec<Client> = (0..8).map(|_| server.stranger()).collect();
        assert!(silent.iter_mut().all(Client::is_closed));
        assert!(server.word("zool").contains("\"version\""));
        assert_eq!(server.traffic.read().rejected, 9);
        assert_eq!(server.machine.seen().connects.len(), 2);
    }
}

#[test]
fn a_connection_without_a_session_is_closed_in_time() {
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
fn a_silent_connection_ends_when_the_machine_says_so_and_not_before() {
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
fn the_end_sends_what_is_queued_and_frees_the_port() {
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
fn an_address_in_use_is_an_error_of_bind() {
    let server = Server::start();
    let budget = std::sync::Arc::new(Budget::new(&Limits::default()));
    let error = ClientPort::bind(&[server.address], PortSettings::default(), Default::default(), budget).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn ipv6_clients_are_served_and_mapped_ipv4_ones_are_ipv4() {
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

fn with_words(words: &str) -> Server {
    let about = About {
        version: "0.1.0".into(),
        built_on: "2026-01-02 03:04 UTC".into(),
        server_id: 1,
        servers: Vec::new(),
        conf: vec![("clientPort".into(), "2181".into()), ("tickTime".into(), "2000".into())],
    };
    let four_letter_words = Whitelist::parse(words);
    Server::with(PortSettings { four_letter_words, about, ..PortSettings::default() }, 30_000)
}

/// Surface 9.1 and 9.3.
#[test]
fn four_letter_words_have_zookeepers_shapes() {
    let server = with_words("*");
    let mut client = server.client();
    client.get(1, "/a");
    assert_eq!(client.xid(), 1);

    assert_eq!(server.word("ruok"), "imok");
    assert_eq!(server.word("ruok\n"), "imok");
    assert_eq!(server.word("isro"), "rw");
    let version = "3.9.5-zoolet-0.1.0, built on 2026-01-02 03:04 UTC";
    let srvr = server.word("srvr");
    let lines: Vec<&str> = srvr.lines().collect();
    assert_eq!(lines[0], format!("Zookeeper version: {version}"));
    assert!(lines[1].starts_with("Latency min/avg/max: ") && lines[1].matches('/').count() == 4, "{}", lines[1]);
    assert_eq!(lines[2..4], ["Received: 2", "Sent: 2"]);
    assert!(lines[4].starts_with("Connections: "));
    assert_eq!(lines[5..], ["Outstanding: 0", "Zxid: 0x2a", "Mode: standalone", "Node count: 5"]);

    let stat = server.word("stat");
    let lines: Vec<&str> = stat.lines().collect();
    assert_eq!(lines[1], "Clients:");
    assert_eq!(lines[2], format!(" /{}[1](queued=0,recved=2,sent=2)", client.stream.local_addr().unwrap()));
    assert_eq!((lines[3], lines[11]), ("", "Node count: 5"));

    let cons = server.word("cons");
    let start = format!(" /{}[1](queued=0,recved=2,sent=2,sid=0x", client.stream.local_addr().unwrap());
    assert!(cons.starts_with(&start) && cons.ends_with(")\n\n"), "{cons}");
    for key in ["lop=GETD,est=", "to=30000,lcxid=0x1,lzxid=0x9,lresp=", "llat=", "minlat=", "avglat=", "maxlat="] {
        assert!(cons.contains(&format!(",{key}")), "{cons}");
    }

    assert_eq!(server.word("wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
    assert_eq!(server.word("conf"), "clientPort=2181\ntickTime=2000\n");
    let envi = server.word("envi");
    assert!(envi.starts_with(&format!("Environment:\nzookeeper.version={version}\nhost.name=")), "{envi}");

    let mntr = server.word("mntr");
    assert!(mntr.starts_with(&format!("zk_version\t{version}\nzk_server_state\tstandalone\n")), "{mntr}");
    assert!(mntr.lines().all(|line| line.starts_with("zk_") && line.split('\t').count() == 2), "{mntr}");
    for line in ["zk_packets_received\t2", "zk_znode_count\t5", "zk_outstanding_requests\t0", "zk_watch_count\t0"] {
        assert!(mntr.lines().any(|found| found == line), "{line} in {mntr}");
    }
    for key in ["zk_avg_latency", "zk_open_file_descriptor_count", "zk_uptime", "zk_budget_outbound_bytes_peak"] {
        assert!(mntr.contains(&format!("{key}\t")), "{key} in {mntr}");
    }
    // Words that only ZooKeeper has.
    assert_eq!(server.word("hash"), "hash is not executed because it is not in the whitelist.\n");
}

#[test]
fn statistics_begin_anew_when_asked() {
    let server = with_words("*");
    let mut client = server.client();
    client.get(1, "/a");
    assert_eq!(client.xid(), 1);
    assert!(server.word("srvr").contains("Received: 2\n") && server.word("cons").contains("recved=2,sent=2"));
    assert_eq!(server.word("srst"), "Server stats reset.\n");
    assert!(server.word("srvr").contains("Received: 0\n"));
    assert_eq!(server.word("crst"), "Connection stats reset.\n");
    assert!(server.word("cons").contains("recved=0,sent=0"));
    assert_eq!(server.word("dirs"), "datadir_size: 0\nlogdir_size: 0\n", "this server has no directory");
}

#[test]
fn words_that_are_not_allowed_say_so() {
    let server = with_words("srvr");
    for word in ["ruok", "stat", "mntr", "isro", "envi", "conf", "cons", "wchs", "wchc", "wchp", "dump", "crst"] {
        assert_eq!(server.word(word), format!("{word} is not executed because it is not in the whitelist.\n"));
    }
    assert!(server.word("srvr").starts_with("Zookeeper version: "));
}

#[test]
fn words_are_answered_while_the_server_does_not_serve() {
    let server = with_words("*");
    server.machine.become_role("");
    assert_eq!(server.word("ruok"), "imok");
    assert_eq!(server.word("isro"), "null");
    for word in ["srvr", "stat", "mntr", "cons"] {
        assert_eq!(server.word(word), "This ZooKeeper instance is not currently serving requests\n");
    }
}

/// An incomplete list must not be counted. A monitor would take the sum of one page for the total.
#[test]
fn watches_that_could_not_all_be_counted_have_no_number() {
    let server = with_words("*");
    server.machine.break_off_lists();
    assert_eq!(server.word("wchs"), "This ZooKeeper instance is not currently serving requests\n");
    // The list shows that it is incomplete: the empty line at its end is missing.
    assert_eq!(server.word("wchp"), "/a\n\t0x1\n");
}

#[test]
fn after_the_handshake_a_word_is_a_length() {
    let server = with_words("*");
    let mut client = server.client();
    client.write(b"ruok");
    assert!(client.is_closed());
}
