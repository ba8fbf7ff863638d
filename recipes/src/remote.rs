//! Recipes over TCP: a session of the crate `zookeeper-client`, at zoolet or at Apache ZooKeeper.
//!
//! It runs on tokio: a [`Remote`] is made inside a runtime with time enabled, which lives for at least as long. Grants and other guards may be dropped
//! anywhere.
//!
//! # Guarantees
//! - What [`Coordinator`] says: requests in their order, watches that outlive connections, errands until they are done.
//! - What a lost connection left of an errand is done before anything that is asked on the next one.
//! - Until when the session is safe is said from answers that came through the leader, and allows for clocks that go at different speeds.
//!
//! # Does not guarantee
//! - That a request whose connection went away was done, or was not.
//! - As much time in which nothing is in doubt as a session in a server's process has: it is about a third of the timeout less.
//!
//! # Znodes
//! None of its own.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | the connection goes away | `Suspended`; requests under way get `ConnectionLoss`, later ones `Suspended` until there is another connection |
//! | the session ends at the server | `Lost`; watches and timers end, ephemerals are gone |
//! | the runtime ends | `Closed`; nothing is cleared away any more but by the end of the session |
//! | the last clone is dropped | errands are done, then the session is closed |
//!
//! # What the client leaves out
//! - Null data and empty data are one: `None` is written as empty, and empty is read as `None`. No recipe tells them apart.
//! - Of a failed multi it gives the operation that failed; what a server says of the others follows from that.
//! - Requests that no recipe sends are refused as Unimplemented: getACL, getEphemerals, getAllChildrenNumber, multiRead, whoAmI, auth and those
//!   of the watches themselves; so are permission bits beyond the five.
//! - One-shot watches on more than 128 KiB of paths do not survive a reconnect: the client then fails to reconnect at all.
//!
//! # What Apache ZooKeeper leaves out
//! Before 3.9 a session has one persistent watch on a path, and the later one takes its place: of a [`NodeCache`](crate::NodeCache) and a
//! [`ChildrenCache`](crate::ChildrenCache) on one path the earlier one may hear nothing. Give them sessions of their own.
//!
//! # What it does not tell
//! - A request of a connection that went away gets `ConnectionLoss`, whether it was written or not. While there is no connection requests are not
//!   taken and get `Suspended`.
//! - The timeout is that of the first connection.
//! - A client that may begin at a read-only server (`with_readonly`) is given a new session when it finds a writable one: use it for reads.
//!
//! # Example
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zoolet_model::Path;
//! use zoolet_recipes::{Lock, Remote};
//!
//! let connector = zookeeper_client::Client::connector().with_session_timeout(Duration::from_secs(10));
//! let session = Remote::connect(connector, "gw-a:2181,gw-b:2181,gw-c:2181").await?;
//! let grant = Lock::new(session, &Path::from_static("/locks/valve-7")).acquire().await?;
//! grant.release().await?;
//! # Ok(())
//! # }
//! ```

mod errands;
mod life;
mod request;
mod states;
mod watches;

pub use states::States;
pub use watches::{Events, Watch};

use crate::{Coordinator, Errand, Instant};
use errands::{Asking, Driver, Errands};
use life::Life;
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
use zoolet_model::{AddWatchMode, Error, Path, Reply, Request, SessionId, SessionState};

/// A timer looks at the clock at least this often: tokio's does not go on while the machine sleeps.
const TIMER_SLICE: Duration = Duration::from_secs(1);

/// A session at a server. Clones are the same session; it is closed once the last one is dropped and its errands are done.
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
    /// Closed when the tasks of this session are gone: with the session, or with their runtime.
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
    /// The client's.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(connector: Connector, servers: &str) -> Result<Self, zookeeper_client::Error> {
        let began = now();
        let client = connector.connect(servers).await?;
        // Its creation went through the leader.
        let life = Life::new(client.session_timeout(), Some(began), None);
        Ok(Self::with(client, life))
    }

    /// Over a session that is connected already. Made at best right after it was: until half of the timeout later, [`Coordinator::safe_until`]
    /// takes for granted that this process was not stopped before.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(client: Client) -> Self {
        let timeout = client.session_timeout();
        // The client pings when a fifth of the timeout has passed in silence, at the latest; a quarter may pass until the leader hears of it.
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
        inner.handle.spawn(keep_known(Arc::downgrade(&inner)));
        Self { inner }
    }
}

/// Asks for something through the leader every twelfth of the timeout: the client pings by itself, but only its server hears that, and nobody is told of
/// the answer. It is a sync, which costs a server neither a write nor a zxid.
async fn keep_known(session: Weak<Inner>) {
    while let Some(inner) = session.upgrade() {
        let pause = inner.client.session_timeout() / 12;
        let asking = (inner.state() == SessionState::Connected).then(|| inner.ask(Request::Sync { path: None }));
        drop(inner);
        if let Some(asking) = asking {
            let _ = asking.await;
        }
        tokio::time::sleep(pause).await;
    }
}

impl Inner {
    fn state(&self) -> SessionState {
        match states::state(self.client.state()) {
            state if state.is_over() => state,
            // Nobody changes it any more.
            _ if self.runtime.has_changed().is_err() => SessionState::Closed,
            state => state,
        }
    }

    /// Why a request is not sent.
    fn refusal(&self, request: &Request) -> Option<Error> {
        match self.state() {
            SessionState::Connected | SessionState::ReadOnly => {
                request::is_too_large(request).then_some(Error::TooLarge)
            }
            state => Some(Error::of(state)),
        }
    }

    /// Sends what `asking` asks: the client does when it is called, and it is called when this is polled for the first time.
    fn begin<T: Send + 'static>(&self, mut asking: Asking<T>) -> Asking<T> {
        let mut context = Context::from_waker(Waker::noop());
        match self.errands.behind(|| asking.as_mut().poll(&mut context)) {
            Poll::Pending => asking,
            Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
        }
    }

    fn ask(&self, request: Request) -> Asking<Result<Reply, Error>> {
        let (client, life, sent) = (Arc::clone(&self.client), Arc::clone(&self.life), now());
        let gaps = Arc::clone(&self.gaps);
        self.begin(Box::pin(async move {
            let Performed { answer, is_leaders } = request::perform(&client, &request).await;
            if is_leaders {
                gaps.lock().unwrap_or_else(PoisonError::into_inner).answered();
                life.lock().unwrap_or_else(PoisonError::into_inner).answered(sent, now());
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
        watches::follow(&self.inner, asking)
    }

    fn watch(&self, path: &Path, mode: AddWatchMode) -> (Ticket, Events) {
        if let Some(error) = self.inner.refusal(&Request::AddWatch { path: path.text().clone(), mode }) {
            return (Ticket::refused(error), Events::of_nothing());
        }
        let asking = self.inner.begin(watches::add(Arc::clone(&self.inner.client), path, mode));
        watches::follow_all(&self.inner, path.clone(), mode, asking)
    }

    fn run_errand(&self, errand: Errand) {
        if !self.inner.state().is_over() {
            self.inner.errands.run(&self.inner.client, errand);
        }
    }

    fn session(&self) -> SessionId {
        SessionId(self.inner.client.session_id().0)
    }

    fn timeout(&self) -> Duration {
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
    /// If the system gives no random numbers: with any others two participants could take each other for themselves.
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

/// The answer to one request. Dropping it cancels the waiting, not the request.
#[must_use = "the answer comes when this is awaited"]
pub struct Ticket(Asking<Result<Reply, Error>>);

impl Ticket {
    fn refused(error: Error) -> Self {
        Self(Box::pin(std::future::ready(Err(error))))
    }

    fn waiting(answer: oneshot::Receiver<Result<Reply, Error>>) -> Self {
        // The task that would answer went with its runtime.
        Self(Box::pin(async { answer.await.unwrap_or(Err(Error::Closed)) }))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

impl Future for Ticket {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

/// Ready at its instant, or when there is no runtime any more that could tell of it.
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
