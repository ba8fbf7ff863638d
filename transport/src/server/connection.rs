//! One client connection: what is queued to it, and what it still waits for.

use super::ending::Why;
use super::lock;
use super::outgoing::{Answered, Outgoing};
use super::port::Port;
use super::record::Record;
use crate::wire::{encode_connect_reply, encode_event, encode_reply};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use zoolet_engine::ConnId;
use zoolet_engine::budget::Part;
use zoolet_model::{ConnectReply, ErrorCode, Reply, Request, WatchEvent};

/// Bytes that are written before more is encoded.
const WRITE_BYTES: u64 = 64 << 10;
/// What a reply takes that is no list and no data.
const SMALL_REPLY_BYTES: u32 = 128;
/// What the answers to a client's reads are taken to be before there was one.
const FIRST_READ_BYTES: u32 = 64 << 10;
/// A client that has more than its share waiting and took nothing for this long does not read.
pub(super) const STALL: Duration = Duration::from_millis(500);

/// A connection that has sent Connect.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) peer: SocketAddr,
    pub(super) write: OwnedWriteHalf,
    /// Something changed that the connection's task must look at.
    pub(super) wake: Notify,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) out: Outgoing,
    /// Bytes of `out` charged to the budget.
    out_charged: u64,
    /// The socket takes no more; the task waits for it.
    pub(super) write_blocked: bool,
    /// Requests submitted and not answered, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// Bytes their answers will take, as far as one can tell.
    pub(super) expected_bytes: u64,
    /// What an answer to a read took lately.
    read_bytes: u32,
    /// The client is not listened to, because too much of it waits already.
    pub(super) paused: bool,
    /// Since when the next whole request has to wait.
    pub(super) held_up: Option<Instant>,
    /// Since when it is its turn to read on while all together have too much, until its request is whole.
    pub(super) turn: Option<Instant>,
    /// In the list of those whose output is to be written.
    touched: bool,
    /// When the client last took bytes, or when bytes began to wait.
    pub(super) progress: Instant,
    pub(super) timeout: Duration,
    pub(super) record: Record,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Connect is with the machine. `excused` once we ourselves were the reason that it took too long.
    Connecting { since: Instant, excused: bool },
    /// It has a session.
    Established,
    /// What is queued is sent, then it closes.
    Closing { since: Instant },
    /// Nothing is sent or read any more.
    Over(Why),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Microseconds since the port's start.
    pub(super) decoded_us: u64,
    /// Charged to the budget.
    pub(super) bytes: u32,
    /// Part of `expected_bytes`.
    pub(super) expected: u32,
}

impl Connection {
    pub(super) fn new(id: ConnId, peer: SocketAddr, write: OwnedWriteHalf) -> Self {
        let now = Instant::now();
        let state = State {
            phase: Phase::Connecting { since: now, excused: false },
            out: Outgoing::default(),
            out_charged: 0,
            write_blocked: false,
            waiting: VecDeque::new(),
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

    /// What `cons` shows.
    pub(super) fn record(&self) -> Record {
        let state = lock(&self.state);
        Record { queued: state.waiting.len() as u64, paused: state.paused, ..state.record.clone() }
    }

    /// Counts anew what `cons` shows.
    pub(super) fn reset_record(&self) {
        lock(&self.state).record.reset();
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
        let mut size = 0;
        let touched = self
            .push(&mut state, port, now, |out| out.answer(|bytes| size = encode_and_measure(xid, zxid, result, bytes)));
        state.learn(port, size, result);
        touched
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
        let mut size = 0;
        let touched = self.push(&mut state, port, now, |out| {
            // A connection that is closing keeps no place for what comes later.
            out.fill(ticket, |bytes| size = encode_and_measure(xid, zxid, result, bytes)).unwrap_or_default()
        });
        state.learn(port, size, result);
        touched
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
        let may_go_on = state.paused && !state.is_congested(&port.settings.limits);
        // With too much queued there is an earlier deadline.
        if may_go_on || state.has_too_much(port) {
            self.wake();
        }
    }

    /// The socket has room again.
    pub(super) fn unblock(&self, port: &Port) {
        let mut state = lock(&self.state);
        state.write_blocked = false;
        self.flush(&mut state, port, Instant::now());
    }

    /// The end: nothing is owed to the budget any more.
    pub(super) fn end(&self, port: &Port) {
        let mut state = lock(&self.state);
        self.over(&mut state, port, Why::Asked);
        let waiting = std::mem::take(&mut state.waiting);
        state.expected_bytes = 0;
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
        if state.turn.is_none() && state.waiting.is_empty() && port.has_turn(self.id) {
            // Whoever brought the answer feeds the starved.
            let _ = port.pass_turn(self.id);
        }
        // Held bytes count too: they must be charged before there are many.
        if state.out.queued() as u64 >= state.out_charged + WRITE_BYTES {
            self.flush(state, port, now);
        }
        state.excuse(port, now);
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
        } else {
            state.out.compact();
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
            self.expected_bytes -= u64::from(request.expected);
            port.traffic.on_settled(1);
            // The batch's time can be a little before a request that was decoded while the batch was on its way.
            let latency_us = now_us.saturating_sub(request.decoded_us);
            port.traffic.on_answered(latency_us);
            self.record.on_answered(now_us, latency_us);
        }
        port.budget.release(Part::Outstanding, bytes);
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
    }

    /// What the answer to a request will take. Only reads can be answered with much, and a thousand of them can come
    /// in one segment: guessing is what keeps a client that reads everything from being dropped as one that does not.
    pub(super) fn expect(&self, request: &Request) -> u32 {
        match request {
            Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::GetEphemerals { .. }
            | Request::MultiRead(_) => self.read_bytes,
            Request::Write(_)
            | Request::Multi(_)
            | Request::Exists { .. }
            | Request::GetAcl { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::Auth { .. }
            | Request::Sasl
            | Request::WhoAmI
            | Request::SetWatches(_)
            | Request::AddWatch { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::Reconfig
            | Request::CloseSession
            | Request::Malformed { .. }
            | Request::Unknown => SMALL_REPLY_BYTES,
        }
    }

    /// An answer took so much. If it was to a read, that is believed at once when it is more than before, and slowly
    /// when it is less.
    fn learn(&mut self, port: &Port, bytes: usize, result: &Result<Reply, ErrorCode>) {
        if bytes == 0 {
            // It came too late for a connection that is over.
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

    /// Whether more is queued than one client may have, and it is the client that does not take it.
    pub(super) fn has_too_much(&self, port: &Port) -> bool {
        self.write_blocked && self.out.queued() > port.settings.limits.outbound_bytes_max as usize
    }

    /// How much is queued, when that is too much and the client took none of it for a while. One large answer to a
    /// client that reads is no offence.
    pub(super) fn stalled(&self, port: &Port, now: Instant) -> Option<usize> {
        let stalled = self.has_too_much(port) && now.duration_since(self.progress) >= STALL;
        stalled.then(|| self.out.queued())
    }

    /// Charges what is queued now.
    fn charge_out(&mut self, port: &Port) {
        port.budget.recharge(Part::Outbound, &mut self.out_charged, self.out.bytes() as u64);
    }
}

/// Appends a reply; says how many bytes it took.
fn encode_and_measure(xid: i32, zxid: i64, result: &Result<Reply, ErrorCode>, out: &mut BytesMut) -> usize {
    let before = out.len();
    encode_reply(xid, zxid, result, out);
    out.len() - before
}
