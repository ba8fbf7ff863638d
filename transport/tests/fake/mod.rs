//! A scripted engine stand-in behind the real client port, and clients on sockets.

#![allow(dead_code, reason = "each test uses its part")]

use bytes::{Bytes, BytesMut};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use zoolet_machine::seam::event::List;
use zoolet_machine::watch::{ListedBy, Mark, WatchKind, WatchTable};
use zoolet_machine::{Budget, ConnId, Event, Limits, Status};
use zoolet_model::*;
use zoolet_transport::client_port::*;
use zoolet_transport::wire::client_side::*;
use zoolet_transport::wire::split_frame;

/// Maximum wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the status of a standalone server.
pub(crate) fn alone() -> Status {
    Status { role: "standalone", znodes: 4, zxid: Zxid::from_bits(0x2a).unwrap(), ..Status::default() }
}

/// A stand-in for the engine that answers at once, except for some paths.
///
/// `/hold` is answered by `release`, `/never` not at all. `/pending` leaves a hole that `fill`
/// fills. `/size/N` has N bytes of data.
pub(crate) struct Machine {
    outbox: Arc<OutputQueue>,
    seen: Mutex<Seen>,
    delivery: Mutex<Delivery>,
    stopped: Mutex<Option<mpsc::Receiver<()>>>,
}

/// Which thread delivers the answers to a submit call.
enum Delivery {
    /// The port's thread, at its next turn.
    Port,
    /// Another thread, one answer at a time.
    Elsewhere(mpsc::Sender<Vec<Output>>),
    /// The submitting thread, before the call returns.
    AtOnce,
}

#[derive(Default)]
pub(crate) struct Seen {
    /// Number of events in each submit call.
    pub(crate) batches: Vec<usize>,
    /// All requests except pings.
    pub(crate) requests: Vec<(ConnId, i32, Request)>,
    pub(crate) pings: usize,
    pub(crate) connects: Vec<(ConnId, Option<std::net::IpAddr>, ConnectRequest)>,
    pub(crate) disconnects: Vec<ConnId>,
    held: Vec<(ConnId, i32)>,
    holes: Vec<(ConnId, u64, i32)>,
    refuse: bool,
    session_timeout_ms: i32,
    status: Status,
    lists_break_off: bool,
}

/// Delivers as a thread does that has a few small outputs.
fn at_once(outbox: &OutputQueue, outputs: &mut Vec<Output>) {
    outbox.leave(outputs);
    outbox.deliver_little();
}

impl EventSink for Machine {
    fn submit(&self, events: &mut Vec<Event>) {
        let mut outputs = Vec::new();
        let mut seen = self.seen();
        seen.batches.push(events.len());
        for event in events.drain(..) {
            self.handle(event, &mut seen, &mut outputs);
        }
        // Still locked: a hole must be submitted before another thread can fill it.
        match &*self.delivery.lock().unwrap() {
            Delivery::Port => self.outbox.push(&mut outputs),
            Delivery::Elsewhere(deliverer) => deliverer.send(outputs).unwrap(),
            Delivery::AtOnce => at_once(&self.outbox, &mut outputs),
        }
        drop(seen);
        if let Some(stopped) = self.stopped.lock().unwrap().take() {
            let _ = stopped.recv();
        }
    }
}

impl Machine {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Refuses new sessions from now on.
    pub(crate) fn refuse_sessions(&self) {
        self.seen().refuse = true;
    }

    /// Sets the role that the status reports.
    pub(crate) fn become_role(&self, role: &'static str) {
        self.seen().status.role = role;
    }

    /// Sets the whole status. Its sessions and ephemerals also answer the lists of `dump`.
    pub(crate) fn become_status(&self, status: Status) {
        self.seen().status = status;
    }

    /// Breaks off lists of watches from now on.
    ///
    /// They have one row, and a second page that is never answered.
    pub(crate) fn break_off_lists(&self) {
        self.seen().lists_break_off = true;
    }

    /// Sends outputs through the port's thread, as the core does.
    pub(crate) fn push(&self, outputs: impl IntoIterator<Item = Output>) {
        self.outbox.push(&mut outputs.into_iter().collect());
    }

    /// Sends outputs on this thread, as a thread with few outputs does.
    pub(crate) fn deliver(&self, outputs: impl IntoIterator<Item = Output>) {
        at_once(&self.outbox, &mut outputs.into_iter().collect());
    }

    /// From now on, another thread delivers the answers, one at a time.
    pub(crate) fn deliver_elsewhere(&self) {
        let (deliverer, outputs) = mpsc::channel::<Vec<Output>>();
        *self.delivery.lock().unwrap() = Delivery::Elsewhere(deliverer);
        let outbox = self.outbox.clone();
        std::thread::spawn(move || {
            outputs.iter().flatten().for_each(|output| at_once(&outbox, &mut vec![output]));
        });
    }

    /// From now on, the answers to a submit call are delivered before it returns.
    pub(crate) fn deliver_at_once(&self) {
        *self.delivery.lock().unwrap() = Delivery::AtOnce;
    }

    /// Blocks the port's thread in its next submit call.
    ///
    /// The block ends when the returned sender is dropped.
    pub(crate) fn stop_the_port(&self) -> mpsc::Sender<()> {
        let (go_on, stopped) = mpsc::channel();
        *self.stopped.lock().unwrap() = Some(stopped);
        go_on
    }

    /// Answers the held requests; returns their number.
    pub(crate) fn release(&self) -> usize {
        // Locked until the answers are pushed, so that no answer to a later ping overtakes them.
        let mut seen = self.seen();
        let held = std::mem::take(&mut seen.held);
        let count = held.len();
        self.push(held.into_iter().map(|(conn, xid)| match xid {
            -2 => reply(conn, xid, Ok(Reply::Empty)),
            _ => reply(conn, xid, Ok(data(Bytes::new()))),
        }));
        count
    }

    /// Fills the holes, the last one first.
    pub(crate) fn fill(&self) {
        let holes = std::mem::take(&mut self.seen().holes);
        for (conn, ticket, xid) in holes.into_iter().rev() {
            self.push([Output::Filled { conn, ticket, xid, zxid: 9, result: Ok(data(Bytes::from_static(b"filled"))) }]);
        }
    }

    /// Waits until `is_true` holds.
    pub(crate) fn wait(&self, what: &str, mut is_true: impl FnMut(&Seen) -> bool) {
        eventually(what, || is_true(&self.seen()));
    }

    fn handle(&self, event: Event, seen: &mut Seen, outputs: &mut Vec<Output>) {
        match event {
            Event::Connect { conn, peer, request } => {
                seen.connects.push((conn, peer, request.clone()));
                let refused = seen.refuse;
                let reply = ConnectReply {
                    timeout_ms: if refused { 0 } else { seen.session_timeout_ms },
                    session: SessionId(if refused { 0 } else { conn.0 as i64 }),
                    secret: SessionSecret([0; 16]),
                    read_only_byte: request.read_only.is_some(),
                    read_only_ms: None,
                };
                outputs.push(Output::Connected { conn, reply });
                if refused {
                    outputs.push(Output::Close { conn });
                }
            }
            Event::Request { conn, xid: _, request: Request::Ping } => {
                seen.pings += 1;
                // Answers leave in order, so a ping waits behind held requests.
                if seen.held.iter().any(|(held, _)| *held == conn) {
                    seen.held.push((conn, -2));
                } else {
                    outputs.push(reply(conn, -2, Ok(Reply::Empty)));
                }
            }
            Event::Request { conn, xid, request } => {
                self.answer(conn, xid, &request, seen, outputs);
                seen.requests.push((conn, xid, request));
            }
            Event::Disconnected { conn } => seen.disconnects.push(conn),
            Event::Status { ticket } => {
                outputs.push(Output::Status { ticket, status: Box::new(seen.status.clone()) });
            }
            Event::List { ticket, list } => {
                // The mark at which the second page would begin.
                let next = seen.lists_break_off.then(far);
                let status = match list {
                    List::Watches { from, .. } if Some(from) == next => return,
                    List::Watches { .. } => {
                        let listed = next.iter().map(|_| (SessionId(1), Text::from("/a"))).collect();
                        Status { listed, next, ..Status::default() }
                    }
                    List::Deadlines => seen.status.clone(),
                    List::Ephemerals(session) => {
                        let owned = seen.status.listed.iter().filter(|(owner, _)| *owner == session);
                        Status { listed: owned.cloned().collect(), ..Status::default() }
                    }
                };
                outputs.push(Output::Status { ticket, status: Box::new(status) });
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, conn: ConnId, xid: i32, request: &Request, seen: &mut Seen, outputs: &mut Vec<Output>) {
        match request {
            Request::GetData { path, .. } => match path.as_str() {
                "/hold" => seen.held.push((conn, xid)),
                "/never" => {}
                "/pending" => {
                    let ticket = xid as u64;
                    seen.holes.push((conn, ticket, xid));
                    outputs.push(Output::Pending { conn, ticket });
                }
                path => {
                    let size = path.strip_prefix("/size/").map_or(0, |size| size.parse().unwrap());
                    outputs.push(reply(conn, xid, Ok(data(vec![7; size].into()))));
                }
            },
            Request::Multi(operations) if matches!(operations.first(), Some(WriteOp::SetData { path, .. }) if *path == "/hold") =>
            {
                seen.held.push((conn, xid));
            }
            Request::Unknown => {
                outputs.push(Output::Reply { conn, xid, zxid: -1, result: Err(ErrorCode::Unimplemented) });
                outputs.push(Output::Close { conn });
            }
            Request::Malformed { .. } => outputs.push(reply(conn, xid, Err(ErrorCode::MarshallingError))),
            Request::CloseSession => {
                outputs.push(reply(conn, xid, Ok(Reply::Empty)));
                outputs.push(Output::Close { conn });
            }
            _ => outputs.push(reply(conn, xid, Ok(Reply::Empty))),
        }
    }
}

/// Returns the mark at the end of a long list's first page.
fn far() -> Mark {
    let mut table = WatchTable::new(u32::MAX, usize::MAX, 1);
    table.add(ConnId(1), "/a", WatchKind::Data).unwrap();
    table.page(ListedBy::Path, Mark::default(), 1, &mut |_, _| {}).unwrap()
}

pub(crate) fn reply(conn: ConnId, xid: i32, result: Result<Reply, ErrorCode>) -> Output {
    Output::Reply { conn, xid, zxid: 9, result }
}

pub(crate) fn data(bytes: Bytes) -> Reply {
    Reply::Data(Some(bytes), Stat::default())
}

/// Waits until `is_true` holds, [`PATIENCE`] at most.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The client port on its own thread.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) machine: Arc<Machine>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) traffic: Arc<Traffic>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(PortSettings::default(), 30_000)
    }

    pub(crate) fn limited(limits: Limits) -> Self {
        Self::with(PortSettings { limits, ..PortSettings::default() }, 30_000)
    }

    pub(crate) fn with(settings: PortSettings, session_timeout_ms: i32) -> Self {
        let budget = Arc::new(Budget::new(&settings.limits));
        let outbox = Arc::new(OutputQueue::new());
        let machine = Arc::new(Machine {
            outbox: outbox.clone(),
            seen: Mutex::new(Seen { session_timeout_ms, status: alone(), ..Seen::default() }),
            delivery: Mutex::new(Delivery::Port),
            stopped: Mutex::new(None),
        });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let port = ClientPort::bind(&[any], settings, Arc::new(ConnIds::new()), budget.clone()).unwrap();
        let (address, traffic) = (port.local_addresses()[0], port.traffic());
        let (stop, stopped) = oneshot::channel();
        let sink = machine.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async {
                let _ = stopped.await;
            };
            runtime.block_on(port.serve(sink, outbox, stopped)).unwrap();
        });
        Self { address, machine, budget, traffic, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the port and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Connects a client with a session.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.stranger();
        assert!(client.handshake().timeout_ms > 0);
        client
    }

    /// Connects a socket that has sent nothing yet.
    pub(crate) fn stranger(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: BytesMut::new() }
    }

    /// Returns the answer to a four-letter word.
    pub(crate) fn word(&self, word: &str) -> String {
        let mut client = self.stranger();
        client.write(word.as_bytes());
        client.rest()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
}

impl Client {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn handshake(&mut self) -> ConnectReply {
        self.write(&handshake());
        decode_connect_reply(self.frame().expect("a connect reply")).unwrap()
    }

    pub(crate) fn send(&mut self, xid: i32, request: &Request) {
        self.write(&encoded(xid, request));
    }

    pub(crate) fn get(&mut self, xid: i32, path: &str) {
        self.send(xid, &get(path));
    }

    /// Returns the next frame; `None` when the server closed.
    pub(crate) fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = split_frame(&mut self.buffer, 1 << 30).unwrap() {
                return Some(frame);
            }
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                // After a signal, the kernel does not restart a read from a socket with a timeout.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the xid of the next reply.
    pub(crate) fn xid(&mut self) -> i32 {
        let frame = self.frame().expect("a reply");
        i32::from_be_bytes(frame[..4].try_into().unwrap())
    }

    /// Whether the server closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.frame().is_none()
    }

    /// Frees the buffer, which must be empty.
    pub(crate) fn forget_buffer(&mut self) {
        assert!(self.buffer.is_empty());
        self.buffer = BytesMut::new();
    }

    /// Returns everything up to the server's close, as text.
    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        self.stream.read_to_string(&mut text).unwrap();
        text
    }
}

pub(crate) fn handshake() -> BytesMut {
    let request = ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: 30_000,
        session: SessionId(0),
        password: Some(Bytes::from_static(&[0; 16])),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    encode_connect(&request, &mut out);
    out
}

pub(crate) fn encoded(xid: i32, request: &Request) -> BytesMut {
    let mut out = BytesMut::new();
    encode_request(xid, request, &mut out);
    out
}

pub(crate) fn get(path: &str) -> Request {
    Request::GetData { path: Text::from(path), watch: false }
}
