//! Admission between real endpoints on loopback, and the lines that each side gets.
//!
//! All endpoints share one runtime.

use super::*;
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, VarInt};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::ServerId;

#[cfg(feature = "certificates")]
mod certificates;
mod files;
mod strangers;

/// A listening server.
pub(super) struct Server {
    pub(super) id: ServerId,
    pub(super) gate: Gate,
    pub(super) endpoint: Endpoint,
}

pub(super) fn id(id: u8) -> ServerId {
    ServerId::new(id).unwrap()
}

impl Server {
    pub(super) fn new(id: u8, trust: Trust, pins: &Pins) -> Self {
        Self::with(id, Identity::generate().unwrap(), trust, pins)
    }

    pub(super) fn with(id: u8, identity: Identity, trust: Trust, pins: &Pins) -> Self {
        let gate = Gate::new(identity, trust, pins.clone());
        let endpoint = endpoint(gate.endpoint_config(), gate.server_config().unwrap());
        Self { id: super::tests::id(id), gate, endpoint }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    /// Dials `server` at `address` and returns the id of the answering server.
    pub(super) async fn dial(&self, server: ServerId, address: SocketAddr) -> Result<ServerId, String> {
        let config = self.gate.client_config(server).unwrap();
        let name = Gate::server_name(server);
        let line = |end: &quinn::ConnectionError| self.gate.line_for("gw-b:2888", end).unwrap_or(end.to_string());
        let connection = match self.endpoint.connect_with(config, address, &name).unwrap().await {
            Ok(connection) => connection,
            Err(end) => return Err(line(&end)),
        };
        let found = async {
            let guest = self.gate.meet(&connection, "gw-b:2888", Some(server))?;
            say(&connection, &self.gate, &guest, self.id).await;
            hear(&connection, &self.gate, &guest).await
        };
        match found.await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(line(&connection.closed().await)),
            Err(refused) => Err(close(&connection, &refused)),
        }
    }

    /// Accepts one connection. An error holds the number of stream and datagram frames sent on it.
    pub(super) async fn accept(&self) -> Result<ServerId, (String, u64)> {
        let incoming = self.endpoint.accept().await.unwrap();
        let who = incoming.remote_address().to_string();
        let connection = match incoming.await {
            Ok(connection) => connection,
            Err(end) => return Err((self.gate.line_for("somebody", &end).unwrap_or(end.to_string()), 0)),
        };
        let judged = async {
            let guest = self.gate.meet(&connection, &who, None)?;
            let found = hear(&connection, &self.gate, &guest).await?;
            if found.is_some() {
                say(&connection, &self.gate, &guest, self.id).await;
            }
            Ok(found)
        };
        match judged.await {
            Ok(Some(found)) => {
                connection.closed().await;
                Ok(found)
            }
            Ok(None) => {
                let end = connection.closed().await;
                let line = self.gate.line_for("somebody", &end).unwrap_or(end.to_string());
                Err((line, sent(&connection)))
            }
            Err(refused) => Err((close(&connection, &refused).replace(&who, "somebody"), sent(&connection))),
        }
    }
}

fn sent(connection: &Connection) -> u64 {
    let frames = connection.stats().frame_tx;
    frames.stream + frames.datagram
}

fn close(connection: &Connection, refused: &Refused) -> String {
    connection.close(VarInt::from_u32(refused.close_code()), b"");
    refused.to_string()
}

pub(super) fn endpoint(config: EndpointConfig, server: quinn::ServerConfig) -> Endpoint {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    Endpoint::new(config, Some(server), socket, Arc::new(TokioRuntime)).unwrap()
}

/// Sends the first message: the id, then the proof if any.
async fn say(connection: &Connection, gate: &Gate, guest: &Guest, own: ServerId) {
    let hello = [own.as_u8()];
    let mut word = hello.to_vec();
    word.extend(gate.prove(guest, &hello).iter().flatten());
    let mut stream = connection.open_uni().await.unwrap();
    // Fails if the peer has closed; its close code tells the reason.
    let _ = stream.write_all(&word).await;
    let _ = stream.finish();
}

/// Reads the peer's first message; `None` if the peer closed.
async fn hear(connection: &Connection, gate: &Gate, guest: &Guest) -> Result<Option<ServerId>, Refused> {
    let Ok(mut stream) = connection.accept_uni().await else { return Ok(None) };
    let Ok(word) = stream.read_to_end(100).await else { return Ok(None) };
    let (hello, proof) = word.split_at(1);
    let claimed = id(hello[0]);
    gate.judge(guest, claimed, hello, proof.try_into().ok().as_ref())?;
    Ok(Some(claimed))
}

/// The results of one link: the dialler's and the acceptor's.
pub(super) type Told = (Result<u8, String>, Result<u8, String>);

/// Dials `acceptor` as server `wanted`. Asserts that a refused dialler was sent nothing.
pub(super) async fn link(dialler: &Server, wanted: u8, acceptor: &Server) -> Told {
    let both = async {
        tokio::join!(
            async {
                let found = dialler.dial(id(wanted), acceptor.address()).await;
                if found.is_ok() {
                    dialler.endpoint.close(VarInt::from_u32(0), b"");
                }
                found
            },
            acceptor.accept()
        )
    };
    let (dialled, accepted) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("an answer");
    let accepted = accepted.map_err(|(line, sent)| {
        assert_eq!(sent, 0, "{line}");
        line
    });
    (dialled.map(ServerId::as_u8), accepted.map(ServerId::as_u8))
}

fn lines(told: Told) -> (String, String) {
    (told.0.unwrap_err(), told.1.unwrap_err())
}

fn site() -> Trust {
    Trust::Site(SiteKey::generate().unwrap())
}

#[tokio::test]
async fn servers_on_loopback_link_without_a_secret() {
    let (a, b) = (Server::new(1, Trust::Loopback, &Pins::new()), Server::new(2, Trust::Loopback, &Pins::new()));
    assert_eq!(link(&a, 2, &b).await, (Ok(2), Ok(1)));
}

#[test]
fn addresses_of_other_machines_are_refused_without_a_secret() {
    let gate = Gate::new(Identity::generate().unwrap(), Trust::Loopback, Pins::new());
    for there in ["10.0.3.11:2888", "[fe80::1]:2888", "[::ffff:10.0.0.1]:1", "0.0.0.0:1"] {
        let refused = gate.check_address(there.parse().unwrap()).unwrap_err();
        assert!(
            refused.to_string().ends_with("make a key with `zoolet keygen` and copy it to all servers"),
            "{refused}"
        );
    }
    for here in ["127.0.0.1:1", "127.3.2.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        gate.check_address(here.parse().unwrap()).unwrap();
    }
    let gate = Gate::new(Identity::generate().unwrap(), site(), Pins::new());
    gate.check_address("10.0.3.11:2888".parse().unwrap()).unwrap();
}

#[tokio::test]
async fn site_key_admits_any_server_key() {
    let trust = site();
    let (a, b) = (Server::new(1, trust.clone(), &Pins::new()), Server::new(2, trust, &Pins::new()));
    assert_eq!(link(&a, 2, &b).await, (Ok(2), Ok(1)));
}

#[tokio::test]
async fn different_site_key_is_refused_on_both_sides() {
    let (a, b) = (Server::new(1, site(), &Pins::new()), Server::new(2, site(), &Pins::new()));
    let (dialler, acceptor) = lines(link(&a, 2, &b).await);
    assert_eq!(dialler, "gw-b:2888 has another site key: copy the site key of one server to all others");
    assert_eq!(acceptor, "somebody claims to be server 1 and is refused: its proof is for another site key");
}

#[tokio::test]
async fn dialler_without_the_required_site_key_is_refused_with_advice() {
    let (a, b) = (Server::new(1, Trust::Loopback, &Pins::new()), Server::new(2, site(), &Pins::new()));
    let (dialler, acceptor) = lines(link(&a, 2, &b).await);
    assert_eq!(dialler, "gw-b:2888 requires its site key, which this server lacks: copy it here");
    assert_eq!(acceptor, "somebody claims to be server 1 and is refused: it shows no proof of the site key");
}

/// A host that takes over a server's address gets no link. The dialler requires a proof, too.
#[tokio::test]
async fn an_acceptor_without_the_site_key_is_refused_by_the_dialler() {
    let (a, b) = (Server::new(1, site(), &Pins::new()), Server::new(2, Trust::Loopback, &Pins::new()));
    let told = link(&a, 2, &b).await;
    assert_eq!(
        told.0,
        Err("gw-b:2888 (server 2) shows no proof of the site key: copy this server's site key to it".to_owned())
    );
}

#[tokio::test]
async fn acceptor_with_the_id_of_another_server_is_refused() {
    let trust = site();
    let (a, c) = (Server::new(1, trust.clone(), &Pins::new()), Server::new(3, trust, &Pins::new()));
    assert_eq!(
        link(&a, 2, &c).await.0,
        Err("gw-b:2888 (server 3) answers at the address of server 2: one of the two addresses is wrong".to_owned())
    );
}

#[tokio::test]
async fn peer_with_this_servers_own_key_is_refused_before_any_message() {
    let (trust, identity) = (site(), Identity::generate().unwrap());
    let a = Server::with(1, identity.clone(), trust.clone(), &Pins::new());
    let copy = Server::with(2, identity, trust, &Pins::new());
    let (dialler, acceptor) = lines(link(&a, 2, &copy).await);
    assert!(dialler.starts_with("gw-b:2888 has this server's own key: "), "{dialler}");
    assert!(acceptor.starts_with("somebody has this server's own key: "), "{acceptor}");
}

/// Servers 1 and 2, which trust only each other's pinned key.
fn pinned() -> (Server, Server) {
    let pins = (Pins::new(), Pins::new());
    let (a, b) = (Server::new(1, Trust::Pinned, &pins.0), Server::new(2, Trust::Pinned, &pins.1));
    pins.0.pin(b.id, b.gate.public_key()).unwrap();
    pins.1.pin(a.id, a.gate.public_key()).unwrap();
    (a, b)
}

#[tokio::test]
async fn servers_with_pinned_keys_link() {
    let (a, b) = pinned();
    assert_eq!(link(&a, 2, &b).await, (Ok(2), Ok(1)));
}

#[tokio::test]
async fn unpinned_key_is_refused_in_the_tls_handshake() {
    let (a, b) = pinned();
    let pins = Pins::new();
    pins.pin(b.id, b.gate.public_key()).unwrap();
    let newcomer = Server::new(1, Trust::Pinned, &pins);
    let key = newcomer.gate.public_key();
    let (dialler, acceptor) = lines(link(&newcomer, 2, &b).await);
    assert_eq!(
        dialler,
        format!(
            "gw-b:2888 does not know this server's key: pin {key} there, or, if it does not use pinned keys, give both servers the same kind of trust"
        )
    );
    assert_eq!(
        acceptor,
        format!(
            "somebody shows key {key}, which is not pinned to any server here: if the server is yours, pin the key"
        )
    );

    // The dialler refuses as well, before it shows its own key.
    let (dialler, acceptor) = lines(link(&a, 2, &newcomer).await);
    assert_eq!(
        dialler,
        format!(
            "gw-b:2888 answers for server 2 with key {key}, which is not the one pinned here: if that server has a new disk, pin the new key"
        )
    );
    assert!(acceptor.contains("does not know this server's key"), "{acceptor}");
}

#[tokio::test]
async fn pinned_key_is_refused_under_another_server_id() {
    let (a, b) = pinned();
    let posing = Server { id: id(3), gate: a.gate.clone(), endpoint: a.endpoint.clone() };
    let (dialler, acceptor) = lines(link(&posing, 2, &b).await);
    assert_eq!(
        dialler,
        format!(
            "gw-b:2888 has not pinned this server's key to this server's id: if this server has a new disk, pin {} there",
            a.gate.public_key()
        )
    );
    assert_eq!(acceptor, "somebody claims to be server 3 and is refused: its key is not pinned to that server here");
}

/// Under a site key, a pin binds one server to one key. Other servers need no pin.
#[tokio::test]
async fn pin_is_enforced_in_addition_to_the_site_key() {
    let (trust, pins) = (site(), Pins::new());
    let b = Server::new(2, trust.clone(), &pins);
    let (first, second) = (Server::new(1, trust.clone(), &Pins::new()), Server::new(1, trust.clone(), &Pins::new()));
    pins.pin(id(1), first.gate.public_key()).unwrap();
    assert_eq!(link(&first, 2, &b).await, (Ok(2), Ok(1)));
    let (_, acceptor) = lines(link(&second, 2, &b).await);
    assert!(acceptor.contains("but another key is pinned to that server here"), "{acceptor}");

    // Server 1's key is refused under every other id.
    let posing =
        Server { id: id(3), gate: first.gate.clone(), endpoint: Server::new(3, trust.clone(), &pins).endpoint };
    let (_, acceptor) = lines(link(&posing, 2, &b).await);
    assert_eq!(
        acceptor,
        "somebody (server 3) has the key that is pinned to server 1 here: one of the two ids is wrong"
    );

    // A dialler that finds another key at server 1 stops in the handshake.
    let dialling = Server::new(2, trust, &pins);
    let (dialler, _) = lines(link(&dialling, 1, &second).await);
    assert!(dialler.contains("which is not the one pinned here"), "{dialler}");
}

#[tokio::test]
async fn linking_installs_no_process_wide_crypto_provider() {
    let (a, b) = (Server::new(1, Trust::Loopback, &Pins::new()), Server::new(2, Trust::Loopback, &Pins::new()));
    assert_eq!(link(&a, 2, &b).await, (Ok(2), Ok(1)));
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}
