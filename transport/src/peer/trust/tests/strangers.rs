//! Who is no server of ours, or was one a moment ago.

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

/// A stranger's settings: a raw key of its own, and whatever is changed of them.
fn stranger(change: impl FnOnce(&mut rustls::ClientConfig)) -> ClientConfig {
    let own = AlwaysResolvesClientRawPublicKeys::new(Identity::generate().unwrap().certified());
    let mut config = tls::client_config(any(), Arc::new(own)).unwrap();
    change(&mut config);
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

fn client() -> Endpoint {
    Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// One stranger's connection to a server that asks for a site key: its end, and what the server says of it.
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

/// The acceptor's id, its ensemble and its release are nobody's business who has not the site key.
#[tokio::test]
async fn a_stranger_hears_nothing_but_a_number() {
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
    assert_eq!(line, "somebody (server 1) has another site key: copy the site key of one server to all others");
    assert_eq!(sent, 0);
}

#[tokio::test]
async fn who_speaks_another_protocol_is_refused() {
    for protocols in [vec![], vec![b"h3".to_vec()], vec![b"zoolet/2".to_vec()]] {
        let (end, line) = tried(stranger(|config| config.alpn_protocols = protocols)).await;
        assert!(matches!(&end, ConnectionError::ConnectionClosed(_)), "{end}");
        assert_eq!(line, "somebody is not a zoolet server of this protocol version");
    }
}

#[tokio::test]
async fn who_shows_no_key_is_refused() {
    let anonymous = Arc::new(NoKey);
    let (_, line) = tried(stranger(|config| config.client_auth_cert_resolver = anonymous)).await;
    assert!(line.starts_with("somebody shows no key or certificate that is good here"), "{line}");
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

/// Public keys are public: showing one is nothing without its other half.
fn posing_as(victim: &Identity) -> Arc<CertifiedKey> {
    let own = Identity::generate().unwrap();
    Arc::new(CertifiedKey::new(victim.certified().cert.clone(), Arc::clone(&own.certified().key)))
}

#[tokio::test]
async fn who_shows_the_key_of_another_is_found_out() {
    let victim = Identity::generate().unwrap();
    let posing = Arc::new(AlwaysResolvesClientRawPublicKeys::new(posing_as(&victim)));
    let (end, line) = tried(stranger(|config| config.client_auth_cert_resolver = posing)).await;
    assert!(matches!(&end, ConnectionError::ConnectionClosed(_)), "{end}");
    assert_eq!(line, "somebody shows a key whose other half it does not have: it is not that server");
}

#[tokio::test]
async fn who_answers_with_the_key_of_another_is_found_out() {
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
    assert_eq!(found, Err("gw-b:2888 shows a key whose other half it does not have: it is not that server".to_owned()));
}

#[tokio::test]
async fn nothing_is_resumed() {
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

/// Passes datagrams on between a dialler and an acceptor, either of which may be replaced by its next process. The one before is dead: it is not heard
/// any more.
struct Relay {
    front: TokioSocket,
    back: TokioSocket,
    dialler: Cell<SocketAddr>,
    acceptor: Cell<SocketAddr>,
}

impl Relay {
    async fn between(dialler: &Server, acceptor: &Server) -> Self {
        let bind = || TokioSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (dialler, acceptor) = (Cell::new(dialler.address()), Cell::new(acceptor.address()));
        Self { front: bind().await.unwrap(), back: bind().await.unwrap(), dialler, acceptor }
    }

    async fn run(&self) {
        let (mut there, mut here) = ([0; 2000], [0; 2000]);
        loop {
            tokio::select! {
                Ok((bytes, from)) = self.front.recv_from(&mut there) => if from == self.dialler.get() {
                    let _ = self.back.send_to(&there[..bytes], self.acceptor.get()).await;
                },
                Ok((bytes, from)) = self.back.recv_from(&mut here) => if from == self.acceptor.get() {
                    let _ = self.front.send_to(&here[..bytes], self.dialler.get()).await;
                },
            }
        }
    }

    /// The dialler's connection and the acceptor's, with a word said on it.
    async fn link(&self, dialler: &Server, acceptor: &Server) -> (Connection, Connection) {
        let config = dialler.gate.client_config(acceptor.id).unwrap();
        let address = self.front.local_addr().unwrap();
        let connecting = dialler.endpoint.connect_with(config, address, "server-2.zoolet").unwrap();
        let accepting = async { acceptor.endpoint.accept().await.unwrap().await.unwrap() };
        let (dialled, accepted) = tokio::join!(connecting, accepting);
        let dialled = dialled.unwrap();
        say_something(&dialled).await;
        accepted.accept_uni().await.unwrap().read_to_end(100).await.unwrap();
        (dialled, accepted)
    }
}

async fn say_something(connection: &Connection) {
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[0; 100]).await.unwrap();
    stream.finish().unwrap();
}

/// On QUIC the death of a process is silence. Its successor, which has the same key file, breaks it, whichever side it was.
#[tokio::test]
async fn a_restarted_server_resets_the_links_of_the_process_before() {
    let (trust, identity) = (site(), Identity::generate().unwrap());
    let server = |id, identity: &Identity| Server::with(id, identity.clone(), trust.clone(), &Pins::new());
    for acceptor_restarts in [true, false] {
        let other = Identity::generate().unwrap();
        let (ours, theirs) = if acceptor_restarts { (&other, &identity) } else { (&identity, &other) };
        let (dialler, acceptor) = (server(1, ours), server(2, theirs));
        let relay = Relay::between(&dialler, &acceptor).await;
        let story = async {
            let (dialled, accepted) = relay.link(&dialler, &acceptor).await;
            let next = server(if acceptor_restarts { 2 } else { 1 }, &identity);
            let (replaced, stays) =
                if acceptor_restarts { (&relay.acceptor, &dialled) } else { (&relay.dialler, &accepted) };
            replaced.set(next.address());
            say_something(stays).await;
            assert_eq!(stays.closed().await, ConnectionError::Reset);
        };
        tokio::select! {
            () = relay.run() => unreachable!(),
            told = tokio::time::timeout(Duration::from_secs(20), story) => told.expect("a reset"),
        }
    }
}
