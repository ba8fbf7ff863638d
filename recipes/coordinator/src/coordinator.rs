//! The trait through which recipes use a session.

use crate::{Errand, GrantChange, Instant};
use futures_core::Stream;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;
use zoolet_model::{
    AddWatchMode, Path, Reply, Request, RequestError, SessionId, SessionState, WatchItem, WatchedEvent,
};

/// One session of an ensemble, as recipes use it.
///
/// Clones are handles to the same session. A session that is `Lost`, `AuthFailed` or `Closed` never
/// comes back; to go on, open another one.
///
/// Requests are carried out in the order of their submission. A watch outlives its connection: the
/// implementation registers it again at the next server, which reports what happened meanwhile.
///
/// These methods are the primitives that a session provides. [`CoordinatorExt`](crate::CoordinatorExt)
/// has the calls that a program makes. A coordinator and all futures of its calls may move to
/// another task or thread, so generic code needs no bound but `C: Coordinator`:
///
/// ```
/// use zoolet::{Coordinator, CoordinatorExt, Error, Path};
///
/// async fn announce<C: Coordinator>(session: C) -> Result<(), Error> {
///     session.put(&Path::from_static("/greeting"), "hello").await.map(drop)
/// }
///
/// fn is_ready_for_a_task<C: Coordinator>(session: C) -> impl Future<Output = Result<(), Error>> + Send + 'static {
///     announce(session)
/// }
/// ```
pub trait Coordinator: Clone + Debug + Send + Sync + 'static {
    /// The answer to one request. Dropping it does not cancel the request.
    type Ticket: Future<Output = Result<Reply, RequestError>> + Unpin + Debug + Send + 'static;
    /// The first event of a one-shot watch; `None` if the session ended before. Dropping it ends
    /// the watch.
    type Watch: Future<Output = Option<WatchedEvent>> + Unpin + Debug + Send + 'static;
    /// The events of a persistent watch, until the session ends. Dropping it ends the watch.
    type Events: Stream<Item = WatchItem> + Unpin + Debug + Send + 'static;
    /// The present state, then each later one.
    ///
    /// A slow reader may miss intermediate states, never the last one. The stream ends after the
    /// last one.
    type States: Stream<Item = SessionState> + Unpin + Debug + Send + 'static;
    /// A future that is ready at its instant.
    ///
    /// It may be ready earlier once the session is over, because then nothing may be left to wake
    /// it.
    type Timer: Future<Output = ()> + Unpin + Debug + Send + 'static;

    /// Sends `request`.
    ///
    /// The request is sent before this returns if the session has room for it. Otherwise it is sent
    /// once there is room, unless the ticket was dropped by then.
    ///
    /// A failed multi is answered with its results, any other failed request with
    /// [`RequestError::Refused`]. [`RequestError::Suspended`] means that the request was not sent. After
    /// [`RequestError::ConnectionLoss`] a write may have been carried out or not.
    fn submit(&self, request: Request) -> Self::Ticket;

    /// Sends an `Exists`, `GetData` or `GetChildren` that has `watch: true`.
    ///
    /// The watch is registered if the request succeeds, and for `Exists` also if there is no znode.
    fn submit_watching(&self, request: Request) -> (Self::Ticket, Self::Watch);

    /// Watches a znode or a subtree. The ticket tells whether the watch was registered.
    fn add_watch(&self, path: &Path, mode: AddWatchMode) -> (Self::Ticket, Self::Events);

    /// Runs a cleanup for a caller that does not wait for it.
    ///
    /// It is sent in order with submitted requests, and again after each reconnect until it is done
    /// or the session is over. Destructors call this: it neither blocks nor needs room.
    fn run_errand(&self, errand: Errand);

    /// Returns the session's id, which is the owner of its ephemerals.
    fn session(&self) -> SessionId;

    /// Returns the negotiated session timeout.
    fn session_timeout(&self) -> Duration;

    /// Returns the present state of the session.
    fn state(&self) -> SessionState;

    /// Returns a stream of the present state and each later one.
    fn states(&self) -> Self::States;

    /// Returns the instant before which no server can have ended the session.
    ///
    /// That holds even if no server hears from the session again. It is one timeout after the
    /// newest answered request was sent, less the delay with which servers tell each other of
    /// sessions. [`Instant::START`] before the first answer.
    fn safe_until(&self) -> Instant;

    /// Counts the times the session may have missed a one-shot watch event.
    ///
    /// The count grows when a connection begins, because its server may refuse to register watches
    /// again. It also grows when the session drops an event. It grows before any later answer is
    /// delivered.
    ///
    /// So while the count is the same as when a watch was requested, events are in order. The event
    /// of a change is then delivered before every answer that was given after that change.
    fn gaps(&self) -> u64;

    /// Returns the present instant. The clock never goes back, and it runs while the machine
    /// sleeps.
    fn now(&self) -> Instant;

    /// Returns a future that is ready once [`Coordinator::now`] has reached `at`.
    fn timer(&self, at: Instant) -> Self::Timer;

    /// Returns 128 random bits, which no other participant gets.
    fn random_bits(&self) -> u128;

    /// Receives each change of this session's grants: see [`Recorded`](crate::Recorded).
    ///
    /// By default it does nothing.
    fn record(&self, _change: &GrantChange<'_>) {}
}
