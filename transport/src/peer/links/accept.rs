//! Who knocks, and what strangers may cost.

use super::closing::{self, refusal_line};
use super::greeting::Failed;
use super::{Links, lock};
use crate::peer::trust::Refused;
use quinn::{Incoming, ServerConfig};
use std::collections::HashMap;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What a stranger gets to prove itself.
const PROOF: Duration = Duration::from_secs(2);
/// What one that has proved itself gets to become a link: this server may be dialling it itself.
const ADMISSION: Duration = Duration::from_secs(5);

/// Connections that have not proved themselves: with more than this, strangers first have to show that they are where they say, at no cost here.
const UNVALIDATED_MAX: usize = 4;
/// With more than this, nobody else is heard.
const STRANGERS_MAX: usize = 32;
/// The same of one address. On one machine the whole ensemble may knock.
const STRANGERS_OF_ADDRESS_MAX: usize = 16;
/// Of those that were not looked at, and what they sent.
const KNOCKS_MAX: usize = 32;
const KNOCK_BYTES: u64 = 16 << 10;

/// Bounds what waits before anybody looks at it.
pub(super) fn bound(server: &mut ServerConfig) {
    server
        .max_incoming(KNOCKS_MAX)
        .incoming_buffer_size(KNOCK_BYTES)
        .incoming_buffer_size_total(KNOCK_BYTES * KNOCKS_MAX as u64)
        // A server is known by its key, and what changes its address on the way is better taken for somebody new.
        .migration(false);
}

/// Strangers that are being heard, by address.
#[derive(Debug, Default)]
struct Strangers(Mutex<HashMap<IpAddr, usize>>);

/// A stranger's place among them.
struct Place {
    strangers: Arc<Strangers>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut strangers = lock(&self.strangers.0);
        if let Some(count) = strangers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.address);
            }
        }
    }
}

/// What is done with a knock.
enum Knock {
    Heard(Place),
    /// Asked to show that it gets answers where it says it is.
    Retried,
    /// Not answered.
    Ignored,
}

impl Strangers {
    fn knock(self: &Arc<Self>, address: IpAddr, is_validated: bool) -> Knock {
        let mut strangers = lock(&self.0);
        let all: usize = strangers.values().sum();
        let count = strangers.get(&address).copied().unwrap_or_default();
        if all >= STRANGERS_MAX || count >= STRANGERS_OF_ADDRESS_MAX {
            return Knock::Ignored;
        }
        if all >= UNVALIDATED_MAX && !is_validated {
            return Knock::Retried;
        }
        strangers.insert(address, count + 1);
        Knock::Heard(Place { strangers: self.clone(), address })
    }
}

/// Hears whoever knocks, for ever.
pub(super) async fn run(links: Arc<Links>) {
    let strangers = Arc::new(Strangers::default());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            incoming = links.endpoint.accept() => match incoming {
                Some(incoming) => open(&links, &strangers, incoming, &mut tasks),
                None => return,
            },
            Some(ended) = tasks.join_next() => if let Err(failed) = ended {
                tracing::error!("a connection's task failed: {failed}");
            },
        }
    }
}

fn open(links: &Arc<Links>, strangers: &Arc<Strangers>, incoming: Incoming, tasks: &mut JoinSet<()>) {
    let remote = incoming.remote_address();
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    if let Err(refused) = links.gate.check_address(remote) {
        links.warn_of(remote, &refused);
        return incoming.refuse();
    }
    match strangers.knock(remote.ip(), incoming.remote_address_validated()) {
        Knock::Heard(place) => drop(tasks.spawn(hear(links.clone(), incoming, remote, place))),
        // One that was asked before and did not do it is dropped.
        Knock::Retried => drop(incoming.retry()),
        Knock::Ignored => incoming.ignore(),
    }
}

async fn hear(links: Arc<Links>, incoming: Incoming, remote: SocketAddr, place: Place) {
    let who = remote.to_string();
    let connecting = match incoming.accept() {
        Ok(connecting) => connecting,
        Err(error) => return tracing::debug!("{who}: {error}"),
    };
    // With the future goes the connection.
    let heard = timeout(PROOF, async {
        let connection = connecting.await?;
        match links.hear(connection.clone(), &who).await {
            Err(Failed::Refused(refused)) => {
                closing::refuse(&connection, &refused);
                Err(Failed::Refused(refused))
            }
            heard => heard,
        }
    });
    let result = heard.await;
    mem::drop(place);
    match result {
        Ok(Ok(proven)) => {
            let connection = proven.connection.clone();
            match timeout(ADMISSION, links.admit(proven)).await {
                Ok(Err(Failed::Refused(refused))) => {
                    closing::refuse(&connection, &refused);
                    links.warn_of(remote, &refused);
                }
                Ok(Err(Failed::Over(error))) => links.warn_of_end(remote, &error),
                Ok(Ok(())) => {}
                Err(_) => connection.close(0u32.into(), b""),
            }
        }
        Ok(Err(Failed::Refused(refused))) => links.warn_of(remote, &refused),
        Ok(Err(Failed::Over(error))) => links.warn_of_end(remote, &error),
        Err(_) => tracing::debug!("{who} did not prove itself in time"),
    }
}

impl Links {
    /// A line about somebody who came and is refused.
    fn warn_of(&self, remote: SocketAddr, refused: &Refused) {
        self.of_strangers.warn((remote.ip(), mem::discriminant(&refused.why)), &refused.to_string());
        // Whoever it is may name anybody.
        if let Some(claimed) = refused.claimed.filter(|&claimed| self.member(claimed).is_some()) {
            self.table.refused(claimed, refused.to_string());
        }
    }

    /// A line about somebody who came and went, if that has to do with who the two are.
    fn warn_of_end(&self, remote: SocketAddr, error: &quinn::ConnectionError) {
        if let Some(line) = refusal_line(self, &remote.to_string(), error) {
            self.of_strangers.warn((remote.ip(), "went"), &line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_bounded_and_leave_their_places() {
        let strangers = Arc::new(Strangers::default());
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut places = Vec::new();
        let mut knock = |n, is_validated| match strangers.knock(address(n), is_validated) {
            Knock::Heard(place) => {
                places.push(place);
                "heard"
            }
            Knock::Retried => "retried",
            Knock::Ignored => "ignored",
        };
        // Whoever comes while there are few need not show where he is.
        assert!((0..UNVALIDATED_MAX).all(|_| knock(1, false) == "heard"));
        assert_eq!(knock(1, false), "retried");
        assert!((UNVALIDATED_MAX..STRANGERS_OF_ADDRESS_MAX).all(|_| knock(1, true) == "heard"));
        assert_eq!(knock(1, true), "ignored");
        assert!((STRANGERS_OF_ADDRESS_MAX..STRANGERS_MAX).all(|_| knock(2, true) == "heard"));
        assert_eq!(knock(3, true), "ignored");
        places.clear();
        assert!(lock(&strangers.0).is_empty());
        assert!(matches!(strangers.knock(address(3), false), Knock::Heard(_)));
    }
}
