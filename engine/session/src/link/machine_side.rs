//! The machine's side: connections, and the delivery of answers and watch events in order.

use super::super::slots::SlotId;
use super::{Answer, BEHIND_MAX, Behind, Link, State, Wakers, XID_END, XID_PING, XID_UNHEARD, XID_WATCHES};
use crate::errands::Errands;
use crate::liveness::{self, Shows, Sign};
use crate::lock;
use crate::watchdog::Watchdog;
use bytes::Bytes;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;
use zoolet_machine::ConnId;
use zoolet_model::{
    ConnectReply, ConnectRequest, ErrorCode, LostReason, Reply, Request, RequestError, SessionState, WatchEvent,
};

impl Link {
    /// Returns the first message of a new connection.
    ///
    /// Returns `None` if the session is over, unless its end must still be sent.
    pub fn dial(&self) -> Option<ConnectRequest> {
        let mut state = lock(&self.state);
        // A session that was closed without a connection is closed on the next one, unless the
        // server never created it.
        let is_to_be_closed = state.closing && state.secret.is_some();
        if state.session_state.is_over() && !is_to_be_closed {
            return None;
        }
        // Requests are sent only once the session is connected.
        state.conn = None;
        (state.end_xid, state.is_reader) = (None, false);
        Some(ConnectRequest {
            last_zxid_seen: state.last_zxid,
            timeout_ms: i32::try_from(state.timeout_ms).unwrap_or(i32::MAX),
            session: state.session,
            password: state.secret.map(|secret| Bytes::copy_from_slice(&secret.0)),
            read_only: Some(state.may_read_only && !state.closing),
        })
    }

    /// Handles the machine's answer to the first message of a connection.
    ///
    /// Returns the requests to send before any other.
    pub fn connected(&self, conn: ConnId, reply: &ConnectReply) -> Vec<(i32, Request)> {
        let mut state = lock(&self.state);
        if reply.timeout_ms <= 0 {
            state.is_end_due = false;
            let wakers = state.end(SessionState::Lost(LostReason::Expired));
            drop(state);
            wakers.wake();
            return Vec::new();
        }
        state.conn = Some(conn);
        // The server may refuse to register the watches again.
        state.gaps += 1;
        state.timeout_ms = reply.timeout_ms.unsigned_abs();
        state.outdated_since =
            reply.read_only_ms.map(|ms| self.environment.now().saturating_sub(Duration::from_millis(ms)));
        let is_read_only = state.outdated_since.is_some();
        state.is_reader = is_read_only;
        if !is_read_only {
            // A session that exists for reading only is never continued.
            state.session = reply.session;
            state.secret = Some(reply.secret);
        }
        if state.session_state.is_over() {
            return state.first_of_end();
        }
        let mut first = state.first_auths();
        let mut wakers = state.ask_for_missed(|xid, request| first.push((xid, request)));
        // These go before any request that the owner makes from now on.
        if !is_read_only {
            state.errands.send_left(|xid, request| first.push((xid, request)));
        }
        if !std::mem::replace(&mut state.opened, true) {
            // Start the watchdog now: before this the owner had no session to touch.
            self.touch();
        }
        let next = if is_read_only { SessionState::ReadOnly } else { SessionState::Connected };
        wakers.append(state.become_state(next));
        drop(state);
        wakers.wake();
        first
    }

    /// Returns a ping to send now, and sends postponed work with it.
    ///
    /// Returns `None` while the session is not connected.
    pub fn ping(&self) -> Option<(i32, Request)> {
        let mut state = lock(&self.state);
        let conn = state.conn?;
        let mut wakers = Wakers::default();
        if !state.closing {
            let mut send = |xid, request| self.sink.request(conn, xid, request);
            if state.missed_since.is_some() && state.asked_missed == 0 && !state.behind_overflowed {
                // The server had no room for the watches.
                wakers = state.ask_for_missed(&mut send);
            }
            if state.outdated_since.is_none() {
                state.errands.send_left(send);
            }
        }
        let (request, shows) =
            liveness::ping(Duration::from_millis(state.timeout_ms.into()), self.environment.liveness_delay_max());
        let (unanswered, first) = state.pinged.unwrap_or_else(|| (0, Sign { sent: self.environment.now(), shows }));
        state.pinged = Some((unanswered + 1, first));
        drop(state);
        wakers.wake();
        Some((XID_PING, request))
    }

    /// Delivers an answer, in order.
    pub fn reply(&self, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        let mut state = lock(&self.state);
        let wakers = if state.behind.is_empty() {
            state.deliver_reply(self, xid, zxid, result)
        } else {
            state.behind.push_back(Behind::Reply { xid, zxid, result });
            Wakers::default()
        };
        drop(state);
        wakers.wake();
    }

    /// Marks the place of an answer completed off the core. Later items wait behind it.
    pub fn pending(&self, conn: ConnId, xid: i32) {
        let mut state = lock(&self.state);
        if state.conn == Some(conn) {
            state.behind.push_back(Behind::Pending { xid });
        }
    }

    /// Delivers an answer completed off the core.
    ///
    /// It may arrive after its connection has ended, when the next connection uses the same xid for
    /// another request. So `conn` must match.
    pub fn filled(&self, conn: ConnId, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        let mut state = lock(&self.state);
        if state.conn != Some(conn) {
            return;
        }
        let place =
            state.behind.iter_mut().find(|waiting| matches!(waiting, Behind::Pending { xid: other } if *other == xid));
        let Some(place) = place else { return };
        *place = Behind::Reply { xid, zxid, result };
        let wakers = state.deliver_behind(self);
        drop(state);
        wakers.wake();
    }

    /// Delivers a watch event, in order.
    pub fn notify(&self, event: WatchEvent) {
        let mut state = lock(&self.state);
        let wakers = if state.behind.is_empty() {
            state.deliver_event(&event)
        } else {
            if state.behind.len() < BEHIND_MAX {
                state.behind.push_back(Behind::Notify(event));
            } else {
                // The dropped event came after every answer that was delivered.
                state.missed_since = state.missed_since.or(Some(state.last_zxid));
                state.behind_overflowed = true;
                state.gaps += 1;
            }
            Wakers::default()
        };
        drop(state);
        wakers.wake();
    }

    /// Handles that the machine closed the connection; returns whether to reconnect.
    pub fn closed(&self) -> bool {
        let mut state = lock(&self.state);
        let is_over = state.session_state.is_over();
        let wakers = match is_over {
            false => state.suspend(),
            true if state.is_end_due => state.leave(),
            true => state.end(SessionState::Closed),
        };
        let again = !is_over || state.is_end_due;
        drop(state);
        wakers.wake();
        again
    }

    /// Ends the session: the node is gone.
    pub fn lost(&self, reason: LostReason) {
        let mut state = lock(&self.state);
        let wakers = state.end(SessionState::Lost(reason));
        drop(state);
        wakers.wake();
    }
}

/// The watchdog.
impl Link {
    /// Closes the session from now on if its owner does not touch it for `patience`.
    pub fn watch_over(self: &Arc<Self>, patience: Duration) {
        let watchdog = self.watchdog.get_or_init(|| Watchdog::new(patience));
        watchdog.touch(self.environment.now());
        self.look_at_watchdog();
    }

    pub(crate) fn touch(&self) {
        if let Some(watchdog) = self.watchdog.get() {
            watchdog.touch(self.environment.now());
        }
    }

    /// Checks the watchdog: closes the session, or sets a timer for the next check.
    fn look_at_watchdog(self: &Arc<Self>) {
        let Some(watchdog) = self.watchdog.get() else { return };
        let (is_over, opened) = {
            let state = lock(&self.state);
            (state.session_state.is_over(), state.opened)
        };
        if is_over {
            return watchdog.rest();
        }
        if !opened {
            watchdog.touch(self.environment.now());
        }
        if watchdog.is_due_or_waits(&self.environment, || Waker::from(Arc::new(Alarm(Arc::downgrade(self))))) {
            self.close_untouched();
        }
    }

    /// Closes the session, and also fails the requests in flight.
    fn close_untouched(&self) {
        let untouched = SessionState::Lost(LostReason::Untouched);
        let mut state = lock(&self.state);
        let mut wakers = self.close_as(&mut state, untouched);
        wakers.append(state.end(untouched));
        drop(state);
        wakers.wake();
    }
}

impl State {
    /// Returns the requests that end a session which was over before its connection began.
    fn first_of_end(&mut self) -> Vec<(i32, Request)> {
        if self.conn_for_end().is_none() {
            return Vec::new();
        }
        let mut first = self.first_auths();
        if !self.is_reader {
            self.is_end_due = true;
            self.errands.send_left(|xid, request| first.push((xid, request)));
        }
        self.end_xid = Some(XID_END);
        first.push((XID_END, Request::CloseSession));
        first
    }

    /// Returns the requests that identify the owner on a new connection.
    fn first_auths(&self) -> Vec<(i32, Request)> {
        let auths = self.auths.iter().cloned();
        auths.map(|(scheme, auth)| (XID_UNHEARD, Request::Auth { scheme: Some(scheme), auth: Some(auth) })).collect()
    }

    fn deliver_reply(&mut self, link: &Link, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) -> Wakers {
        if self.end_xid == Some(xid) && result.is_ok() {
            self.is_end_due = false;
        }
        if self.conn.is_none() {
            // The session ended on this side while the request was in flight. Its waiter was
            // already told.
            return Wakers::default();
        }
        self.last_zxid = self.last_zxid.max(zxid);
        let result = result.and_then(|reply| reply.error().map_or(Ok(reply), Err));
        let auth_failed = result == Err(ErrorCode::AuthFailed);
        let mut wakers = Wakers::default();
        if Errands::has_xid(xid) {
            self.on_errand(link, xid, &result);
        } else if xid == XID_PING {
            self.on_pong(link, result.is_ok());
        } else if xid == XID_WATCHES {
            self.on_missed(result.is_ok());
        }
        if let Some(slot) = SlotId::of_xid(xid) {
            // A server that refuses a request may have done so without asking the leader.
            let sign = self.slots.sign_of(slot).map(|sign| match result {
                Ok(_) => sign,
                Err(_) => Sign { shows: Shows::Nothing, ..sign },
            });
            self.shows_life(link, sign);
            if let Some(watch) = self.slots.watch_of(slot) {
                match &result {
                    Ok(_) => self.watches.activate(watch, true),
                    // Only `exists` may watch a missing znode.
                    Err(ErrorCode::NoNode) => self.watches.activate(watch, false),
                    Err(_) => {}
                }
            }
            let answer = result.map(|reply| Answer { zxid, reply }).map_err(RequestError::Refused);
            wakers.add(self.slots.fill(slot, answer));
            wakers.append(link.send_queued(self));
        }
        if auth_failed {
            // Every further connection would fail alike, and would let the session live on.
            self.is_end_due = false;
            wakers.append(self.end(SessionState::AuthFailed));
        }
        wakers
    }

    fn on_errand(&mut self, link: &Link, xid: i32, result: &Result<Reply, ErrorCode>) {
        // Nothing is carried out after the end of the session.
        let conn = self.conn.filter(|_| !self.closing);
        let send = conn.map(|conn| move |xid, request| link.sink.request(conn, xid, request));
        self.errands.answered(xid, result, send);
    }

    /// Registers all watches, including those that are already registered.
    ///
    /// The server sends one-shot watches the events they missed. Missed events of persistent
    /// watches are unknown, so their streams get a gap.
    fn ask_for_missed(&mut self, mut send: impl FnMut(i32, Request)) -> Wakers {
        let since = self.missed_since.unwrap_or(self.last_zxid);
        let watches = self.watches.registered(since);
        self.missed_since = watches.is_some().then_some(since);
        if let Some(watches) = watches {
            self.asked_missed += 1;
            send(XID_WATCHES, Request::SetWatches(watches));
        }
        // The gap is queued after the registration was sent. A reader that reads again because of
        // the gap is answered after the registration.
        Wakers(self.watches.gap(), None)
    }

    /// Handles the answer to a registration of watches.
    ///
    /// After a refusal, the next ping repeats the request, until a server has room for the watches.
    fn on_missed(&mut self, is_registered: bool) {
        self.asked_missed = self.asked_missed.saturating_sub(1);
        if is_registered && self.asked_missed == 0 && !self.behind_overflowed {
            self.missed_since = None;
        }
    }

    /// Handles a pong. With several pings in flight, each pong counts for the first ping, which is
    /// the safe choice: it was sent earliest.
    fn on_pong(&mut self, link: &Link, is_ok: bool) {
        if let Some((unanswered, first)) = self.pinged {
            self.pinged = unanswered.checked_sub(1).filter(|left| *left > 0).map(|left| (left, first));
            self.shows_life(link, Some(first).filter(|_| is_ok));
        }
    }

    fn shows_life(&mut self, link: &Link, sign: Option<Sign>) {
        // A server without a leader extends no session's life.
        if let Some(sign) = sign.filter(|_| self.outdated_since.is_none()) {
            self.life.answered(sign, link.environment.liveness_delay_max());
        }
    }

    fn deliver_event(&mut self, event: &WatchEvent) -> Wakers {
        if self.session_state.is_over() {
            return Wakers::default();
        }
        let state = self.session_state;
        self.watches.fire(event, state)
    }

    /// Delivers the waiting items up to the next answer that is not complete.
    fn deliver_behind(&mut self, link: &Link) -> Wakers {
        let mut all = Wakers::default();
        while let Some(next) = self.behind.pop_front() {
            let wakers = match next {
                Behind::Pending { xid } => {
                    self.behind.push_front(Behind::Pending { xid });
                    return all;
                }
                Behind::Reply { xid, zxid, result } => self.deliver_reply(link, xid, zxid, result),
                Behind::Notify(event) => self.deliver_event(&event),
            };
            all.append(wakers);
        }
        if std::mem::take(&mut self.behind_overflowed)
            && let Some(conn) = self.conn.filter(|_| !self.closing)
        {
            all.append(self.ask_for_missed(|xid, request| link.sink.request(conn, xid, request)));
        }
        all
    }
}

/// Wakes the watchdog check. Holds the link weakly: the session may end meanwhile.
struct Alarm(Weak<Link>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(link) = self.0.upgrade() {
            link.look_at_watchdog();
        }
    }
}
