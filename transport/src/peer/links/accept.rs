//! Who knocks, and what strangers may cost.

use super::Links;
use super::closing::{self, refusal_line};
use super::greeting::Failed;
use super::places::{Knock, Place, Places};
use crate::peer::trust::Refused;
use quinn::{ConnectionError, Incoming, ServerConfig};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zoolet_engine::network::network;
use zoolet_model::ServerId;

/// What a stranger gets to prove itself.
const PROOF: Duration = Duration::from_secs(2);
/// What one that has proved itself gets to become a link: this server may be dialling it itself.
const ADMISSION: Duration = Duration::from_secs(5);

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

/// Hears whoever knocks, for ever.
pub(super) async fn run(links: Arc<Links>) {
    let places = Arc::new(Places::default());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            incoming = links.endpoint.accept() => match incoming {
                Some(incoming) => open(&links, &places, incoming, &mut tasks),
                None => return,
            },
            Some(ended) = tasks.join_next() => if let Err(failed) = ended {
                tracing::error!("a connection's task failed: {failed}");
            },
        }
    }
}

fn open(links: &Arc<Links>, places: &Arc<Places>, incoming: Incoming, tasks: &mut JoinSet<()>) {
    let remote = incoming.remote_address();
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    if let Err(refused) = links.gate.check_address(remote) {
        links.warn_of(remote, &refused);
        return incoming.refuse();
    }
    let is_members = links.members().any(|member| member.is_found_at(remote));
    match places.knock(remote, is_members, incoming.remote_address_validated(), Instant::now()) {
        Knock::Heard(place) => drop(tasks.spawn(hear(links.clone(), incoming, remote, place))),
        // One that was asked before and did not do it is dropped.
        Knock::Retried => drop(incoming.retry()),
        Knock::Ignored => {
            // One matter for all: an address that was not shown may be anybody's.
            let line = format!("{remote} and others begin more handshakes than are heard: some are not answered");
            links.of_strangers.warn("ignored", &line);
            incoming.ignore();
        }
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
            let (connection, from) = (proven.connection.clone(), proven.hello.from);
            match timeout(ADMISSION, links.admit(proven)).await {
                Ok(Err(Failed::Refused(refused))) => {
                    closing::refuse(&connection, &refused);
                    links.warn_of(remote, &refused);
                }
                Ok(Err(Failed::Over(error))) => links.warn_of_end(remote, Some(from), &error),
                Ok(Ok(())) => {}
                Err(_) => connection.close(0u32.into(), b""),
            }
        }
        Ok(Err(Failed::Refused(refused))) => links.warn_of(remote, &refused),
        Ok(Err(Failed::Over(error))) => links.warn_of_end(remote, None, &error),
        Err(_) => tracing::debug!("{who} did not prove itself in time"),
    }
}

impl Links {
    /// A line about somebody who came and is refused.
    fn warn_of(&self, remote: SocketAddr, refused: &Refused) {
        self.of_strangers.warn((network(remote.ip()), mem::discriminant(&refused.why)), &refused.to_string());
        // Without a proof it may claim to be any server: status would tell an operator what a stranger wants to be done.
        if let Some(claimed) = refused.claimed.filter(|&claimed| refused.is_known && self.member(claimed).is_some()) {
            self.table.refused(claimed, refused.to_string());
        }
    }

    /// A line about somebody who came and went, if that has to do with who the two are.
    fn warn_of_end(&self, remote: SocketAddr, proved: Option<ServerId>, error: &ConnectionError) {
        if proved.is_none() && matches!(error, ConnectionError::ApplicationClosed(_)) {
            // The reason is a stranger's own word: it could have an operator stop a server that is well.
            return tracing::debug!("{remote} left before it proved itself: {error}");
        }
        let Some(line) = refusal_line(self, &remote.to_string(), error) else {
            if let Some(peer) = proved {
                closing::keep_why(self, peer, remote, error);
            }
            return;
        };
        self.of_strangers.warn((network(remote.ip()), "went"), &line);
        if let Some(proved) = proved.filter(|&proved| self.member(proved).is_some()) {
            self.table.refused(proved, line);
        }
    }
}
