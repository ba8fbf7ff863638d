//! Openers whose sessions are prepared before anything uses them.

use crate::{Coordinator, CoordinatorExt, Error, ErrorKind, OpenSession};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An opener that prepares each session before anything uses it, such as by an identity.
///
/// After a temporary error it prepares the same session again, and after the end of that session the
/// next one. Any other error is final: no session can be opened any more.
///
/// ```
/// use zoolet::recipes::Prepared;
/// use zoolet::{Client, Node, Session, SessionOptions};
///
/// fn operator(node: &Node) -> Client<impl zoolet::recipes::OpenSession<Session = Session>> {
///     let sessions = node.sessions(SessionOptions::default());
///     Client::new(Prepared::new(sessions, async |session: Session| session.add_auth("digest", "operator:secret").await))
/// }
/// ```
pub struct Prepared<O, P> {
    opener: Arc<O>,
    prepare: Arc<P>,
}

impl<O, P> Prepared<O, P> {
    /// Returns an opener that calls `prepare` with each session.
    pub fn new(opener: O, prepare: P) -> Self {
        Self { opener: Arc::new(opener), prepare: Arc::new(prepare) }
    }
}

impl<O, P> Clone for Prepared<O, P> {
    fn clone(&self) -> Self {
        Self { opener: Arc::clone(&self.opener), prepare: Arc::clone(&self.prepare) }
    }
}

impl<O: fmt::Debug, P> fmt::Debug for Prepared<O, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("opener", &self.opener).finish_non_exhaustive()
    }
}

impl<O, P, F> OpenSession for Prepared<O, P>
where
    O: OpenSession,
    P: Fn(O::Session) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    type Session = O::Session;
    type Opening = Pin<Box<dyn Future<Output = Result<O::Session, Error>> + Send>>;

    fn open_session(&self) -> Self::Opening {
        let Self { opener, prepare } = self.clone();
        Box::pin(async move {
            loop {
                let session = opener.open_session().await?;
                loop {
                    match prepare(session.clone()).await {
                        Ok(()) => return Ok(session),
                        Err(error) if error.kind() == ErrorKind::AuthFailed => return Err(error),
                        Err(_) if session.state().is_over() => break,
                        Err(error) if error.is_temporary() => session.sleep(session.session_timeout() / 8).await,
                        Err(error) => return Err(error),
                    }
                }
            }
        })
    }
}
