//! A session whose owner must show that he is alive.

use crate::link::Link;
use crate::{Timer, lock};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// How long an owner may be silent, and when he was heard last.
#[derive(Debug)]
pub(crate) struct Watchdog {
    patience: Duration,
    /// Nanoseconds.
    touched: AtomicU64,
    timer: Mutex<Option<Timer>>,
}

/// Looks when the time has come. It does not keep the session alive.
struct Alarm(Weak<Link>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(link) = self.0.upgrade() {
            link.look_at_watchdog();
        }
    }
}

impl Watchdog {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, touched: AtomicU64::new(0), timer: Mutex::new(None) }
    }

    /// He is alive.
    pub(crate) fn touch(&self, now: Duration) {
        self.touched.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// There is nothing to look after any more.
    pub(crate) fn rest(&self) {
        let timer = lock(&self.timer).take();
        drop(timer);
    }

    /// Whether he was silent for too long. If not, it is looked at again when he may have been.
    pub(crate) fn is_due_or_waits(&self, link: &Arc<Link>) -> bool {
        let surroundings = link.surroundings();
        let due = Duration::from_nanos(self.touched.load(Relaxed)).saturating_add(self.patience);
        if surroundings.now() >= due {
            self.rest();
            return true;
        }
        let waker = Waker::from(Arc::new(Alarm(Arc::downgrade(link))));
        let mut timer = Timer::new(Arc::clone(surroundings), due);
        // Ready here is one whose machine has ended, and with it the session; or it was due just now, as nobody has slept for so long: then the next wake-up would never come.
        let is_over = Pin::new(&mut timer).poll(&mut Context::from_waker(&waker)).is_ready();
        let former = lock(&self.timer).replace(timer);
        drop(former);
        is_over && surroundings.now() >= due
    }
}
