//! Slow-loris: thousands of clients that begin a request and do not finish it.
//!
//! Each is ended by a deadline, costs bounded memory, and delays no other client.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may unwrap, what they share too, and tell their figures"
)]

use crate::support::*;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const CONNECTIONS: usize = 1000;

fn server(scratch: &Scratch, limits: &str) -> Server {
    let limits = format!("connections_per_address_max = 0\n{limits}");
    Server::start_with(scratch, &format!("{}handshake_timeout_ms = 1500\n", with_limits(&limits)))
}

/// The first half of a frame of `bytes` bytes.
fn half_a_frame(bytes: usize) -> Vec<u8> {
    let mut frame = i32::try_from(bytes).unwrap().to_be_bytes().to_vec();
    frame.resize(4 + bytes / 2, 7);
    frame
}

/// Sends a byte to each connection, repeatedly, until the server has closed all of them.
fn trickle_until_closed(streams: &mut Vec<TcpStream>) {
    let began = std::time::Instant::now();
    for stream in streams.iter_mut() {
        stream.set_nonblocking(true).unwrap();
    }
    while !streams.is_empty() {
        assert!(began.elapsed() < PATIENCE, "{} are open still", streams.len());
        streams.retain_mut(|stream| {
            let mut bytes = [0; 4096];
            let open = match stream.read(&mut bytes) {
                Ok(0) => false,
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            open && !matches!(stream.write(&[0]), Err(error) if error.kind() != ErrorKind::WouldBlock)
        });
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn unfinished_handshakes_end_at_their_deadline() {
    raise_open_files();
    let scratch = Scratch::new();
    let server = server(&scratch, "");
    let before = server.anonymous_bytes();
    while_served(&server, || {
        let begin = |number: usize| {
            let mut stream = server.stream();
            let beginning: &[u8] = [&[][..], &[0], &[0, 0, 0, 44], &[0, 0, 0, 44, 0, 0, 0, 0, 1, 2, 3]][number % 4];
            stream.write_all(beginning).unwrap();
            stream
        };
        // Connections that sent at most one byte stay silent: more bytes would complete a length
        // that is refused.
        let (mut streams, mut silent): (Vec<_>, Vec<_>) =
            (0..CONNECTIONS).map(begin).enumerate().partition(|(number, _)| number % 4 >= 2);
        let mut streams: Vec<_> = streams.drain(..).map(|(_, stream)| stream).collect();
        let grown = server.anonymous_bytes().saturating_sub(before);
        assert!(grown < (CONNECTIONS as u64) * (8 << 10), "{grown} bytes");
        trickle_until_closed(&mut streams);
        for (_, stream) in &mut silent {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    });
    assert_eq!(server.figure("sessionless_connections_expired") as usize, CONNECTIONS);
}

#[test]
fn sessions_with_an_unfinished_request_expire() {
    raise_open_files();
    let scratch = Scratch::new();
    let server = server(&scratch, "");
    while_served(&server, || {
        let mut streams: Vec<_> = crowd(&server, CONNECTIONS, 1500).into_iter().map(|client| client.stream).collect();
        for (number, stream) in streams.iter_mut().enumerate() {
            let beginnings = [Vec::new(), vec![0, 0], 50_000i32.to_be_bytes().into(), half_a_frame(1000)];
            stream.write_all(&beginnings[number % 4]).unwrap();
        }
        trickle_until_closed(&mut streams);
    });
    eventually("their sessions have expired", || server.figure("global_sessions") <= 1);
    assert!(server.figure("stale_sessions_expired") as usize >= CONNECTIONS);
}

#[test]
fn reading_client_keeps_its_connection_through_a_server_pause() {
    let scratch = Scratch::new();
    // One answer exceeds the bound of one client, and the system's socket buffers.
    let roomy =
        "log_segment_bytes = 33554432\nlog_segments = 6\nframe_bytes_max = 16000000\noutbound_bytes_max = 65536\n";
    let server = Server::start_with(&scratch, &format!("[limits]\n{roomy}"));
    let mut client = server.client();
    client.create("/large", &vec![7; 15_000_000]).unwrap();
    let mut stream = client.stream.try_clone().unwrap();
    client.send(&get("/large"));
    let (mut first, mut left) = ([0; 4096], 15_000_000 / 2);
    while left > 0 {
        left -= stream.read(&mut first).unwrap().min(left);
    }
    // Now the server waits for the client to read. Then both stand still, as on a suspended
    // machine.
    std::thread::sleep(Duration::from_millis(100));
    server.signal("STOP");
    std::thread::sleep(Duration::from_millis(1200));
    server.signal("CONT");
    std::thread::sleep(Duration::from_millis(100));
    let mut taken = vec![0; 1 << 20];
    client.send(&zoolet_model::Request::Ping);
    let mut last = Vec::new();
    loop {
        let bytes = stream.read(&mut taken).unwrap();
        assert!(bytes > 0, "the connection was closed");
        last.extend_from_slice(&taken[..bytes]);
        // The answer to the ping, which comes after the large one.
        if last.len() > 20 && last[last.len() - 16..last.len() - 12] == (-2i32).to_be_bytes() {
            return;
        }
    }
}

#[test]
fn simultaneous_large_requests_do_not_deadlock_on_the_byte_bound() {
    let scratch = Scratch::new();
    let server = server(&scratch, "outstanding_bytes_max = 65536");
    let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
    clients[0].create("/large", b"").unwrap();
    // The first halves fill the shared bound, so no second half would fit.
    let mut out = bytes::BytesMut::new();
    zoolet_transport::wire::client_side::encode_request(1, &set("/large", &[7; 90_000]), &mut out);
    for client in &mut clients {
        client.stream.write_all(&out[..45_000]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let rest = &out[45_000..];
    std::thread::scope(|threads| {
        for client in &mut clients {
            threads.spawn(move || {
                client.stream.write_all(rest).unwrap();
                assert_eq!(client.header().expect("an answer").error, 0);
            });
        }
    });
}

#[test]
fn stalled_large_requests_do_not_block_other_large_requests() {
    let scratch = Scratch::new();
    let server = server(&scratch, "outstanding_bytes_max = 65536");
    let mut slow: Vec<_> = (0..3).map(|_| server.client()).collect();
    for client in &mut slow {
        client.stream.write_all(&half_a_frame(90_000)).unwrap();
    }
    eventually("they hold all there is", || server.figure("budget_outstanding_bytes") >= 65536);
    let mut other = server.client();
    other.create("/small", b"x").unwrap();
    other.create("/large", &[7; 90_000]).unwrap();
    assert!(server.figure("budget_outstanding_bytes_peak") < 400_000);
}
