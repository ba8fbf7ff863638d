//! The trait through which a client opens its next session.

use crate::{Coordinator, Error};
use std::future::Future;

/// Opens sessions, one after the other.
///
/// A function that returns such a future opens sessions too.
pub trait OpenSession: Send + Sync + 'static {
    /// The sessions.
    type Session: Coordinator;
    /// Ready with a session that is served.
    ///
    /// It waits for a session however long that takes. An error says why no session can be opened
    /// any more, and is final. The one exception says that the session expired before it was served:
    /// then the client opens another one. Dropping the future gives up the session.
    type Opening: Future<Output = Result<Self::Session, Error>> + Send + 'static;

    /// Begins to open a session.
    fn open_session(&self) -> Self::Opening;
}

impl<F, O, S> OpenSession for F
where
    F: Fn() -> O + Send + Sync + 'static,
    O: Future<Output = Result<S, Error>> + Send + 'static,
    S: Coordinator,
{
    type Session = S;
    type Opening = O;

    fn open_session(&self) -> O {
        self()
    }
}
