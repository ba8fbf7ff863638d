//! Resolves the addresses of members.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Timeout of one resolution. The system's resolver may take much longer.
const RESOLVING: Duration = Duration::from_secs(2);
/// Maximum number of concurrent lookups.
///
/// Each one occupies a blocking thread until the resolver returns, and disk calls need the others.
const LOOKUPS_MAX: usize = 2;
/// Maximum number of addresses tried per name.
const OF_NAME_MAX: usize = 4;

/// Resolves names with the system's resolver.
#[derive(Debug)]
pub(super) struct Names(Arc<Semaphore>);

impl Default for Names {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_MAX)))
    }
}

impl Names {
    /// Returns the addresses of "host:port".
    ///
    /// Not cached, because a box may come back with another DHCP lease.
    ///
    /// # Errors
    /// The lookup failed, returned no address (`NotFound`), or took too long (`TimedOut`).
    pub(super) async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        timeout(RESOLVING, self.look_up(address)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn look_up(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        let turn = self.0.clone().acquire_owned().await.map_err(io::Error::other)?;
        let address = address.to_owned();
        // A separate task: a caller can time out, but a hanging lookup keeps its permit.
        let lookup = tokio::spawn(async move {
            let found = lookup_host(address).await;
            drop(turn);
            found.map(|found| found.take(OF_NAME_MAX).collect::<Vec<_>>())
        });
        let mut addresses = lookup.await.map_err(io::Error::other)??;
        addresses.dedup();
        if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
    }
}
