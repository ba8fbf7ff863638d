//! This server's own key pair.

use super::public_key::PublicKey;
use super::secret_file::{self, Kind, SecretFileError};
use quinn::EndpointConfig;
use quinn_proto::{ConnectionIdGenerator, HashedConnectionIdGenerator};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ring::{hkdf, hmac};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

const FILE_NAME: &str = "server.key";

const FILE: Kind = Kind {
    label: "zoolet-server-key-1",
    name: "server key",
    remedy: "restore it from a backup, or delete it: the next start makes a new one, which servers that pin the old one refuse until they pin the new one",
};

/// The DER of an Ed25519 private key (PKCS#8 version 1, RFC 8410) up to the 32 bytes themselves.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The key pair by which other servers know this one: it stays when the address changes, and is another when the disk is.
#[derive(Clone)]
pub struct Identity {
    seed: [u8; 32],
    public: PublicKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Reads `server.key` in `directory`, or makes it there on the first start.
    ///
    /// # Errors
    /// One line for the operator: the file cannot be read or written, others may read it, or it is damaged. A damaged one is never
    /// replaced unasked: a server with a new key may be refused by all others.
    pub fn open(directory: &Path) -> Result<Self, SecretFileError> {
        let path = directory.join(FILE_NAME);
        let seed = match secret_file::read(FILE, &path)? {
            Some(seed) => seed,
            None => {
                let seed = secret_file::random()?;
                secret_file::create(FILE, directory, FILE_NAME, &seed)?;
                seed
            }
        };
        Self::from_seed(seed).ok_or_else(|| SecretFileError::Content {
            path,
            what: "this server key cannot be used".to_owned(),
            remedy: FILE.remedy,
        })
    }

    /// A new one that no file keeps, for servers without a disk.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn generate() -> Result<Self, SecretFileError> {
        Self::from_seed(secret_file::random()?).ok_or(SecretFileError::Random)
    }

    /// What others know it by.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// For the endpoint: what survives a restart of it, so that whoever still speaks to the process before is told at once that it is gone.
    ///
    /// The key of resets alone would not do: packets for a connection whose id the endpoint does not recognise as its own are dropped unanswered.
    pub fn endpoint_config(&self) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &self.derive("reset"))));
        let mut id_key = [0; 8];
        id_key.copy_from_slice(&self.derive("connection id")[..8]);
        let id_key = u64::from_le_bytes(id_key);
        config.cid_generator(move || -> Box<dyn ConnectionIdGenerator> {
            Box::new(HashedConnectionIdGenerator::from_key(id_key))
        });
        config
    }

    /// Seals the tokens by which a dialler shows that its address is its own.
    pub(super) fn token_key(&self) -> hkdf::Prk {
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.derive("token"))
    }

    /// The pair as TLS uses it, the public key where a certificate would be (RFC 7250).
    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// A secret for one purpose, which says nothing of the others nor of the key.
    fn derive(&self, purpose: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.seed);
        let mut derived = [0; 32];
        derived.copy_from_slice(hmac::sign(&key, format!("zoolet server key: {purpose}").as_bytes()).as_ref());
        derived
    }

    fn from_seed(seed: [u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        let pkcs8 = [PKCS8_PREFIX.as_slice(), &seed].concat();
        let key = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).ok()?;
        let shown = CertificateDer::from(public.to_spki().to_vec());
        Some(Self { seed, public, certified: Arc::new(CertifiedKey::new(vec![shown], key)) })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}
