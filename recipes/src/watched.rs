//! The newest value of a configuration, for other tasks.

use crate::wakers::{Slot, Wakers};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// The newest good value of a [`Configuration`](crate::Configuration), for any task or thread.
///
/// [`Configuration::watched`](crate::Configuration::watched) returns it. The value changes only
/// while a task polls the configuration. Each reader reports each final value once. A clone starts
/// where its original is.
#[derive(Debug)]
#[must_use = "it reads the value only when it is asked"]
pub struct Watched<T> {
    latest: Arc<Latest<T>>,
    slot: Slot,
    /// Number of the value that this reader has reported.
    reported: u64,
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self { latest: Arc::clone(&self.latest), slot: self.latest.wakers.slot(), reported: self.reported }
    }
}

impl<T> Watched<T> {
    /// Returns the newest value; `None` if there was no value yet.
    pub fn value(&self) -> Option<Arc<T>> {
        self.latest.lock().value.clone()
    }

    /// Waits for a value that this reader has not reported, and returns it.
    ///
    /// Returns at once if this reader has not reported the present value. `None` once the
    /// configuration was dropped and its last value reported. Cancel-safe.
    #[allow(clippy::should_implement_trait, reason = "a stream's next, as futures name it: it returns a future")]
    pub fn next(&mut self) -> impl Future<Output = Option<Arc<T>>> + '_ {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }
}

impl<T> Unpin for Watched<T> {}

impl<T> Stream for Watched<T> {
    type Item = Arc<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Arc<T>>> {
        let state = self.latest.lock();
        if state.number != self.reported {
            let (number, value) = (state.number, state.value.clone());
            drop(state);
            self.reported = number;
            return Poll::Ready(value);
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        // Before the state can change.
        self.slot.wait(context.waker());
        Poll::Pending
    }
}

/// The newest value, on the side of the configuration.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    state: Mutex<State<T>>,
    wakers: Arc<Wakers>,
}

#[derive(Debug)]
struct State<T> {
    value: Option<Arc<T>>,
    /// Number of the value, from 1.
    number: u64,
    /// Whether the configuration was dropped.
    is_over: bool,
}

impl<T> Latest<T> {
    pub(crate) fn new(value: Option<Arc<T>>) -> Arc<Self> {
        let number = u64::from(value.is_some());
        let state = Mutex::new(State { value, number, is_over: false });
        Arc::new(Self { state, wakers: Arc::default() })
    }

    pub(crate) fn watched(self: &Arc<Self>) -> Watched<T> {
        Watched { latest: Arc::clone(self), slot: self.wakers.slot(), reported: 0 }
    }

    pub(crate) fn set(&self, value: Arc<T>) {
        let former = {
            let mut state = self.lock();
            state.number += 1;
            state.value.replace(value)
        };
        drop(former);
        self.wakers.wake_all();
    }

    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.wakers.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
