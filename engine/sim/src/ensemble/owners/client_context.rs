//! The environment of one client's futures.

use super::executor::Spawner;
use super::{Opener, OwnClock};
use crate::ensemble::Trace;
use crate::oracle::ClientId;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use zoolet_coordinator::Instant;
use zoolet_session::{Session, Timer};

/// The client's next step after its future has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing: the client has finished its task.
    Done,
    /// The same future with another session, as a daemon does after losing its session.
    AnotherSession,
}

/// A fact that a client's futures recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact<F> {
    /// The time of the run, in microseconds.
    pub at_us: u64,
    /// The number of the client, from 0.
    pub client: usize,
    /// The life of the client, from 0.
    pub life: u32,
    /// The recorded value.
    pub what: F,
}

/// The facts of all clients, in order.
#[derive(Debug)]
pub(super) struct Journal<F>(Rc<RefCell<Vec<Fact<F>>>>);

impl<F> Clone for Journal<F> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<F> Journal<F> {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(Vec::new())))
    }

    pub(super) fn take(&self) -> Vec<Fact<F>> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

/// One life of one client: its session, its machine's clock and the shared journal.
///
/// Clones refer to the same life.
#[derive(Clone, Debug)]
pub struct ClientContext<F> {
    /// The number of the client, from 0.
    pub number: usize,
    /// The life of the client, from 0. A life ends when the client dies or requests another
    /// session.
    pub life: u32,
    /// Its session, which is served.
    pub session: Session,
    pub(super) client: ClientId,
    pub(super) clock: OwnClock,
    pub(super) journal: Journal<F>,
    /// Time of the run until which the client has work, in microseconds.
    pub(super) goes_on_until_us: u64,
    pub(super) spawner: Spawner,
    pub(super) opener: Opener,
    pub(super) trace: Trace,
}

impl<F: fmt::Debug + 'static> ClientContext<F> {
    /// Records a fact with the time of the run.
    pub fn record(&self, what: F) {
        let at_us = self.clock.run_us();
        self.trace.note(at_us, format_args!("c{}", self.client.0), || format!("notes {what:?}"));
        self.journal.0.borrow_mut().push(Fact { at_us, client: self.number, life: self.life, what });
    }

    /// Returns the time of the client's machine.
    ///
    /// Its clock drifts by at most [`crate::ensemble::DRIFT_PPM_MAX`].
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns a timer that is ready after this duration on the client's clock.
    pub fn sleep(&self, for_so_long: Duration) -> Timer {
        self.clock.timer(self.clock.now() + for_so_long)
    }

    /// Returns whether clients are to continue their work.
    ///
    /// True while faults and fates still strike: they would miss clients that had finished.
    pub fn goes_on(&self) -> bool {
        self.clock.run_us() < self.goes_on_until_us
    }

    /// Returns the time of the run, in microseconds, at which the client's clock shows `at`.
    pub fn true_us(&self, at: Instant) -> u64 {
        self.clock.true_us(at)
    }

    /// Draws a number below `end` from the seed.
    pub fn below(&self, end: u64) -> u64 {
        (self.clock.random_bits() % u128::from(end.max(1))) as u64
    }

    /// Returns the client's later sessions, for code that opens them itself.
    ///
    /// Each opens once the former session is over; the first former one is
    /// [`session`](ClientContext::session).
    pub fn opener(&self) -> Opener {
        self.opener.clone()
    }

    /// Runs another future of this client, which dies with the client.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.spawner.spawn(self.client, future);
    }
}
