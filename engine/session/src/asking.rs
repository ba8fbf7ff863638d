//! A request, from its submission to its answer.

use crate::link::{Link, Ticket};
use crate::slots::Answer;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zoolet_model::{Reply, Request, RequestError};

/// Waits for the answer to a request.
///
/// The request is sent at once if there is room, otherwise when its turn comes.
#[derive(Debug)]
pub(crate) struct Asking(Stage);

#[derive(Debug)]
enum Stage {
    Taken(Ticket),
    Refused(RequestError),
    Over,
}

impl Asking {
    pub(crate) fn new(link: &Arc<Link>, request: Request, watch: Option<u64>) -> Self {
        Self(link.submit_or_queue(request, watch).map_or_else(Stage::Refused, Stage::Taken))
    }
}

impl Future for Asking {
    type Output = Result<Answer, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.0 {
            Stage::Taken(ticket) => match Pin::new(ticket).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer,
            },
            Stage::Refused(error) => Err(*error),
            Stage::Over => Err(RequestError::Closed),
        };
        self.0 = Stage::Over;
        Poll::Ready(answer)
    }
}

/// The answer to one request of a recipe.
///
/// Dropping it cancels only the waiting. A request that was still queued for room is not sent.
#[derive(Debug)]
#[must_use = "await this to get the answer"]
pub struct Asked(pub(crate) Asking);

impl Future for Asked {
    type Output = Result<Reply, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|answer| answer.reply)
    }
}
