//! Blocking work of a node's owner, on a thread of its own, for futures on any executor.

use super::threads::message;
use super::{Failure, Latch, Set, StartError, lock};
use crate::runtime::{Node, ShutdownError};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

/// Runs `work` on a new thread of this name. A panic in it becomes a [`Failure`].
fn on_thread<T>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
    hand_over: impl FnOnce(Result<T, Failure>) + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name(format!("zoolet-{name}"));
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(work));
        hand_over(outcome.map_err(|panic| Failure::Bug(message(&*panic))));
    };
    thread.spawn(body).map(drop)
}

/// Waits for a node's start. Dropping it stops the node.
///
/// If the node comes up later, it is stopped then.
#[derive(Debug)]
#[must_use = "dropping this stops the node"]
pub struct Starting {
    place: Arc<Place>,
    arrived: Set<()>,
}

/// Where the thread of a start leaves the node.
#[derive(Debug)]
struct Place {
    state: Mutex<Arrival>,
    arrived: Arc<Latch<()>>,
}

#[derive(Debug)]
enum Arrival {
    Expected,
    Here(Box<Result<Node, StartError>>),
    /// The future was dropped, or has given the node to its owner.
    NotExpected,
}

impl Starting {
    pub(super) fn begin(start: impl FnOnce() -> Result<Node, StartError> + Send + 'static) -> Self {
        let arrived = Latch::new();
        let place = Arc::new(Place { state: Mutex::new(Arrival::Expected), arrived: Arc::clone(&arrived) });
        let thread = Arc::clone(&place);
        let spawned = on_thread("start", start, move |started| {
            thread.put(started.unwrap_or_else(|failure| Err(StartError::Failed(failure))));
        });
        if let Err(error) = spawned {
            place.put(Err(StartError::Thread(error)));
        }
        Self { place, arrived: arrived.wait() }
    }
}

impl Place {
    /// Leaves the node to the future. If the future is gone, stops the node on this thread.
    fn put(&self, started: Result<Node, StartError>) {
        let mut state = lock(&self.state);
        if let Arrival::NotExpected = *state {
            drop(state);
            drop(started);
            return;
        }
        *state = Arrival::Here(Box::new(started));
        drop(state);
        self.arrived.set(());
    }

    fn take(&self) -> Option<Result<Node, StartError>> {
        match std::mem::replace(&mut *lock(&self.state), Arrival::NotExpected) {
            Arrival::Here(started) => Some(*started),
            Arrival::Expected | Arrival::NotExpected => None,
        }
    }
}

impl Future for Starting {
    type Output = Result<Node, StartError>;

    /// # Panics
    /// Polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.arrived).poll(context).map(|()| self.place.take().expect("polled after it was ready"))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(Ok(node)) = self.place.take() {
            // Stopping takes up to 100 ms, which no thread of an executor should wait.
            let _ = thread::Builder::new().name("zoolet-stop".to_owned()).spawn(move || drop(node));
        }
    }
}

/// Waits for the end of a shutdown. Cancel-safe.
///
/// Dropping it does not cancel the shutdown.
#[derive(Debug)]
#[must_use = "awaiting this tells whether the shutdown was clean"]
pub struct ShuttingDown(Set<Result<(), ShutdownError>>);

impl ShuttingDown {
    pub(super) fn begin(shut_down: impl FnOnce() -> Result<(), ShutdownError> + Send + 'static) -> Self {
        let done = Latch::new();
        let thread = Arc::clone(&done);
        let spawned = on_thread("shutdown", shut_down, move |outcome| {
            thread.set(outcome.unwrap_or_else(|failure| Err(ShutdownError::Failed(failure))));
        });
        if let Err(error) = spawned {
            done.set(Err(ShutdownError::Thread(error.kind())));
        }
        Self(done.wait())
    }
}

impl Future for ShuttingDown {
    type Output = Result<(), ShutdownError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    #[test]
    fn panic_of_a_start_is_its_error() {
        let starting = Starting::begin(|| panic!("told to"));
        assert!(matches!(starting.wait(), Err(StartError::Failed(Failure::Bug(what))) if what == "told to"));
    }
}
