//! The owner's side: requests go out, and whoever waits is woken.

use super::super::size;
use super::super::slots::{SlotId, Slots, Ticket};
use super::super::watch::Watches;
use super::{Link, State, Wakers, XID_UNHEARD};
use crate::life::{Shows, Sign};
use crate::{Surroundings, lock};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use zoolet_coordinator::Errand;
use zoolet_engine::ConnId;
use zoolet_model::{Error, Request, SessionId, SessionState, Text};

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

    /// How often events for one-shot watches may have been left out.
    pub(crate) fn gaps(&self) -> u64 {
        lock(&self.state).gaps
    }

    /// A number for a watch or a waiter, never given twice.
    pub fn new_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Ready once the session is served or over; the error is why it never was.
    pub fn poll_open(&self, reader: u64, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = lock(&self.state);
        if state.opened && !state.session_state.is_over() {
            return Poll::Ready(Ok(()));
        }
        if state.session_state.is_over() {
            return Poll::Ready(Err(Error::of(state.session_state)));
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

    /// Whoever waited for a state under this number does not any more.
    pub fn forget_reader(&self, reader: u64) {
        lock(&self.state).readers.remove(&reader);
    }

    pub(crate) fn submit(self: &Arc<Self>, request: Request, watch: Option<u64>) -> Result<Ticket, Error> {
        self.take(request, watch, false)
    }

    /// What finds no room is sent when there is some, unless its ticket was dropped.
    pub(crate) fn submit_or_queue(self: &Arc<Self>, request: Request, watch: Option<u64>) -> Result<Ticket, Error> {
        self.take(request, watch, true)
    }

    /// Sends in the order of calls: the outbox is entered under the lock.
    fn take(self: &Arc<Self>, request: Request, watch: Option<u64>, may_wait: bool) -> Result<Ticket, Error> {
        let bytes = size::request_bytes(&request);
        if bytes > self.request_bytes_max {
            return Err(Error::TooLarge);
        }
        let mut state = lock(&self.state);
        if state.session_state.is_over() {
            return Err(Error::of(state.session_state));
        }
        let Some(conn) = state.conn else { return Err(Error::of(state.session_state)) };
        let sign = self.sign_of(&request);
        let mut wakers = Wakers::default();
        let slot = match state.slots.open(watch, bytes, sign) {
            Some(slot) => {
                wakers = self.send(&mut state, conn, slot, request);
                slot
            }
            None if may_wait => state.slots.queue(request, watch, bytes, sign),
            None => return Err(Error::Busy),
        };
        drop(state);
        wakers.wake();
        Ok(Ticket::new(Arc::clone(self), slot))
    }

    fn send(&self, state: &mut State, conn: ConnId, slot: SlotId, request: Request) -> Wakers {
        let mut wakers = Wakers::default();
        if request == Request::CloseSession {
            wakers = self.begin_to_close(state, SessionState::Closed);
        }
        self.outbox.request(conn, slot.xid(), request);
        wakers
    }

    /// To be called whenever there may be room for what waits.
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
        Sign { sent: self.surroundings.now(), shows: Shows::of(request) }
    }

    /// Nobody hears this watch any more. What the server is told goes out before anybody can ask it to watch the same: it would end his watch too.
    pub(crate) fn end_watch(&self, id: u64) {
        let mut state = lock(&self.state);
        let (request, waker) = state.watches.remove(id);
        if let Some(request) = request
            && let Some(conn) = state.conn
            && !state.closing
        {
            self.outbox.request(conn, XID_UNHEARD, request);
        }
        drop(state);
        // It may be all that keeps something else alive, whose end comes back here.
        drop(waker);
    }

    pub(crate) fn close(self: &Arc<Self>) -> Result<Ticket, Error> {
        self.submit(Request::CloseSession, None)
    }

    /// The owner is gone.
    pub(crate) fn close_unheard(&self) {
        let mut state = lock(&self.state);
        let wakers = self.close_as(&mut state, SessionState::Closed);
        drop(state);
        wakers.wake();
    }

    /// Nobody waits for the answer.
    pub(super) fn close_as(&self, state: &mut State, over: SessionState) -> Wakers {
        if state.session_state.is_over() {
            return Wakers::default();
        }
        let wakers = self.begin_to_close(state, over);
        if let Some(conn) = state.conn {
            self.outbox.request(conn, XID_UNHEARD, Request::CloseSession);
        }
        wakers
    }

    /// The session is over for its owner before it is for anybody else: another server may apply the end, and give what was his to the next, before this
    /// one does. Answers to what he asked before still come. What was to be cleared away goes before the end, as it would have if the server had been
    /// able to.
    fn begin_to_close(&self, state: &mut State, over: SessionState) -> Wakers {
        if let Some(conn) = state.conn {
            state.errands.send_left(|xid, request| self.outbox.request(conn, xid, request));
        }
        state.closing = true;
        let mut wakers = state.become_state(over);
        wakers.0.append(&mut state.watches.end());
        wakers.0.append(&mut state.slots.refuse_queued(Error::of(over)));
        wakers
    }

    /// In the order of submits, whatever slots are free. What a closing session has not sent with its end ends with it: its ephemerals go anyway.
    pub(crate) fn run_errand(&self, errand: Errand) {
        let mut state = lock(&self.state);
        if state.session_state.is_over() {
            return;
        }
        match state.conn {
            Some(conn) => state.errands.run(errand, |xid, request| self.outbox.request(conn, xid, request)),
            None => state.errands.keep(errand),
        }
    }

    pub(crate) fn surroundings(&self) -> &Arc<dyn Surroundings> {
        &self.surroundings
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
