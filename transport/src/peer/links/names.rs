//! From what is configured to where a packet can be sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What a name gets to be resolved. The resolver of the system may take much longer.
const RESOLVING: Duration = Duration::from_secs(2);
/// Names that are being resolved at once. Each takes a thread, for as long as the resolver likes, and disks need the others.
const LOOKUPS_MAX: usize = 2;
/// Addresses of one name that are tried.
const OF_NAME_MAX: usize = 4;

/// Asks the resolver of the system.
#[derive(Debug)]
pub(super) struct Names(Arc<Semaphore>);

impl Default for Names {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_MAX)))
    }
}

impl Names {
    /// The addresses of "host:port", asked for anew each time: a box comes back with another lease.
    ///
    /// # Errors
    /// It leads nowhere.
    pub(super) async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        timeout(RESOLVING, self.look_up(address)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn look_up(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        let turn = self.0.clone().acquire_owned().await.map_err(io::Error::other)?;
        let address = address.to_owned();
        // A task of its own: nobody waits for a resolver that hangs, and yet it keeps its turn.
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
