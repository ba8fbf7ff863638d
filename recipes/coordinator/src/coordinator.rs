//! What a recipe needs of a session.

use crate::{Errand, Instant};
use futures_core::Stream;
use std::future::Future;
use std::time::Duration;
use zoolet_model::{AddWatchMode, Error, Path, Reply, Request, SessionId, SessionState, WatchItem, Watched};

/// One session of an ensemble. Clones are the same session, and it is one session for its whole life: after `Lost`, `AuthFailed` or `Closed` it
/// never comes back, and whoever wants to go on opens another.
///
/// Requests are carried out in the order in which they were submitted. A watch outlives its connection: whoever implements this registers it
/// again at the next server, which tells what happened meanwhile.
pub trait Coordinator: Clone {
    /// The answer to one request. Dropping it cancels the waiting, not the request.
    type Ticket: Future<Output = Result<Reply, Error>> + Unpin;
    /// The first event of a one-shot watch; `None` when the session ended before. Dropping it ends the watch.
    type Watch: Future<Output = Option<Watched>> + Unpin;
    /// The events of a persistent watch, until the session ends. Dropping it ends the watch.
    type Events: Stream<Item = WatchItem> + Unpin;
    /// The state now and then each later one; a slow reader misses intermediate ones, never the last, after which it ends.
    type States: Stream<Item = SessionState> + Unpin;
    /// Ready at its instant.
    type Timer: Future<Output = ()> + Unpin;

    /// Sends `request`, before this returns if the session has room for one more, else when there is room, unless the ticket was dropped by then.
    ///
    /// The answer to a multi that failed is its results; to anything else that failed, [`Error::Refused`]. [`Error::Suspended`]: it was not
    /// sent. [`Error::ConnectionLoss`]: nobody knows whether a write happened.
    fn submit(&self, request: Request) -> Self::Ticket;

    /// The same for `Exists`, `GetData` or `GetChildren` with `watch: true`: the watch hears if the request succeeds, and `Exists` also if there
    /// is no znode.
    fn submit_watching(&self, request: Request) -> (Self::Ticket, Self::Watch);

    /// Watches a znode or a subtree; the ticket says whether.
    fn watch(&self, path: &Path, mode: AddWatchMode) -> (Self::Ticket, Self::Events);

    /// Clears something away although nobody waits: in the order of submits, and again after each reconnect until it is done or the session is
    /// over. Called from destructors: it neither blocks nor needs room.
    fn run_errand(&self, errand: Errand);

    /// The session's number, the owner of its ephemerals.
    fn session(&self) -> SessionId;

    /// The negotiated timeout.
    fn timeout(&self) -> Duration;

    /// How the session is.
    fn state(&self) -> SessionState;

    /// How it is and becomes.
    fn states(&self) -> Self::States;

    /// Returns the instant before which no server can have ended the session, even if it hears nothing more of it.
    ///
    /// That is the timeout after the newest answered request was sent, less the delay with which servers tell each other. [`Instant::START`] before the
    /// first answer.
    fn safe_until(&self) -> Instant;

    /// Returns how many times the session may have missed the event of a one-shot watch.
    ///
    /// The count grows when a connection begins, because its server may refuse to register watches again, and when the session drops an event. It grows
    /// before any later answer is delivered. So while it is what it was when a watch was asked for, the event of a change is delivered before every answer
    /// that was given after that change.
    fn gaps(&self) -> u64;

    /// Returns the present instant. The clock never goes back, and it goes on while the machine sleeps.
    fn now(&self) -> Instant;

    /// Ready once [`Coordinator::now`] has reached `at`.
    fn timer(&self, at: Instant) -> Self::Timer;

    /// 128 bits that nobody else has.
    fn random_bits(&self) -> u128;
}
