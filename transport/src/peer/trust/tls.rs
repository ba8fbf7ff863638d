//! TLS 1.3 for links.
//!
//! Both sides show an Ed25519 key instead of a certificate (RFC 7250). The handshake proves that
//! each has the private half. 0-RTT, resumption and tickets are off, because they could be replayed
//! or outlive their purpose. The wall clock is not used: on these machines it may say 1970. The
//! crypto provider is passed to rustls, not installed, because the process belongs to the embedder.

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

/// Protocol name of a link. Its number rises with each incompatible change.
pub(super) const ALPN: &[u8] = b"zoolet/1";

/// Returns the parts of ring that links need.
///
/// The ready-made ring provider names every kind of key. The code for them would add 0.3 MB to
/// every binary. AES comes first only on processors with AES instructions. On others (Raspberry Pi
/// up to version 4) it takes many times as long as ChaCha20.
pub(super) fn provider() -> CryptoProvider {
    // QUIC needs the AES-128 suite for its first packets, so both lists contain it.
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

/// Verifies Ed25519 signatures.
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

/// The system's random numbers. Refuses to load keys.
#[derive(Debug)]
struct System;

impl SecureRandom for System {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        ring::rand::SecureRandom::fill(&SystemRandom::new(), bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for System {
    /// A server generates its key pair itself, so no key file is loaded here.
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("links without certificates load no key".to_owned()))
    }
}

/// Returns whether links on this machine prefer AES-128-GCM to ChaCha20-Poly1305.
pub fn prefers_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Returns the settings for accepting.
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

/// Returns the settings for dialling.
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
    // Observers on the path could read it, and it would name the dialled server.
    config.enable_sni = false;
    Ok(config)
}

/// Constant clock for rustls.
///
/// rustls needs the time for tickets, which are off, and for certificates, which [`super::ca`]
/// judges without it.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}

/// Accepts raw Ed25519 keys, limited to the admitted ones.
///
/// An accepted key proves only that the peer has the private half. The peer's identity is checked
/// after the handshake.
#[derive(Debug)]
pub(super) struct RawKeys {
    pub(super) provider: CryptoProvider,
    pub(super) admitted: Admitted,
}

/// The keys that TLS accepts.
#[derive(Debug)]
pub(super) enum Admitted {
    /// Any key.
    Any,
    /// Keys pinned to any server.
    Pinned(Pins),
    /// Keys pinned to the dialled server. If none is pinned, any key, provided that `or_any` is
    /// set.
    PinnedTo {
        /// The dialled server.
        server: ServerId,
        /// The pinned keys.
        pins: Pins,
        /// Whether a server without a pin may pass and prove itself later.
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

/// A key that is not pinned, refused in the handshake. Displayed after the peer's name.
#[derive(Debug)]
struct NotPinned {
    key: PublicKey,
    server: Option<ServerId>,
}

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, server } = self;
        match server {
            None => write!(
                f,
                "shows key {key}, which is not pinned to any server here: if the server is yours, pin the key"
            ),
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

    /// Proves possession of the private half. Otherwise a public key alone, which is no secret,
    /// would be enough.
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
