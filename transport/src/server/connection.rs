//! One client connection: its state, and the task that reads it.

use super::inbound::{Inbound, LOOKAHEAD_BYTES, Ping, READ_BYTES_MAX};
use super::lock;
use super::outgoing::{Answered, Outgoing};
use super::port::{Port, Slot};
use super::words::{self, Asked};
use crate::wire::{
    DecodeOptions, FrameError, TooShort, decode_connect, decode_request, encode_connect_reply, encode_event,
    encode_reply, split_frame,
};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout, timeout_at};
use zoolet_engine::budget::Part;
use zoolet_engine::{ConnId, Event, Limits};
use zoolet_model::{
    ConnectReply, ConnectRequest, ErrorCode, Reply, Request, RequestedAcl, SessionId, Text, WatchEvent, WriteOp,
};

/// A handshake is 45 bytes; this leaves room for any password and none for abuse.
const HANDSHAKE_BYTES_MAX: usize = 4096;
/// Bytes that are written before more is encoded.
const WRITE_BYTES: usize = 64 << 10;
/// A client that has more than its share waiting and took nothing for this long does not read.
const STALL: Duration = Duration::from_millis(500);
/// How long a closed connection is read on, so that the peer sees our last bytes and not a reset.
const DRAIN: Duration = Duration::from_secs(1);
const DRAIN_BYTES_MAX: usize = 256 << 10;

/// A connection that has sent Connect.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) peer: SocketAddr,
    write: OwnedWriteHalf,
    /// Something changed that the connection's task must look at.
    wake: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    out: Outgoing,
    /// Bytes of `out` charged to the budget.
    out_charged: u64,
    /// The socket takes no more; the task waits for it.
    write_blocked: bool,
    /// Requests submitted and not answered, in order.
    waiting: VecDeque<Waiting>,
    /// The client is not listened to, because too much of it waits already.
    paused: bool,
    /// In the list of those whose output is to be written.
    touched: bool,
    /// When the last whole message came.
    heard: Instant,
    /// When the client last took bytes, or when bytes began to wait.
    progress: Instant,
    timeout: Duration,
    record: Record,
}

/// What `cons` shows of a connection.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) session: SessionId,
    pub(super) timeout_ms: i32,
    pub(super) established_ms: i64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) queued: u64,
    pub(super) paused: bool,
    pub(super) last_operation: &'static str,
    pub(super) last_xid: i32,
    pub(super) last_zxid: i64,
    pub(super) last_response_ms: i64,
    pub(super) answered: u64,
    pub(super) latency_us_last: u64,
    pub(super) latency_us_min: u64,
    pub(super) latency_us_max: u64,
    pub(super) latency_us_sum: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Connect is with the machine.
    Connecting { since: Instant },
    /// It has a session.
    Established,
    /// What is queued is sent, then it closes.
    Closing { since: Instant },
    /// Nothing is sent or read any more.
    Over(Why),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Microseconds since the port's start.
    decoded_us: u64,
    /// Charged to the budget.
    bytes: u32,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// The machine, or the server's end, asked for it.
    Asked,
    /// The client closed.
    Left,
    /// The socket failed.
    Broken(ErrorKind),
    /// Nothing came for as long as the session may live.
    Silent,
    /// No session within the time for it.
    Sessionless,
    /// What was queued could not be sent in time.
    Lingered,
    /// The bytes make no sense.
    BadFrame(FrameError),
    /// A frame without room for a request.
    TooShort,
    /// A first message that is none.
    BadHandshake,
    /// More waits for it than one client may have.
    DoesNotRead(usize),
    /// It had most waiting when all clients together had too much.
    Greediest(usize),
}

impl Why {
    /// Whether the client is to blame, so that an operator should know.
    fn is_refusal(self) -> bool {
        match self {
            Self::Asked | Self::Left | Self::Broken(_) | Self::Silent | Self::Lingered => false,
            Self::Sessionless
            | Self::BadFrame(_)
            | Self::TooShort
            | Self::BadHandshake
            | Self::DoesNotRead(_)
            | Self::Greediest(_) => true,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("closed by the server"),
            Self::Left => f.write_str("the client closed"),
            Self::Broken(kind) => write!(f, "{kind}"),
            Self::Silent => f.write_str("silent for its session timeout"),
            Self::Sessionless => f.write_str("made no session in time"),
            Self::Lingered => f.write_str("did not take its last bytes in time"),
            Self::BadFrame(error) => write!(f, "{error}"),
            Self::TooShort => write!(f, "{TooShort}"),
            Self::BadHandshake => f.write_str("not a handshake"),
            Self::DoesNotRead(bytes) => write!(f, "does not read, {bytes} bytes wait for it"),
            Self::Greediest(bytes) => write!(f, "too much waits for all clients, {bytes} bytes of it for this one"),
        }
    }
}

/// Serves an accepted socket to its end.
pub(super) async fn run(port: Arc<Port>, stream: TcpStream, peer: SocketAddr, _slot: Slot) {
    // Without it a reply can wait 40 ms for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let (mut read, write) = stream.into_split();
    let deadline = Instant::now() + port.handshake_timeout();
    let why = match timeout_at(deadline.into(), first_message(&mut read)).await {
        Ok(Ok(First::Word(asked))) => {
            words::answer(&port, asked, &write).await;
            drop(write);
            return drain(&mut read).await;
        }
        Ok(Ok(First::Connect(request, rest))) => {
            let registered = Registered::new(port.clone(), write, peer, request);
            let why = talk(&port, &registered.connection, &mut read, Inbound::new(rest)).await;
            // Only now is the write half gone, and the client sees the end of our stream.
            drop(registered);
            why
        }
        Ok(Err(why)) => why,
        Err(_elapsed) => Why::Sessionless,
    };
    port.on_closed(peer, why);
    if why == Why::Asked {
        drain(&mut read).await;
    }
}

impl Port {
    fn on_closed(&self, peer: SocketAddr, why: Why) {
        if why == Why::Sessionless {
            self.traffic.on_sessionless_expired();
        }
        if why.is_refusal() {
            self.traffic.on_dropped();
            self.refusals.log(peer.ip(), why);
        } else {
            tracing::debug!(client = %peer, "closed: {why}");
        }
    }
}

enum First {
    Word(Asked),
    Connect(ConnectRequest, BytesMut),
}

/// Reads up to the end of the first message. A four-letter word outranks the length it would be (surface 13.46).
async fn first_message(read: &mut OwnedReadHalf) -> Result<First, Why> {
    let mut buffer = BytesMut::new();
    loop {
        read.readable().await.map_err(|error| Why::Broken(error.kind()))?;
        buffer.reserve(64);
        match read.try_read_buf(&mut buffer) {
            Ok(0) => return Err(Why::Left),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(Why::Broken(error.kind())),
        }
        let Some(first) = buffer.first_chunk() else { continue };
        if let Some(asked) = Asked::from_bytes(*first) {
            return Ok(First::Word(asked));
        }
        if let Some(frame) = split_frame(&mut buffer, HANDSHAKE_BYTES_MAX).map_err(Why::BadFrame)? {
            let request = decode_connect(frame).map_err(|_| Why::BadHandshake)?;
            return Ok(First::Connect(request, BytesMut::from(&buffer[..])));
        }
    }
}

/// Reads on for a while after our last byte: closing with unread bytes makes the system send a reset, which can destroy
/// what the client has not read yet.
async fn drain(read: &mut OwnedReadHalf) {
    let _ = timeout(DRAIN, async {
        let mut left = DRAIN_BYTES_MAX;
        let mut nowhere = Vec::with_capacity(4096);
        while left > 0 && read.readable().await.is_ok() {
            nowhere.clear();
            match read.try_read_buf(&mut nowhere) {
                Ok(0) => return,
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
    .await;
}

/// The machine knows the connection exactly as long as this lives, however the task ends.
struct Registered {
    port: Arc<Port>,
    connection: Arc<Connection>,
}

impl Registered {
    fn new(port: Arc<Port>, write: OwnedWriteHalf, peer: SocketAddr, request: ConnectRequest) -> Self {
        let connection = Arc::new(Connection::new(port.ids.next_conn(), peer, write));
        let conn = connection.id;
        // Before the event: its answer must find the connection.
        port.register(connection.clone());
        port.traffic.on_received(1);
        port.submit(|events| {
            events.push(Event::Connect { conn, peer: Some(peer.ip()), request });
        });
        Self { port, connection }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let conn = self.connection.id;
        self.port.unregister(conn);
        self.connection.end(&self.port);
        self.port.submit(|events| events.push(Event::Disconnected { conn }));
        self.port.feed_starved();
    }
}

/// Reads, decodes and submits until the connection is over.
async fn talk(port: &Port, connection: &Connection, read: &mut OwnedReadHalf, mut inbound: Inbound) -> Why {
    let mut timer = pin!(sleep_until((Instant::now() + port.handshake_timeout()).into()));
    let why = loop {
        let decoded = connection.decode(port, &mut inbound);
        inbound.settle(port);
        let plan = match decoded.and_then(|decoded| connection.plan(port, &inbound, decoded)) {
            Ok(plan) => plan,
            Err(why) => break why,
        };
        // Deadlines mostly move away; the timer is touched only when it is due or too late.
        let deadline = plan.deadline.into();
        if timer.is_elapsed() || deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            () = connection.wake.notified() => {}
            _ = connection.write.writable(), if plan.write => connection.unblock(port),
            result = inbound.fill(read, port, plan.read_bytes), if plan.read_bytes > 0 => match result {
                Ok(0) => break Why::Left,
                Ok(_) => {}
                Err(error) => break Why::Broken(error.kind()),
            },
            () = timer.as_mut() => {}
        }
    };
    inbound.uncharge(port);
    why
}

/// What the task waits for next.
struct Plan {
    /// Bytes to read at most; 0 to read nothing.
    read_bytes: usize,
    /// Whether to wait for room in the socket.
    write: bool,
    deadline: Instant,
}

impl Connection {
    fn new(id: ConnId, peer: SocketAddr, write: OwnedWriteHalf) -> Self {
        let now = Instant::now();
        let record = Record {
            session: SessionId(0),
            timeout_ms: 0,
            established_ms: super::port::wall_ms(),
            received: 1,
            sent: 0,
            queued: 0,
            paused: false,
            last_operation: "NA",
            last_xid: -1,
            last_zxid: -1,
            last_response_ms: 0,
            answered: 0,
            latency_us_last: 0,
            latency_us_min: 0,
            latency_us_max: 0,
            latency_us_sum: 0,
        };
        let state = State {
            phase: Phase::Connecting { since: now },
            out: Outgoing::default(),
            out_charged: 0,
            write_blocked: false,
            waiting: VecDeque::new(),
            paused: false,
            touched: false,
            heard: now,
            progress: now,
            timeout: Duration::ZERO,
            record,
        };
        Self { id, peer, write, wake: Notify::new(), state: Mutex::new(state) }
    }

    /// What `cons` shows.
    pub(super) fn record(&self) -> Record {
        let state = lock(&self.state);
        Record { queued: state.waiting.len() as u64, paused: state.paused, ..state.record.clone() }
    }

    /// Bytes waiting to be sent, as charged.
    pub(super) fn out_charged(&self) -> u64 {
        lock(&self.state).out_charged
    }

    /// Makes the task look again.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The answer to Connect.
    pub(super) fn on_connected(&self, port: &Port, now: Instant, reply: &ConnectReply) -> Touched {
        let mut state = lock(&self.state);
        if let (Phase::Connecting { .. }, Ok(timeout_ms @ 1..)) = (state.phase, u32::try_from(reply.timeout_ms)) {
            state.phase = Phase::Established;
            state.heard = now;
            state.timeout = Duration::from_millis(timeout_ms.into());
            state.record.session = reply.session;
            state.record.timeout_ms = reply.timeout_ms;
            state.record.last_operation = "SESS";
            // What came behind the handshake may be decoded now.
            self.wake();
        }
        self.push(&mut state, port, now, |out| {
            out.event(|bytes| encode_connect_reply(reply, bytes));
            Answered(0)
        })
    }

    /// The answer to a request.
    pub(super) fn on_reply(
        &self,
        port: &Port,
        now: Instant,
        xid: i32,
        zxid: i64,
        result: &Result<Reply, ErrorCode>,
    ) -> Touched {
        let mut state = lock(&self.state);
        state.record.last_zxid = zxid;
        self.push(&mut state, port, now, |out| out.answer(|bytes| encode_reply(xid, zxid, result, bytes)))
    }

    /// A watch event.
    pub(super) fn on_event(&self, port: &Port, now: Instant, event: &WatchEvent) -> Touched {
        self.push(&mut lock(&self.state), port, now, |out| {
            out.event(|bytes| encode_event(event, bytes));
            Answered(0)
        })
    }

    /// An answer that comes later.
    pub(super) fn on_pending(&self, ticket: u64) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Established {
            state.out.hold(ticket);
        }
    }

    /// An answer that was to come later.
    pub(super) fn on_filled(
        &self,
        port: &Port,
        now: Instant,
        ticket: u64,
        (xid, zxid): (i32, i64),
        result: &Result<Reply, ErrorCode>,
    ) -> Touched {
        let mut state = lock(&self.state);
        state.record.last_zxid = zxid;
        self.push(&mut state, port, now, |out| {
            let filled = out.fill(ticket, |bytes| encode_reply(xid, zxid, result, bytes));
            debug_assert!(filled.is_some(), "a filling without its hole");
            filled.unwrap_or_default()
        })
    }

    /// Send what is queued, then close.
    pub(super) fn on_close(&self, now: Instant) -> Touched {
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Connecting { .. } | Phase::Established => {
                state.phase = Phase::Closing { since: now };
                self.wake();
                state.touch()
            }
            Phase::Closing { .. } | Phase::Over(_) => Touched(false),
        }
    }

    /// Drops the connection and what is queued to it.
    pub(super) fn give_up(&self, port: &Port, why: Why) {
        self.over(&mut lock(&self.state), port, why);
    }

    /// Writes what was queued, after all outputs of a batch were appended.
    pub(super) fn write_out(&self, port: &Port, now: Instant) {
        let mut state = lock(&self.state);
        state.touched = false;
        self.flush(&mut state, port, now);
        if state.paused && !state.is_congested(&port.settings.limits) {
            self.wake();
        }
    }

    /// The socket has room again.
    fn unblock(&self, port: &Port) {
        let mut state = lock(&self.state);
        state.write_blocked = false;
        self.flush(&mut state, port, Instant::now());
    }

    /// The end: nothing is owed to the budget any more.
    fn end(&self, port: &Port) {
        let mut state = lock(&self.state);
        self.over(&mut state, port, Why::Asked);
        let waiting = std::mem::take(&mut state.waiting);
        port.traffic.on_settled(waiting.len() as u64);
        port.budget.release(Part::Outstanding, waiting.iter().map(|request| u64::from(request.bytes)).sum());
    }

    /// Appends, and settles the requests that are answered by it.
    fn push(
        &self,
        state: &mut MutexGuard<'_, State>,
        port: &Port,
        now: Instant,
        append: impl FnOnce(&mut Outgoing) -> Answered,
    ) -> Touched {
        match state.phase {
            Phase::Connecting { .. } | Phase::Established => {}
            // Fillings of holes that were there before the close still go out.
            Phase::Closing { .. } if !state.out.is_empty() => {}
            Phase::Closing { .. } | Phase::Over(_) => return Touched(false),
        }
        if state.out.queued() == 0 {
            state.progress = now;
        }
        if state.out.has_no_buffer() {
            state.out.lend(port.take_writing());
        }
        let Answered(answered) = append(&mut state.out);
        state.record.sent += 1;
        port.traffic.on_sent();
        state.settle(port, now, answered);
        if state.out.ready().len() >= WRITE_BYTES {
            self.flush(state, port, now);
        }
        if let Some(queued) = state.stalled(port, now) {
            self.over(state, port, Why::DoesNotRead(queued));
            return Touched(false);
        }
        state.touch()
    }

    /// Writes until all is written or the socket takes no more; mostly one system call.
    fn flush(&self, state: &mut MutexGuard<'_, State>, port: &Port, now: Instant) {
        while !state.out.ready().is_empty() && !state.write_blocked {
            match self.write.try_write(state.out.ready()) {
                Ok(bytes) => {
                    state.out.advance(bytes);
                    state.progress = now;
                    port.traffic.on_write(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    state.write_blocked = true;
                    self.wake();
                }
                Err(error) => return self.over(state, port, Why::Broken(error.kind())),
            }
        }
        if let Some(buffer) = state.out.give_back() {
            port.give_back_writing(buffer);
        }
        state.charge_out(port);
        if matches!(state.phase, Phase::Closing { .. }) && state.out.is_empty() {
            self.wake();
        }
    }

    /// From here on nothing is sent, and nothing waits.
    fn over(&self, state: &mut MutexGuard<'_, State>, port: &Port, why: Why) {
        if !matches!(state.phase, Phase::Over(_)) {
            state.phase = Phase::Over(why);
        }
        state.out = Outgoing::default();
        state.write_blocked = false;
        state.charge_out(port);
        self.wake();
    }

    /// Decodes what may be decoded, and submits it in one call.
    fn decode(&self, port: &Port, inbound: &mut Inbound) -> Result<Decoded, Why> {
        let mut result = Ok(Decoded::All);
        if inbound.len() == 0 {
            return result;
        }
        // From here the bytes count as requests.
        inbound.uncharge(port);
        port.submit(|events| {
            let mut state = lock(&self.state);
            if state.phase == Phase::Established {
                result = self.decode_into(events, &mut state, port, inbound);
            }
        });
        result
    }

    fn decode_into(
        &self,
        events: &mut Vec<Event>,
        state: &mut State,
        port: &Port,
        inbound: &mut Inbound,
    ) -> Result<Decoded, Why> {
        let limits = &port.settings.limits;
        let frame_bytes_max = limits.frame_bytes_max as usize;
        let now = Instant::now();
        let decoded_us = port.us_since_start(now);
        let before = events.len();
        let result = loop {
            let next = match inbound.next(frame_bytes_max) {
                Ok(Some(next)) => next,
                Ok(None) => break Ok(Decoded::All),
                Err(error) => break Err(Why::BadFrame(error)),
            };
            let admitted = match next.ping {
                Ping::Answered => {
                    inbound.take(next);
                    continue;
                }
                Ping::Unanswered => state.waiting.len() < 2 * limits.outstanding_max as usize,
                Ping::No => !state.is_congested(limits) && port.may_hold(next.bytes, state.waiting.is_empty()),
            };
            if !admitted {
                // Its turn comes when there is room; who only pings must not lose its session meanwhile.
                while state.waiting.len() < 2 * limits.outstanding_max as usize
                    && let Some(xid) = inbound.take_ping(frame_bytes_max)
                {
                    state.admit(port, decoded_us, 12);
                    events.push(Event::Request { conn: self.id, xid, request: Request::Ping });
                }
                break Ok(Decoded::OneMustWait);
            }
            let Ok((xid, request)) = decode_request(inbound.take(next), &DecodeOptions::default()) else {
                break Err(Why::TooShort);
            };
            state.admit(port, decoded_us, held_bytes(next.bytes, &request));
            state.record.last_operation = operation(&request);
            state.record.last_xid = xid;
            events.push(Event::Request { conn: self.id, xid, request });
        };
        let count = (events.len() - before) as u64;
        if count > 0 {
            state.heard = now;
            state.record.received += count;
            port.traffic.on_received(count);
            port.traffic.on_outstanding(count);
        }
        result
    }

    /// What to wait for, or why it is over.
    fn plan(&self, port: &Port, inbound: &Inbound, decoded: Decoded) -> Result<Plan, Why> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let lookahead = LOOKAHEAD_BYTES.saturating_sub(inbound.len());
        let (read_bytes, deadline, late) = match state.phase {
            Phase::Over(why) => return Err(why),
            Phase::Closing { .. } if state.out.is_empty() => return Err(Why::Asked),
            Phase::Closing { since } => (0, since + port.linger(), Why::Lingered),
            // Nothing is decoded before the answer; reading shows when the client leaves.
            Phase::Connecting { since } => (lookahead, since + port.handshake_timeout(), Why::Sessionless),
            Phase::Established => {
                let read_bytes = match state.listen(port, self.id, inbound, decoded) {
                    Listening::Yes => READ_BYTES_MAX,
                    Listening::ItDoesNotRead => lookahead,
                    // Not heard because not listened to.
                    Listening::WeAreBusy => {
                        state.heard = now;
                        lookahead
                    }
                };
                let taking = if state.write_blocked { state.progress } else { state.heard };
                (read_bytes, state.heard.max(taking) + state.timeout, Why::Silent)
            }
        };
        if now >= deadline {
            return Err(late);
        }
        if let Some(queued) = state.stalled(port, now) {
            return Err(Why::DoesNotRead(queued));
        }
        let deadline = if state.has_too_much(port) { deadline.min(state.progress + STALL) } else { deadline };
        Ok(Plan { read_bytes, write: state.write_blocked, deadline })
    }
}

/// How far the decoding came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decoded {
    /// What is left is no whole frame.
    All,
    /// The next frame is whole and may not be admitted now.
    OneMustWait,
}

/// Whether a connection is read, or only looked ahead into for pings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listening {
    Yes,
    /// Too much of it, or of all, is not answered yet.
    WeAreBusy,
    /// Too much is queued to it.
    ItDoesNotRead,
}

/// Whether the caller has to see that the connection's output is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) struct Touched(pub(super) bool);

impl State {
    fn touch(&mut self) -> Touched {
        let first = !self.touched;
        self.touched = true;
        Touched(first)
    }

    /// A request is submitted.
    fn admit(&mut self, port: &Port, decoded_us: u64, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        port.budget.charge(Part::Outstanding, bytes.into());
        self.waiting.push_back(Waiting { decoded_us, bytes });
    }

    /// The oldest `answered` requests have their answers.
    fn settle(&mut self, port: &Port, now: Instant, answered: usize) {
        if answered == 0 {
            return;
        }
        let now_us = port.us_since_start(now);
        let mut bytes = 0;
        for _ in 0..answered {
            let Some(request) = self.waiting.pop_front() else { break };
            bytes += u64::from(request.bytes);
            port.traffic.on_settled(1);
            // The batch's time can be a little before a request that was decoded while the batch was on its way.
            self.record.on_answered(port, now_us.saturating_sub(request.decoded_us));
        }
        port.budget.release(Part::Outstanding, bytes);
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
    }

    /// Whether this client has so much waiting that its requests are not read. Once paused, it has to come down well
    /// below the bounds before it is listened to again.
    fn is_congested(&self, limits: &Limits) -> bool {
        let (requests, bytes) = (limits.outstanding_max as usize, limits.outbound_bytes_max as usize / 4);
        let (requests, bytes) = if self.paused { (requests * 3 / 4, bytes / 2) } else { (requests, bytes) };
        self.waiting.len() >= requests.max(1) || self.out.queued() > bytes
    }

    /// Whether to read it.
    fn listen(&mut self, port: &Port, id: ConnId, inbound: &Inbound, decoded: Decoded) -> Listening {
        let limits = &port.settings.limits;
        let congested = self.is_congested(limits);
        // Everybody may have a small request in flight; more only while the sum allows it.
        let starved = decoded == Decoded::OneMustWait
            || port.budget.is_full(Part::Outstanding) && (!self.waiting.is_empty() || inbound.wants_much());
        if starved && !congested {
            port.starve(id);
        }
        self.paused = congested || starved;
        if !self.paused {
            Listening::Yes
        } else if congested && self.waiting.len() < limits.outstanding_max as usize {
            Listening::ItDoesNotRead
        } else {
            Listening::WeAreBusy
        }
    }

    /// Whether more is queued than one client may have, and it is the client that does not take it.
    fn has_too_much(&self, port: &Port) -> bool {
        self.write_blocked && self.out.queued() > port.settings.limits.outbound_bytes_max as usize
    }

    /// How much is queued, when that is too much and the client took none of it for a while. One large answer to a
    /// client that reads is no offence.
    fn stalled(&self, port: &Port, now: Instant) -> Option<usize> {
        let stalled = self.has_too_much(port) && now.duration_since(self.progress) >= STALL;
        stalled.then(|| self.out.queued())
    }

    /// Charges what is queued now.
    fn charge_out(&mut self, port: &Port) {
        let queued = self.out.queued() as u64;
        if queued > self.out_charged {
            port.budget.charge(Part::Outbound, queued - self.out_charged);
        } else {
            port.budget.release(Part::Outbound, self.out_charged - queued);
        }
        self.out_charged = queued;
    }
}

impl Record {
    fn on_answered(&mut self, port: &Port, latency_us: u64) {
        port.traffic.on_answered(latency_us);
        self.latency_us_min = if self.answered == 0 { latency_us } else { self.latency_us_min.min(latency_us) };
        self.latency_us_max = self.latency_us_max.max(latency_us);
        self.latency_us_sum += latency_us;
        self.latency_us_last = latency_us;
        self.answered += 1;
        self.last_response_ms = super::port::wall_ms();
    }
}

/// What a decoded request holds: its frame, and the vectors made from it.
fn held_bytes(frame_bytes: usize, request: &Request) -> usize {
    let acl = |acl: &Option<Vec<RequestedAcl>>| acl.as_ref().map_or(0, |acl| size_of_val(acl.as_slice()));
    let write = |operation: &WriteOp| match operation {
        WriteOp::Create(create) => acl(&create.acl),
        WriteOp::SetAcl { acl: entries, .. } => acl(entries),
        WriteOp::Delete { .. } | WriteOp::SetData { .. } | WriteOp::Check { .. } => 0,
    };
    let texts = |texts: &Vec<Text>| size_of_val(texts.as_slice());
    frame_bytes
        + match request {
            Request::Write(operation) => write(operation),
            Request::Multi(operations) => {
                size_of_val(operations.as_slice()) + operations.iter().map(write).sum::<usize>()
            }
            Request::MultiRead(reads) => size_of_val(reads.as_slice()),
            Request::SetWatches(watches) => {
                [&watches.data, &watches.exist, &watches.child, &watches.persistent, &watches.persistent_recursive]
                    .into_iter()
                    .map(texts)
                    .sum()
            }
            _ => 0,
        }
}

/// The code by which `cons` calls a request.
fn operation(request: &Request) -> &'static str {
    match request {
        Request::Write(WriteOp::Create(_)) => "CREA",
        Request::Write(WriteOp::Delete { .. }) => "DELE",
        Request::Write(WriteOp::SetData { .. }) => "SETD",
        Request::Write(WriteOp::SetAcl { .. }) => "SETA",
        Request::Write(WriteOp::Check { .. }) => "CHEC",
        Request::Multi(_) => "MULT",
        Request::Exists { .. } => "EXIS",
        Request::GetData { .. } => "GETD",
        Request::GetChildren { .. } => "GETC",
        Request::GetAcl { .. } => "GETA",
        Request::GetEphemerals { .. } => "GETE",
        Request::GetAllChildrenNumber { .. } => "GETACN",
        Request::MultiRead(_) => "MLTR",
        Request::Sync { .. } => "SYNC",
        Request::Ping => "PING",
        Request::WhoAmI => "HOMI",
        Request::SetWatches(_) => "SETW",
        Request::AddWatch { .. } => "ADDW",
        Request::CheckWatches { .. } => "CHKW",
        Request::RemoveWatches { .. } => "REMW",
        Request::Reconfig => "RECO",
        Request::CloseSession => "CLOS",
        Request::Auth { .. } | Request::Sasl | Request::Malformed { .. } | Request::Unknown => "NA",
    }
}
