//! Peers outside the ensemble, and peers that have just restarted.

use super::*;
use crate::peer::trust::tls::{self, Admitted, RawKeys};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ConnectionError};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use std::cell::Cell;
use tokio::net::UdpSocket as TokioSocket;

fn any() -> Arc<RawKeys> {
    Arc::new(RawKeys { provider: tls::provider(), admitted: Admitted::Any })
}

/// Returns a stranger's settings: a fresh raw key, and the changes of `change`.
fn stranger(change: impl FnOnce(&mut rustls::ClientConfig)) -> ClientConfig {
    let own = AlwaysResolvesClientRawPublicKeys::new(Identity::generate().unwrap().certified());
    let mut config = tls::client_config(any(), Arc::new(own)).unwrap();
    change(&mut config);
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

fn client() -> Endpoint {
    Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// Connects a stranger to a server that requires a site key.
///
/// Returns the connection's end and the server's line about it.
async fn tried(config: ClientConfig) -> (ConnectionError, String) {
    let server = Server::new(2, site(), &Pins::new());
    let client = client();
    let knock = async {
        match client.connect_with(config, server.address(), "any.name").unwrap().await {
            Ok(connection) => connection.closed().await,
            Err(end) => end,
        }
    };
    let both = async { tokio::join!(knock, server.accept()) };
    let (end, accepted) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("an answer");
    let (line, sent) = accepted.unwrap_err();
    assert_eq!(sent, 0);
    (end, line)
}

/// A stranger must not learn the acceptor's id, ensemble or release.
#[tokio::test]
async fn refused_stranger_receives_only_a_close_code() {
    let server = Server::new(2, site(), &Pins::new());
    let client = client();
    let knock = async {
        let connection = client.connect_with(stranger(|_| ()), server.address(), "any.name").unwrap().await.unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&[[1].as_slice(), &[0; 32]].concat()).await.unwrap();
        stream.finish().unwrap();
        let end = connection.closed().await;
        (end, connection.stats().frame_rx)
    };
    let both = async { tokio::join!(knock, server.accept()) };
    let ((end, heard), accepted) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("an answer");
    assert_eq!((heard.stream, heard.datagram, heard.new_token), (0, 0, 0));
    let ConnectionError::ApplicationClosed(close) = end else { panic!("{end}") };
    assert_eq!((close.error_code, close.reason.len()), (VarInt::from_u32(close_code::PROOF), 0));
    let (line, sent) = accepted.unwrap_err();
    assert_eq!(line, "somebody claims to be server 1 and is refused: its proof is for another site key");
    assert_eq!(sent, 0);
}

#[tokio::test]
async fn stranger_with_an_unknown_protocol_is_refused() {
    for protocols in [vec![], vec![b"h3".to_vec()], vec![b"zoolet/2".to_vec()]] {
        let (end, line) = tried(stranger(|config| config.alpn_protocols = protocols)).await;
        assert!(matches!(&end, ConnectionError::ConnectionClosed(_)), "{end}");
        assert_eq!(line, "somebody is not a zoolet server of this protocol version");
    }
}

#[tokio::test]
async fn stranger_without_a_key_is_refused() {
    let anonymous = Arc::new(NoKey);
    let (_, line) = tried(stranger(|config| config.client_auth_cert_resolver = anonymous)).await;
    assert!(line.starts_with("somebody shows no key or certificate that this server accepts"), "{line}");
}

#[derive(Debug)]
struct NoKey;

impl rustls::client::ResolvesClientCert for NoKey {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Public keys are public: showing one proves nothing without the private half.
fn posing_as(victim: &Identity) -> Arc<CertifiedKey> {
    let own = Identity::generate().unwrap();
    Arc::new(CertifiedKey::new(victim.certified().cert.clone(), Arc::clone(&own.certified().key)))
}

#[tokio::test]
async fn dialler_with_a_stolen_public_key_is_refused() {
    let victim = Identity::generate().unwrap();
    let posing = Arc::new(AlwaysResolvesClientRawPublicKeys::new(posing_as(&victim)));
    let (end, line) = tried(stranger(|config| config.client_auth_cert_resolver = posing)).await;
    assert!(matches!(&end, ConnectionError::ConnectionClosed(_)), "{end}");
    assert_eq!(line, "somebody cannot prove that it holds the private key: it is not that server");
}

#[tokio::test]
async fn acceptor_with_a_stolen_public_key_is_refused() {
    let (victim, pins) = (Identity::generate().unwrap(), Pins::new());
    pins.pin(id(2), victim.public_key()).unwrap();
    let posing = AlwaysResolvesServerRawPublicKeys::new(posing_as(&victim));
    let config = QuicServerConfig::try_from(tls::server_config(any(), Arc::new(posing)).unwrap()).unwrap();
    let config = quinn::ServerConfig::new(Arc::new(config), Arc::new(victim.token_key()));
    let false_two = endpoint(victim.endpoint_config(), config);
    let dialler = Server::new(1, Trust::Pinned, &pins);
    let address = false_two.local_addr().unwrap();
    let (found, _) =
        tokio::join!(dialler.dial(id(2), address), async { false_two.accept().await.unwrap().await.err() });
    assert_eq!(found, Err("gw-b:2888 cannot prove that it holds the private key: it is not that server".to_owned()));
}

#[tokio::test]
async fn tls_sessions_are_never_resumed() {
    let trust = site();
    let server = Server::new(2, trust, &Pins::new());
    let client = client();
    let config = stranger(|config| {
        config.resumption = Resumption::in_memory_sessions(8);
        config.enable_early_data = true;
    });
    for _ in 0..2 {
        let connecting = client.connect_with(config.clone(), server.address(), "any.name").unwrap();
        let connecting = connecting.into_0rtt().map(|_| ()).expect_err("a full handshake");
        let (connection, _) =
            tokio::join!(connecting, async { server.endpoint.accept().await.unwrap().await.unwrap() });
        connection.unwrap().close(VarInt::from_u32(0), b"");
    }
}

/// Relays datagrams to a server whose process may be replaced.
async fn relay(front: &TokioSocket, back: &TokioSocket, server: &Cell<SocketAddr>) {
    let (mut client, mut there, mut here) = (None, [0; 2000], [0; 2000]);
    loop {
        tokio::select! {
            Ok((bytes, from)) = front.recv_from(&mut there) => {
                client = Some(from);
                let _ = back.send_to(&there[..bytes], server.get()).await;
            }
            Ok((bytes, from)) = back.recv_from(&mut here) => {
                // The former process is dead, so its packets are dropped.
                if let (true, Some(client)) = (from == server.get(), client) {
                    let _ = front.send_to(&here[..bytes], client).await;
                }
            }
        }
    }
}

/// On QUIC a dead process is only silent. Its successor has the same key file and resets the
/// connection.
#[tokio::test]
async fn restarted_server_resets_the_links_of_its_previous_process() {
    let (trust, identity) = (site(), Identity::generate().unwrap());
    let before = Server::with(2, identity.clone(), trust.clone(), &Pins::new());
    let dialler = Server::new(1, trust.clone(), &Pins::new());
    let front = TokioSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let back = TokioSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = Cell::new(before.address());
    let story = async {
        let config = dialler.gate.client_config(id(2)).unwrap();
        let connecting = dialler.endpoint.connect_with(config, front.local_addr().unwrap(), "server-2.zoolet").unwrap();
        let (connection, accepted) = tokio::join!(connecting, async { before.endpoint.accept().await.unwrap().await });
        let (connection, _accepted) = (connection.unwrap(), accepted.unwrap());
        let after = Server::with(2, identity, trust, &Pins::new());
        server.set(after.address());
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&[0; 100]).await.unwrap();
        assert_eq!(connection.closed().await, ConnectionError::Reset);
    };
    tokio::select! {
        () = relay(&front, &back, &server) => unreachable!(),
        told = tokio::time::timeout(Duration::from_secs(20), story) => told.expect("a reset"),
    }
}
