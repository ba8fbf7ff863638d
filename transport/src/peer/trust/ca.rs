//! X.509 certificates of the operator's own authority.
//!
//! A certificate is valid for the server in its DNS name, `server-N.zoolet`.
//!
//! **The wall clock is not used.** A box without a battery-backed clock starts in 1970. The links
//! cannot wait for network time, because it may come over the links themselves. Instead, the whole
//! chain must have been valid at some moment. The verifier checks it at the first moment at which
//! all its certificates were valid. An expired certificate is therefore still accepted. To revoke a
//! server's certificate, give the other servers another authority, or pin a key.

use super::public_key::PublicKey;
use super::secret_file::{self, SecretFileError};
use super::tls;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme, client,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zoolet_model::ServerId;

/// Maximum certificates in a chain, including the authority's. webpki follows no longer chains.
const CHAIN_MAX: usize = 8;

/// An authority, and this server's certificate and key from it.
#[derive(Clone)]
pub struct Authority {
    roots: Arc<RootCertStore>,
    shown: Arc<CertifiedKey>,
    key: PublicKey,
}

impl Authority {
    /// Reads the authority, this server's certificate chain and its key.
    ///
    /// All three files are PEM. `ca` holds the authority's certificates. `certificate` holds this
    /// server's certificate, followed by the intermediates. `key` holds the private key, and only
    /// its owner may read it. A certificate that other servers would refuse is refused here.
    ///
    /// # Errors
    /// A [`SecretFileError`], displayed as one line for the operator that names the file.
    pub fn read(ca: &Path, certificate: &Path, key: &Path, own: ServerId) -> Result<Self, SecretFileError> {
        let content = |path: &Path, what: String| SecretFileError::Content {
            path: path.to_owned(),
            what,
            remedy: "see docs/how-to/trust.md, \"Certificates\"",
        };
        let mut roots = RootCertStore::empty();
        for root in certificates(ca)? {
            roots.add(root).map_err(|error| {
                content(ca, format!("a certificate in this file cannot be an authority's: {error}"))
            })?;
        }
        let chain = certificates(certificate)?;
        let pem = secret_file::read_private(key, "private key")?;
        let private = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| content(key, "this is not a private key in PEM (PKCS#8, SEC1 or PKCS#1)".to_owned()))?;
        let shown = CertifiedKey::from_der(chain, private, &provider())
            .map_err(|error| content(key, format!("this key does not match {}: {error}", certificate.display())))?;
        let authority = Self::new(roots, shown)
            .ok_or_else(|| content(certificate, "cannot read the key of this certificate".to_owned()))?;
        authority
            .check_own(own)
            .map_err(|error| content(certificate, format!("other servers would refuse this certificate: {error}")))?;
        Ok(authority)
    }

    pub(super) fn new(roots: RootCertStore, shown: CertifiedKey) -> Option<Self> {
        let key = Self::key_of(shown.end_entity_cert().ok()?)?;
        Some(Self { roots: Arc::new(roots), shown: Arc::new(shown), key })
    }

    /// Verifies this server's certificate as both a dialling and an accepting peer would.
    fn check_own(&self, own: ServerId) -> Result<(), Error> {
        let ever_valid = self.ever_valid()?;
        let (leaf, issuers) = self.shown.cert.split_first().ok_or(Error::NoCertificatesPresented)?;
        ever_valid.verify_client_cert(leaf, issuers, NEVER)?;
        ever_valid.verify_server_cert(leaf, issuers, &server_name(own)?, &[], NEVER)?;
        Ok(())
    }

    /// Returns the key by which other servers know this one.
    pub(super) fn public_key(&self) -> PublicKey {
        self.key
    }

    /// Returns a certificate owner's key; `None` if the certificate cannot be parsed.
    pub(super) fn key_of(certificate: &CertificateDer<'_>) -> Option<PublicKey> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        Some(PublicKey::of_certified(&parsed.subject_public_key_info()))
    }

    /// Returns whether a certificate, already verified by TLS, names `server`.
    pub(super) fn names(certificate: &CertificateDer<'_>, server: ServerId) -> bool {
        let names =
            |certificate: ParsedCertificate<'_>| client::verify_server_name(&certificate, &server_name(server)?);
        ParsedCertificate::try_from(certificate).and_then(names).is_ok()
    }

    /// Returns the TLS settings for accepting.
    pub(super) fn server_config(&self) -> Result<ServerConfig, Error> {
        tls::server_config(Arc::new(self.ever_valid()?), Arc::new(SingleCertAndKey::from(Arc::clone(&self.shown))))
    }

    /// Returns the TLS settings for dialling.
    pub(super) fn client_config(&self) -> Result<ClientConfig, Error> {
        tls::client_config(Arc::new(self.ever_valid()?), Arc::new(SingleCertAndKey::from(Arc::clone(&self.shown))))
    }

    fn ever_valid(&self) -> Result<EverValid, Error> {
        let provider = Arc::new(provider());
        let refused = |error: &dyn fmt::Display| Error::General(error.to_string());
        Ok(EverValid {
            server: WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), Arc::clone(&provider))
                .build()
                .map_err(|error| refused(&error))?,
            client: WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider)
                .build()
                .map_err(|error| refused(&error))?,
        })
    }
}

/// Returns a provider with every signature algorithm, because authorities use all of them.
pub(super) fn provider() -> CryptoProvider {
    let ring = rustls::crypto::ring::default_provider();
    CryptoProvider {
        signature_verification_algorithms: ring.signature_verification_algorithms,
        key_provider: ring.key_provider,
        ..tls::provider()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({} certificates, own key {})", self.roots.len(), self.key)
    }
}

fn server_name(server: ServerId) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(super::Gate::server_name(server)).map_err(|_| CertificateError::NotValidForName.into())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecretFileError> {
    let pem = secret_file::read_public(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if (1..=CHAIN_MAX).contains(&found.len()) => Ok(found),
        found => Err(SecretFileError::Content {
            path: path.to_owned(),
            what: format!("found {} readable certificates in PEM", found.map_or(0, |found| found.len())),
            remedy: "1 to 8 are needed",
        }),
    }
}

/// Placeholder for a time argument that is ignored.
const NEVER: UnixTime = UnixTime::since_unix_epoch(Duration::ZERO);

/// Runs webpki at the first moment at which the whole chain was valid.
#[derive(Debug)]
struct EverValid {
    server: Arc<WebPkiServerVerifier>,
    client: Arc<dyn ClientCertVerifier>,
}

/// Calls `judge` at the first moment at which the whole chain is valid.
///
/// webpki reports the start of a certificate that is not valid yet. The search starts in 1970 and
/// moves to the reported start, one certificate at a time. It ends where all are valid, or where
/// one has expired.
fn at_first_valid_moment<T>(judge: impl Fn(UnixTime) -> Result<T, Error>) -> Result<T, Error> {
    let mut at = NEVER;
    for _ in 0..CHAIN_MAX {
        match judge(at) {
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => at = not_before,
            judged => return judged,
        }
    }
    judge(at)
}

impl ServerCertVerifier for EverValid {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        at_first_valid_moment(|at| {
            self.server.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, at)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.server.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.server.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.server.supported_verify_schemes()
    }
}

impl ClientCertVerifier for EverValid {
    /// Empty: a stranger must not learn the authority's name.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        at_first_valid_moment(|at| self.client.verify_client_cert(end_entity, intermediates, at))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.client.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.client.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.client.supported_verify_schemes()
    }
}
