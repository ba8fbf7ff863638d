//! Work that goes on only while a grant is held.

use super::{Holding, Holdings};
use crate::{Coordinator, Error, ErrorKind, GrantEnd};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tracing::Span;
use zoolet_model::Text;

/// What happens to the work of a grant in doubt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InDoubt {
    /// It is not polled.
    Pause,
    /// It is dropped, and begun anew after the doubt.
    Restart,
}

/// Follows a grant for its work.
#[derive(Debug)]
pub(super) struct Overseer<C: Coordinator> {
    coordinator: C,
    znode: Text,
    holdings: Holdings<C>,
    is_held: bool,
    /// The span in which the work runs.
    span: Span,
}

impl<C: Coordinator> Overseer<C> {
    pub(super) fn new(coordinator: C, znode: Text, holdings: Holdings<C>, span: Span) -> Self {
        Self { coordinator, znode, holdings, is_held: false, span }
    }

    /// Notes the states of the grant up to now; returns whether it is held.
    ///
    /// # Errors
    /// [`ErrorKind::GrantLost`] once the grant is over.
    fn look(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        while let Poll::Ready(state) = Pin::new(&mut self.holdings).poll_next(context) {
            match state {
                Some(Holding::Held) => self.is_held = true,
                Some(Holding::Doubtful { .. }) => self.is_held = false,
                Some(Holding::Lost) | None => return Err(self.error(self.end())),
            }
        }
        Ok(self.is_held)
    }

    fn end(&self) -> ErrorKind {
        let is_over = self.coordinator.state().is_over();
        ErrorKind::GrantLost(if is_over { GrantEnd::Session } else { GrantEnd::Broken })
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::at(kind, "hold", &self.znode)
    }

    /// Waits until the grant is held.
    async fn held(&mut self) -> Result<(), Error> {
        poll_fn(|context| match self.look(context) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(lost) => Poll::Ready(Err(lost)),
        })
        .await
    }

    /// Runs `work` once the grant is held, and drops it as soon as the grant is in doubt.
    pub(super) async fn run<F: Future>(mut self, work: F) -> Result<F::Output, Error> {
        self.held().await?;
        let mut work = pin!(work);
        poll_fn(|context| match self.look(context) {
            Ok(true) => self.span.in_scope(|| work.as_mut().poll(context)).map(Ok),
            Ok(false) => Poll::Ready(Err(self.error(ErrorKind::Doubtful))),
            Err(lost) => Poll::Ready(Err(lost)),
        })
        .await
    }

    /// Runs the future that `begin` returns once the grant is held, and does not poll it in doubt.
    pub(super) async fn pause<F: Future>(mut self, begin: impl FnOnce() -> F) -> Result<F::Output, Error> {
        self.held().await?;
        let mut work = pin!(self.span.in_scope(begin));
        poll_fn(|context| match self.look(context) {
            Ok(true) => self.span.in_scope(|| work.as_mut().poll(context)).map(Ok),
            Ok(false) => Poll::Pending,
            Err(lost) => Poll::Ready(Err(lost)),
        })
        .await
    }

    /// Runs the future that `begin` returns, drops it in doubt, and begins another one after it.
    pub(super) async fn restart<F: Future>(mut self, mut begin: impl FnMut() -> F) -> Result<F::Output, Error> {
        loop {
            self.held().await?;
            let mut work = pin!(self.span.in_scope(&mut begin));
            let output = poll_fn(|context| match self.look(context) {
                Ok(true) => self.span.in_scope(|| work.as_mut().poll(context)).map(|output| Ok(Some(output))),
                Ok(false) => Poll::Ready(Ok(None)),
                Err(lost) => Poll::Ready(Err(lost)),
            })
            .await?;
            if let Some(output) = output {
                return Ok(output);
            }
        }
    }
}
