//! Recipes over TCP, through a session of the crate `zookeeper-client`.
//!
//! The server is zoolet or Apache ZooKeeper. The session runs on tokio: make a [`Remote`] inside a
//! runtime with time enabled, and keep the runtime alive for at least as long. Grants and other
//! guards may be dropped anywhere.
//!
//! # Guarantees
//! - All that [`Coordinator`] promises: requests in order, watches that outlive connections, and
//!   errands that run until they are done.
//! - Errands that a lost connection left unfinished are sent on the next connection before any new
//!   request.
//! - [`Coordinator::safe_until`] relies only on answers that came through the leader, and allows
//!   for clocks that run at different speeds.
//!
//! # Does not guarantee
//! - That a request whose connection was lost was carried out, or was not.
//! - As much safe time as a session in a server's process has. It is shorter here by about a third
//!   of the timeout.
//!
//! # Znodes
//! None.
//!
//! # Failures
//! - **The connection is lost**: `Suspended`; requests in flight get `ConnectionLoss`.
//! - **A request is made without a connection**: it is not sent and gets `Suspended`.
//! - **The session ends at the server**: `Lost`; watches end, and ephemerals are gone.
//! - **The runtime ends**: `Closed`, and timers are ready at once. Only the end of the session
//!   still clears anything away.
//! - **The last clone is dropped**: errands are done, then the session is closed.
//!
//! # Limits of the client
//! - Null data and empty data are the same: `None` is written as empty, and empty data is read as
//!   `None`. No recipe tells them apart.
//! - For a failed multi the client reports only the operation that failed. The results of the other
//!   operations follow from its position.
//! - Requests that no recipe sends are refused as Unimplemented: getACL, getEphemerals,
//!   getAllChildrenNumber, multiRead, whoAmI, auth and the requests about watches. So are
//!   permission bits beyond the five.
//! - One-shot watches on more than 128 KiB of paths do not survive a reconnect: the client then
//!   fails to reconnect at all.
//! - A request whose connection was lost gets `ConnectionLoss`, whether it was written or not.
//! - [`Coordinator::session_timeout`] stays that of the first connection.
//! - A client that may begin at a read-only server (`with_readonly`) gets a new session when it
//!   finds a writable server. Use such a client for reads only.
//!
//! # Limits of Apache ZooKeeper
//! Before 3.9 a session has one persistent watch on a path, and a later watch replaces it. So of a
//! [`ZnodeCache`](crate::ZnodeCache) and a [`ChildrenCache`](crate::ChildrenCache) on one path the
//! earlier one may hear nothing. Give each a separate session.
//!
//! # Example
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zoolet::recipes::{Lock, Remote};
//! use zoolet::{Path, zookeeper_client::Client};
//!
//! let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
//! let session = Remote::connect(connector, "gw-a:2181,gw-b:2181,gw-c:2181").await?;
//! let grant = Lock::new(session, &Path::from_static("/locks/valve-7")).acquire().await?;
//! grant.release().await?;
//! # Ok(())
//! # }
//! ```

mod remote_errands;
mod remote_liveness;
mod remote_watches;
mod request;
mod servers;
mod states;

pub use remote_watches::{Events, Watch};
pub use servers::Servers;
pub use states::States;

use crate::ask::first;
use crate::{Coordinator, Errand, Instant};
use remote_errands::{Asking, Driver, Errands};
use remote_liveness::Life;
use request::Performed;
use rustix::time::{ClockId, clock_gettime};
use states::Gaps;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Sleep;
use zookeeper_client::{Client, Connector};
use zoolet_model::{AddWatchMode, Path, Reply, Request, RequestError, SessionId, SessionState};

/// Maximum time between two looks at the clock by a timer. Tokio's timer stops while the machine
/// sleeps.
const TIMER_SLICE: Duration = Duration::from_secs(1);

/// A session at a server.
///
/// Clones are the same session. It is closed once the last clone is dropped and its errands are
/// done.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    client: Arc<Client>,
    handle: Handle,
    errands: Arc<Errands>,
    life: Arc<Mutex<Life>>,
    gaps: Arc<Mutex<Gaps>>,
    /// Closed when the session's tasks have ended: after the last clone and all errands, or with
    /// their runtime.
    runtime: watch::Receiver<()>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("session", &self.session()).field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Remote {
    /// Connects, and opens a session.
    ///
    /// # Errors
    /// The client's error if it cannot open a session.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub async fn connect(connector: Connector, servers: &str) -> Result<Self, zookeeper_client::Error> {
        let began = now();
        let client = connector.connect(servers).await?;
        // The creation of the session went through the leader.
        let life = Life::new(client.session_timeout(), Some(began), None);
        Ok(Self::with(client, life))
    }

    /// Uses a session that is connected already; call it right after connecting.
    ///
    /// For the first half of a timeout, [`Coordinator::safe_until`] takes for granted that this
    /// process was not stopped before the call.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(client: Client) -> Self {
        let timeout = client.session_timeout();
        // The client pings after at most a fifth of the timeout without traffic. The leader hears
        // of the ping at most a quarter of the timeout later.
        let pinged =
            matches!(states::state(client.state()), SessionState::Connected).then(|| now().checked_sub(timeout / 2));
        Self::with(client, Life::new(timeout, None, pinged.flatten()))
    }

    fn with(client: Client, life: Life) -> Self {
        let handle = Handle::current();
        let (alive, runtime) = watch::channel(());
        let errands = Errands::new();
        let driver = Driver::new(Arc::clone(&errands));
        handle.spawn(async move {
            driver.await;
            drop(alive);
        });
        let (life, gaps) = (Arc::new(Mutex::new(life)), Arc::new(Mutex::new(Gaps::new(client.state_watcher()))));
        let inner = Arc::new(Inner { client: Arc::new(client), handle, errands, life, gaps, runtime });
        inner.handle.spawn(keep_known(Arc::downgrade(&inner), inner.runtime.clone()));
        Self { inner }
    }
}

/// Sends a sync through the leader every twelfth of the timeout.
///
/// The client also pings by itself, but only its server hears the pings and no answer to them is
/// reported. A sync costs a server neither a write nor a zxid.
///
/// Ends with `runtime`, so that it does not outlive a session that was closed.
async fn keep_known(session: Weak<Inner>, mut runtime: watch::Receiver<()>) {
    while let Some(inner) = session.upgrade() {
        let pause = inner.client.session_timeout() / 12;
        let asking = (inner.state() == SessionState::Connected).then(|| inner.ask(Request::Sync { path: None }));
        drop(inner);
        if let Some(asking) = asking {
            let _ = asking.await;
        }
        let ended = async { while runtime.changed().await.is_ok() {} };
        first(tokio::time::sleep(pause), ended).await;
    }
}

impl Inner {
    fn state(&self) -> SessionState {
        match states::state(self.client.state()) {
            state if state.is_over() => state,
            // The tasks of the session have ended, so nothing updates the state any more.
            _ if self.runtime.has_changed().is_err() => SessionState::Closed,
            state => state,
        }
    }

    /// Returns the reason not to send `request`, if there is one.
    fn refusal(&self, request: &Request) -> Option<RequestError> {
        match self.state() {
            SessionState::Connected | SessionState::ReadOnly => {
                request::is_too_large(request).then_some(RequestError::TooLarge)
            }
            state => Some(RequestError::of(state)),
        }
    }

    /// Sends the request of `asking`, behind all errands.
    ///
    /// The client sends the request when it is called, and the first poll calls it.
    fn begin<T: Send + 'static>(&self, mut asking: Asking<T>) -> Asking<T> {
        let mut context = Context::from_waker(Waker::noop());
        match self.errands.behind(|| asking.as_mut().poll(&mut context)) {
            Poll::Pending => asking,
            Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
        }
    }

    fn ask(&self, request: Request) -> Asking<Result<Reply, RequestError>> {
        let (client, life, sent) = (Arc::clone(&self.client), Arc::clone(&self.life), now());
        let gaps = Arc::clone(&self.gaps);
        self.begin(Box::pin(async move {
            let Performed { answer, is_leaders } = request::perform(&client, &request).await;
            if is_leaders {
                let is_resumed = gaps.lock().unwrap_or_else(PoisonError::into_inner).answered();
                let mut life = life.lock().unwrap_or_else(PoisonError::into_inner);
                if is_resumed {
                    life.resumed();
                }
                life.answered(sent, now());
            }
            answer
        }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.errands.close();
    }
}

impl Coordinator for Remote {
    type Ticket = Ticket;
    type Watch = Watch;
    type Events = Events;
    type States = States;
    type Timer = Timer;

    fn submit(&self, request: Request) -> Ticket {
        match self.inner.refusal(&request) {
            Some(error) => Ticket::refused(error),
            None => Ticket(self.inner.ask(request)),
        }
    }

    fn submit_watching(&self, request: Request) -> (Ticket, Watch) {
        if let Some(error) = self.inner.refusal(&request) {
            return (Ticket::refused(error), Watch::of_nothing());
        }
        let client = Arc::clone(&self.inner.client);
        let asking = self.inner.begin(Box::pin(async move { request::perform_watching(&client, &request).await }));
        remote_watches::follow(&self.inner, asking)
    }

    fn add_watch(&self, path: &Path, mode: AddWatchMode) -> (Ticket, Events) {
        if let Some(error) = self.inner.refusal(&Request::AddWatch { path: path.text().clone(), mode }) {
            return (Ticket::refused(error), Events::of_nothing());
        }
        let asking = self.inner.begin(remote_watches::add(Arc::clone(&self.inner.client), path, mode));
        remote_watches::follow_all(&self.inner, path.clone(), mode, asking)
    }

    fn run_errand(&self, errand: Errand) {
        if !self.inner.state().is_over() {
            self.inner.errands.run(&self.inner.client, errand);
        }
    }

    fn session(&self) -> SessionId {
        SessionId(self.inner.client.session_id().0)
    }

    fn session_timeout(&self) -> Duration {
        self.inner.client.session_timeout()
    }

    fn state(&self) -> SessionState {
        self.inner.state()
    }

    fn states(&self) -> States {
        let watcher = self.inner.client.state_watcher();
        States::new(watcher, self.inner.state(), self.inner.runtime.clone())
    }

    fn safe_until(&self) -> Instant {
        Instant::at(self.inner.life.lock().unwrap_or_else(PoisonError::into_inner).safe_until())
    }

    fn gaps(&self) -> u64 {
        self.inner.gaps.lock().unwrap_or_else(PoisonError::into_inner).count()
    }

    fn now(&self) -> Instant {
        Instant::at(now())
    }

    fn timer(&self, at: Instant) -> Timer {
        Timer {
            at: at.since_start(),
            handle: self.inner.handle.clone(),
            runtime: self.inner.runtime.clone(),
            sleep: None,
        }
    }

    /// # Panics
    /// If the system gives no random numbers. With predictable numbers two participants could take
    /// each other's znodes for their own.
    fn random_bits(&self) -> u128 {
        let mut bits = [0; 16];
        let given = rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty());
        assert_eq!(given, Ok(16), "the system gives no random numbers");
        u128::from_ne_bytes(bits)
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The answer to one request. Dropping it does not cancel the request.
#[must_use = "await it to get the answer"]
pub struct Ticket(Asking<Result<Reply, RequestError>>);

impl Ticket {
    fn refused(error: RequestError) -> Self {
        Self(Box::pin(std::future::ready(Err(error))))
    }

    fn waiting(answer: oneshot::Receiver<Result<Reply, RequestError>>) -> Self {
        // The task that would answer has ended with its runtime.
        Self(Box::pin(async { answer.await.unwrap_or(Err(RequestError::Closed)) }))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

impl Future for Ticket {
    type Output = Result<Reply, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

/// Ready at its instant.
///
/// It is ready earlier if the session's tasks have ended: without their runtime nothing would wake
/// it.
#[derive(Debug)]
pub struct Timer {
    at: Duration,
    handle: Handle,
    runtime: watch::Receiver<()>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let left = self.at.saturating_sub(now());
            if left.is_zero() || self.runtime.has_changed().is_err() {
                return Poll::Ready(());
            }
            if self.sleep.is_none() {
                let _inside = self.handle.enter();
                self.sleep = Some(Box::pin(tokio::time::sleep(left.min(TIMER_SLICE))));
            }
            let Some(sleep) = &mut self.sleep else { return Poll::Pending };
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }
}
