//! Wakers that a change under the lock has collected.

use std::task::Waker;

/// Wakers to wake once the lock is released.
#[must_use = "wake the waiting tasks"]
#[derive(Debug, Default)]
pub(super) struct Wakers(pub(super) Vec<Waker>, pub(super) Option<Waker>);

impl Wakers {
    /// Adds a waker. The first one, which is the usual case, allocates nothing.
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.1.is_none() => self.1 = Some(waker),
            more => self.0.extend(more),
        }
    }

    pub(super) fn append(&mut self, mut more: Wakers) {
        self.0.append(&mut more.0);
        self.add(more.1);
    }

    pub(super) fn wake(self) {
        self.0.into_iter().chain(self.1).for_each(Waker::wake);
    }
}
