//! Messages per second of the codecs alone, and of the client port over loopback.
//!
//! Behind the port, an engine stand-in answers at once.
//!
//! `cargo bench -p zoolet-transport`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and stops at the first surprise")]

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use zoolet_machine::seam::peer::{Entries, Lane, PeerEntry, PeerMessage};
use zoolet_machine::{Budget, Event};
use zoolet_model::*;
use zoolet_transport::client_port::*;
use zoolet_transport::peer::codec::{self, Frames};
use zoolet_transport::wire::client_side::{encode_connect, encode_request};
use zoolet_transport::wire::*;
use zoolet_zab::{Attempt, Epoch};

/// Requests per read, as sent by a client with 64 outstanding requests.
const BATCH: usize = 64;
const CODEC_TIME: Duration = Duration::from_millis(700);
const PORT_TIME: Duration = Duration::from_secs(2);
const CONNECTIONS: usize = 8;

fn main() {
    let path = Text::from("/zkload/0001234");
    let get = Request::GetData { path: path.clone(), watch: false };
    let set = Request::Write(WriteOp::SetData { path, data: Some(vec![7; 100].into()), version: -1 });
    decode("decode getData", &get);
    decode("decode setData of 100 bytes", &set);
    encode("encode getData's reply of 100 bytes", &data());
    encode("encode setData's reply", &Reply::Stat(Stat::default()));
    entries();
    port("getData over the port", &get);
    port("setData over the port", &set);
}

fn data() -> Reply {
    Reply::Data(Some(Bytes::from_static(&[7; 100])), Stat::default())
}

fn report(what: &str, messages: usize, elapsed: Duration) {
    let rate = messages as f64 / elapsed.as_secs_f64();
    println!("{what:<40} {rate:>12.0}/s {:>8.1} ns each", 1e9 / rate);
}

fn decode(what: &str, request: &Request) {
    let mut stream = BytesMut::new();
    (0..BATCH).for_each(|xid| encode_request(xid as i32, request, &mut stream));
    let options = DecodeOptions::default();
    let (start, mut messages) = (Instant::now(), 0);
    let mut buffer = BytesMut::with_capacity(64 << 10);
    while start.elapsed() < CODEC_TIME {
        // As in the port: new bytes are appended to a buffer whose earlier frames may still be in
        // use.
        buffer.reserve(stream.len());
        buffer.extend_from_slice(&stream);
        while let Some(frame) = split_frame(&mut buffer, 1 << 20).unwrap() {
            black_box(decode_request(frame, &options).unwrap());
            messages += 1;
        }
    }
    report(what, messages, start.elapsed());
}

fn encode(what: &str, reply: &Reply) {
    let result = Ok(reply.clone());
    let (start, mut messages) = (Instant::now(), 0);
    let mut out = BytesMut::new();
    while start.elapsed() < CODEC_TIME {
        out.clear();
        for xid in 0..BATCH {
            encode_reply(xid as i32, 1, &result, &mut out);
        }
        messages += BATCH;
        black_box(&out);
    }
    report(what, messages, start.elapsed());
}

/// Measures a leader's message to a learner for 64 writes, encoded and decoded.
///
/// `tests/peer_memory.rs` counts the allocations.
fn entries() {
    let from = Zxid::first_of(Epoch::new(1).unwrap());
    let mut next = from;
    let entries: Vec<_> = (0..BATCH)
        .map(|_| {
            let zxid = next;
            next = next.next().unwrap();
            PeerEntry { zxid, payload: vec![7; 100].into() }
        })
        .collect();
    let to = entries[BATCH - 1].zxid;
    let (attempt, epoch) = (Attempt(1), Epoch::new(1).unwrap());
    let message = PeerMessage::Entries(Entries { attempt, epoch, from, to, committed: from, chain_before: 0, entries });
    let (start, mut messages, mut out) = (Instant::now(), 0, BytesMut::new());
    while start.elapsed() < CODEC_TIME {
        out.clear();
        codec::encode(&message, &mut out);
        messages += BATCH;
        black_box(&out);
    }
    report("encode an entry of 100 bytes for a peer", messages, start.elapsed());
    // QUIC delivers a stream in packets.
    let packets: Vec<_> = out.chunks(1400).map(Bytes::copy_from_slice).collect();
    let mut frames = Frames::new(Lane::Log, 1 << 20);
    let (start, mut messages, mut kept) = (Instant::now(), 0, VecDeque::new());
    while start.elapsed() < CODEC_TIME {
        for packet in &packets {
            frames.push(packet.clone());
            while let Some(message) = frames.next().unwrap() {
                kept.push_back(message);
                messages += BATCH;
            }
        }
        // The engine keeps some messages until they are durable and applied.
        if kept.len() > 16 {
            black_box(kept.pop_front());
        }
    }
    report("decode an entry of 100 bytes of a peer", messages, start.elapsed());
}

/// Answers at once, on the port's thread.
struct Echo(Arc<OutputQueue>);

impl EventSink for Echo {
    fn submit(&self, events: &mut Vec<Event>) {
        let mut outputs: Vec<_> = events.drain(..).filter_map(answer).collect();
        self.0.push(&mut outputs);
    }
}

fn answer(event: Event) -> Option<Output> {
    match event {
        Event::Connect { conn, .. } => {
            let reply = ConnectReply {
                timeout_ms: 30_000,
                session: SessionId(1),
                secret: SessionSecret([0; 16]),
                read_only_byte: true,
                read_only_ms: None,
            };
            Some(Output::Connected { conn, reply })
        }
        Event::Request { conn, xid, request: Request::GetData { .. } } => {
            Some(Output::Reply { conn, xid, zxid: 1, result: Ok(data()) })
        }
        Event::Request { conn, xid, .. } => {
            Some(Output::Reply { conn, xid, zxid: 1, result: Ok(Reply::Stat(Stat::default())) })
        }
        _ => None,
    }
}

fn port(what: &str, request: &Request) {
    let outbox = Arc::new(OutputQueue::new());
    let settings = PortSettings::default();
    let budget = Arc::new(Budget::new(&settings.limits));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = ClientPort::bind(&[any], settings, Arc::new(ConnIds::new()), budget).unwrap();
    let (address, traffic) = (port.local_addresses()[0], port.traffic());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = async {
            let _ = stopped.await;
        };
        runtime.block_on(port.serve(Arc::new(Echo(outbox.clone())), outbox, stopped)).unwrap();
    });
    let start = Instant::now();
    // One thread plays all clients. A round is one write and one read per client.
    let mut batch = BytesMut::new();
    (0..BATCH).for_each(|xid| encode_request(xid as i32 + 1, request, &mut batch));
    let reply_bytes = 4 + 16 + 68 + if matches!(request, Request::GetData { .. }) { 104 } else { 0 };
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    let mut replies = vec![0; BATCH * reply_bytes];
    let mut messages = 0;
    while start.elapsed() < PORT_TIME {
        streams.iter_mut().for_each(|stream| stream.write_all(&batch).unwrap());
        streams.iter_mut().for_each(|stream| stream.read_exact(&mut replies).unwrap());
        messages += BATCH * CONNECTIONS;
    }
    let elapsed = start.elapsed();
    report(what, messages, elapsed);
    let counted = traffic.read();
    let each = |calls: u64| calls as f64 / (messages / BATCH) as f64;
    println!("{:<40} {:.2} reads, {:.2} writes for {BATCH} requests", "", each(counted.reads), each(counted.writes));
    drop((stop, streams));
    server.join().unwrap();
}

fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: 30_000,
        session: SessionId(0),
        password: None,
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    encode_connect(&request, &mut out);
    stream.write_all(&out).unwrap();
    stream.read_exact(&mut [0; 41]).unwrap();
    stream
}
