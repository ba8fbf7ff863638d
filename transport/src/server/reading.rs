//! What is read from a connection, and when: flow control.

use super::connection::{Connection, Phase, STALL, State, Waiting};
use super::ending::Why;
use super::inbound::{Inbound, LOOKAHEAD_BYTES, Ping, READ_BYTES_MAX};
use super::life::is_late;
use super::lock;
use super::port::{Deliveries, Port};
use super::record::operation;
use crate::wire::{DecodeOptions, decode_request};
use std::time::{Duration, Instant};
use zoolet_engine::budget::Part;
use zoolet_engine::{Event, Limits};
use zoolet_model::{AskedAcl, Request, Text, WriteOp};

/// A large request must be whole within this time when it is its turn while others wait for room.
const TURN: Duration = Duration::from_secs(1);

/// What the task waits for next.
pub(super) struct Plan {
    /// Bytes to read at most; 0 to read nothing.
    pub(super) read_bytes: usize,
    /// Whether to wait for room in the socket.
    pub(super) write: bool,
    /// When to look again although nothing happened.
    pub(super) deadline: Option<Instant>,
}

/// How far the decoding came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decoded {
    /// What is left is no whole frame.
    All,
    /// The next frame is whole and may not be admitted now.
    OneMustWait,
}

impl Connection {
    /// Decodes what may be decoded, and submits it in one call.
    pub(super) fn decode(&self, port: &Port, inbound: &mut Inbound) -> Result<Decoded, Why> {
        let mut result = Ok(Decoded::All);
        if inbound.len() == 0 {
            return result;
        }
        // From here the bytes count as requests.
        inbound.uncharge();
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
                Ping::No => {
                    let may_hold = port.may_hold(next.bytes, state.waiting.is_empty()) || port.has_turn(self.id);
                    may_hold && !state.is_congested(limits)
                }
            };
            if !admitted {
                // Its turn comes when there is room; who only pings must not lose its session meanwhile. Until then pings keep their
                // place among the requests, as in ZooKeeper.
                state.held_up.get_or_insert(now);
                while state.is_held_up(now)
                    && state.waiting.len() < 2 * limits.outstanding_max as usize
                    && let Some(xid) = inbound.take_ping(frame_bytes_max)
                {
                    state.admit(port, decoded_us, 12, &Request::Ping);
                    events.push(Event::Request { conn: self.id, xid, request: Request::Ping });
                }
                break Ok(Decoded::OneMustWait);
            }
            let Ok((xid, request)) = decode_request(inbound.take(next), &DecodeOptions::default()) else {
                break Err(Why::TooShort);
            };
            state.admit(port, decoded_us, held_bytes(next.bytes, &request), &request);
            // What is whole has no deadline any more.
            state.turn = None;
            state.held_up = None;
            state.record.last_operation = operation(&request);
            state.record.last_xid = xid;
            events.push(Event::Request { conn: self.id, xid, request });
        };
        let count = (events.len() - before) as u64;
        if count > 0 {
            state.record.received += count;
            port.traffic.on_received(count);
            port.traffic.on_outstanding(count);
        }
        result
    }

    /// What to wait for, or why it is over.
    ///
    /// `seen` is from before the decoding.
    pub(super) fn plan(&self, port: &Port, inbound: &Inbound, decoded: Decoded, seen: Deliveries) -> Result<Plan, Why> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let lookahead = LOOKAHEAD_BYTES.saturating_sub(inbound.len());
        state.excuse(port, now);
        let mut passed = false;
        let (read_bytes, ends) = match state.phase {
            Phase::Over(why) => return Err(why),
            Phase::Closing { .. } if state.out.is_empty() => return Err(Why::Asked),
            Phase::Closing { since } => (0, Some((since + port.linger(), Why::Lingered))),
            // Nothing is decoded before the answer; reading shows when the client leaves.
            Phase::Connecting { since, .. } => (lookahead, Some((since + port.handshake_timeout(), Why::Sessionless))),
            Phase::Established => {
                passed = state.listen(port, self, inbound, decoded, seen);
                if decoded == Decoded::OneMustWait && state.turn.is_some() {
                    // It is whole, and may be admitted now.
                    self.wake();
                }
                let read_bytes = if state.paused { lookahead } else { READ_BYTES_MAX };
                // Who does not take what is queued to it is gone, whatever it still says. Who says nothing is not ours to
                // judge: the machine closes it when its session expires, and knows when a pause of ours is the reason.
                let unread = || (state.progress + state.timeout, Why::DoesNotRead(state.out.queued()));
                let unfinished = state.turn.map(|since| (since + TURN, Why::HoldsUp(inbound.len())));
                (read_bytes, state.write_blocked.then(unread).or(unfinished))
            }
        };
        if let Some((deadline, why)) = ends
            && now >= deadline
        {
            return Err(why);
        }
        if let Some(queued) = state.stalled(port, now) {
            return Err(Why::DoesNotRead(queued));
        }
        let deadline = ends.map(|(deadline, _)| deadline);
        let pings = state.held_up.map(|since| since + state.ping_patience()).filter(|pings| *pings > now);
        let stall = state.has_too_much(port).then(|| state.progress + STALL);
        let deadline = deadline.into_iter().chain(stall).chain(pings).min();
        let write = state.write_blocked;
        drop(state);
        if passed {
            port.feed_starved();
        }
        Ok(Plan { read_bytes, write, deadline })
    }
}

impl State {
    /// When it was we who stood still, the client has the whole time once more: for its session, for taking what is queued to it, for the
    /// rest of a request.
    pub(super) fn excuse(&mut self, port: &Port, now: Instant) {
        let to_take_some = if self.has_too_much(port) { STALL } else { self.timeout };
        if self.write_blocked && is_late(self.progress + to_take_some, now) {
            self.progress = now;
        }
        if self.turn.is_some_and(|since| is_late(since + TURN, now)) {
            self.turn = Some(now);
        }
        if let Phase::Connecting { since, excused: false } = self.phase
            && is_late(since + port.handshake_timeout(), now)
        {
            self.phase = Phase::Connecting { since: now, excused: true };
        }
    }

    /// How long a request may have to wait before the pings behind it are answered: half the time between two pings of a client, which
    /// gives its server up after two unanswered ones.
    fn ping_patience(&self) -> Duration {
        self.timeout / 6
    }

    /// Whether the next request has waited for so long that the session needs its pings answered.
    fn is_held_up(&self, now: Instant) -> bool {
        self.held_up.is_some_and(|since| now >= since + self.ping_patience())
    }

    /// A request is submitted.
    fn admit(&mut self, port: &Port, decoded_us: u64, bytes: usize, request: &Request) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let expected = self.expect(request);
        port.budget.charge(Part::Outstanding, bytes.into());
        self.expected_bytes += u64::from(expected);
        self.waiting.push_back(Waiting { decoded_us, bytes, expected });
    }

    /// Whether this client has so much waiting that its requests are not read. Once paused, it has to come down well
    /// below the bounds before it is listened to again. What its requests will be answered with counts as queued.
    pub(super) fn is_congested(&self, limits: &Limits) -> bool {
        let (requests, bytes) = (limits.outstanding_max as usize, limits.outbound_bytes_max as usize / 4);
        let (requests, bytes) = if self.paused { (requests * 3 / 4, bytes / 2) } else { (requests, bytes) };
        let queued = self.out.queued() as u64 + self.expected_bytes;
        self.waiting.len() >= requests.max(1) || queued > bytes as u64
    }

    /// Decides whether to read it, or only to look ahead for pings. Whether it has passed its turn on.
    fn listen(
        &mut self,
        port: &Port,
        connection: &Connection,
        inbound: &Inbound,
        decoded: Decoded,
        seen: Deliveries,
    ) -> bool {
        let id = connection.id;
        let congested = self.is_congested(&port.settings.limits);
        // Everybody may have a small request in flight; more only while the sum allows it.
        let mut starved = decoded == Decoded::OneMustWait
            || port.budget.is_full(Part::Outstanding) && (!self.waiting.is_empty() || inbound.wants_much());
        // Who has requests in flight goes on when they are answered.
        let mut passed = false;
        if starved && !congested && self.waiting.is_empty() && port.take_turn(id) {
            self.turn.get_or_insert_with(Instant::now);
            starved = false;
        } else if self.turn.take().is_some() {
            // There is room for everybody again.
            passed = port.pass_turn(id);
        }
        if starved && !congested && !port.starve(id, seen) {
            connection.wake();
        }
        self.paused = congested || starved;
        passed
    }
}

/// What one read of a multiRead holds while the records of all of them are gathered.
const READ_BYTES: usize = 128;

/// What a decoded request holds: its frame, the vectors made from it, and what it takes to carry out.
fn held_bytes(frame_bytes: usize, request: &Request) -> usize {
    let acl = |acl: &Option<AskedAcl>| acl.as_deref().map_or(0, size_of_val);
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
            Request::MultiRead(reads) => size_of_val(reads.as_slice()) + reads.len() * READ_BYTES,
            Request::SetWatches(watches) => {
                [&watches.data, &watches.exist, &watches.child, &watches.persistent, &watches.persistent_recursive]
                    .into_iter()
                    .map(texts)
                    .sum()
            }
            _ => 0,
        }
}
