//! Accepts connections, and bounds the cost of unproved peers.

use super::Links;
use super::closing::{self, refusal_line};
use super::greeting::Failed;
use super::handshake_limit::{Decision, HandshakeLimit, HandshakePermit};
use crate::peer::trust::Refused;
use quinn::{ConnectionError, Incoming, ServerConfig};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zoolet_machine::network::network;
use zoolet_model::ServerId;

/// Time for an accepted connection to prove itself.
const PROOF: Duration = Duration::from_secs(2);
/// Time for a proved connection to become the link.
///
/// It may have to wait, because this server may be dialling the same peer.
const ADMISSION: Duration = Duration::from_secs(5);

/// Maximum connection attempts that wait to be looked at, and buffered bytes of each.
const KNOCKS_MAX: usize = 32;
const KNOCK_BYTES: u64 = 16 << 10;

/// Bounds the connection attempts that wait to be looked at.
pub(super) fn bound(server: &mut ServerConfig) {
    server
        .max_incoming(KNOCKS_MAX)
        .incoming_buffer_size(KNOCK_BYTES)
        .incoming_buffer_size_total(KNOCK_BYTES * KNOCKS_MAX as u64)
        // Peers are known by their keys. A peer whose address changes must connect again.
        .migration(false);
}

/// Accepts connections, for ever.
pub(super) async fn run(links: Arc<Links>) {
    let limit = Arc::new(HandshakeLimit::default());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            incoming = links.endpoint.accept() => match incoming {
                Some(incoming) => open(&links, &limit, incoming, &mut tasks),
                None => return,
            },
            Some(ended) = tasks.join_next() => if let Err(failed) = ended {
                tracing::error!("a connection's task failed: {failed}");
            },
        }
    }
}

fn open(links: &Arc<Links>, limit: &Arc<HandshakeLimit>, incoming: Incoming, tasks: &mut JoinSet<()>) {
    let remote = crate::canonical(incoming.remote_address());
    if let Err(refused) = links.gate.check_address(remote) {
        links.warn_of(remote, &refused);
        return incoming.refuse();
    }
    let is_members = links.members().any(|member| member.is_found_at(remote));
    match limit.decide(remote, is_members, incoming.remote_address_validated(), Instant::now()) {
        Decision::Heard(permit) => drop(tasks.spawn(hear(links.clone(), incoming, remote, permit))),
        // quinn always allows a retry to an address that is not validated, so this cannot fail.
        Decision::Retried => drop(incoming.retry()),
        Decision::Ignored => {
            // All share one rate limit: an unvalidated address may be forged.
            let line = format!("{remote} and others start too many handshakes: some are ignored");
            links.of_strangers.warn("ignored", &line);
            incoming.ignore();
        }
    }
}

async fn hear(links: Arc<Links>, incoming: Incoming, remote: SocketAddr, permit: HandshakePermit) {
    let who = remote.to_string();
    let connecting = match incoming.accept() {
        Ok(connecting) => connecting,
        Err(error) => return tracing::debug!("{who}: {error}"),
    };
    // Dropping this future at the timeout closes the connection.
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
    mem::drop(permit);
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
    /// Warns about a refused connection.
    fn warn_of(&self, remote: SocketAddr, refused: &Refused) {
        self.of_strangers.warn((network(remote.ip()), mem::discriminant(&refused.why)), &refused.to_string());
        // Without a proof the peer may claim to be any server. The status of that server must not
        // show a remedy that an attacker chose.
        if let Some(claimed) = refused.claimed.filter(|&claimed| refused.is_known && self.member(claimed).is_some()) {
            self.table.refused(claimed, refused.to_string());
        }
    }

    /// Warns about a connection that ended early, if an identity was the cause.
    fn warn_of_end(&self, remote: SocketAddr, proved: Option<ServerId>, error: &ConnectionError) {
        if proved.is_none() && matches!(error, ConnectionError::ApplicationClosed(_)) {
            // An unproved peer chose this reason. It could make an operator stop a healthy server.
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
