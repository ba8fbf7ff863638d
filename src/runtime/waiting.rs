//! Futures for a node's owner. All are cancel-safe and need no particular runtime.

use super::Set;
use super::figures::Figures;
use super::threads::{End, Failure};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use zoolet_machine::Status;
use zoolet_session::{Error, ErrorKind, Link, Session};

/// Waits until clients are served. Cancel-safe.
#[derive(Debug)]
#[must_use = "it waits when this is awaited"]
pub struct Ready {
    pub(super) serving: Set<()>,
    pub(super) ended: Set<End>,
}

impl Future for Ready {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A node that has ended once served.
        if let Poll::Ready(end) = Pin::new(&mut self.ended).poll(context) {
            return Poll::Ready(Err(ErrorKind::SessionLost(end.lost_reason()).into()));
        }
        Pin::new(&mut self.serving).poll(context).map(Ok)
    }
}

/// Waits until the node has ended; `None`: it was shut down or dropped. Cancel-safe.
#[derive(Debug)]
#[must_use = "it waits when this is awaited"]
pub struct Stopped(pub(super) Set<End>);

impl Future for Stopped {
    type Output = Option<Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Failure>> {
        Pin::new(&mut self.0).poll(context).map(End::failure)
    }
}

/// Status of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// State of the server.
    pub server: Status,
    /// Use of the disk.
    pub disk: Figures,
}

/// Waits for a [`NodeStatus`]; `None`: the node has ended. Cancel-safe.
#[derive(Debug)]
#[must_use = "the status comes when this is awaited"]
pub struct StatusAnswer {
    pub(super) answer: Set<Option<Status>>,
    pub(super) figures: Figures,
}

impl Future for StatusAnswer {
    type Output = Option<NodeStatus>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let disk = self.figures;
        Pin::new(&mut self.answer).poll(context).map(|status| status.map(|server| NodeStatus { server, disk }))
    }
}

/// Waits until a session is served. Dropping it gives up the session.
#[derive(Debug)]
#[must_use = "the session comes when this is awaited"]
pub struct Opening {
    pub(super) link: Arc<Link>,
    pub(super) reader: u64,
    pub(super) session: Option<Session>,
}

impl Future for Opening {
    type Output = Result<Session, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let opened = self.link.poll_open(self.reader, context);
        match opened {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(self.session.take().ok_or(ErrorKind::Closed.into())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.link.forget_reader(self.reader);
    }
}
