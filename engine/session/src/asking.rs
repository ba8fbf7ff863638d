//! A request from its asking to its answer.

use crate::link::{Answer, Link, Submit};
use crate::slots::Ticket;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zoolet_model::{Error, Reply, Request};

/// Waits for a slot, sends, waits for the answer. Sends at once if there is a slot.
#[derive(Debug)]
pub(crate) struct Asking(Stage);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each request that waits")]
enum Stage {
    /// There was no room.
    Waiting {
        link: Arc<Link>,
        request: Request,
        watch: Option<u64>,
        room: Option<u64>,
    },
    Sent(Ticket),
    Refused(Error),
    Over,
}

impl Asking {
    pub(crate) fn new(link: &Arc<Link>, request: Request, watch: Option<u64>) -> Self {
        Self(match link.try_submit(request, watch) {
            Submit::Sent(ticket) => Stage::Sent(ticket),
            Submit::Refused(error) => Stage::Refused(error),
            Submit::Full(request) => Stage::Waiting { link: Arc::clone(link), request, watch, room: None },
        })
    }

    /// Waits for a slot, and sends if one is free.
    fn try_again(&mut self, context: &Context<'_>) {
        let Stage::Waiting { link, request, watch, room } = &mut self.0 else { return };
        // Before the attempt: a slot that comes free after it wakes.
        link.wait_for_room(room, context);
        let asked = std::mem::replace(request, Request::Unknown);
        let next = match link.try_submit(asked, *watch) {
            Submit::Sent(ticket) => Stage::Sent(ticket),
            Submit::Refused(error) => Stage::Refused(error),
            Submit::Full(asked) => {
                *request = asked;
                return;
            }
        };
        self.leave_room();
        self.0 = next;
    }

    fn leave_room(&mut self) {
        if let Stage::Waiting { link, room: Some(room), .. } = &self.0 {
            link.leave_room(*room);
        }
    }
}

impl Future for Asking {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.try_again(context);
        let answer = match &mut self.0 {
            Stage::Waiting { .. } => return Poll::Pending,
            Stage::Sent(ticket) => match Pin::new(ticket).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer,
            },
            Stage::Refused(error) => Err(*error),
            Stage::Over => Err(Error::Closed),
        };
        self.0 = Stage::Over;
        Poll::Ready(answer)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.leave_room();
    }
}

/// The answer to one request of a recipe. Dropping it cancels only the waiting; if there was no room to send it yet, it is not sent.
#[derive(Debug)]
#[must_use = "the answer comes when this is awaited"]
pub struct Asked(pub(crate) Asking);

impl Future for Asked {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|answer| answer.reply)
    }
}
