//! Where the futures of one client are: what they may use.

use super::OwnClock;
use super::executor::Spawner;
use crate::ensemble::Trace;
use crate::oracle::ClientId;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use zoolet_coordinator::Instant;
use zoolet_session::{Session, Timer};

/// What the futures of a client do after one of them is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing: the client has done what it was there for.
    Done,
    /// The same with another session, as a daemon does whose session was lost.
    AnotherSession,
}

/// Something that a client's futures have written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact<F> {
    /// The time of the run, microseconds.
    pub at_us: u64,
    /// Which client: 0 is the first.
    pub client: usize,
    /// In which of its lives: 0 is the first.
    pub life: u32,
    /// What.
    pub what: F,
}

/// What all clients have written down, in order.
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

/// One life of one client: its session, its machine's clock, and a journal that all clients share. Clones are the same.
#[derive(Clone, Debug)]
pub struct Seat<F> {
    /// Which client: 0 is the first.
    pub number: usize,
    /// Which of its lives: 0 is the first. One ends when the client dies or asks for another session.
    pub life: u32,
    /// Its session, which is served.
    pub session: Session,
    pub(super) client: ClientId,
    pub(super) clock: OwnClock,
    pub(super) journal: Journal<F>,
    /// Time of the run, microseconds.
    pub(super) goes_on_until_us: u64,
    pub(super) spawner: Spawner,
    pub(super) trace: Trace,
}

impl<F: fmt::Debug + 'static> Seat<F> {
    /// Writes down a fact, with the time of the run.
    pub fn record(&self, what: F) {
        let at_us = self.clock.run_us();
        self.trace.note(at_us, format_args!("c{}", self.client.0), || format!("notes {what:?}"));
        self.journal.0.borrow_mut().push(Fact { at_us, client: self.number, life: self.life, what });
    }

    /// What the clock of its machine shows; it is too fast or too slow by [`crate::ensemble::DRIFT_PPM_MAX`] at most.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Ready after so long, by that clock.
    pub fn sleep(&self, for_so_long: Duration) -> Timer {
        self.clock.timer(self.clock.now() + for_so_long)
    }

    /// Whether faults and fates strike for a good while yet: what clients do goes on until then, or it would be over before they came.
    pub fn goes_on(&self) -> bool {
        self.clock.run_us() < self.goes_on_until_us
    }

    /// The time of the run, microseconds, at which that clock shows `at`.
    pub fn true_us(&self, at: Instant) -> u64 {
        self.clock.true_us(at)
    }

    /// A number below `end`, drawn from the seed.
    pub fn below(&self, end: u64) -> u64 {
        (self.clock.random_bits() % u128::from(end.max(1))) as u64
    }

    /// Runs another future of this client; it dies with it.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.spawner.spawn(self.client, future);
    }
}
