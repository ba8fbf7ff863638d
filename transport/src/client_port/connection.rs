//! One client connection: its send queue and its unanswered requests.

use super::close_reason::CloseReason;
use super::connection_figures::Record;
use super::listener::Port;
use super::lock;
use super::outgoing::{Answered, Outgoing};
use crate::wire::{encode_connect_reply, encode_event, encode_reply};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use zoolet_machine::ConnId;
use zoolet_machine::budget::Part;
use zoolet_model::{Class, ConnectReply, ErrorCode, Reply, Request, WatchEvent};

/// Flush threshold: queued bytes not yet charged before a write starts.
const WRITE_BYTES: u64 = 64 << 10;
/// Assumed size of a reply without a list or data, bytes.
const SMALL_REPLY_BYTES: u32 = 128;
/// Assumed size of a connection's first reply to a read, bytes.
const FIRST_READ_BYTES: u32 = 64 << 10;
/// Maximum pause in reading of a client over its outbound limit.
pub(super) const STALL: Duration = Duration::from_millis(500);

/// A connection that has sent Connect.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) peer: SocketAddr,
    pub(super) write: OwnedWriteHalf,
    /// Wakes the connection's task after a state change.
    pub(super) wake: Notify,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) out: Outgoing,
    /// Bytes of `out` charged to the budget.
    out_charged: u64,
    /// Whether the socket is full; the task waits until it is writable.
    pub(super) write_blocked: bool,
    /// Requests submitted but not answered, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// Number of pings in `waiting`.
    pub(super) waiting_pings: usize,
    /// Estimated bytes of the answers to `waiting`.
    pub(super) expected_bytes: u64,
    /// Estimated bytes of the next answer to a read.
    read_bytes: u32,
    /// Whether reading is suspended because too much is waiting already.
    pub(super) paused: bool,
    /// When the next complete request began to wait for admission.
    pub(super) held_up: Option<Instant>,
    /// When this connection got the turn to finish its request above the outstanding limit.
    ///
    /// `None` without the turn, and once the request is complete.
    pub(super) turn: Option<Instant>,
    /// Whether the connection is in the output writer's list of connections to write.
    touched: bool,
    /// When the client last took bytes, or when bytes began to wait.
    pub(super) progress: Instant,
    pub(super) timeout: Duration,
    pub(super) record: Record,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Connect is submitted. `excused` once the deadline was extended after a stall of this
    /// process.
    Connecting { since: Instant, excused: bool },
    /// The client has a session.
    Established,
    /// Sends the queue, then closes.
    Closing { since: Instant },
    /// Neither sends nor reads any more.
    Over(CloseReason),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// When the request was decoded, in microseconds since the port's start.
    pub(super) decoded_us: u64,
    /// Bytes charged to the budget.
    pub(super) bytes: u32,
    /// This request's part of `expected_bytes`.
    pub(super) expected: u32,
    /// Whether it is a ping.
    pub(super) is_ping: bool,
}

// `REQUEST_BYTES` counts a place of this size.
const _: () = assert!(size_of::<Waiting>() <= 24);

impl Connection {
    pub(super) fn new(id: ConnId, peer: SocketAddr, write: OwnedWriteHalf) -> Self {
        let now = Instant::now();
        let state = State {
            phase: Phase::Connecting { since: now, excused: false },
            out: Outgoing::default(),
            out_charged: 0,
            write_blocked: false,
            waiting: VecDeque::new(),
            waiting_pings: 0,
            expected_bytes: 0,
            read_bytes: FIRST_READ_BYTES,
            paused: false,
            held_up: None,
            turn: None,
            touched: false,
            progress: now,
            timeout: Duration::ZERO,
            record: Record::new(),
        };
        Self { id, peer, write, wake: Notify::new(), state: Mutex::new(state) }
    }

    /// Returns the figures that `cons` shows.
    pub(super) fn record(&self) -> Record {
        let state = lock(&self.state);
        Record { queued: state.waiting.len() as u64, paused: state.paused, ..state.record.clone() }
    }

    /// Resets the figures that `cons` shows.
    pub(super) fn reset_record(&self) {
        lock(&self.state).record.reset();
    }

    /// Returns the bytes of the send queue, as charged.
    pub(super) fn out_charged(&self) -> u64 {
        lock(&self.state).out_charged
    }

    /// Makes the connection's task look at the state again.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Queues the answer to Connect.
    pub(super) fn on_connected(&self, port: &Port, now: Instant, reply: &ConnectReply) -> Touched {
        let mut state = lock(&self.state);
        if let (Phase::Connecting { .. }, Ok(timeout_ms @ 1..)) = (state.phase, u32::try_from(reply.timeout_ms)) {
            state.phase = Phase::Established;
            state.timeout = Duration::from_millis(timeout_ms.into());
            state.record.session = reply.session;
            state.record.timeout_ms = reply.timeout_ms;
            state.record.last_operation = "SESS";
            // Requests that arrived behind the handshake may be decoded now.
            self.wake();
        }
        self.push(&mut state, port, now, |out| {
            out.event(|bytes| encode_connect_reply(reply, bytes));
            Answered(0)
        })
    }

    /// Queues the answer to a request.
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
        let mut size = 0;
        let touched = self
            .push(&mut state, port, now, |out| out.answer(|bytes| size = encode_and_measure(xid, zxid, result, bytes)));
        state.learn(port, size, result);
        touched
    }

    /// Queues a watch event.
    pub(super) fn on_event(&self, port: &Port, now: Instant, event: &WatchEvent) -> Touched {
        self.push(&mut lock(&self.state), port, now, |out| {
            out.event(|bytes| encode_event(event, bytes));
            Answered(0)
        })
    }

    /// Reserves the place of an answer that arrives later.
    pub(super) fn on_pending(&self, ticket: u64) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Established {
            state.out.hold(ticket);
        }
    }

    /// Fills the reserved place `ticket` with its answer.
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
        let mut size = 0;
        let touched = self.push(&mut state, port, now, |out| {
            // A closing connection reserves no places, so the ticket can be unknown.
            out.fill(ticket, |bytes| size = encode_and_measure(xid, zxid, result, bytes)).unwrap_or_default()
        });
        state.learn(port, size, result);
        touched
    }

    /// Begins the close: the queue is sent first.
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

    /// Drops the connection and its send queue.
    pub(super) fn give_up(&self, port: &Port, why: CloseReason) {
        self.over(&mut lock(&self.state), port, why);
    }

    /// Writes the queue, after a whole batch of outputs was appended.
    pub(super) fn write_out(&self, port: &Port, now: Instant) {
        let mut state = lock(&self.state);
        state.touched = false;
        self.flush(&mut state, port, now);
        let may_go_on = state.paused && !state.is_congested(&port.settings.limits);
        // With too much queued, the task must set an earlier deadline.
        if may_go_on || state.has_too_much(port) {
            self.wake();
        }
    }

    /// Resumes writing: the socket has room again.
    pub(super) fn unblock(&self, port: &Port) {
        let mut state = lock(&self.state);
        state.write_blocked = false;
        self.flush(&mut state, port, Instant::now());
    }

    /// Ends the connection and releases everything it charged to the budget.
    pub(super) fn end(&self, port: &Port) {
        let mut state = lock(&self.state);
        self.over(&mut state, port, CloseReason::Asked);
        let waiting = std::mem::take(&mut state.waiting);
        (state.waiting_pings, state.expected_bytes) = (0, 0);
        port.traffic.on_released(waiting.len() as u64);
        port.budget.release(Part::Outstanding, waiting.iter().map(|request| u64::from(request.bytes)).sum());
    }

    /// Appends to the send queue, and releases the requests that this answers.
    fn push(
        &self,
        state: &mut MutexGuard<'_, State>,
        port: &Port,
        now: Instant,
        append: impl FnOnce(&mut Outgoing) -> Answered,
    ) -> Touched {
        match state.phase {
            Phase::Connecting { .. } | Phase::Established => {}
            // A reply for a place reserved before the close still goes out.
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
        state.release_answered(port, now, answered);
        if state.turn.is_none() && state.waiting.is_empty() && port.has_turn(self.id) {
            // The output writer wakes the starved connections after the delivery.
            let _ = port.pass_turn(self.id);
        }
        // Bytes behind a reserved place count too: they must be charged before they add up.
        if state.out.queued() as u64 >= state.out_charged + WRITE_BYTES {
            self.flush(state, port, now);
        }
        state.excuse(port, now);
        if let Some(queued) = state.stalled(port, now) {
            self.over(state, port, CloseReason::DoesNotRead(queued));
            return Touched(false);
        }
        state.touch()
    }

    /// Writes until the queue is empty or the socket is full; mostly one system call.
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
                Err(error) => return self.over(state, port, CloseReason::Broken(error.kind())),
            }
        }
        if let Some(buffer) = state.out.give_back() {
            port.give_back_writing(buffer);
        } else {
            state.out.compact();
        }
        state.charge_out(port);
        if matches!(state.phase, Phase::Closing { .. }) && state.out.is_empty() {
            self.wake();
        }
    }

    /// Discards the send queue and marks the connection as over.
    fn over(&self, state: &mut MutexGuard<'_, State>, port: &Port, why: CloseReason) {
        if !matches!(state.phase, Phase::Over(_)) {
            state.phase = Phase::Over(why);
        }
        state.out = Outgoing::default();
        state.write_blocked = false;
        state.charge_out(port);
        self.wake();
    }
}

/// Whether the caller must write the connection's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) struct Touched(pub(super) bool);

impl State {
    fn touch(&mut self) -> Touched {
        let first = !self.touched;
        self.touched = true;
        Touched(first)
    }

    /// Removes the oldest `answered` requests from `waiting`.
    fn release_answered(&mut self, port: &Port, now: Instant, answered: usize) {
        if answered == 0 {
            return;
        }
        let now_us = port.us_since_start(now);
        let mut bytes = 0;
        for _ in 0..answered {
            let Some(request) = self.waiting.pop_front() else { break };
            bytes += u64::from(request.bytes);
            self.expected_bytes -= u64::from(request.expected);
            self.waiting_pings -= usize::from(request.is_ping);
            port.traffic.on_released(1);
            // The batch's time can precede the decoding of a request: the batch was already on its
            // way.
            let latency_us = now_us.saturating_sub(request.decoded_us);
            port.traffic.on_answered(latency_us);
            self.record.on_answered(now_us, latency_us);
        }
        port.budget.release(Part::Outstanding, bytes);
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
    }

    /// Estimates the bytes of the answer to a request.
    ///
    /// Only reads can have large answers, and one segment can carry a thousand reads. Without the
    /// estimate, a client that sends many reads would be dropped for not reading the answers.
    pub(super) fn expect(&self, request: &Request) -> u32 {
        let is_large = matches!(request.class(), Class::Read(read) if read.may_answer_much());
        if is_large { self.read_bytes } else { SMALL_REPLY_BYTES }
    }

    /// Updates the estimate for reads from an answer of `bytes`.
    ///
    /// The estimate grows at once, and shrinks by at most a sixteenth per answer.
    fn learn(&mut self, port: &Port, bytes: usize, result: &Result<Reply, ErrorCode>) {
        if bytes == 0 {
            // The connection was over before the answer came.
            return;
        }
        port.traffic.on_response(bytes);
        if *result == Err(ErrorCode::AuthFailed) {
            port.traffic.on_auth_failed();
        }
        if let Ok(
            Reply::Data(..) | Reply::Names(_) | Reply::NamesStat(..) | Reply::MultiRead(_) | Reply::MultiReadBroken(_),
        ) = result
        {
            let less = self.read_bytes - self.read_bytes / 16;
            self.read_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(less).max(SMALL_REPLY_BYTES);
        }
    }

    /// Whether the send queue exceeds the client's limit while its socket is full.
    pub(super) fn has_too_much(&self, port: &Port) -> bool {
        self.write_blocked && self.out.queued() > port.settings.limits.outbound_bytes_max as usize
    }

    /// Returns the queued bytes when a client over its limit took none for [`STALL`].
    ///
    /// One large answer to a client that keeps reading is within the rules.
    pub(super) fn stalled(&self, port: &Port, now: Instant) -> Option<usize> {
        let stalled = self.has_too_much(port) && now.duration_since(self.progress) >= STALL;
        stalled.then(|| self.out.queued())
    }

    /// Charges the bytes queued now.
    fn charge_out(&mut self, port: &Port) {
        port.budget.recharge(Part::Outbound, &mut self.out_charged, self.out.bytes() as u64);
    }
}

/// Appends a reply; returns its length in bytes.
fn encode_and_measure(xid: i32, zxid: i64, result: &Result<Reply, ErrorCode>, out: &mut BytesMut) -> usize {
    let before = out.len();
    encode_reply(xid, zxid, result, out);
    out.len() - before
}
