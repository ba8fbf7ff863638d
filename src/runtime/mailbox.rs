//! Queues between threads: many threads push, and one takes all items in one move.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locks a mutex, poisoned or not: a panic under the lock was reported on its thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work for one thread.
///
/// Its memory is reused, so passing work on allocates nothing once the memory has grown.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    waiting: Mutex<Waiting<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    /// Whether the taker sleeps. Only then does a push wake it, which costs a system call.
    asleep: bool,
    /// Whether the taker must return, even without an item.
    nudged: bool,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting { items: Vec::new(), asleep: false, nudged: false, closed: false }),
            arrived: Condvar::new(),
        }
    }

    /// Adds an item. Drops it and returns false if the mailbox is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return false;
        }
        waiting.items.push(item);
        self.wake(waiting);
        true
    }

    /// Adds the items, in order. Drops them if the mailbox is closed.
    pub(crate) fn push_all(&self, items: impl ExactSizeIterator<Item = T>) {
        if items.len() == 0 {
            return;
        }
        let mut waiting = lock(&self.waiting);
        if !waiting.closed {
            waiting.items.extend(items);
            self.wake(waiting);
        }
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting<T>>) {
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.arrived.notify_one();
        }
    }

    /// Adds the items, in order, without waking the taker. Returns whether the taker sleeps.
    ///
    /// If it sleeps, the caller does the work or nudges it. A closed mailbox drops the items and
    /// returns false.
    pub(crate) fn leave_all(&self, items: impl ExactSizeIterator<Item = T>) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return false;
        }
        waiting.items.extend(items);
        waiting.asleep
    }

    /// Wakes a sleeping taker, and keeps one awake that is about to sleep.
    pub(crate) fn nudge(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.nudged = true;
        self.wake(waiting);
    }

    /// Swaps all items into `items`, which must be empty.
    ///
    /// Waits for an item, at most for `patience` if given. Returns false once the mailbox is closed
    /// and empty.
    pub(crate) fn take(&self, items: &mut Vec<T>, patience: Option<Duration>) -> bool {
        debug_assert!(items.is_empty());
        let mut waiting = self.wait_locked(patience);
        std::mem::swap(&mut waiting.items, items);
        !(items.is_empty() && waiting.closed)
    }

    /// Waits for an item, at most for `patience` if given, and takes nothing.
    pub(crate) fn wait(&self, patience: Option<Duration>) {
        drop(self.wait_locked(patience));
    }

    /// Swaps all items into `items`, which must be empty, without waiting.
    pub(crate) fn drain(&self, items: &mut Vec<T>) {
        debug_assert!(items.is_empty());
        std::mem::swap(&mut lock(&self.waiting).items, items);
    }

    fn wait_locked(&self, patience: Option<Duration>) -> MutexGuard<'_, Waiting<T>> {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut waiting = lock(&self.waiting);
        while waiting.items.is_empty() && !waiting.closed && !waiting.nudged {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            waiting.asleep = true;
            waiting = match left {
                None => self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.arrived.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        (waiting.asleep, waiting.nudged) = (false, false);
        waiting
    }

    /// Closes the mailbox. The taker still gets its items.
    pub(crate) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.arrived.notify_one();
    }

    /// Closes the mailbox and drops its items.
    pub(crate) fn close_and_clear(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.items);
        drop(waiting);
        self.arrived.notify_one();
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn all_queued_items_are_taken_in_one_batch_in_order() {
        let mailbox = Mailbox::new();
        mailbox.push(1);
        mailbox.push_all([2, 3].into_iter());
        let mut items = Vec::new();
        assert!(mailbox.take(&mut items, None));
        assert_eq!(items, [1, 2, 3]);
    }

    #[test]
    fn take_from_an_open_mailbox_times_out_with_an_empty_batch() {
        let mailbox = Mailbox::<u8>::new();
        let mut items = Vec::new();
        assert!(mailbox.take(&mut items, Some(Duration::from_millis(1))));
        assert!(items.is_empty());
    }

    #[test]
    fn closed_mailbox_delivers_its_remaining_items_and_then_ends() {
        let mailbox = Arc::new(Mailbox::new());
        let taker = std::thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                let (mut all, mut items) = (Vec::new(), Vec::new());
                while mailbox.take(&mut items, None) {
                    all.append(&mut items);
                }
                all
            }
        });
        assert!((0..100).all(|number| mailbox.push(number)));
        mailbox.close();
        assert!(!mailbox.push(1000));
        assert_eq!(taker.join().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn items_left_for_a_sleeping_taker_need_a_nudge_to_wake_it() {
        let mailbox = Arc::new(Mailbox::new());
        assert!(!mailbox.leave_all([0].into_iter()), "nobody sleeps yet");
        mailbox.drain(&mut Vec::new());
        let taker = std::thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || mailbox.wait(None)
        });
        while !mailbox.leave_all(std::iter::empty()) {
            std::thread::yield_now();
        }
        assert!(mailbox.leave_all([1].into_iter()) && !taker.is_finished());
        let mut items = Vec::new();
        mailbox.drain(&mut items);
        assert_eq!(items, [1]);
        mailbox.nudge();
        taker.join().unwrap();
        assert!(!mailbox.leave_all(std::iter::empty()));
    }
}
