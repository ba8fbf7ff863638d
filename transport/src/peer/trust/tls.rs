//! TLS 1.3 as links use it: both sides show an Ed25519 key, not a certificate (RFC 7250), and prove in the handshake that they have its other half.
//!
//! Off, each because it could be replayed or outlive what it was given for: 0-RTT, resumption, tickets. Nothing asks the wall clock, which on these machines may
//! say 1970. The crypto provider is handed over and not installed: the process is the embedder's.

use super::pins::Pins;
use super::public_key::PublicKey;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, UnparsedPublicKey};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{cipher_suite, kx_group};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, PrivateKeyDer, ServerName, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, UnixTime, alg_id,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::SigningKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved,
    ServerConfig, SignatureScheme, client,
};
use std::fmt;
use std::sync::Arc;
use zoolet_model::ServerId;

/// What is spoken on a link. The number rises with what an older server would misunderstand.
pub(super) const ALPN: &[u8] = b"zoolet/1";

/// Of ring what links need. Not its own provider, for that names every kind of key there is, and what computes with them would be in every binary: 0.3 MB.
/// AES is first only where the processor computes it: elsewhere (a Raspberry Pi up to the fourth) it takes many times as
/// long as ChaCha20.
pub(super) fn provider() -> CryptoProvider {
    // QUIC itself needs the suite of AES-128 for its first packets, so it is in both.
    let cipher_suites = if prefers_aes() {
        vec![cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256]
    } else {
        vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, cipher_suite::TLS13_AES_128_GCM_SHA256]
    };
    CryptoProvider {
        cipher_suites,
        kx_groups: vec![kx_group::X25519],
        signature_verification_algorithms: WebPkiSupportedAlgorithms {
            all: &[&Ed25519],
            mapping: &[(SignatureScheme::ED25519, &[&Ed25519])],
        },
        secure_random: &System,
        key_provider: &System,
    }
}

/// Verifies with it.
#[derive(Debug)]
struct Ed25519;

impl SignatureVerificationAlgorithm for Ed25519 {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(message, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED25519
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ED25519
    }
}

/// The system's random numbers.
#[derive(Debug)]
struct System;

impl SecureRandom for System {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        ring::rand::SecureRandom::fill(&SystemRandom::new(), bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for System {
    /// A server makes its own pair, and no file with a key comes here.
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("links without certificates load no key".to_owned()))
    }
}

/// Whether links of this machine prefer AES-128-GCM to ChaCha20-Poly1305.
pub fn prefers_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// For those who accept.
pub(super) fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    shown: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_details(Arc::new(provider()), Arc::new(NoClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// For those who dial.
pub(super) fn client_config(
    verifier: Arc<dyn ServerCertVerifier>,
    shown: Arc<dyn client::ResolvesClientCert>,
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_details(Arc::new(provider()), Arc::new(NoClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(shown);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    // Everybody on the way could read it, and it would say which server of the ensemble is dialled.
    config.enable_sni = false;
    Ok(config)
}

/// TLS asks for the time to judge tickets, which there are none of, and certificates, which are judged in [`super::ca`] without it.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}

/// Takes raw Ed25519 keys, and of them those that it may.
///
/// That TLS lets a key in says only that the other side has its private half. Who it is, is judged after the handshake.
#[derive(Debug)]
pub(super) struct RawKeys {
    pub(super) provider: CryptoProvider,
    pub(super) admitted: Admitted,
}

/// Whose keys TLS lets in.
#[derive(Debug)]
pub(super) enum Admitted {
    /// Anybody's.
    Any,
    /// Those that are pinned to any server.
    Pinned(Pins),
    /// Those that are pinned to the server that is dialled; when there are none and `or_any`, anybody's.
    PinnedTo {
        /// Which server.
        server: ServerId,
        /// What is pinned.
        pins: Pins,
        /// Whether a server without a pin will have to prove itself otherwise.
        or_any: bool,
    },
}

impl Admitted {
    fn check(&self, key: PublicKey) -> Result<(), NotPinned> {
        let is_admitted = match self {
            Self::Any => true,
            Self::Pinned(pins) => pins.owner(key).is_some(),
            Self::PinnedTo { server, pins, or_any } => pins.admits(*server, key).unwrap_or(*or_any),
        };
        if is_admitted { Ok(()) } else { Err(NotPinned { key, server: self.server() }) }
    }

    fn server(&self) -> Option<ServerId> {
        match self {
            Self::Any | Self::Pinned(_) => None,
            Self::PinnedTo { server, .. } => Some(*server),
        }
    }
}

/// A key that is not pinned, refused inside the handshake. Its Display follows the name of whoever showed it.
#[derive(Debug)]
struct NotPinned {
    key: PublicKey,
    server: Option<ServerId>,
}

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, server } = self;
        match server {
            None => write!(f, "shows key {key}, which is pinned to no server here: if it is one of yours, pin it"),
            Some(server) => write!(
                f,
                "answers for server {} with key {key}, which is not the one pinned here: if that server has a new disk, pin the new key",
                server.as_u8()
            ),
        }
    }
}

impl std::error::Error for NotPinned {}

impl RawKeys {
    fn check(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        let key = PublicKey::from_spki(shown).filter(|_| more.is_empty()).ok_or(CertificateError::BadEncoding)?;
        self.admitted.check(key).map_err(|refused| Error::Other(OtherError(Arc::new(refused))))
    }

    /// Without this whoever knows a public key could show it.
    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signed, &self.provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for RawKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for RawKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
