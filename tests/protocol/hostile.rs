//! Bad bytes, bad requests and bad clients on real sockets.
//!
//! The server stays up with bounded memory, and other clients notice nothing. The tests include the
//! requests that have stopped ZooKeeper in the past.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::support::*;
use bytes::Bytes;
use std::io::Write;
use std::time::Duration;
use zoolet_model::{ErrorCode, Names, Reply, Request, SessionId, Text};

/// Checks that the server runs and that another client can write and read.
fn assert_serves(server: &mut Server, number: usize) {
    assert!(server.is_running());
    let mut client = server.client();
    let path = format!("/witness-{number}");
    client.create(&path, b"x").unwrap();
    assert_eq!(client.get(&path).unwrap().unwrap(), "x");
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    let handshake_cut_short = [&44i32.to_be_bytes()[..], &[0; 20]].concat();
    let garbage: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client",
        &[0xff; 64],
        &[0; 64],
        &[0, 0, 0, 0],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 4, 1, 2, 3, 4],
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ];
    for bytes in garbage {
        let mut stream = server.stream();
        let _ = stream.write_all(bytes);
        assert!(closes(&mut stream), "{bytes:?}");
    }
    // Half a handshake, then silence: it must block no other client.
    let mut half_open = server.stream();
    half_open.write_all(&handshake_cut_short).unwrap();
    assert_serves(&mut server, 0);

    // The same after the handshake.
    for bytes in [&[0xff; 16][..], &[0x7f, 0xff, 0xff, 0xff], &[0, 0, 0, 3, 1, 2, 3]] {
        let mut client = server.client();
        client.stream.write_all(bytes).unwrap();
        assert!(client.is_closed(), "{bytes:?}");
    }
    assert_serves(&mut server, 1);
}

#[test]
fn frame_above_frame_bytes_max_closes_and_the_largest_is_answered() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    let mut client = server.client();
    let frame = |client: &mut Client, length: usize| {
        // `exists` with an invalid path that fills the frame.
        let body = [&i32::try_from(length - 13).unwrap().to_be_bytes()[..], &vec![b'x'; length - 13], &[0]].concat();
        client.send_raw(3, &body)
    };
    frame(&mut client, 100_000);
    assert_eq!(client.header().unwrap().error, ErrorCode::NoNode.code());
    let mut stream = client.stream.try_clone().unwrap();
    // The server closes before it has read everything, so writing may fail.
    let _ = stream.write_all(&100_001i32.to_be_bytes());
    let _ = stream.write_all(&[0; 1000]);
    assert!(client.is_closed());
    assert_serves(&mut server, 0);
}

#[test]
fn unknown_opcodes_are_answered_unimplemented_and_then_closed() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    // Unknown opcodes, and opcodes that servers use internally: createSession (-10),
    // deleteContainer (20), error (-1).
    for opcode in [-12, -10, -2, -1, 0, 10, 20, 23, 99, 108, 1000, i32::MAX, i32::MIN] {
        let mut client = server.client();
        let xid = client.send_raw(opcode, &[0; 16]);
        let header = client.header().unwrap_or_else(|| panic!("{opcode} was not answered"));
        assert_eq!((header.xid, header.zxid, header.error), (xid, -1, ErrorCode::Unimplemented.code()), "{opcode}");
        assert!(client.is_closed(), "{opcode}");
    }
    assert_serves(&mut server, 0);
}

#[test]
fn request_with_a_malformed_body_gets_an_error_and_stays_connected() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    for opcode in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 18, 19, 101, 104, 105, 106] {
        client.send_raw(opcode, &[]);
        let header = client.header().unwrap_or_else(|| panic!("{opcode} closed"));
        assert_eq!(header.error, ErrorCode::MarshallingError.code(), "{opcode}");
    }
    client.create("/still-here", b"").unwrap();
}

#[test]
fn requests_that_crash_zookeeper_do_not_crash_zoolet() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    // createTTL with flags 0 and ttl -1: ZooKeeper logs it, stops, and stops again at every
    // restart.
    let mut client = server.client();
    let path = b"/ttl";
    let mut body = [&(path.len() as i32).to_be_bytes()[..], path, &(-1i32).to_be_bytes()].concat();
    body.extend([&1i32.to_be_bytes()[..], &31i32.to_be_bytes()].concat());
    for text in ["world", "anyone"] {
        body.extend([&(text.len() as i32).to_be_bytes()[..], text.as_bytes()].concat());
    }
    body.extend([&0i32.to_be_bytes()[..], &(-1i64).to_be_bytes()].concat());
    client.send_raw(21, &body);
    assert_ne!(client.header().unwrap().error, 0);

    // A quota on the root, and a text that is no quota.
    client.create("/zookeeper/quota/zookeeper_limits", b"count=1,bytes=1").ok();
    client.create("/zookeeper/quota/zookeeper_stats", b"count=1,bytes=1").ok();
    client.create("/zookeeper/quota/a", b"").ok();
    client.create("/zookeeper/quota/a/zookeeper_limits", b"nonsense").ok();
    client.create("/zookeeper/quota/a/zookeeper_stats", b"nonsense").ok();
    client.ask(&set("/zookeeper/quota/a/zookeeper_stats", b"\xff\xfe")).ok();
    client.create("/a", b"x").unwrap();
    client.create("/a/b", b"x").unwrap();
    client.ask(&set("/a/b", b"y")).unwrap();
    assert_serves(&mut server, 0);
    server.kill_and_restart();
    assert_serves(&mut server, 1);
}

#[test]
fn wrong_session_password_is_refused_and_its_owner_stays_connected() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut owner = server.client();
    for password in [None, Some(Bytes::new()), Some(Bytes::from(vec![0; 16])), Some(Bytes::from(vec![7; 4000]))] {
        let request = hello(owner.session.session, password, 10_000);
        let refused = Client::connect_with(server.address, &request).unwrap();
        assert_eq!((refused.session.timeout_ms, refused.session.session.0), (0, 0));
        assert_eq!(refused.session.secret.0, [0; 16]);
        assert!({ refused }.is_closed());
        // ZooKeeper closes the owner's connection here; zoolet checks the password first.
        assert!(owner.exists("/"));
    }
    let mut stranger =
        Client::connect_with(server.address, &hello(SessionId(0x1234), Some(vec![1; 16].into()), 1)).unwrap();
    assert_eq!(stranger.session.timeout_ms, 0);
    assert!(stranger.is_closed());
}

#[test]
fn clients_that_never_read_take_bounded_memory() {
    let scratch = Scratch::new();
    let limits = "outbound_bytes_max = 1048576\noutbound_bytes_total_max = 4194304\n";
    let mut server = Server::start_with(&scratch, &SMALL.replace("[settings]", &format!("{limits}[settings]")));
    let mut other = server.client();
    other.create("/large", &vec![1; 90_000]).unwrap();
    other.get("/large").unwrap();
    let before = server.resident_bytes();
    let mut deaf: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut deaf {
        client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Until the server stops reading from this client, or closes it.
        for xid in 1..50_000 {
            let body = [&6i32.to_be_bytes()[..], b"/large", &[0]].concat();
            let frame =
                [&(8 + body.len() as i32).to_be_bytes()[..], &i32::to_be_bytes(xid), &4i32.to_be_bytes(), &body];
            if client.stream.write_all(&frame.concat()).is_err() {
                break;
            }
        }
        assert_eq!(other.get("/large").unwrap().unwrap().len(), 90_000);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for four clients that never read");
    assert_serves(&mut server, 0);
}

#[test]
fn client_with_watch_events_that_never_reads_is_dropped() {
    let scratch = Scratch::new();
    let limits = "outbound_bytes_max = 65536\noutbound_bytes_total_max = 4194304\n";
    let server = Server::start_with(&scratch, &SMALL.replace("[settings]", &format!("{limits}[settings]")));
    let mut deaf = server.client();
    // A long path makes long events.
    let path = format!("/{}", "x".repeat(5000));
    let mut other = server.client();
    other.create(&path, b"").unwrap();
    let watch = Request::AddWatch { path: Text::from(path.as_str()), mode: zoolet_model::AddWatchMode::Persistent };
    deaf.ask(&watch).unwrap();
    let mut changes = 0;
    while server.figure("watch_count") > 0 {
        other.ask(&set(&path, b"")).unwrap();
        changes += 1;
        assert!(changes < 20_000, "it is never dropped");
    }
    other.create("/after", b"").unwrap();
}

#[test]
fn connection_above_connections_max_is_closed_until_a_client_leaves() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch, &SMALL.replace("[settings]", "connections_max = 3\n[settings]"));
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let mut stream = server.stream();
    let _ = stream.write_all(&[0, 0, 0, 45]);
    assert!(closes(&mut stream));
    clients.pop();
    eventually("there is room", || Client::connect_with(server.address, &hello(SessionId(0), None, 1000)).is_some());
    assert_eq!(clients[0].ask(&Request::GetEphemerals { prefix: None }).unwrap(), Reply::Names(Names::default()));
}
