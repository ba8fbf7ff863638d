//! The operator's authority. The certificates in `pki/` expired between 1997 and 2005, except one
//! that is valid in 2090 only.

use super::*;
use crate::peer::trust::ca;
use crate::peer::trust::tls::{self, Admitted, RawKeys};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/peer/trust/tests/pki").join(name)
}

/// Returns a copy of the key that only its owner may read. A git checkout does not keep modes.
fn private(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("zoolet-trust-{}-{name}", std::process::id()));
    if !path.exists() {
        // Tests run concurrently: none may see the file incomplete or without its mode.
        let aside = path.with_extension(format!("{:?}", std::thread::current().id()));
        fs::copy(file(name), &aside).unwrap();
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    path
}

fn authority(ca: &str, certificate: &str, own: u8) -> Result<Authority, String> {
    let key = certificate.replace("_chain", "").replace(".pem", ".key");
    Authority::read(&file(ca), &file(certificate), &private(&key), id(own)).map_err(|error| {
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        line.replace(&file("").display().to_string(), "")
    })
}

fn server(own: u8, certificate: &str) -> Server {
    Server::new(own, Trust::Ca(authority("authority.pem", certificate, own).unwrap()), &Pins::new())
}

/// Expired certificates link servers, regardless of this machine's clock.
///
/// Server 1 has its certificate from the authority, server 3 from an intermediate. Both expired in
/// 1997.
#[tokio::test]
async fn certificates_link_servers_even_after_expiry() {
    let (one, three) = (server(1, "server_1.pem"), server(3, "server_3_chain.pem"));
    assert_eq!(link(&one, 3, &three).await, (Ok(3), Ok(1)));
    let (one, three) = (server(1, "server_1.pem"), server(3, "server_3_chain.pem"));
    assert_eq!(link(&three, 1, &one).await, (Ok(1), Ok(3)));
}

#[tokio::test]
async fn certificate_of_another_server_id_is_refused() {
    let (one, three) = (server(1, "server_1.pem"), server(3, "server_3_chain.pem"));
    // TLS rejects server 3 when it is dialled as server 2.
    let (dialler, _) = lines(link(&one, 2, &three).await);
    assert!(dialler.starts_with("gw-b:2888 shows no key or certificate that this server accepts"), "{dialler}");
    assert!(dialler.contains("server-2.zoolet"), "{dialler}");
    // The acceptor learns the claimed id only from the first message.
    let posing = Server { id: id(2), gate: one.gate.clone(), endpoint: one.endpoint.clone() };
    let (dialler, acceptor) = lines(link(&posing, 3, &three).await);
    assert_eq!(acceptor, "somebody claims to be server 2 and is refused: its certificate does not name that server");
    assert!(dialler.starts_with("gw-b:2888 has not "), "{dialler}");
}

#[tokio::test]
async fn different_authority_is_refused_on_both_sides() {
    let three = server(3, "server_3_chain.pem");
    let others = authority("other_authority.pem", "stranger.pem", 1).unwrap();
    let stranger = Server::new(1, Trust::Ca(others), &Pins::new());
    let (dialler, acceptor) = lines(link(&stranger, 3, &three).await);
    assert!(dialler.starts_with("gw-b:2888 shows no key or certificate that this server accepts"), "{dialler}");
    assert!(acceptor.starts_with("somebody refuses this server's key"), "{acceptor}");

    // A stranger that trusts every server is refused by the acceptor.
    let both = async {
        let knock = async {
            let mixed = mixed("authority.pem", "stranger.pem", "stranger.key");
            let gate = Gate::new(Identity::generate().unwrap(), Trust::Ca(mixed), Pins::new());
            let posing = Server { id: id(1), gate, endpoint: stranger.endpoint.clone() };
            posing.dial(id(3), three.address()).await
        };
        tokio::join!(knock, three.accept())
    };
    let (dialler, acceptor) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("an answer");
    assert!(dialler.unwrap_err().starts_with("gw-b:2888 refuses this server's key"));
    let (line, sent) = acceptor.unwrap_err();
    assert!(line.starts_with("somebody shows no key or certificate that this server accepts"), "{line}");
    assert_eq!(sent, 0);
}

/// One plant's authority with another plant's certificate, which [`Authority::read`] rejects.
fn mixed(ca: &str, certificate: &str, key: &str) -> Authority {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file(ca)).unwrap()).unwrap();
    Authority::new(roots, certified(certificate, key)).unwrap()
}

fn certified(certificate: &str, key: &str) -> CertifiedKey {
    let chain = CertificateDer::pem_file_iter(file(certificate)).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(file(key)).unwrap();
    CertifiedKey::from_der(chain, key, &ca::provider()).unwrap()
}

#[test]
fn certificates_that_peers_would_refuse_are_refused_at_the_start() {
    let refused = |ca, certificate, own| authority(ca, certificate, own).unwrap_err();
    let not_good = "other servers would refuse this certificate: ";
    let line = refused("authority.pem", "server_1.pem", 2);
    assert!(line.starts_with(&format!("server_1.pem: {not_good}")) && line.contains("server-2.zoolet"), "{line}");
    let line = refused("other_authority.pem", "server_1.pem", 1);
    assert!(line.starts_with(&format!("server_1.pem: {not_good}")), "{line}");
    // Without its intermediate certificate.
    let line = refused("authority.pem", "server_3.pem", 3);
    assert!(line.starts_with(&format!("server_3.pem: {not_good}")), "{line}");
    // It starts long after its intermediate expired, so this chain was never valid.
    let line = refused("authority.pem", "server_2_chain.pem", 2);
    assert!(line.starts_with(&format!("server_2_chain.pem: {not_good}")) && line.contains("expired"), "{line}");
    // The key of another certificate.
    let line = Authority::read(&file("authority.pem"), &file("server_1.pem"), &private("server_3.key"), id(1));
    assert!(line.unwrap_err().to_string().contains("this key does not match "));
    // A key that others may read, as in the checkout.
    let open = private("stranger.key").with_extension("open");
    fs::copy(private("stranger.key"), &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let line = Authority::read(&file("authority.pem"), &file("server_1.pem"), &open, id(1)).unwrap_err().to_string();
    assert!(line.contains(&format!("run `chmod 600 {}`", open.display())), "{line}");
    // No certificate at all.
    let line = Authority::read(&file("authority.pem"), &file("server_1.key"), &private("server_1.key"), id(1));
    assert!(line.unwrap_err().to_string().ends_with("found 0 readable certificates in PEM: 1 to 8 are needed"));
}

#[tokio::test]
async fn certificates_and_raw_keys_do_not_mix() {
    let (one, raw) = (server(1, "server_1.pem"), Server::new(2, site(), &Pins::new()));
    let (dialler, acceptor) = lines(link(&one, 2, &raw).await);
    assert!(dialler.contains("both servers need the same kind of trust"), "{dialler}");
    assert!(acceptor.contains("both servers need the same kind of trust"), "{acceptor}");
    let (dialler, acceptor) = lines(link(&raw, 1, &one).await);
    assert!(dialler.contains("the same kind of trust"), "{dialler}");
    assert!(acceptor.contains("the same kind of trust"), "{acceptor}");
}

/// The client asks for raw keys, but shows a certificate itself.
#[tokio::test]
async fn certificate_in_place_of_a_raw_key_is_refused() {
    let server = Server::new(2, site(), &Pins::new());
    let any = Arc::new(RawKeys { provider: tls::provider(), admitted: Admitted::Any });
    let shown = Arc::new(certified("server_1.pem", "server_1.key"));
    for shown in [
        Arc::new(SingleCertAndKey::from(Arc::clone(&shown))) as Arc<dyn rustls::client::ResolvesClientCert>,
        Arc::new(rustls::client::AlwaysResolvesClientRawPublicKeys::new(shown)),
    ] {
        let config = QuicClientConfig::try_from(tls::client_config(any.clone(), shown).unwrap()).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(config));
        let client = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let knock = async {
            match client.connect_with(config, server.address(), "any.name").unwrap().await {
                Ok(connection) => connection.closed().await,
                Err(end) => end,
            }
        };
        let both = async { tokio::join!(knock, server.accept()) };
        let (_, accepted) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("an answer");
        let (line, sent) = accepted.unwrap_err();
        assert!(line.starts_with("somebody shows no key or certificate that this server accepts"), "{line}");
        assert_eq!(sent, 0);
    }
}
