//! Sessions that tell a function of the program what happens to their grants.

use crate::{Coordinator, Errand, Error, GrantChange, Instant, OpenSession};
use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use zoolet_model::{AddWatchMode, Path, Request, SessionId, SessionState};

/// Receives the changes of grants.
type Record = Arc<dyn Fn(&GrantChange<'_>) + Send + Sync>;

/// A session, or an opener of sessions, that tells a function what happens to its grants.
///
/// It is the hook for metrics of any kind. The function runs in the task that polls the recipe or
/// drops the grant, so it must neither block nor panic.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use zoolet::recipes::{Coordinator, GrantChange, GrantStep, Recorded};
///
/// /// Recipes made with the returned session count the grants that they lose.
/// fn counted<C: Coordinator>(session: C, lost: Arc<AtomicU64>) -> Recorded<C> {
///     Recorded::new(session, move |change: &GrantChange<'_>| match change.step {
///         GrantStep::Lost { .. } => drop(lost.fetch_add(1, Relaxed)),
///         _ => {}
///     })
/// }
/// ```
#[derive(Clone)]
pub struct Recorded<T> {
    inner: T,
    record: Record,
}

impl<T> Recorded<T> {
    /// Returns a session or opener that calls `record` with each change of a grant.
    pub fn new(inner: T, record: impl Fn(&GrantChange<'_>) + Send + Sync + 'static) -> Self {
        Self { inner, record: Arc::new(record) }
    }

    /// Returns the session or opener itself.
    pub const fn inner(&self) -> &T {
        &self.inner
    }
}

impl<T: Debug> Debug for Recorded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods, reason = "each call must reach the session")]
impl<C: Coordinator> Coordinator for Recorded<C> {
    type Ticket = C::Ticket;
    type Watch = C::Watch;
    type Events = C::Events;
    type States = C::States;
    type Timer = C::Timer;

    fn submit(&self, request: Request) -> C::Ticket {
        self.inner.submit(request)
    }

    fn submit_watching(&self, request: Request) -> (C::Ticket, C::Watch) {
        self.inner.submit_watching(request)
    }

    fn add_watch(&self, path: &Path, mode: AddWatchMode) -> (C::Ticket, C::Events) {
        self.inner.add_watch(path, mode)
    }

    fn run_errand(&self, errand: Errand) {
        self.inner.run_errand(errand);
    }

    fn session(&self) -> SessionId {
        self.inner.session()
    }

    fn session_timeout(&self) -> Duration {
        self.inner.session_timeout()
    }

    fn state(&self) -> SessionState {
        self.inner.state()
    }

    fn states(&self) -> C::States {
        self.inner.states()
    }

    fn safe_until(&self) -> Instant {
        self.inner.safe_until()
    }

    fn gaps(&self) -> u64 {
        self.inner.gaps()
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn timer(&self, at: Instant) -> C::Timer {
        self.inner.timer(at)
    }

    fn random_bits(&self) -> u128 {
        self.inner.random_bits()
    }

    fn record(&self, change: &GrantChange<'_>) {
        self.inner.record(change);
        (self.record)(change);
    }
}

impl<O: OpenSession> OpenSession for Recorded<O> {
    type Session = Recorded<O::Session>;
    type Opening = RecordedOpening<O::Opening>;

    fn open_session(&self) -> Self::Opening {
        RecordedOpening(Recorded { inner: Box::pin(self.inner.open_session()), record: Arc::clone(&self.record) })
    }
}

/// Ready with the next session of a [`Recorded`] opener.
pub struct RecordedOpening<F>(Recorded<Pin<Box<F>>>);

impl<F> Debug for RecordedOpening<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedOpening").finish_non_exhaustive()
    }
}

impl<F: Future<Output = Result<C, Error>>, C> Future for RecordedOpening<F> {
    type Output = Result<Recorded<C>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let opened = ready!(self.0.inner.as_mut().poll(context));
        Poll::Ready(opened.map(|inner| Recorded { inner, record: Arc::clone(&self.0.record) }))
    }
}
