//! A request in flight, as its owner holds it.

use super::{Answer, Link};
use crate::slots::SlotId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zoolet_model::RequestError;

/// Waits for one answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    link: Arc<Link>,
    /// `None` once the answer was taken.
    slot: Option<SlotId>,
}

impl Ticket {
    pub(crate) fn new(link: Arc<Link>, slot: SlotId) -> Self {
        Self { link, slot: Some(slot) }
    }
}

impl Future for Ticket {
    type Output = Result<Answer, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else { return Poll::Ready(Err(RequestError::Closed)) };
        let (answer, wakers) = self.link.with_slots(|slots| slots.poll(slot, context));
        wakers.wake();
        if answer.is_ready() {
            self.slot = None;
        }
        answer
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let ((), wakers) = self.link.with_slots(|slots| slots.abandon(slot));
            wakers.wake();
        }
    }
}
