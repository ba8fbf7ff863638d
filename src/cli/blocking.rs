//! Calls that may block for long, each on a thread of its own.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum addresses of one name that are used.
const ADDRESSES_MAX: usize = 16;

/// Runs a call that may block for long; `None` if there is no thread for it.
///
/// The end of this process does not wait for the thread.
pub(super) async fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("zoolet-call".to_owned());
    let started = thread.spawn(move || {
        let _ = sender.send(call());
    });
    started.ok()?;
    receiver.await.ok()
}

/// Returns the addresses of `HOST:PORT`: at least one, and at most [`ADDRESSES_MAX`].
///
/// # Errors
/// The host has no address, or the resolver fails or takes longer than `at_most`.
pub(super) async fn look_up(server: &str, at_most: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = server.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    let server = server.to_owned();
    found(at_most, move || Ok(server.to_socket_addrs()?.take(ADDRESSES_MAX).collect())).await
}

/// Runs a resolver for at most `at_most`.
async fn found(
    at_most: Duration,
    resolver: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let found = timeout(at_most, on_a_thread(resolver)).await.map_err(|_| {
        io::Error::new(
            ErrorKind::TimedOut,
            format!("cannot resolve the host name within {:.0} s", at_most.as_secs_f64()),
        )
    })?;
    match found.unwrap_or_else(|| Err(io::Error::other("cannot start a thread to resolve the host name")))? {
        addresses if addresses.is_empty() => Err(io::Error::other("the host name has no address")),
        addresses => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn address_needs_no_resolver() {
        let found = look_up("[::1]:2181", Duration::from_secs(60)).await.unwrap();
        assert_eq!(found, ["[::1]:2181".parse::<SocketAddr>().unwrap()]);
    }

    #[tokio::test]
    async fn look_up_ends_after_its_time_though_the_resolver_does_not() {
        let (release, held) = mpsc::channel::<()>();
        let resolver = move || {
            let _ = held.recv();
            Ok(Vec::new())
        };
        let error = found(Duration::from_millis(20), resolver).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(release);
    }

    #[tokio::test]
    async fn name_without_an_address_is_an_error() {
        let error = found(Duration::from_secs(60), || Ok(Vec::new())).await.unwrap_err();
        assert_eq!(error.to_string(), "the host name has no address");
    }
}
