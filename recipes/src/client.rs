//! A client that outlives its sessions.
//!
//! A session ends if its server was cut off, or the process stopped, for too long. Its ephemerals,
//! grants and watches end with it. A [`Client`] opens the next session, and what the program does
//! through the client goes on there.
//!
//! | to | use |
//! |---|---|
//! | be a member of a group | [`Client::member`] |
//! | stand for election, and lead | [`Client::lead`], [`Client::lead_restarting`] |
//! | hold a lock, and work | [`Client::hold`], [`Client::hold_restarting`] |
//! | have an identity in each session | [`Prepared`](crate::Prepared) |
//! | follow a znode, children, an office, a configuration | [`Client::znode`], [`Client::children`], [`Client::observe`], [`Client::configuration`] |
//! | watch a znode or subtree | [`Client::watch`] |
//! | anything else, once for each session | [`Client::run`] |
//! | know what was lost | [`Client::events`], and the gap that each stream reports |
//!
//! # Guarantees
//! - A client has at most one session at a time. It opens the next one only when the last is over.
//! - After a session has ended, the streams of znodes, children and watches report a gap before
//!   anything else, and then what is different. An observer and a configuration report the present
//!   state if it is another one.
//! - A leader or holder whose session ended has lost its grant before the client stands or queues
//!   again: nothing acts on the former grant.
//!
//! # Does not guarantee
//! - That a member is present, or a candidate in line, while there is no session.
//! - Progress without polling. A client spawns no task: its session lives on by itself, and each
//!   call goes on while it is polled.
//!
//! # Znodes
//! None but those of the recipes.
//!
//! # Failures
//! - **The connection is lost**: the recipes wait, as over one session.
//! - **The session ends**: the client opens another one, and the calls go on with it.
//! - **No session can be opened any more**, because the node has stopped: all calls return that
//!   error.
//!
//! # Example
//! ```
//! use zoolet::recipes::{Election, OpenSession};
//! use zoolet::{Client, Coordinator, CoordinatorExt, Error, Path, Version};
//!
//! async fn lead<O: OpenSession>(client: Client<O>) -> Result<(), Error> {
//!     let election = |session| Election::new(session, &Path::from_static("/election")).described("gw-a");
//!     client
//!         .lead(election, |term| async move {
//!             for round in 0.. {
//!                 term.fenced().put(&Path::from_static("/plan"), format!("round {round}")).await?;
//!                 term.session().sleep(std::time::Duration::from_secs(1)).await;
//!             }
//!             Ok(())
//!         })
//!         .await
//! }
//! ```

mod events;
mod following;
mod member;
mod watching;

pub use events::{SessionEvent, SessionEvents};
pub use following::{Follow, Following};
pub use member::{MemberEvent, Membership};
pub use watching::Watching;

use crate::ask::{First, first, next};
use crate::wakers::{Slot, Wakers};
use crate::{
    ChildrenCache, Configuration, Coordinator, CoordinatorExt, Election, Error, ErrorKind, Hold, Holding, Instant,
    Lock, Observer, OpenSession, ZnodeCache,
};
use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tracing::{info, warn};
use zoolet_model::{AddWatchMode, IntoData, LostReason, Path, RequestError, SessionState};

/// A client that outlives its sessions.
///
/// Clones are handles to the same client. The last session ends once the last handle was dropped,
/// and each object that the program made from that session.
pub struct Client<O: OpenSession> {
    shared: Arc<Shared<O>>,
}

impl<O: OpenSession> Clone for Client<O> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<O: OpenSession> Debug for Client<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An opener may show its client while that is locked.
        let session = self.shared.current.try_lock().ok().and_then(|current| current.session.clone());
        f.debug_struct("Client").field("session", &session).finish_non_exhaustive()
    }
}

struct Shared<O: OpenSession> {
    opener: O,
    current: Mutex<Current<O>>,
    /// Those of all calls that wait for the next session. One of the calls polls the opening, and any
    /// of them may be dropped. So the opening wakes all.
    waiting: Arc<Wakers>,
}

/// The present session of a client, or the next one.
struct Current<O: OpenSession> {
    session: Option<O::Session>,
    /// Number of the present or last session, from 1.
    number: u64,
    opening: Option<Pin<Box<O::Opening>>>,
    /// Why there is no session any more.
    end: Option<Error>,
}

impl<O: OpenSession> Client<O> {
    /// Returns a client. It opens a session when a call needs one.
    pub fn new(opener: O) -> Self {
        Self::begin(opener, None)
    }

    /// Returns a client whose first session is open already.
    pub fn with_session(opener: O, session: O::Session) -> Self {
        Self::begin(opener, Some(session))
    }

    fn begin(opener: O, session: Option<O::Session>) -> Self {
        let number = u64::from(session.is_some());
        let current = Mutex::new(Current { session, number, opening: None, end: None });
        Self { shared: Arc::new(Shared { opener, current, waiting: Arc::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Current<O>> {
        self.shared.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present session, or waits for the next one. Cancel-safe.
    ///
    /// # Errors
    /// The error of the opener if no session can be opened any more; [`ErrorKind::Closed`] after
    /// [`Client::close`]. Also if a session has ended for a reason that the next one would meet too:
    /// [`ErrorKind::AuthFailed`], and `Lost(Untouched)`, because the program's main loop hangs.
    pub async fn session(&self) -> Result<O::Session, Error> {
        let slot = self.slot();
        poll_fn(|context| self.poll_session(&slot, context)).await.map(|(_, session)| session)
    }

    /// Returns the place of a call that polls for sessions.
    fn slot(&self) -> Slot {
        self.shared.waiting.slot()
    }

    /// Polls for a session that is not over, and its number.
    fn poll_session(&self, slot: &Slot, context: &mut Context<'_>) -> Poll<Result<(u64, O::Session), Error>> {
        let mut current = self.lock();
        if let Some(error) = &current.end {
            return Poll::Ready(Err(error.clone()));
        }
        if let Some(session) = current.session.as_ref().filter(|session| !session.state().is_over()) {
            return Poll::Ready(Ok((current.number, session.clone())));
        }
        let former = Former(current.session.take());
        if let Some(end) = former.end() {
            current.end = Some(end.clone());
            drop(current);
            self.shared.waiting.wake_all();
            return Poll::Ready(Err(end));
        }
        slot.wait(context.waker());
        let waker = Waker::from(Arc::clone(&self.shared.waiting));
        let opened = loop {
            // Taken out: an opening that panics must not be polled again.
            let mut opening = current.opening.take().unwrap_or_else(|| Box::pin(self.shared.opener.open_session()));
            let Poll::Ready(opened) = opening.as_mut().poll(&mut Context::from_waker(&waker)) else {
                current.opening = Some(opening);
                drop(current);
                return Poll::Pending;
            };
            match opened {
                // It ended before the client heard that it had begun.
                Err(error) if error.kind() == ErrorKind::SessionLost(LostReason::Expired) => {}
                opened => break opened,
            }
        };
        let polled = match opened {
            Ok(session) => {
                current.number += 1;
                current.session = Some(session.clone());
                Ok((current.number, session))
            }
            Err(error) => {
                current.end = Some(error.clone());
                Err(error)
            }
        };
        let number = current.number;
        // Loggers, wakers and the last handle of a session run code of others: not under the lock.
        drop(current);
        drop(former);
        match &polled {
            Ok((_, session)) => info!(session = %hex(session), number, "a session has begun"),
            Err(error) => info!(%error, "no session can be opened any more"),
        }
        waker.wake();
        Poll::Ready(polled)
    }

    /// Gives up the present session, and opens no other.
    ///
    /// All calls end with [`ErrorKind::Closed`] once they need a session. The session ends when the
    /// program has dropped what it made of it.
    pub fn close(&self) {
        let mut current = self.lock();
        current.end.get_or_insert(ErrorKind::Closed.into());
        let given_up = (current.session.take(), current.opening.take());
        drop(current);
        drop(given_up);
        self.shared.waiting.wake_all();
    }

    /// Runs work on a session, and on the next one each time the session ends, until it is done.
    ///
    /// The work is dropped when its session ends. It begins again on the next session, and on the
    /// same one after an error that is [temporary](Error::is_temporary) or says that a grant was
    /// lost. So it is done at least once: a request whose reply was lost may have been carried out,
    /// and the work must allow that it is repeated. Work that must not begin again handles its own
    /// errors, and returns them inside of `Ok`. Any other result is the result of this call, such as
    /// an error of the program ([`Error::other`]).
    ///
    /// Before each further attempt there is a pause. It grows, if attempts fail one after the other,
    /// up to an eighth of the session timeout.
    ///
    /// # Errors
    /// - The work's error, unless it is temporary or says that a grant was lost.
    /// - As [`Client::session`].
    pub async fn run<T, F>(&self, mut work: impl FnMut(O::Session) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            let session = self.session().await?;
            let mut attempts = Attempts::default();
            let done = loop {
                attempts.begin(&session);
                match first(work(session.clone()), over(&session)).await {
                    First::Right(()) => break None,
                    First::Left(Err(error)) if session.state().is_over() && !is_of_program(&error) => break None,
                    First::Left(Err(error)) if begins_again(&error) => attempts.failed(&session, &error).await,
                    First::Left(done) => break Some(done),
                }
            };
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Stands for election and leads, over all sessions, until the work is done.
    ///
    /// `election` makes the election for a session: set its name, rank and description there. The
    /// work begins in each term, and is paused in doubt: see [`Election::lead`]. If the work fails
    /// with a temporary error, such as a request whose connection was lost, it begins anew in the
    /// same term: see [`Client::run`]. After several such attempts in a row for which the connection is
    /// not the cause, the leader resigns, so that another candidate may try. If the office is lost or
    /// the session ends, the client stands again.
    ///
    /// # Errors
    /// - The work's error, as of [`Client::run`].
    /// - Those of [`Election::lead`] that neither are temporary nor say that the office is lost.
    /// - As [`Client::session`].
    pub async fn lead<T, F>(
        &self,
        mut election: impl FnMut(O::Session) -> Election<O::Session>,
        work: impl FnMut(Hold<O::Session>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let work = &Mutex::new(work);
        self.until_done(|session| {
            let election = election(session);
            async move { election.lead(|term| patiently(work, term)).await }
        })
        .await
    }

    /// As [`Client::lead`], but the work is cancelled in doubt and begun anew after that.
    ///
    /// For work that holds something which its destructors must give up at once.
    ///
    /// # Errors
    /// As [`Client::lead`].
    pub async fn lead_restarting<T, F>(
        &self,
        mut election: impl FnMut(O::Session) -> Election<O::Session>,
        work: impl FnMut(Hold<O::Session>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let work = &Mutex::new(work);
        self.until_done(|session| {
            let election = election(session);
            async move { election.lead_restarting(|term| patiently(work, term)).await }
        })
        .await
    }

    /// Waits for a lock, holds it, and works, over all sessions, until the work is done.
    ///
    /// As [`Client::lead`], for a lock: see [`Lock::hold`].
    ///
    /// # Errors
    /// As [`Client::lead`].
    pub async fn hold<T, F>(
        &self,
        mut lock: impl FnMut(O::Session) -> Lock<O::Session>,
        work: impl FnMut(Hold<O::Session>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let work = &Mutex::new(work);
        self.until_done(|session| {
            let lock = lock(session);
            async move { lock.hold(|hold| patiently(work, hold)).await }
        })
        .await
    }

    /// As [`Client::hold`], but the work is cancelled in doubt and begun anew after that.
    ///
    /// # Errors
    /// As [`Client::lead`].
    pub async fn hold_restarting<T, F>(
        &self,
        mut lock: impl FnMut(O::Session) -> Lock<O::Session>,
        work: impl FnMut(Hold<O::Session>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let work = &Mutex::new(work);
        self.until_done(|session| {
            let lock = lock(session);
            async move { lock.hold_restarting(|hold| patiently(work, hold)).await }
        })
        .await
    }

    /// Makes an attempt with each session, until the work under a grant is done.
    async fn until_done<T, F>(&self, mut attempt: impl FnMut(O::Session) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Option<Result<T, Error>>, Error>>,
    {
        loop {
            let session = self.session().await?;
            let ended = attempt(session.clone()).await;
            if let Some(done) = outcome(ended, &session).await {
                return done;
            }
        }
    }

    /// Returns a membership with this name in the group at `group`.
    ///
    /// It begins when [`Membership::keep`] or [`Membership::set`] is polled.
    pub fn member(&self, group: &Path, name: impl Into<String>, content: impl IntoData) -> Membership<O> {
        Membership::new(self.clone(), group.clone(), name.into(), crate::ask::bytes(content))
    }

    /// Follows one znode.
    pub fn znode(&self, path: &Path) -> Following<O, ZnodeCache<O::Session>> {
        Following::new(self.clone(), ZnodeCache::detached(path))
    }

    /// Follows the children of a znode and their data.
    ///
    /// The children of a group's path are its members.
    pub fn children(&self, path: &Path) -> Following<O, ChildrenCache<O::Session>> {
        Following::new(self.clone(), ChildrenCache::detached(path))
    }

    /// Follows the office of the election at `path`.
    pub fn observe(&self, path: &Path) -> Following<O, Observer<O::Session>> {
        Following::new(self.clone(), Observer::detached(path))
    }

    /// Follows a configuration that is text, such as a number: see [`Configuration::from_text`].
    ///
    /// Until the ensemble reports another value, `following.recipe().value()` is `last_good`, even
    /// without a session.
    pub fn configuration<T>(&self, path: &Path, last_good: Option<T>) -> Following<O, Configuration<O::Session, T>>
    where
        T: std::str::FromStr<Err: fmt::Display> + Send + Sync + 'static,
    {
        Following::new(self.clone(), Configuration::detached(path, last_good, crate::configuration::from_text))
    }

    /// Follows a configuration that `parse` reads: see [`Configuration::new`].
    ///
    /// As [`Client::configuration`].
    pub fn configuration_with<T: Send + Sync + 'static, E: fmt::Display>(
        &self,
        path: &Path,
        last_good: Option<T>,
        parse: impl FnMut(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Following<O, Configuration<O::Session, T>> {
        Following::new(self.clone(), Configuration::detached(path, last_good, parse))
    }

    /// Follows a configuration that is JSON: see [`Configuration::json`].
    ///
    /// As [`Client::configuration`].
    #[cfg(feature = "serde")]
    pub fn configuration_json<T>(&self, path: &Path, last_good: Option<T>) -> Following<O, Configuration<O::Session, T>>
    where
        T: serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        self.configuration_with(path, last_good, |data| serde_json::from_slice(data))
    }

    /// Watches every change of a znode or subtree.
    pub fn watch(&self, path: &Path, mode: AddWatchMode) -> Following<O, Watching<O::Session>> {
        Following::new(self.clone(), Watching::detached(path, mode))
    }

    /// Returns a stream of the states of this client's sessions.
    pub fn events(&self) -> SessionEvents<O> {
        SessionEvents::new(self.clone())
    }
}

/// Returns a session's id as logs show it.
fn hex<C: Coordinator>(session: &C) -> impl fmt::Display {
    format!("{:#x}", session.session().0)
}

/// Whether the program failed, not a request. Such work is not begun again.
fn is_of_program(error: &Error) -> bool {
    error.kind() == ErrorKind::Other
}

/// Whether work begins again after this error, over the same session.
const fn begins_again(error: &Error) -> bool {
    error.is_temporary() || error.is_grant_lost()
}

/// Runs work under one grant, and again after each temporary error; `None` if the grant is lost.
async fn patiently<C, T, F>(work: &Mutex<impl FnMut(Hold<C>) -> F>, hold: Hold<C>) -> Option<Result<T, Error>>
where
    C: Coordinator,
    F: Future<Output = Result<T, Error>>,
{
    let mut attempts = Attempts::default();
    while attempts.in_vain < ATTEMPTS_MAX {
        attempts.begin(hold.session());
        let attempt = (work.lock().unwrap_or_else(PoisonError::into_inner))(hold.clone());
        match attempt.await {
            // A fenced write may have found out before the grant's listener.
            Err(error) if hold.holding() == Holding::Lost && !is_of_program(&error) => return None,
            Err(error) if begins_again(&error) => attempts.failed(hold.session(), &error).await,
            done => return Some(done),
        }
    }
    warn!(attempts = attempts.in_vain, "the work cannot go on here; the grant is given up");
    None
}

/// Attempts in a row that fail, though the session is connected, before a grant is given up.
const ATTEMPTS_MAX: u32 = 8;

/// The attempts at work that failed one after the other.
#[derive(Debug, Default)]
struct Attempts {
    began: Instant,
    /// All of them.
    failed: u32,
    /// Those that the connection is not the cause of.
    in_vain: u32,
}

impl Attempts {
    fn begin<C: Coordinator>(&mut self, session: &C) {
        self.began = session.now();
    }

    /// Waits after a failed attempt. One that lasted long begins the count anew.
    async fn failed<C: Coordinator>(&mut self, session: &C, error: &Error) {
        if session.now() - self.began > session.session_timeout() {
            (self.failed, self.in_vain) = (0, 0);
        }
        if error.awaits_connection() {
            // The end of the session shows in the next attempt.
            let _ = session.connected().await;
        } else {
            self.in_vain += 1;
        }
        pausing(session, error, self.failed).await;
        self.failed += 1;
    }
}

/// Returns the result of the work; `None` if the client must wait for a grant again.
async fn outcome<C: Coordinator, T>(
    ended: Result<Option<Result<T, Error>>, Error>,
    session: &C,
) -> Option<Result<T, Error>> {
    match ended {
        Ok(done) => done,
        Err(error) if error.is_grant_lost() || session.state().is_over() => None,
        Err(error) if error.is_temporary() => {
            pausing(session, &error, 0).await;
            None
        }
        Err(error) => Some(Err(error)),
    }
}

/// Logs a temporary error; returns a timer for the pause before the next attempt.
///
/// The pause is an eighth of the session timeout; less, if the connection is the cause and few
/// attempts before this one failed.
fn pausing<C: Coordinator>(session: &C, error: &Error, failed: u32) -> C::Timer {
    let pause = crate::ask::pause(session, if error.awaits_connection() { failed } else { u32::MAX });
    warn!(%error, again_in_ms = pause.as_millis(), "failed, and will be repeated");
    session.timer(session.now().saturating_add(pause))
}

/// The last session of a client, which is over. Dropping it logs that.
struct Former<C: Coordinator>(Option<C>);

impl<C: Coordinator> Former<C> {
    /// Returns why the client must not open another session; `None` if it may.
    fn end(&self) -> Option<Error> {
        let state = self.0.as_ref()?.state();
        matches!(state, SessionState::AuthFailed | SessionState::Lost(LostReason::Untouched))
            .then(|| RequestError::of(state).into())
    }
}

impl<C: Coordinator> Drop for Former<C> {
    fn drop(&mut self) {
        if let Some(former) = &self.0 {
            warn!(session = %hex(former), state = ?former.state(), "a session is over");
        }
    }
}

/// Waits until the session is over.
async fn over<C: Coordinator>(session: &C) {
    let mut states = session.states();
    while next(&mut states).await.is_some_and(|state| !state.is_over()) {}
}
