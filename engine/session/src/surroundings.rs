//! What a session needs of the world beside the machine: time, and numbers that nobody else has.

use crate::lock;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The world of whoever drives the machine. Shared by all sessions of one server.
pub trait Surroundings: Debug + Send + Sync {
    /// The time since some fixed instant. It never goes back, and goes on while the box sleeps.
    fn now(&self) -> Duration;

    /// 128 bits that nobody else has.
    fn random_bits(&self) -> u128;

    /// By how much later than the server of these sessions whoever ends sessions may hear of a sign of life, at most. Zero where that is the only
    /// server.
    fn told_late(&self) -> Duration;

    /// Who waits for an instant. Whoever drives the machine calls [`Timers::wake_due`] when [`Timers::next`] has come, and [`Timers::end`] when it
    /// ends.
    fn timers(&self) -> &Timers;

    /// [`Timers::next`] is sooner than it was: whoever sleeps until then is to look again.
    fn rouse(&self);
}

/// Who waits for which instant. As many as there are [`Timer`]s under way: what is dropped is taken out.
#[derive(Debug)]
pub struct Timers {
    waiting: Mutex<Waiting>,
    /// Nanoseconds; so that who only wants to know takes no lock.
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
    /// The soonest instant that somebody waits for.
    pub fn next(&self) -> Option<Duration> {
        Some(self.next_ns.load(SeqCst)).filter(|&ns| ns != NEVER).map(Duration::from_nanos)
    }

    /// Wakes everybody whose instant has come.
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

    /// Nobody calls [`Timers::wake_due`] any more: every timer is ready, for a future that nobody would wake is worse.
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

    /// Wakes `waker` at `at`, in place of the one that waited under this number. Says whether it is now the soonest; `None` after the end.
    fn set(&self, number: &mut Option<u64>, at: Duration, waker: &Waker) -> Option<bool> {
        let mut waiting = lock(&self.waiting);
        if waiting.ended {
            return None;
        }
        let number = *number.get_or_insert_with(|| {
            waiting.numbers += 1;
            waiting.numbers
        });
        // As in `forget`.
        let former = waiting.wakers.insert((at, number), waker.clone());
        let is_sooner = self.next().is_none_or(|next| at < next);
        self.note_next(&waiting);
        drop(waiting);
        drop(former);
        Some(is_sooner)
    }

    fn forget(&self, number: u64, at: Duration) {
        let mut waiting = lock(&self.waiting);
        // Its waker may be all that keeps something else alive, whose end may come back here.
        let waker = waiting.wakers.remove(&(at, number));
        self.note_next(&waiting);
        drop(waiting);
        drop(waker);
    }
}

/// Ready at its instant, or when the machine has ended.
#[derive(Debug)]
#[must_use = "time passes by itself; whoever awaits this waits for it"]
pub struct Timer {
    surroundings: Arc<dyn Surroundings>,
    at: Duration,
    /// Once somebody waits.
    number: Option<u64>,
}

impl Timer {
    /// Ready at `at`, by the clock of `surroundings`.
    pub fn new(surroundings: Arc<dyn Surroundings>, at: Duration) -> Self {
        Self { surroundings, at, number: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { surroundings, at, number } = &mut *self;
        if surroundings.now() >= *at {
            return Poll::Ready(());
        }
        match surroundings.timers().set(number, *at, context.waker()) {
            None => Poll::Ready(()),
            Some(is_sooner) => {
                if is_sooner {
                    surroundings.rouse();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.surroundings.timers().forget(number, self.at);
        }
    }
}
