//! The owner's side: requests go out, and whoever waits is woken.

use super::super::size;
use super::super::slots::{Slots, Ticket};
use super::super::watch::Watches;
use super::{Link, Wakers, XID_UNHEARD};
use crate::lock;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use zoolet_model::{Error, Request, SessionId, SessionState, Text};

/// What became of a request.
pub(crate) enum Submit {
    Sent(Ticket),
    /// All slots are in use; here it is back.
    Full(Request),
    Refused(Error),
}

impl Link {
    pub(crate) fn id(&self) -> SessionId {
        lock(&self.state).session
    }

    pub(crate) fn timeout_ms(&self) -> u32 {
        lock(&self.state).timeout_ms
    }

    pub(crate) fn is_connected(&self) -> bool {
        lock(&self.state).conn.is_some()
    }

    pub(crate) fn session_state(&self) -> SessionState {
        lock(&self.state).session_state
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
        match self.try_submit(request, watch) {
            Submit::Sent(ticket) => Ok(ticket),
            Submit::Full(_) => Err(Error::Busy),
            Submit::Refused(error) => Err(error),
        }
    }

    /// Sends in the order of calls: the outbox is entered under the lock.
    pub(crate) fn try_submit(self: &Arc<Self>, request: Request, watch: Option<u64>) -> Submit {
        let bytes = size::request_bytes(&request);
        if bytes > self.request_bytes_max {
            return Submit::Refused(Error::TooLarge);
        }
        let mut state = lock(&self.state);
        if state.closing {
            return Submit::Refused(Error::Closed);
        }
        let Some(conn) = state.conn else { return Submit::Refused(Error::of(state.session_state)) };
        let Some(slot) = state.slots.open(watch, bytes) else { return Submit::Full(request) };
        state.closing = request == Request::CloseSession;
        self.outbox.request(conn, slot.xid(), request);
        drop(state);
        Submit::Sent(Ticket::new(Arc::clone(self), slot))
    }

    /// Sends without a slot: nobody waits for the answer.
    pub(crate) fn send_unheard(&self, request: Request) {
        let state = lock(&self.state);
        if let Some(conn) = state.conn
            && !state.closing
        {
            self.outbox.request(conn, XID_UNHEARD, request);
        }
    }

    pub(crate) fn close(self: &Arc<Self>) -> Result<Ticket, Error> {
        self.submit(Request::CloseSession, None)
    }

    /// The owner is gone.
    pub(crate) fn close_unheard(&self) {
        let mut state = lock(&self.state);
        if let Some(conn) = state.conn
            && !state.closing
        {
            self.outbox.request(conn, XID_UNHEARD, Request::CloseSession);
        }
        state.closing = true;
    }

    pub(crate) fn remember_auth(&self, scheme: Text, auth: Bytes) {
        lock(&self.state).auths.push((scheme, auth));
    }

    pub(crate) fn with_watches<R>(&self, work: impl FnOnce(&mut Watches) -> R) -> R {
        work(&mut lock(&self.state).watches)
    }

    /// `work` says whether a slot came free.
    pub(crate) fn with_slots<R>(&self, work: impl FnOnce(&mut Slots) -> (R, bool)) -> (R, Wakers) {
        let mut state = lock(&self.state);
        let (result, came_free) = work(&mut state.slots);
        (result, state.room_wakers(came_free))
    }
}

/// Waits for a free slot.
pub(crate) struct Room<'a> {
    link: &'a Link,
    number: Option<u64>,
}

impl<'a> Room<'a> {
    pub(crate) fn new(link: &'a Link) -> Self {
        Self { link, number: None }
    }

    /// To be called when a request came back; the caller tries again when woken.
    pub(crate) fn wait(&mut self, context: &Context<'_>) {
        let number = *self.number.get_or_insert_with(|| self.link.new_number());
        lock(&self.link.state).room.insert(number, context.waker().clone());
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.link.state).room.remove(&number);
        }
    }
}
