//! The wakers of tasks that wait for one thing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The wakers of all tasks that wait for one thing: at most one for each [`Slot`].
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Number of slots so far.
    slots: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Wakers {
    pub(crate) fn slot(self: &Arc<Self>) -> Slot {
        let mut waiting = self.lock();
        waiting.slots += 1;
        Slot { wakers: Arc::clone(self), number: waiting.slots }
    }

    /// Wakes all tasks that wait.
    pub(crate) fn wake_all(&self) {
        // Wakers run code of others: not under the lock.
        let wakers = std::mem::take(&mut self.lock().wakers);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// The place of one waiting task. Dropping it takes its waker away.
#[derive(Debug)]
pub(crate) struct Slot {
    wakers: Arc<Wakers>,
    number: u64,
}

impl Slot {
    /// Has the task woken next time.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut waiting = self.wakers.lock();
        let own = waiting.wakers.iter_mut().find(|(number, _)| *number == self.number);
        let former = match own {
            Some((_, kept)) if kept.will_wake(waker) => None,
            Some((_, kept)) => Some(std::mem::replace(kept, waker.clone())),
            None => {
                waiting.wakers.push((self.number, waker.clone()));
                None
            }
        };
        drop(waiting);
        drop(former);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut waiting = self.wakers.lock();
        let own = waiting.wakers.iter().position(|(number, _)| *number == self.number);
        let waker = own.map(|at| waiting.wakers.swap_remove(at));
        drop(waiting);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_that_no_longer_waits_leaves_no_waker() {
        let wakers = Arc::new(Wakers::default());
        let stays = wakers.slot();
        stays.wait(Waker::noop());
        stays.wait(Waker::noop());
        for _ in 0..100 {
            wakers.slot().wait(Waker::noop());
        }
        assert_eq!(wakers.lock().wakers.len(), 1);
        wakers.wake_all();
        assert_eq!(wakers.lock().wakers.len(), 0);
    }
}
