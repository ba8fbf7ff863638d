//! A session's environment besides the machine: time and unique numbers.

use crate::lock;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The environment provided by the machine's driver, shared by all sessions of a server.
pub trait Environment: Debug + Send + Sync {
    /// Returns the time since some fixed instant. It never goes back, and it advances while the
    /// host sleeps.
    fn now(&self) -> Duration;

    /// Returns 128 random bits, unique to this call.
    fn random_bits(&self) -> u128;

    /// Maximum delay before the leader learns that a session is alive.
    ///
    /// Zero on a single server.
    fn liveness_delay_max(&self) -> Duration;

    /// Returns the timers of all sessions.
    ///
    /// The driver calls [`Timers::wake_due`] once [`Timers::next`] has come, and [`Timers::end`]
    /// when the driver stops.
    fn timers(&self) -> &Timers;

    /// Called when [`Timers::next`] became earlier: a driver that sleeps must look again.
    fn rouse(&self);
}

/// The wakers of all pending [`Timer`]s. Dropping a timer removes its waker.
#[derive(Debug)]
pub struct Timers {
    waiting: Mutex<Waiting>,
    /// The earliest instant in nanoseconds. Atomic, so that reading it takes no lock.
    next_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: BTreeMap<(Duration, u64), Waker>,
    numbers: u64,
    ended: bool,
}

const NEVER: u64 = u64::MAX;

impl Default for Timers {
    fn default() -> Self {
        Self { waiting: Mutex::default(), next_ns: AtomicU64::new(NEVER) }
    }
}

impl Timers {
    /// Returns the earliest instant of any timer; `None` without timers.
    pub fn next(&self) -> Option<Duration> {
        Some(self.next_ns.load(SeqCst)).filter(|&ns| ns != NEVER).map(Duration::from_nanos)
    }

    /// Wakes every timer that is due at `now`.
    pub fn wake_due(&self, now: Duration) {
        if self.next().is_none_or(|next| now < next) {
            return;
        }
        let mut waiting = lock(&self.waiting);
        let later = waiting.wakers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut waiting.wakers, later);
        self.note_next(&waiting);
        drop(waiting);
        due.into_values().for_each(Waker::wake);
    }

    /// Makes every timer ready, because [`Timers::wake_due`] will not be called again.
    ///
    /// A future that is never woken would be worse than one that is ready early.
    pub fn end(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.ended = true;
        let all = std::mem::take(&mut waiting.wakers);
        self.note_next(&waiting);
        drop(waiting);
        all.into_values().for_each(Waker::wake);
    }

    fn note_next(&self, waiting: &Waiting) {
        let next = waiting.wakers.first_key_value().map(|((at, _), _)| u64::try_from(at.as_nanos()).unwrap_or(NEVER));
        self.next_ns.store(next.unwrap_or(NEVER), SeqCst);
    }

    /// Registers `waker` for `at`, replacing the waker of the same `number`.
    ///
    /// Returns whether `at` is now the earliest instant, or `None` after [`Timers::end`].
    fn set(&self, number: &mut Option<u64>, at: Duration, waker: &Waker) -> Option<bool> {
        let mut waiting = lock(&self.waiting);
        if waiting.ended {
            return None;
        }
        let number = *number.get_or_insert_with(|| {
            waiting.numbers += 1;
            waiting.numbers
        });
        // Dropped only after the lock is released, as in `forget`.
        let former = waiting.wakers.insert((at, number), waker.clone());
        let is_sooner = self.next().is_none_or(|next| at < next);
        self.note_next(&waiting);
        drop(waiting);
        drop(former);
        Some(is_sooner)
    }

    fn forget(&self, number: u64, at: Duration) {
        let mut waiting = lock(&self.waiting);
        // Dropped after the lock is released: it may own the last reference to another timer, whose
        // drop calls back here.
        let waker = waiting.wakers.remove(&(at, number));
        self.note_next(&waiting);
        drop(waiting);
        drop(waker);
    }
}

/// A future that is ready at its instant, or when the machine has ended.
#[derive(Debug)]
#[must_use = "a timer does nothing unless it is awaited"]
pub struct Timer {
    environment: Arc<dyn Environment>,
    at: Duration,
    /// Set once the timer was polled while pending.
    number: Option<u64>,
}

impl Timer {
    /// Creates a timer that is ready at `at` on the clock of `environment`.
    pub fn new(environment: Arc<dyn Environment>, at: Duration) -> Self {
        Self { environment, at, number: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { environment, at, number } = &mut *self;
        if environment.now() >= *at {
            return Poll::Ready(());
        }
        match environment.timers().set(number, *at, context.waker()) {
            None => Poll::Ready(()),
            Some(is_sooner) => {
                if is_sooner {
                    environment.rouse();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.environment.timers().forget(number, self.at);
        }
    }
}
