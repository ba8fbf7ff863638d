//! The states of a session, as a stream.

use super::Link;
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zoolet_model::SessionState;

/// A stream of session states, which ends after the last one.
#[derive(Debug)]
pub struct States {
    link: Arc<Link>,
    reader: u64,
    last: Option<SessionState>,
}

impl States {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let reader = link.new_number();
        Self { link, reader, last: None }
    }

    /// Returns the next state; `None` after the last one. Cancel-safe.
    #[allow(
        clippy::should_implement_trait,
        reason = "a stream's next, as futures name it: what it returns is a future"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<SessionState>> + '_ {
        std::future::poll_fn(|context| self.poll(context))
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<SessionState>> {
        if self.last.is_some_and(SessionState::is_over) {
            return Poll::Ready(None);
        }
        let next = self.link.poll_state(self.reader, self.last, context);
        if let Poll::Ready(state) = next {
            self.last = Some(state);
        }
        next.map(Some)
    }
}

impl Stream for States {
    type Item = SessionState;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SessionState>> {
        self.poll(context)
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.link.forget_reader(self.reader);
    }
}
