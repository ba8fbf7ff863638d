//! Flow control: what is read from a connection, and when.

use super::close_reason::CloseReason;
use super::connection::{Connection, Phase, STALL, State, Waiting};
use super::connection_figures::operation;
use super::connection_task::is_late;
use super::inbound::{Inbound, LOOKAHEAD_BYTES, Ping, READ_BYTES_MAX};
use super::listener::{Deliveries, Port};
use super::lock;
use crate::wire::{DecodeOptions, decode_request};
use std::time::{Duration, Instant};
use zoolet_machine::budget::{Part, REQUEST_BYTES};
use zoolet_machine::{Event, Limits};
use zoolet_model::{AskedAcl, Class, Read, Request, Text, WriteOp};

/// Number of a connection's pings that are admitted even at `outstanding_bytes_max`.
///
/// A client gives up its server after two unanswered pings.
const FREE_PINGS: usize = 4;

/// Bytes of a ping's frame.
const PING_BYTES: usize = 12;

/// Time limit for a large request to become complete during its turn.
const TURN: Duration = Duration::from_secs(1);

/// The next wait of a connection's task.
pub(super) struct Plan {
    /// Maximum bytes to read; 0 to read nothing.
    pub(super) read_bytes: usize,
    /// Whether to wait until the socket is writable.
    pub(super) write: bool,
    /// When to look again even if nothing happens.
    pub(super) deadline: Option<Instant>,
}

/// How far the decoding came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decoded {
    /// No complete frame is left.
    All,
    /// The next frame is complete but may not be admitted now.
    OneMustWait,
}

impl Connection {
    /// Decodes the requests that may be admitted, and submits them in one call.
    pub(super) fn decode(&self, port: &Port, inbound: &mut Inbound) -> Result<Decoded, CloseReason> {
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
    ) -> Result<Decoded, CloseReason> {
        let limits = &port.settings.limits;
        let frame_bytes_max = limits.frame_bytes_max as usize;
        let now = Instant::now();
        let decoded_us = port.us_since_start(now);
        let options = DecodeOptions { extended_types: port.settings.ttl_znodes };
        let before = events.len();
        let result = loop {
            let next = match inbound.next(frame_bytes_max) {
                Ok(Some(next)) => next,
                Ok(None) => break Ok(Decoded::All),
                Err(error) => break Err(CloseReason::BadFrame(error)),
            };
            let admitted = match next.ping {
                Ping::Answered => {
                    inbound.take(next);
                    continue;
                }
                Ping::Unanswered => state.may_ping(port),
                Ping::No => {
                    let may_hold = port.may_hold(next.bytes, state.waiting.is_empty()) || port.has_turn(self.id);
                    may_hold && !state.is_congested(limits)
                }
            };
            if !admitted {
                // The frame is admitted when there is room. Until then, a client that only pings
                // must not lose its session. Pings keep their place among the requests, as in
                // ZooKeeper, until the frame has been held back for too long. Then they are
                // submitted ahead of it.
                state.held_up.get_or_insert(now);
                while state.is_held_up(now)
                    && state.may_ping(port)
                    && let Some(xid) = inbound.take_ping(frame_bytes_max)
                {
                    state.admit(port, decoded_us, PING_BYTES, &Request::Ping);
                    events.push(Event::Request { conn: self.id, xid, request: Request::Ping });
                }
                break Ok(Decoded::OneMustWait);
            }
            let Ok((xid, request)) = decode_request(inbound.take(next), &options) else {
                break Err(CloseReason::TooShort);
            };
            state.admit(port, decoded_us, held_bytes(next.bytes, &request), &request);
            // A complete request has no deadline any more.
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

    /// Returns what to wait for next, or why the connection is over.
    ///
    /// `seen` was taken before the decoding.
    pub(super) fn plan(
        &self,
        port: &Port,
        inbound: &Inbound,
        decoded: Decoded,
        seen: Deliveries,
    ) -> Result<Plan, CloseReason> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let lookahead = LOOKAHEAD_BYTES.saturating_sub(inbound.len());
        state.excuse(port, now);
        let mut passed = false;
        let (read_bytes, ends) = match state.phase {
            Phase::Over(why) => return Err(why),
            Phase::Closing { .. } if state.out.is_empty() => return Err(CloseReason::Asked),
            Phase::Closing { since } => {
                // The rest of its request is not read.
                passed = port.pass_turn(self.id);
                (0, Some((since + port.linger(), CloseReason::Lingered)))
            }
            // Nothing is decoded before the answer to Connect. Reading shows when the client
            // leaves.
            Phase::Connecting { since, .. } => {
                (lookahead, Some((since + port.handshake_timeout(), CloseReason::Sessionless)))
            }
            Phase::Established => {
                passed = state.listen(port, self, inbound, decoded, seen);
                if decoded == Decoded::OneMustWait && state.turn.is_some() {
                    // The frame is complete, and the turn permits its admission now.
                    self.wake();
                }
                let read_bytes = if state.paused { lookahead } else { READ_BYTES_MAX };
                // A client that takes no bytes is dropped, even if it still sends. The port does
                // not judge a silent client. The engine closes that one when its session expires,
                // and knows whether a stall of this process was the reason.
                let unread = || (state.progress + state.timeout, CloseReason::DoesNotRead(state.out.queued()));
                let unfinished = state.turn.map(|since| (since + TURN, CloseReason::HoldsUp(inbound.len())));
                let unread = state.write_blocked.then(unread);
                (read_bytes, unread.into_iter().chain(unfinished).min_by_key(|(deadline, _)| *deadline))
            }
        };
        if let Some((deadline, why)) = ends
            && now >= deadline
        {
            return Err(why);
        }
        if let Some(queued) = state.stalled(port, now) {
            return Err(CloseReason::DoesNotRead(queued));
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
    /// Restarts the client's deadlines if this process stood still.
    ///
    /// The deadlines are for the session, for taking queued bytes and for the rest of a request.
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

    /// Maximum time to hold back a frame before later pings are answered.
    ///
    /// That is half a client's ping interval. A client gives up its server after two unanswered
    /// pings.
    fn ping_patience(&self) -> Duration {
        self.timeout / 6
    }

    /// Whether a frame was held back for longer than [`State::ping_patience`].
    fn is_held_up(&self, now: Instant) -> bool {
        self.held_up.is_some_and(|since| now >= since + self.ping_patience())
    }

    /// Whether one more ping may be admitted.
    fn may_ping(&self, port: &Port) -> bool {
        self.waiting.len() < 2 * port.settings.limits.outstanding_max as usize
            && (self.waiting_pings < FREE_PINGS || port.may_hold(PING_BYTES, false))
    }

    /// Charges a submitted request and adds it to `waiting`.
    fn admit(&mut self, port: &Port, decoded_us: u64, bytes: usize, request: &Request) {
        let bytes = u32::try_from(bytes + REQUEST_BYTES).unwrap_or(u32::MAX);
        let expected = self.expect(request);
        let is_ping = matches!(request, Request::Ping);
        self.waiting_pings += usize::from(is_ping);
        port.budget.charge(Part::Outstanding, bytes.into());
        self.expected_bytes += u64::from(expected);
        self.waiting.push_back(Waiting { decoded_us, bytes, expected, is_ping });
    }

    /// Whether so much waits for this client that its requests are not read.
    ///
    /// The expected bytes of answers count as queued. A paused connection must come well below the
    /// bounds before it is read again.
    pub(super) fn is_congested(&self, limits: &Limits) -> bool {
        let (requests, bytes) = (limits.outstanding_max as usize, limits.outbound_bytes_max as usize / 4);
        let (requests, bytes) = if self.paused { (requests * 3 / 4, bytes / 2) } else { (requests, bytes) };
        let queued = self.out.queued() as u64 + self.expected_bytes;
        self.waiting.len() >= requests.max(1) || queued > bytes as u64
    }

    /// Decides between reading and looking ahead for pings; returns whether it passed on its turn.
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
        // Each connection may have a small request in flight. More needs room in the limit of all.
        let mut starved = decoded == Decoded::OneMustWait
            || port.budget.is_full(Part::Outstanding) && (!self.waiting.is_empty() || inbound.wants_much());
        // Only a connection without requests in flight needs the turn. Any other goes on when its
        // requests are answered.
        let mut passed = false;
        if starved && !congested && self.waiting.is_empty() && port.take_turn(id) {
            self.turn.get_or_insert_with(Instant::now);
            starved = false;
        } else if self.turn.take().is_some() {
            // The connection does not need the turn any more.
            passed = port.pass_turn(id);
        }
        if starved && !congested && !port.starve(id, seen) {
            connection.wake();
        }
        self.paused = congested || starved;
        passed
    }
}

/// Bytes held per read of a multiRead until all its records are gathered.
const READ_BYTES: usize = 128;

/// Returns the bytes held for a decoded request: frame, vectors and working memory.
fn held_bytes(frame_bytes: usize, request: &Request) -> usize {
    let acl = |acl: &Option<AskedAcl>| acl.as_deref().map_or(0, size_of_val);
    let write = |operation: &WriteOp| match operation {
        WriteOp::Create(create) => acl(&create.acl),
        WriteOp::SetAcl { acl: entries, .. } => acl(entries),
        WriteOp::Delete { .. } | WriteOp::SetData { .. } | WriteOp::Check { .. } => 0,
    };
    let texts = |texts: &Vec<Text>| size_of_val(texts.as_slice());
    frame_bytes
        + match request.class() {
            Class::Write(operation) => write(operation),
            Class::Multi(operations) => size_of_val(operations) + operations.iter().map(write).sum::<usize>(),
            Class::Read(Read::MultiRead(reads)) => size_of_val(reads) + reads.len() * READ_BYTES,
            Class::SetWatches(watches) => {
                [&watches.data, &watches.exist, &watches.child, &watches.persistent, &watches.persistent_recursive]
                    .into_iter()
                    .map(texts)
                    .sum()
            }
            Class::Read(
                Read::Exists { .. }
                | Read::GetData { .. }
                | Read::GetChildren { .. }
                | Read::GetAcl { .. }
                | Read::GetEphemerals { .. }
                | Read::GetAllChildrenNumber { .. }
                | Read::GetTtl { .. },
            )
            | Class::CloseSession
            | Class::Refusal(_)
            | Class::Sync
            | Class::Ping
            | Class::Watches
            | Class::Identities
            | Class::Malformed
            | Class::Unknown => 0,
        }
}
