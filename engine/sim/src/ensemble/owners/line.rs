//! Connects a simulated client with the session that its futures hold.

use super::OwnClock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zoolet_machine::{Budget, ConnId, Limits};
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, WatchEvent};
use zoolet_session::{Link, RequestSink, Session};

/// Requests of futures that their client has not sent yet.
#[derive(Debug, Default)]
struct Outgoing {
    said: VecDeque<(ConnId, i32, Request)>,
    /// The client is dead, and its requests are dropped.
    is_shut: bool,
}

#[derive(Debug, Default)]
struct Mouth(Mutex<Outgoing>);

impl Mouth {
    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestSink for Mouth {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        let mut outgoing = self.outgoing();
        if !outgoing.is_shut {
            outgoing.said.push_back((conn, xid, request));
        }
    }
}

/// A production session whose server side is a simulated client.
#[derive(Clone, Debug)]
pub(in crate::ensemble) struct Line {
    link: Arc<Link>,
    mouth: Arc<Mouth>,
}

impl Line {
    pub(super) fn new(timeout_ms: u32, clock: &OwnClock) -> (Self, Session) {
        let (mouth, limits) = (Arc::new(Mouth::default()), Limits::default());
        let budget = Arc::new(Budget::new(&limits));
        let link =
            Link::new(Arc::clone(&mouth) as Arc<dyn RequestSink>, Arc::new(clock.clone()), timeout_ms, &limits, budget);
        (Self { link: Arc::clone(&link), mouth }, Session::new(link))
    }

    /// Drops all unsent requests, and all later ones.
    pub(super) fn shut(&self) {
        let mut outgoing = self.mouth.outgoing();
        (outgoing.is_shut, outgoing.said) = (true, VecDeque::new());
    }

    /// Returns the requests since the last call, in order.
    pub(in crate::ensemble) fn take_said(&self) -> VecDeque<(ConnId, i32, Request)> {
        std::mem::take(&mut self.mouth.outgoing().said)
    }

    /// Returns the connection request; `None` if the session wants no connection.
    pub(in crate::ensemble) fn dial(&self) -> Option<ConnectRequest> {
        self.link.dial()
    }

    /// Hands the answer to the session.
    ///
    /// The session's own first requests precede all requests that its owner makes because of the
    /// answer.
    pub(in crate::ensemble) fn on_connected(&self, conn: ConnId, reply: &ConnectReply) {
        for (xid, request) in self.link.connected(conn, reply) {
            self.mouth.request(conn, xid, request);
        }
    }

    /// Returns a ping to send, if the session wants one.
    pub(in crate::ensemble) fn ping(&self) -> Option<Request> {
        self.link.ping().map(|(_, request)| request)
    }

    pub(in crate::ensemble) fn on_reply(&self, xid: i32, zxid: i64, result: &Result<Reply, ErrorCode>) {
        self.link.reply(xid, zxid, result.clone());
    }

    pub(in crate::ensemble) fn on_event(&self, event: &WatchEvent) {
        self.link.notify(event.clone());
    }

    /// Tells the session that the connection is gone; returns whether it wants another.
    pub(in crate::ensemble) fn on_closed(&self) -> bool {
        self.link.closed()
    }
}
