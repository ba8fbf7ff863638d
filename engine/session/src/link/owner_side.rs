//! The owner's side: sends requests and registers wakers.

use super::super::size;
use super::super::slots::{SlotId, Slots};
use super::super::watch::Watches;
use super::{Link, State, Ticket, Wakers, XID_END, XID_UNHEARD};
use crate::liveness::{Shows, Sign};
use crate::{Environment, lock};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use zoolet_coordinator::Errand;
use zoolet_machine::ConnId;
use zoolet_model::{CreateKind, CreateMode, Request, RequestError, SessionId, SessionState, Text, WriteOp};

impl Link {
    pub(crate) fn id(&self) -> SessionId {
        lock(&self.state).session
    }

    pub(crate) fn timeout_ms(&self) -> u32 {
        lock(&self.state).timeout_ms
    }

    pub(crate) fn session_state(&self) -> SessionState {
        lock(&self.state).session_state
    }

    /// Returns whether the session reads while its server has no leader.
    ///
    /// The end of a session waits for a leader.
    pub fn may_read_only(&self) -> bool {
        let state = lock(&self.state);
        state.may_read_only && !state.closing
    }

    /// Returns whether other clients wait for the end of this session.
    ///
    /// The session is over for its owner. Its ephemerals stay until a server answers its end.
    pub fn holds_until_end(&self) -> bool {
        let state = lock(&self.state);
        state.is_end_due && state.may_own_ephemerals
    }

    /// Returns whether the session's end waits for a leader while the session still reads.
    pub(crate) fn waits_to_end(&self) -> bool {
        let state = lock(&self.state);
        state.is_end_due && state.is_reader
    }

    /// Lets the session read while its server has no leader.
    pub fn allow_read_only(&self) {
        lock(&self.state).may_read_only = true;
    }

    pub(crate) fn outdated_for(&self) -> Option<Duration> {
        let since = lock(&self.state).outdated_since?;
        Some(self.environment.now().saturating_sub(since))
    }

    /// Returns how often events of one-shot watches may have been missed.
    pub(crate) fn gaps(&self) -> u64 {
        lock(&self.state).gaps
    }

    /// Returns a number for a watch or a waiter; numbers are unique within the session.
    pub fn new_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Resolves once the session is connected or over; the error says why it never connected.
    pub fn poll_open(&self, reader: u64, context: &Context<'_>) -> Poll<Result<(), RequestError>> {
        let mut state = lock(&self.state);
        if state.opened && !state.session_state.is_over() {
            return Poll::Ready(Ok(()));
        }
        if state.session_state.is_over() {
            return Poll::Ready(Err(RequestError::of(state.session_state)));
        }
        state.readers.insert(reader, context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn poll_state(
        &self,
        reader: u64,
        last: Option<SessionState>,
        context: &Context<'_>,
    ) -> Poll<SessionState> {
        let mut state = lock(&self.state);
        if last == Some(state.session_state) {
            state.readers.insert(reader, context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.session_state)
    }

    /// Removes the waker that a reader of states registered under this number.
    pub fn forget_reader(&self, reader: u64) {
        lock(&self.state).readers.remove(&reader);
    }

    pub(crate) fn submit(self: &Arc<Self>, request: Request, watch: Option<u64>) -> Result<Ticket, RequestError> {
        self.take(request, watch, false)
    }

    /// Sends a request when there is room, unless its ticket is dropped before.
    pub(crate) fn submit_or_queue(
        self: &Arc<Self>,
        request: Request,
        watch: Option<u64>,
    ) -> Result<Ticket, RequestError> {
        self.take(request, watch, true)
    }

    /// Sends requests in the order of calls: the sink is called under the lock.
    fn take(self: &Arc<Self>, request: Request, watch: Option<u64>, may_wait: bool) -> Result<Ticket, RequestError> {
        let bytes = size::request_bytes(&request);
        if bytes > self.request_bytes_max {
            return Err(RequestError::TooLarge);
        }
        let mut state = lock(&self.state);
        if state.session_state.is_over() {
            return Err(RequestError::of(state.session_state));
        }
        let conn = if request == Request::CloseSession { state.conn_for_end() } else { state.conn };
        // As without a connection: the session's last handle ends it on the next one.
        let Some(conn) = conn else { return Err(RequestError::Suspended) };
        let sign = self.sign_of(&request);
        let mut wakers = Wakers::default();
        let slot = match state.slots.open(watch, bytes, sign) {
            Some(slot) => {
                wakers = self.send(&mut state, conn, slot, request);
                slot
            }
            None if may_wait => state.slots.queue(request, watch, bytes, sign),
            None => return Err(RequestError::Busy),
        };
        drop(state);
        wakers.wake();
        Ok(Ticket::new(Arc::clone(self), slot))
    }

    fn send(&self, state: &mut State, conn: ConnId, slot: SlotId, request: Request) -> Wakers {
        let mut wakers = Wakers::default();
        state.may_own_ephemerals |= creates_ephemeral(&request);
        if request == Request::CloseSession {
            wakers = self.begin_to_close(state, SessionState::Closed);
            state.end_xid = Some(slot.xid());
        }
        self.sink.request(conn, slot.xid(), request);
        wakers
    }

    /// Sends queued requests. Call it whenever there may be new room.
    pub(super) fn send_queued(&self, state: &mut State) -> Wakers {
        let mut wakers = Wakers::default();
        while let Some(conn) = state.conn
            && let Some((slot, request)) = state.slots.next_queued(|request| self.sign_of(request))
        {
            wakers.append(self.send(state, conn, slot, request));
        }
        wakers
    }

    fn sign_of(&self, request: &Request) -> Sign {
        Sign { sent: self.environment.now(), shows: Shows::of(request) }
    }

    /// Ends a watch whose reader was dropped.
    ///
    /// The request goes out under the lock. Otherwise another thread could register the same watch
    /// first, and this request would end that watch too.
    pub(crate) fn end_watch(&self, id: u64) {
        let mut state = lock(&self.state);
        let (request, waker) = state.watches.remove(id);
        if let Some(request) = request
            && let Some(conn) = state.conn
            && !state.closing
        {
            self.sink.request(conn, XID_UNHEARD, request);
        }
        drop(state);
        // Dropped outside the lock: it may own the last reference to another watch, whose drop
        // calls back here.
        drop(waker);
    }

    pub(crate) fn close(self: &Arc<Self>) -> Result<Ticket, RequestError> {
        self.submit(Request::CloseSession, None)
    }

    /// Closes the session without its owner, who waits for no answer.
    pub fn close_unheard(&self) {
        let mut state = lock(&self.state);
        let wakers = self.close_as(&mut state, SessionState::Closed);
        drop(state);
        wakers.wake();
    }

    /// Closes the session with the state `over`; the answer is ignored.
    pub(super) fn close_as(&self, state: &mut State, over: SessionState) -> Wakers {
        if state.session_state.is_over() {
            return Wakers::default();
        }
        let wakers = self.begin_to_close(state, over);
        if let Some(conn) = state.conn_for_end() {
            state.end_xid = Some(XID_END);
            self.sink.request(conn, XID_END, Request::CloseSession);
        }
        wakers
    }

    /// Ends the session for its owner before it ends for any other client.
    ///
    /// Another server may apply the end, and grant the owner's locks to the next session, before
    /// this server does. Answers to earlier requests still arrive. Postponed errands are sent
    /// before the end, as if the server had been able to carry them out in time.
    fn begin_to_close(&self, state: &mut State, over: SessionState) -> Wakers {
        if let Some(conn) = state.conn.filter(|_| state.outdated_since.is_none()) {
            state.errands.send_left(|xid, request| self.sink.request(conn, xid, request));
        }
        state.closing = true;
        // A server that never created the session has nothing to end.
        state.is_end_due = state.secret.is_some();
        let mut wakers = state.become_state(over);
        wakers.0.append(&mut state.watches.end());
        wakers.0.append(&mut state.slots.refuse_queued(RequestError::of(over)));
        wakers
    }

    /// Runs an errand in the order of submits, without needing a free slot.
    ///
    /// A closing session drops the errands that it did not send before its end. Its ephemerals are
    /// deleted anyway.
    pub(crate) fn run_errand(&self, errand: Errand) {
        let mut state = lock(&self.state);
        if state.session_state.is_over() {
            return;
        }
        match state.conn {
            Some(conn) if state.outdated_since.is_none() => {
                state.errands.run(errand, |xid, request| self.sink.request(conn, xid, request))
            }
            Some(_) | None => state.errands.keep(errand),
        }
    }

    pub(crate) fn environment(&self) -> &Arc<dyn Environment> {
        &self.environment
    }

    pub(crate) fn safe_until(&self) -> Duration {
        let state = lock(&self.state);
        if state.session_state.is_over() {
            return Duration::ZERO;
        }
        state.life.safe_until(Duration::from_millis(state.timeout_ms.into()))
    }

    pub(crate) fn remember_auth(&self, scheme: Text, auth: Bytes) {
        lock(&self.state).auths.push((scheme, auth));
    }

    pub(crate) fn with_watches<R>(&self, work: impl FnOnce(&mut Watches) -> R) -> R {
        work(&mut lock(&self.state).watches)
    }

    pub(crate) fn with_slots<R>(&self, work: impl FnOnce(&mut Slots) -> R) -> (R, Wakers) {
        let mut state = lock(&self.state);
        let result = work(&mut state.slots);
        (result, self.send_queued(&mut state))
    }
}

/// Returns whether the session may own a znode that this request creates.
fn creates_ephemeral(request: &Request) -> bool {
    let is_ephemeral = |mode| matches!(mode, CreateMode::Valid { kind: CreateKind::Ephemeral, .. });
    request.ops().iter().any(|write| matches!(write, WriteOp::Create(create) if is_ephemeral(create.mode)))
}
