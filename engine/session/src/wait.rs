//! The blocking facade: waits for a future on the calling thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Waits for a future on this thread.
///
/// It works for every future that needs no particular runtime, such as all futures of zoolet. Do
/// not call it on a thread that runs an executor: it blocks the thread.
pub trait Wait: Future {
    /// Blocks until the future is ready.
    fn wait(self) -> Self::Output
    where
        Self: Sized,
    {
        block(self, None).unwrap_or_else(|| unreachable!("no deadline was set"))
    }

    /// Blocks until the future is ready or `timeout` has passed.
    ///
    /// After the timeout it returns `None` and drops the future, which cancels only the waiting.
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
    /// One waker per thread, so that waiting allocates nothing.
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
                // A future may call `wait` inside a poll. The inner wait may have consumed the
                // wake-up of the outer one.
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
