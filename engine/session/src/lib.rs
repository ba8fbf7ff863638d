//! Sessions inside the process, without sockets or wire bytes.
//!
//! In-process sessions have the same requests, limits and ordering as sessions over a socket.
//!
//! zoolet publishes this crate as part of itself. Embedders see `Session` and the types it returns,
//! re-exported by the crate `zoolet`. [`Link`], [`EmbeddedSessions`], [`RequestSink`] and
//! [`Environment`] are for drivers of the machine, which run it on threads or on virtual time.
//! These four types change whenever a driver needs it.
//!
//! [`Link`] connects a session's owner with the machine. It holds the reply slots, the watch queues
//! and the session state. [`Session`], its futures and its streams are thin handles to it. Wakers
//! run on the node's own threads, including the log thread. A waker that blocks delays the writes
//! of all clients.

mod asking;
mod coordinator;
mod embedded_sessions;
mod environment;
mod errands;
mod link;
mod liveness;
mod options;
mod reads;
mod request_sink;
mod size;
mod slots;
mod state;
#[cfg(test)]
mod tests;
mod wait;
mod wakers;
mod watch;
mod watchdog;
mod watching;

pub use asking::Asked;
pub use embedded_sessions::EmbeddedSessions;
pub use environment::{Environment, Timer, Timers};
pub use link::Link;
pub use options::SessionOptions;
pub use reads::{Consistency, Reads};
pub use request_sink::RequestSink;
pub use state::States;
pub use wait::Wait;
pub use watching::{OneShotWatch, WatchStream};
pub use zoolet_coordinator::{CreateOptions, Created, Done, Error, ErrorKind, Op, Znode};
pub use zoolet_model::{LostReason, RequestError, SessionState, Version, WatchItem, WatchedEvent};

use asking::Asking;
use bytes::Bytes;
use link::Ticket;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use zoolet_coordinator::CoordinatorExt;
use zoolet_model::{
    AclEntry, AddWatchMode, ErrorCode, IntoData, Names, Path, Reply, Request, SessionId, Stat, TimeToLive,
};

/// A session inside this process.
///
/// Clones share the session. Dropping the last clone closes the session and deletes its ephemerals.
///
/// Futures need a waker but no particular runtime. A request is sent when its future is first
/// polled. Dropping the future after that cancels only the waiting.
#[derive(Clone, Debug)]
pub struct Session {
    owner: Arc<Owner>,
}

/// Closes the session when the last handle is dropped.
#[derive(Debug)]
struct Owner {
    link: Arc<Link>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.link.close_unheard();
    }
}

impl Session {
    /// Creates the owner's handle to `link`.
    pub fn new(link: Arc<Link>) -> Self {
        Self { owner: Arc::new(Owner { link }) }
    }

    fn link(&self) -> &Arc<Link> {
        &self.owner.link
    }

    /// Returns the session's id, which owns its ephemerals.
    ///
    /// It is 0 while a session that was opened [to read only](SessionOptions::read_only) has not
    /// begun.
    pub fn id(&self) -> SessionId {
        self.link().id()
    }

    /// Returns the negotiated timeout of the session.
    pub fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.link().timeout_ms().into())
    }

    /// Returns the current state of the session.
    pub fn state(&self) -> SessionState {
        self.link().session_state()
    }

    /// Returns how old the state that reads show may be; `None` while it is current.
    ///
    /// It counts from the moment when the server's leader last heard a quorum, as far as the server
    /// knows, or when its disk first refused a commit. Only a session in the state
    /// [`SessionState::ReadOnly`] reads an outdated state.
    pub fn outdated_for(&self) -> Option<Duration> {
        self.link().outdated_for()
    }

    /// Returns a stream of the current state and every later one.
    ///
    /// A slow reader may miss intermediate states, but never the last one.
    pub fn states(&self) -> States {
        States::new(Arc::clone(self.link()))
    }

    /// Resets the watchdog: the session's owner is alive.
    ///
    /// Without [`SessionOptions::watchdog`] this does nothing. Call it where the owner does its
    /// work, for instance once per round of its main loop. Do not call it from a thread that does
    /// nothing else.
    pub fn touch(&self) {
        self.link().touch();
    }

    /// Sends `request` immediately, without waiting for a free slot.
    ///
    /// Requests are sent in the order of calls. Use this to pipeline requests, and for requests
    /// without a method here. A failed multi resolves to its results, any other failed request to
    /// an error. [`Coordinator::submit`](zoolet_coordinator::Coordinator::submit) waits for a free slot instead.
    ///
    /// # Errors
    /// [`RequestError::Busy`] if there is no room for it:
    ///
    /// - `outstanding_max` requests of the session are in flight,
    /// - the server's byte budget for requests is used up, or
    /// - other requests of the session already wait for room.
    ///
    /// Any other variant says why the request could not be sent.
    pub fn try_submit(&self, request: Request) -> Result<Pending, RequestError> {
        Ok(Pending(self.link().submit(request, None)?))
    }

    /// Returns a reader with another consistency than [`Consistency::Session`].
    pub fn reading(&self, consistency: Consistency) -> Reads<'_> {
        Reads::new(self, consistency)
    }

    /// As [`CoordinatorExt::create`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn create(&self, path: &Path, data: impl IntoData) -> Result<Created, Error> {
        CoordinatorExt::create(self, path, data).await
    }

    /// As [`CoordinatorExt::create_with`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn create_with(
        &self,
        path: &Path,
        data: impl IntoData,
        options: &CreateOptions,
    ) -> Result<Created, Error> {
        CoordinatorExt::create_with(self, path, data, options).await
    }

    /// As [`CoordinatorExt::ensure`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn ensure(&self, path: &Path) -> Result<(), Error> {
        CoordinatorExt::ensure(self, path).await
    }

    /// As [`CoordinatorExt::put`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn put(&self, path: &Path, data: impl IntoData) -> Result<Stat, Error> {
        CoordinatorExt::put(self, path, data).await
    }

    /// As [`CoordinatorExt::delete`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn delete(&self, path: &Path, version: impl Into<Version>) -> Result<(), Error> {
        CoordinatorExt::delete(self, path, version).await
    }

    /// As [`CoordinatorExt::set`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn set(&self, path: &Path, data: impl IntoData, version: impl Into<Version>) -> Result<Stat, Error> {
        CoordinatorExt::set(self, path, data, version).await
    }

    /// As [`CoordinatorExt::set_acl`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn set_acl(&self, path: &Path, acl: &[AclEntry], version: Version) -> Result<Stat, Error> {
        CoordinatorExt::set_acl(self, path, acl, version).await
    }

    /// As [`CoordinatorExt::multi`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn multi(&self, ops: impl IntoIterator<Item = Op>) -> Result<Vec<Done>, Error> {
        CoordinatorExt::multi(self, ops).await
    }

    /// As [`CoordinatorExt::get`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn get(&self, path: &Path) -> Result<Znode, Error> {
        CoordinatorExt::get(self, path).await
    }

    /// As [`CoordinatorExt::exists`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn exists(&self, path: &Path) -> Result<Option<Stat>, Error> {
        CoordinatorExt::exists(self, path).await
    }

    /// As [`CoordinatorExt::children`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn children(&self, path: &Path) -> Result<Names, Error> {
        CoordinatorExt::children(self, path).await
    }

    /// As [`CoordinatorExt::acl`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn acl(&self, path: &Path) -> Result<(Vec<AclEntry>, Stat), Error> {
        CoordinatorExt::acl(self, path).await
    }

    /// As [`CoordinatorExt::time_to_live`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn time_to_live(&self, path: &Path) -> Result<TimeToLive, Error> {
        CoordinatorExt::time_to_live(self, path).await
    }

    /// As [`CoordinatorExt::sync`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says.
    pub async fn sync(&self) -> Result<(), Error> {
        CoordinatorExt::sync(self).await
    }

    /// As [`CoordinatorExt::connected`].
    ///
    /// # Errors
    /// As [`CoordinatorExt::connected`].
    pub async fn connected(&self) -> Result<(), Error> {
        CoordinatorExt::connected(self).await
    }

    /// As [`CoordinatorExt::sleep`].
    pub async fn sleep(&self, duration: Duration) {
        CoordinatorExt::sleep(self, duration).await;
    }

    /// Waits for `work` at most for `limit`, as [`CoordinatorExt::timeout`].
    pub async fn timeout<F: Future>(&self, limit: Duration, work: F) -> Option<F::Output> {
        let (mut work, mut timer) = (pin!(work), pin!(CoordinatorExt::sleep(self, limit)));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Adds an identity to the session, for example `digest` with `user:password`.
    ///
    /// The session gets the permissions that ACLs grant to this identity. In the ACL of a znode
    /// that the session creates, an entry of the scheme `auth` stands for this identity.
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. [`ErrorKind::AuthFailed`] ends the session.
    pub async fn add_auth(&self, scheme: &str, auth: impl Into<Bytes>) -> Result<(), Error> {
        let auth = auth.into();
        let request = Request::Auth { scheme: Some(scheme.into()), auth: Some(auth.clone()) };
        match Asking::new(self.link(), request.clone(), None).await {
            Ok(_) => {
                self.link().remember_auth(scheme.into(), auth);
                Ok(())
            }
            Err(RequestError::Refused(ErrorCode::AuthFailed)) => {
                Err(Error::of_request(&request, RequestError::AuthFailed))
            }
            Err(error) => Err(Error::of_request(&request, error)),
        }
    }

    /// As [`CoordinatorExt::get_and_watch`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. After an error nothing is watched.
    pub async fn get_and_watch(&self, path: &Path) -> Result<(Znode, OneShotWatch), Error> {
        CoordinatorExt::get_and_watch(self, path).await
    }

    /// As [`CoordinatorExt::exists_and_watch`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. After an error nothing is watched.
    pub async fn exists_and_watch(&self, path: &Path) -> Result<(Option<Stat>, OneShotWatch), Error> {
        CoordinatorExt::exists_and_watch(self, path).await
    }

    /// As [`CoordinatorExt::children_and_watch`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says. After an error nothing is watched.
    pub async fn children_and_watch(&self, path: &Path) -> Result<(Names, OneShotWatch), Error> {
        CoordinatorExt::children_and_watch(self, path).await
    }

    /// As [`CoordinatorExt::watch`].
    ///
    /// # Errors
    /// As [`CoordinatorExt`] says, with SystemError if the server already has `watches_max`
    /// watches. After an error nothing is watched.
    pub async fn watch(&self, path: &Path, mode: AddWatchMode) -> Result<WatchStream, Error> {
        CoordinatorExt::watch(self, path, mode).await
    }

    /// Closes the session and deletes its ephemerals.
    ///
    /// The session is over for its owner at once. Another server may grant the owner's locks to
    /// another session before this server answers.
    ///
    /// # Errors
    /// The reason why no answer arrived: [`ErrorKind::Suspended`] without a connection, or while the
    /// session only reads. The session then ends on its server's next connection to a leader, or
    /// when its timeout expires.
    pub async fn close(self) -> Result<(), Error> {
        let error = |error| Error::of_request(&Request::CloseSession, error);
        let asked = self.link().close().map_err(error)?;
        asked.await.map(drop).map_err(error)
    }
}

/// A request in flight. Dropping it cancels only the waiting.
#[derive(Debug)]
#[must_use = "await this to get the answer"]
pub struct Pending(Ticket);

impl Future for Pending {
    type Output = Result<Reply, RequestError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context).map_ok(|answer| answer.reply)
    }
}

/// Locks `mutex`, ignoring poison: a panic was already reported by its own thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
