//! The time of a client's own machine, and who waits for it.

use super::super::Clock;
use crate::workload::Random;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The clock of one client's machine: it counts from some instant of its own, a little too fast or too slow, and goes on while the client stands
/// still. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct OwnClock(Arc<Mutex<Shown>>);

#[derive(Debug)]
struct Shown {
    clock: Clock,
    /// The time of the run.
    now_us: Arc<AtomicU64>,
    random: Random,
    timers: BTreeMap<(u64, u64), Waker>,
    made: u64,
    /// When the run is known to look at it.
    armed_us: Option<u64>,
}

impl Shown {
    fn shows_us(&self) -> u64 {
        self.clock.mono_us(self.now_us.load(Relaxed))
    }

    /// The time of the run at which that is shown.
    fn when_us(&self, at_us: u64) -> Option<u64> {
        self.clock.when_us(self.now_us.load(Relaxed), at_us)
    }
}

impl OwnClock {
    pub(super) fn new(clock: Clock, now_us: Arc<AtomicU64>, random: Random) -> Self {
        let timers = BTreeMap::new();
        Self(Arc::new(Mutex::new(Shown { clock, now_us, random, timers, made: 0, armed_us: None })))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it shows.
    pub fn now(&self) -> Duration {
        let shown = self.shown();
        Duration::from_micros(shown.shows_us())
    }

    /// Ready once it shows that.
    pub fn timer(&self, at: Duration) -> Timer {
        let mut shown = self.shown();
        shown.made += 1;
        // Rounded up: it is never ready too early.
        let at_us = u64::try_from(at.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        Timer { clock: self.clone(), at_us, number: shown.made }
    }

    /// The time of the run, microseconds, at which it shows that; at once when that has passed.
    pub fn true_us(&self, at: Duration) -> u64 {
        let shown = self.shown();
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        shown.when_us(at_us).unwrap_or(u64::MAX)
    }

    /// The time of the run, microseconds.
    pub fn run_us(&self) -> u64 {
        self.shown().now_us.load(Relaxed)
    }

    /// Bits that are drawn on this machine.
    pub fn random_bits(&self) -> u128 {
        let random = &mut self.shown().random;
        u128::from(random.bits()) << 64 | u128::from(random.bits())
    }

    /// Wakes everybody whose time has come.
    pub(super) fn ring(&self) {
        let mut shown = self.shown();
        shown.armed_us = None;
        let shows_us = shown.shows_us();
        let later = shown.timers.split_off(&(shows_us + 1, 0));
        let due = std::mem::replace(&mut shown.timers, later);
        drop(shown);
        due.into_values().for_each(Waker::wake);
    }

    /// When the next timer is due, if that was not said before.
    pub(super) fn arm(&self) -> Option<u64> {
        let mut shown = self.shown();
        let (&(at_us, _), _) = shown.timers.first_key_value()?;
        let due_us = shown.when_us(at_us)?;
        if shown.armed_us.is_some_and(|armed_us| armed_us <= due_us) {
            return None;
        }
        shown.armed_us = Some(due_us);
        Some(due_us)
    }
}

/// Ready at its time.
#[derive(Debug)]
#[must_use = "it is waited for by whoever awaits it"]
pub struct Timer {
    clock: OwnClock,
    at_us: u64,
    number: u64,
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut shown = self.clock.shown();
        if shown.shows_us() >= self.at_us {
            shown.timers.remove(&(self.at_us, self.number));
            return Poll::Ready(());
        }
        shown.timers.insert((self.at_us, self.number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.clock.shown().timers.remove(&(self.at_us, self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_ready_at_its_time_of_the_clients_clock_and_not_before() {
        let now_us = Arc::new(AtomicU64::new(0));
        let clock = OwnClock::new(Clock::new(0, 777, 400), Arc::clone(&now_us), Random::new(1));
        let mut timer = std::pin::pin!(clock.timer(Duration::from_secs(10)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(timer.as_mut().poll(&mut context).is_pending());
        let due_us = clock.arm().unwrap();
        assert_eq!((clock.arm(), clock.true_us(Duration::from_secs(10))), (None, due_us));
        now_us.store(due_us - 3, Relaxed);
        assert!(timer.as_mut().poll(&mut context).is_pending());
        now_us.store(due_us, Relaxed);
        assert!(timer.as_mut().poll(&mut context).is_ready());
        clock.ring();
        assert_eq!(clock.arm(), None, "nobody waits any more");
    }
}
