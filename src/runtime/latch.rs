//! A value that is set once, and that futures and threads wait for.

use super::lock;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A value that is set at most once. Later values are ignored.
#[derive(Debug)]
pub(crate) struct Latch<T> {
    state: Mutex<State<T>>,
    set: Condvar,
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    numbers: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl<T> Latch<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { value: None, numbers: 0, waiting: BTreeMap::new() }),
            set: Condvar::new(),
        })
    }
}

impl<T: Clone> Latch<T> {
    pub(crate) fn set(&self, value: T) {
        let mut state = lock(&self.state);
        if state.value.is_some() {
            return;
        }
        state.value = Some(value);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.set.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }

    pub(crate) fn value(&self) -> Option<T> {
        lock(&self.state).value.clone()
    }

    /// Blocks until the value is set; `None` if that takes longer than `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if let Some(value) = &state.value {
                return Some(value.clone());
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| *left > Duration::ZERO)?;
            state = self.set.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns a future of the value.
    pub(crate) fn wait(self: &Arc<Self>) -> Set<T> {
        let mut state = lock(&self.state);
        state.numbers += 1;
        Set { number: state.numbers, latch: Arc::clone(self) }
    }
}

/// Waits for a latch. Cancel-safe.
#[derive(Debug)]
pub(crate) struct Set<T> {
    latch: Arc<Latch<T>>,
    number: u64,
}

impl<T: Clone> Future for Set<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.latch.state);
        if let Some(value) = &state.value {
            return Poll::Ready(value.clone());
        }
        state.waiting.insert(self.number, context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Set<T> {
    fn drop(&mut self) {
        lock(&self.latch.state).waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    #[test]
    fn latch_keeps_its_first_value_and_wakes_futures_and_threads() {
        let latch = Latch::new();
        let (future, thread) = (latch.wait(), Arc::clone(&latch));
        let waiting = std::thread::spawn(move || thread.wait_until(Instant::now() + Duration::from_secs(10)));
        latch.set(1);
        latch.set(2);
        assert_eq!((future.wait(), waiting.join().unwrap()), (1, Some(1)));
    }

    #[test]
    fn waiting_for_a_latch_ends_at_the_deadline() {
        let latch = Latch::<u8>::new();
        assert_eq!(latch.wait_until(Instant::now() + Duration::from_millis(2)), None);
    }
}
