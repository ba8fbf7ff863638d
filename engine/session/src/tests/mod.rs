//! Tests of a session; each test plays the machine.

use super::*;
use crate::link::{XID_END, XID_PING, XID_WATCHES};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use zoolet_coordinator::{Coordinator, Errand, Guid, Instant};
use zoolet_machine::budget::Part;
use zoolet_machine::{Budget, ConnId, Event, Limits};
use zoolet_model::{
    ConnectReply, ConnectRequest, Create, CreateKind, CreateMode, EventKind, OpResult, ReadOp, SessionSecret, Text,
    WatchEvent, WriteOp,
};

/// A path from a literal.
macro_rules! path {
    ($text:expr) => {{
        static PATH: Path = Path::from_static($text);
        &PATH
    }};
}

mod answers;
mod ending;
mod errands;
mod instants;
mod read_only;
mod watches;

/// The requests that sessions sent.
#[derive(Debug, Default)]
struct Sent(Mutex<Vec<(ConnId, i32, Request)>>);

impl RequestSink for Sent {
    fn request(&self, conn: ConnId, xid: i32, request: Request) {
        lock(&self.0).push((conn, xid, request));
    }
}

/// A clock that tests set.
#[derive(Debug, Default)]
struct World {
    now_ms: AtomicU64,
    timers: Timers,
    roused: AtomicUsize,
    liveness_delay_max_ms: AtomicU64,
}

impl World {
    fn set(&self, ms: u64) {
        self.now_ms.store(ms, SeqCst);
        self.timers.wake_due(self.now());
    }
}

impl Environment for World {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(SeqCst))
    }

    fn random_bits(&self) -> u128 {
        7
    }

    fn liveness_delay_max(&self) -> Duration {
        Duration::from_millis(self.liveness_delay_max_ms.load(SeqCst))
    }

    fn timers(&self) -> &Timers {
        &self.timers
    }

    fn rouse(&self) {
        self.roused.fetch_add(1, SeqCst);
    }
}

/// A session, and the test in the place of the machine.
struct Machine {
    sent: Arc<Sent>,
    world: Arc<World>,
    budget: Arc<Budget>,
    embedded: EmbeddedSessions,
    link: Arc<Link>,
    conn: ConnId,
}

impl Machine {
    fn connected() -> (Self, Session) {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> (Self, Session) {
        let sent = Arc::new(Sent::default());
        let world = Arc::new(World::default());
        let budget = Arc::new(Budget::new(&limits));
        let link = Link::new(sent.clone(), world.clone(), 1000, &limits, Arc::clone(&budget));
        let mut machine = Self {
            sent,
            world,
            budget,
            embedded: EmbeddedSessions::default(),
            link: Arc::clone(&link),
            conn: ConnId(0),
        };
        assert_eq!(machine.dial().session, SessionId(0));
        assert_eq!(machine.accept(7), []);
        (machine, Session::new(link))
    }

    fn dial(&mut self) -> ConnectRequest {
        match self.embedded.dial(Arc::clone(&self.link)) {
            Some(Event::Connect { conn, peer: None, request }) => {
                self.conn = conn;
                request
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers the handshake and returns the session's first requests.
    fn accept(&self, timeout_ms: i32) -> Vec<Request> {
        let secret = SessionSecret([9; 16]);
        let reply =
            ConnectReply { timeout_ms, session: SessionId(7), secret, read_only_byte: true, read_only_ms: None };
        self.link.connected(self.conn, &reply).into_iter().map(|(_, request)| request).collect()
    }

    /// Returns the requests sent since the last call.
    fn requests(&self) -> Vec<(i32, Request)> {
        let sent = std::mem::take(&mut *lock(&self.sent.0));
        let request = |(conn, xid, request)| {
            assert_eq!(conn, self.conn, "{request:?}");
            (xid, request)
        };
        sent.into_iter().map(request).collect()
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl Machine {
    /// Sends pings as the machine's driver does; returns all requests sent. Pings carry the xid of
    /// pings.
    fn ping(&self) -> Vec<(i32, Request)> {
        let pings: Vec<_> = self.embedded.pings().collect();
        let pings = pings.into_iter().map(|event| match event {
            Event::Request { xid, request, .. } => (xid, request),
            other => panic!("{other:?}"),
        });
        self.requests().into_iter().chain(pings).collect()
    }

    fn charged(&self) -> u64 {
        self.budget.current(Part::Outstanding)
    }
}

fn delete(path: &str) -> Request {
    Request::Write(WriteOp::Delete { path: path.into(), version: -1 })
}

fn submit(session: &Session, request: Request) -> <Session as Coordinator>::Ticket {
    Coordinator::submit(session, request)
}

fn only_requests(sent: &[(i32, Request)]) -> Vec<Request> {
    sent.iter().map(|(_, request)| request.clone()).collect()
}
