//! The bounds of the client port: frames, answers, unanswered requests and connections.

use crate::fake::{Client, Server, encoded, eventually, get, handshake};
use bytes::BytesMut;
use zoolet_machine::Limits;
use zoolet_machine::budget::{Part, REQUEST_BYTES};
use zoolet_model::*;
use zoolet_transport::client_port::*;

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

pub(crate) fn small() -> Limits {
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
fn client_that_never_reads_is_dropped_after_its_session_timeout() {
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
fn client_flooded_with_events_is_dropped_before_its_session_timeout() {
    let server = Server::limited(small());
    let _deaf = server.client();
    let conn = server.machine.seen().connects[0].0;
    let event = WatchEvent { kind: EventKind::NodeCreated, path: Text::from("x".repeat(100_000)), zxid: 3 };
    server.machine.push((0..200).map(|_| Output::Notify { conn, event: event.clone() }));
    server.machine.wait("the drop", |seen| seen.disconnects == [conn]);
    eventually("it is counted", || server.traffic.read().dropped == 1);
}

#[test]
fn replies_above_the_queue_limit_reach_a_client_that_reads() {
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
fn burst_of_reads_is_paced_to_the_outbound_limit() {
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
fn connection_with_most_queued_bytes_is_dropped_at_the_total_limit() {
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
fn pings_of_a_connection_at_its_request_limit_are_still_submitted() {
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
fn ping_keeps_its_place_behind_briefly_delayed_requests() {
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
fn unanswered_bytes_are_bounded_without_blocking_small_requests() {
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

/// Regression: a waiting ping was charged 12 bytes and took hundreds, and no limit of bytes held
/// pings back.
#[test]
fn unanswered_pings_are_charged_their_memory_and_bounded() {
    const CLIENTS: usize = 20;
    const PINGS: usize = 1000;
    let limits = Limits { outstanding_max: 1000, outstanding_bytes_max: 64 << 10, ..small() };
    let server = Server::limited(limits);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        let mut stream = BytesMut::from(&encoded(1, &get("/hold"))[..]);
        (0..PINGS).for_each(|_| stream.extend_from_slice(&encoded(-2, &Request::Ping)));
        client.write(&stream);
    }
    eventually("the bound is reached", || server.budget.is_full(Part::Outstanding));
    server.machine.wait("some pings of each client", |seen| seen.pings >= 2 * CLIENTS);
    eventually("all are answered in the end", || {
        server.machine.release();
        server.machine.seen().pings == CLIENTS * PINGS
    });
    for client in &mut clients {
        assert_eq!(client.xid(), 1);
        assert!((0..PINGS).all(|_| client.xid() == -2));
    }
    eventually("all is given back", || server.budget.current(Part::Outstanding) == 0);
    let peak = server.budget.snapshot()[Part::Outstanding as usize].peak;
    let beyond = CLIENTS * 6 * (REQUEST_BYTES + 4096 / 6);
    assert!(peak <= (64 << 10) + beyond as u64, "{peak} bytes were held");
}

/// Incomplete frames may fill the limit, but only until their sessions expire: the engine never
/// sees them, so they keep no session alive.
#[test]
fn incomplete_frames_release_the_byte_limit_when_their_sessions_end() {
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

/// Returns a server, and a client with the turn of large requests. The client reads nothing, and its
/// request is not complete.
fn with_a_client_that_reads_nothing_and_has_the_turn(linger_ms: u32) -> (Server, Client, zoolet_machine::ConnId) {
    // The answers queued for the client stay below the bound above which its requests are not read.
    let limits = Limits {
        outbound_bytes_max: 256 << 20,
        outbound_bytes_total_max: 512 << 20,
        outstanding_bytes_max: 64 << 10,
        ..small()
    };
    let server = Server::with(PortSettings { limits, linger_ms, ..PortSettings::default() }, 30_000);
    let mut deaf = server.client();
    let conn = server.machine.seen().connects[0].0;
    // 40 MB of events, more than the system buffers for a socket.
    let event = WatchEvent { kind: EventKind::NodeCreated, path: Text::from("x".repeat(1_000_000)), zxid: 3 };
    server.machine.push((0..40).map(|_| Output::Notify { conn, event: event.clone() }));
    eventually("the socket is full", || server.budget.current(Part::Outbound) > 0);
    deaf.write(&encoded(1, &Request::Write(set_data(100_000)))[..90_000]);
    eventually("the bound is reached", || server.budget.current(Part::Outstanding) >= 90_000);
    assert!(server.budget.current(Part::Outbound) > 0, "the socket is still full");
    (server, deaf, conn)
}

/// Regression: the time to take answers replaced the time for the rest of a request. A client that
/// took no answers kept the turn until its session timeout, and no large request of others arrived.
#[test]
fn client_that_reads_nothing_does_not_keep_the_turn_of_large_requests() {
    let (server, _deaf, conn) = with_a_client_that_reads_nothing_and_has_the_turn(2000);
    let mut other = server.client();
    other.send(1, &Request::Write(set_data(100_000)));
    assert_eq!(other.xid(), 1, "long before the deaf client's session ends");
    server.machine.wait("the drop", |seen| seen.disconnects == [conn]);
    eventually("it is counted", || server.traffic.read().dropped == 1);
}

/// Regression: a connection that the server closed kept the turn for as long as bytes were queued for
/// its client.
#[test]
fn connection_being_closed_passes_on_the_turn_of_large_requests() {
    let (server, deaf, conn) = with_a_client_that_reads_nothing_and_has_the_turn(60_000);
    server.machine.push([Output::Close { conn }]);
    let mut other = server.client();
    other.send(1, &Request::Write(set_data(100_000)));
    assert_eq!(other.xid(), 1, "long before the queued bytes are dropped");
    drop(deaf);
    server.machine.wait("the end", |seen| seen.disconnects == [conn]);
}

/// A request of about `bytes` bytes that the stand-in holds back.
fn hold_with(bytes: usize) -> Request {
    let data = Some(vec![0; bytes].into());
    Request::Multi(vec![WriteOp::SetData { path: Text::from("/hold"), data, version: -1 }])
}

#[test]
fn connections_are_bounded_per_address_and_in_total() {
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
fn handshake_above_the_rate_is_closed_without_an_answer() {
    let server = Server::limited(Limits { handshakes_burst_max: 2, handshakes_per_minute_max: 1, ..Limits::default() });
    let _clients = [server.client(), server.client()];
    let mut third = server.stranger();
    third.write(&handshake());
    assert!(third.is_closed());
    // Words take no token, and the engine has heard of two clients.
    assert!(server.word("zool").contains("\"version\""));
    assert_eq!((server.traffic.read().rejected, server.machine.seen().connects.len()), (1, 2));
}

#[test]
fn full_port_still_answers_zool_on_loopback() {
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
