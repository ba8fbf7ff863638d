//! The blocking facade: any of our futures, waited for on this thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Waits for a future on this thread. Works for every future that needs no particular runtime, as all of ours.
///
/// Do not call it on a thread that runs an executor: it blocks.
pub trait Wait: Future {
    /// Blocks until the future is ready.
    fn wait(self) -> Self::Output
    where
        Self: Sized,
    {
        block(self, None).unwrap_or_else(|| unreachable!("no deadline was set"))
    }

    /// Blocks until the future is ready, at most for `timeout`; then it is dropped, which cancels only the waiting.
    fn wait_timeout(self, timeout: Duration) -> Option<Self::Output>
    where
        Self: Sized,
    {
        block(self, Instant::now().checked_add(timeout))
    }
}

impl<F: Future> Wait for F {}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        self.thread.unpark();
    }
}

thread_local! {
    /// One waker for each thread, so that waiting allocates nothing.
    static PARKER: (Arc<Parker>, Waker) = {
        let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
        (Arc::clone(&parker), Waker::from(parker))
    };
}

fn block<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let mut future = pin!(future);
    PARKER.with(|(parker, waker)| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                // A future that itself waited inside a poll may have taken the wake-up of the one around it.
                parker.woken.store(true, SeqCst);
                return Some(output);
            }
            while !parker.woken.swap(false, SeqCst) {
                match deadline {
                    None => thread::park(),
                    Some(deadline) => {
                        let left = deadline.checked_duration_since(Instant::now())?;
                        thread::park_timeout(left);
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_another_thread_wakes() {
        let mut polls = 0;
        let future = std::future::poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(7);
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert_eq!(future.wait(), 7);
    }

    #[test]
    fn waiting_ends_at_its_timeout() {
        assert_eq!(std::future::pending::<()>().wait_timeout(Duration::from_millis(5)), None);
        assert_eq!(std::future::ready(3).wait_timeout(Duration::ZERO), Some(3));
    }
}
