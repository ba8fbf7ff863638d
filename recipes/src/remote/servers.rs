//! Opens sessions over TCP, one after the other.

use super::Remote;
use super::request::error;
use crate::{Error, OpenSession};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::{Client, Connector};
use zoolet_model::{RequestError, Text};

/// Session timeout if the program names none.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two attempts to open a session.
const PAUSE: Duration = Duration::from_millis(500);

/// The servers of an ensemble, which open sessions for a [`Client`](crate::Client).
///
/// It goes on trying while no server answers. Poll the client inside a tokio runtime with time
/// enabled.
///
/// ```no_run
/// # async fn example() -> Result<(), zoolet::Error> {
/// use zoolet::recipes::remote::Servers;
/// use zoolet::{Client, Path};
///
/// let client = Client::new(Servers::new("gw-a:2181,gw-b:2181,gw-c:2181"));
/// let mut own = client.member(&Path::from_static("/sensors"), "thermometer-4", "21.5");
/// match own.keep().await? {}
/// # }
/// ```
#[derive(Clone)]
pub struct Servers {
    addresses: String,
    session_timeout: Duration,
    connector: Arc<dyn Fn() -> Connector + Send + Sync>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, session_timeout, .. } = self;
        f.debug_struct("Servers")
            .field("addresses", addresses)
            .field("session_timeout", session_timeout)
            .finish_non_exhaustive()
    }
}

impl Servers {
    /// Returns the servers at these addresses: `HOST:PORT`, separated by commas.
    ///
    /// A root such as `/plant` may follow the last one. Sessions request a timeout of 10 s.
    pub fn new(addresses: impl Into<String>) -> Self {
        let connector = Arc::new(Client::connector);
        Self { addresses: addresses.into(), session_timeout: SESSION_TIMEOUT, connector }
    }

    /// Requests another session timeout.
    #[must_use]
    pub fn session_timeout(self, session_timeout: Duration) -> Self {
        Self { session_timeout, ..self }
    }

    /// Connects with this connector, which has identities, TLS and the like.
    ///
    /// The session timeout is that of [`Servers::session_timeout`].
    #[must_use]
    pub fn connecting(self, connector: impl Fn() -> Connector + Send + Sync + 'static) -> Self {
        Self { connector: Arc::new(connector), ..self }
    }
}

impl OpenSession for Servers {
    type Session = Remote;
    type Opening = Pin<Box<dyn Future<Output = Result<Remote, Error>> + Send>>;

    /// # Panics
    /// Its future panics outside of a tokio runtime.
    fn open_session(&self) -> Self::Opening {
        let Self { addresses, session_timeout, connector } = self.clone();
        Box::pin(async move {
            loop {
                let connector = connector().with_session_timeout(session_timeout);
                match Remote::connect(connector, &addresses).await {
                    Ok(session) => return Ok(session),
                    Err(zookeeper_client::Error::BadArguments(_)) => {
                        let error = RequestError::Refused(zoolet_model::ErrorCode::BadArguments);
                        return Err(Error::at(error, "open a session at", &Text::from(addresses.as_str())));
                    }
                    Err(failed) => {
                        if let error @ RequestError::AuthFailed = error(failed) {
                            return Err(Error::at(error, "open a session at", &Text::from(addresses.as_str())));
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        })
    }
}
