//! A watchdog that closes a session unless its owner shows that it is alive.

use crate::{Environment, Timer, lock};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

/// How long an owner may be silent, and when it last called `touch`.
#[derive(Debug)]
pub(crate) struct Watchdog {
    patience: Duration,
    /// Time of the last touch, in nanoseconds.
    touched: AtomicU64,
    timer: Mutex<Option<Timer>>,
}

impl Watchdog {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, touched: AtomicU64::new(0), timer: Mutex::new(None) }
    }

    /// Records that the owner is alive.
    pub(crate) fn touch(&self, now: Duration) {
        self.touched.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Stops the timer: there is nothing left to guard.
    pub(crate) fn rest(&self) {
        let timer = lock(&self.timer).take();
        drop(timer);
    }

    /// Returns whether the owner was silent for too long.
    ///
    /// If not, sets a timer that wakes `alarm` for the next check.
    pub(crate) fn is_due_or_waits(&self, environment: &Arc<dyn Environment>, alarm: impl FnOnce() -> Waker) -> bool {
        let due = Duration::from_nanos(self.touched.load(Relaxed)).saturating_add(self.patience);
        if environment.now() >= due {
            self.rest();
            return true;
        }
        let mut timer = Timer::new(Arc::clone(environment), due);
        // The timer is ready at once in two cases. Either the machine has ended, and the session
        // with it; then this returns `false`. Or `due` has passed since the check above; then no
        // wake-up would follow, so this returns `true`.
        let is_over = Pin::new(&mut timer).poll(&mut Context::from_waker(&alarm())).is_ready();
        let former = lock(&self.timer).replace(timer);
        drop(former);
        is_over && environment.now() >= due
    }
}
