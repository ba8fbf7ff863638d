//! Opens sessions over TCP, one after the other.

use super::Remote;
use super::request::error;
use crate::{Error, OpenSession};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
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
#[derive(Clone, Debug)]
pub struct Servers {
    addresses: String,
    session_timeout: Duration,
}

impl Servers {
    /// Returns the servers at these addresses: `HOST:PORT`, separated by commas.
    ///
    /// A root such as `/plant` may follow the last one. Sessions request a timeout of 10 s.
    pub fn new(addresses: impl Into<String>) -> Self {
        Self { addresses: addresses.into(), session_timeout: SESSION_TIMEOUT }
    }

    /// Requests another session timeout.
    #[must_use]
    pub fn session_timeout(self, session_timeout: Duration) -> Self {
        Self { session_timeout, ..self }
    }
}

impl OpenSession for Servers {
    type Session = Remote;
    type Opening = Pin<Box<dyn Future<Output = Result<Remote, Error>> + Send>>;

    /// # Panics
    /// Its future panics outside of a tokio runtime.
    fn open_session(&self) -> Self::Opening {
        let Self { addresses, session_timeout } = self.clone();
        Box::pin(async move {
            loop {
                let connector = zookeeper_client::Client::connector().with_session_timeout(session_timeout);
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
