//! From what is configured to where a packet can be sent.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// What a name gets to be resolved. The resolver of the system may take much longer, and has a thread of its own.
const RESOLVING: Duration = Duration::from_secs(2);
/// Addresses of one name that are tried.
const OF_NAME_MAX: usize = 4;

/// The addresses of "host:port", asked for anew each time: a box comes back with another lease.
///
/// # Errors
/// It leads nowhere.
pub(super) async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let found = timeout(RESOLVING, lookup_host(address)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let mut addresses = Vec::new();
    for address in found.take(OF_NAME_MAX) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
}
