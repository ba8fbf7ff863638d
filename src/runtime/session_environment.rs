//! Clock, timers and randomness for sessions of this process.

use super::{Inbox, clock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use zoolet_session::{Environment, Timers};

/// The sessions' environment. The core thread wakes the timers.
#[derive(Debug)]
pub(super) struct NodeEnvironment {
    inbox: Arc<Inbox>,
    timers: Timers,
    liveness_delay_max: Duration,
    /// Random number from the start. It makes numbers unique if the system refuses to give more.
    seed: u128,
    numbers: AtomicU64,
}

impl NodeEnvironment {
    pub(super) fn new(inbox: Arc<Inbox>, liveness_delay_max: Duration, seed: u128) -> Arc<Self> {
        Arc::new(Self { inbox, timers: Timers::default(), liveness_delay_max, seed, numbers: AtomicU64::new(0) })
    }
}

impl Environment for NodeEnvironment {
    fn now(&self) -> Duration {
        clock::since_boot()
    }

    fn random_bits(&self) -> u128 {
        let mut bits = [0; 16];
        match rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty()) {
            Ok(16) => u128::from_ne_bytes(bits),
            _ => self.seed.wrapping_add(self.numbers.fetch_add(1, Relaxed).into()),
        }
    }

    fn liveness_delay_max(&self) -> Duration {
        self.liveness_delay_max
    }

    fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Wakes the core thread, which sends pings and otherwise sleeps until its next deadline.
    fn rouse(&self) {
        self.inbox.nudge();
    }
}
