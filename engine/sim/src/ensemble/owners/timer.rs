//! The clock of a client's machine, and the timers that wait for it.

use super::super::Clock;
use crate::workload::Random;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zoolet_coordinator::Instant;
use zoolet_machine::{Settings, server};
use zoolet_session::{Environment, Timer, Timers};
use zoolet_zab::Timing;

/// The clock of one client's machine.
///
/// It counts from an arbitrary instant, runs a little fast or slow, and goes on while the client
/// stands still. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct OwnClock(Arc<Own>);

#[derive(Debug)]
struct Own {
    shown: Mutex<Shown>,
    timers: Timers,
}

#[derive(Debug)]
struct Shown {
    clock: Clock,
    /// The time of the run.
    now_us: Arc<AtomicU64>,
    random: Random,
    /// When the run will next check the timers.
    armed_us: Option<u64>,
}

impl Shown {
    fn shows_us(&self) -> u64 {
        self.clock.mono_us(self.now_us.load(Relaxed))
    }

    /// Returns the time of the run at which the clock shows `at_us`.
    fn when_us(&self, at_us: u64) -> Option<u64> {
        self.clock.when_us(self.now_us.load(Relaxed), at_us)
    }
}

impl OwnClock {
    pub(super) fn new(clock: Clock, now_us: Arc<AtomicU64>, random: Random) -> Self {
        let shown = Mutex::new(Shown { clock, now_us, random, armed_us: None });
        Self(Arc::new(Own { shown, timers: Timers::default() }))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time that the clock shows.
    pub fn now(&self) -> Instant {
        let shown = self.shown();
        Instant::at(Duration::from_micros(shown.shows_us()))
    }

    /// Returns a timer that is ready once the clock shows `at`.
    pub fn timer(&self, at: Instant) -> Timer {
        Timer::new(Arc::new(self.clone()), at.since_start())
    }

    /// Returns the time of the run, in microseconds, at which the clock shows `at`.
    ///
    /// The present time if `at` has passed.
    pub fn true_us(&self, at: Instant) -> u64 {
        let shown = self.shown();
        let at_us = u64::try_from(at.since_start().as_micros()).unwrap_or(u64::MAX);
        shown.when_us(at_us).unwrap_or(u64::MAX)
    }

    /// Returns the time of the run, in microseconds.
    pub fn run_us(&self) -> u64 {
        self.shown().now_us.load(Relaxed)
    }

    /// Draws random bits on this machine.
    pub fn random_bits(&self) -> u128 {
        let random = &mut self.shown().random;
        u128::from(random.bits()) << 64 | u128::from(random.bits())
    }

    /// Wakes all timers that are due.
    pub(super) fn ring(&self) {
        self.shown().armed_us = None;
        self.0.timers.wake_due(self.now().since_start());
    }

    /// Returns when the next timer is due, unless that check is already scheduled.
    pub(super) fn arm(&self) -> Option<u64> {
        let at = self.0.timers.next()?;
        let mut shown = self.shown();
        // Rounded up, so that a timer is never woken too early.
        let at_us = u64::try_from(at.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        let due_us = shown.when_us(at_us)?;
        if shown.armed_us.is_some_and(|armed_us| armed_us <= due_us) {
            return None;
        }
        shown.armed_us = Some(due_us);
        Some(due_us)
    }
}

impl Environment for OwnClock {
    fn now(&self) -> Duration {
        OwnClock::now(self).since_start()
    }

    fn random_bits(&self) -> u128 {
        OwnClock::random_bits(self)
    }

    /// Assumes servers with default settings and timing.
    fn liveness_delay_max(&self) -> Duration {
        Duration::from_millis(server::liveness_delay_max_ms(&Settings::default(), &Timing::default()))
    }

    fn timers(&self) -> &Timers {
        &self.0.timers
    }

    /// Does nothing: the run checks the timers after each poll.
    fn rouse(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::{Context, Waker};

    #[test]
    fn timer_is_ready_exactly_at_its_time_on_the_clients_clock() {
        let now_us = Arc::new(AtomicU64::new(0));
        let clock = OwnClock::new(Clock::new(0, 777, 400), Arc::clone(&now_us), Random::new(1));
        let mut timer = std::pin::pin!(clock.timer(Instant::at(Duration::from_secs(10))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(timer.as_mut().poll(&mut context).is_pending());
        let due_us = clock.arm().unwrap();
        assert_eq!((clock.arm(), clock.true_us(Instant::at(Duration::from_secs(10)))), (None, due_us));
        now_us.store(due_us - 3, Relaxed);
        assert!(timer.as_mut().poll(&mut context).is_pending());
        now_us.store(due_us, Relaxed);
        assert!(timer.as_mut().poll(&mut context).is_ready());
        clock.ring();
        assert_eq!(clock.arm(), None, "nobody waits any more");
    }
}
