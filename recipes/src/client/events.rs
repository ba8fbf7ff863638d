//! The states of a client's sessions, as one stream.

use super::Client;
use crate::wakers::Slot;
use crate::{Coordinator, OpenSession};
use futures_core::Stream;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use zoolet_model::{SessionId, SessionState};

/// A state of one of a client's sessions.
///
/// After a final state all that the session had is lost: its ephemerals, grants, claims and places
/// in lines. The next event is of another session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionEvent {
    /// The session.
    pub session: SessionId,
    /// The session's number in this client, from 1. A number that is left out was a session that
    /// ended before the reader came.
    pub number: u64,
    /// Its state.
    pub state: SessionState,
}

/// Stream of the states of a client's sessions.
///
/// A slow reader may miss intermediate states, and whole sessions, but never the last state of a
/// session that it has begun to report. The stream opens
/// the next session while it is polled, and ends when no session can be opened any more.
#[must_use = "it reports only while it is polled"]
pub struct SessionEvents<O: OpenSession> {
    client: Client<O>,
    slot: Slot,
    current: Option<(SessionId, u64, <O::Session as Coordinator>::States)>,
}

impl<O: OpenSession> fmt::Debug for SessionEvents<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEvents").field("current", &self.current).finish_non_exhaustive()
    }
}

impl<O: OpenSession> SessionEvents<O> {
    pub(super) fn new(client: Client<O>) -> Self {
        Self { slot: client.slot(), client, current: None }
    }

    /// Returns the next event; `None` when no session can be opened any more. Cancel-safe.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Option<SessionEvent>> + Send + '_ {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }
}

impl<O: OpenSession> Unpin for SessionEvents<O> {}

impl<O: OpenSession> Stream for SessionEvents<O> {
    type Item = SessionEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        loop {
            if let Some((session, number, states)) = &mut self.current {
                if let Some(state) = ready!(Pin::new(states).poll_next(context)) {
                    return Poll::Ready(Some(SessionEvent { session: *session, number: *number, state }));
                }
                self.current = None;
            }
            let Ok((number, session)) = ready!(self.client.poll_session(&self.slot, context)) else {
                return Poll::Ready(None);
            };
            self.current = Some((session.session(), number, session.states()));
        }
    }
}
