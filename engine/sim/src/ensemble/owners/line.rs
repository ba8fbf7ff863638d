//! Between a client and the session that its futures hold.

use super::OwnClock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zoolet_engine::{Budget, ConnId, Limits};
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, WatchEvent};
use zoolet_session::{Link, Outbox, Session};

/// What futures said and their client has not sent yet.
#[derive(Debug, Default)]
struct Outgoing {
    said: VecDeque<(ConnId, i32, Request)>,
    /// Whoever says something is dead.
    is_shut: bool,
}

#[derive(Debug, Default)]
struct Mouth(Mutex<Outgoing>);

impl Mouth {
    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox for Mouth {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        let mut outgoing = self.outgoing();
        if !outgoing.is_shut {
            outgoing.said.push_back((conn, xid, request));
        }
    }
}

/// One session as production has it, and in the place of its machine a simulated client.
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
            Link::new(Arc::clone(&mouth) as Arc<dyn Outbox>, Arc::new(clock.clone()), timeout_ms, &limits, budget);
        (Self { link: Arc::clone(&link), mouth }, Session::new(link))
    }

    /// Nothing that is said from now on leaves, nor what was said and not sent.
    pub(super) fn shut(&self) {
        let mut outgoing = self.mouth.outgoing();
        (outgoing.is_shut, outgoing.said) = (true, VecDeque::new());
    }

    /// What was said since, in order.
    pub(in crate::ensemble) fn take_said(&self) -> VecDeque<(ConnId, i32, Request)> {
        std::mem::take(&mut self.mouth.outgoing().said)
    }

    /// The first message of a connection, if the session wants one.
    pub(in crate::ensemble) fn dial(&self) -> Option<ConnectRequest> {
        self.link.dial()
    }

    /// Its answer. What the session says first is said before anything that its owner says because of it.
    pub(in crate::ensemble) fn on_connected(&self, conn: ConnId, reply: &ConnectReply) {
        for (xid, request) in self.link.connected(conn, reply) {
            self.mouth.request(conn, xid, request);
        }
    }

    /// A ping that goes out.
    pub(in crate::ensemble) fn ping(&self) -> Option<Request> {
        self.link.ping().map(|(_, request)| request)
    }

    pub(in crate::ensemble) fn on_reply(&self, xid: i32, zxid: i64, result: &Result<Reply, ErrorCode>) {
        self.link.reply(xid, zxid, result.clone());
    }

    pub(in crate::ensemble) fn on_event(&self, event: &WatchEvent) {
        self.link.notify(event.clone());
    }

    /// The connection is gone; whether the session wants another.
    pub(in crate::ensemble) fn on_closed(&self) -> bool {
        self.link.closed()
    }
}
