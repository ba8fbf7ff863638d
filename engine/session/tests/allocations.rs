//! Requests and simple errands allocate nothing once a session's queues have grown.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use zoolet_coordinator::{Coordinator, Errand};
use zoolet_machine::{Budget, ConnId, Limits};
use zoolet_model::{ConnectReply, Reply, Request, SessionId, SessionSecret, Text};
use zoolet_session::{Environment, Link, RequestSink, Session, Timers};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Records the xids sent. Its clock stands still.
#[derive(Debug, Default)]
struct World {
    sent: Mutex<Vec<i32>>,
    timers: Timers,
}

impl RequestSink for World {
    fn request(&self, _: ConnId, xid: i32, _: Request) {
        self.sent.lock().unwrap().push(xid);
    }
}

impl Environment for World {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn random_bits(&self) -> u128 {
        0
    }

    fn liveness_delay_max(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn timers(&self) -> &Timers {
        &self.timers
    }

    fn rouse(&self) {}
}

#[test]
fn requests_and_simple_errands_allocate_nothing_in_a_warm_session() {
    let (world, limits) = (Arc::new(World::default()), Limits::default());
    let link = Link::new(world.clone(), world.clone(), 1000, &limits, Arc::new(Budget::new(&limits)));
    let session = Session::new(Arc::clone(&link));
    assert!(link.dial().is_some());
    let secret = SessionSecret([0; 16]);
    let reply =
        ConnectReply { timeout_ms: 1000, session: SessionId(1), secret, read_only_byte: true, read_only_ms: None };
    assert!(link.connected(ConnId(1), &reply).is_empty());
    let path = Text::from("/locks/a");
    let round = || {
        let mut ticket = Coordinator::submit(&session, Request::Exists { path: path.clone(), watch: false });
        session.run_errand(Errand::delete(path.clone()));
        for at in 0..2 {
            let xid = world.sent.lock().unwrap()[at];
            link.reply(xid, 1, Ok(Reply::Empty));
        }
        world.sent.lock().unwrap().clear();
        let answer = Future::poll(Pin::new(&mut ticket), &mut Context::from_waker(Waker::noop()));
        assert_eq!(answer, Poll::Ready(Ok(Reply::Empty)));
    };
    (0..100).for_each(|_| round());
    let region = Region::new(COUNTED);
    (0..1000).for_each(|_| round());
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
}
