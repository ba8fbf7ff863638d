//! This server's key pair.

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
    remedy: "restore it from a backup, or delete it: the next start makes a new one, which servers with pinned keys must pin",
};

/// DER prefix of an Ed25519 private key (PKCS#8 version 1, RFC 8410).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The key pair by which other servers know this one.
///
/// It survives a change of address. A new disk gets a new pair.
#[derive(Clone)]
pub struct Identity {
    seed: [u8; 32],
    public: PublicKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Reads `server.key` in `directory`, or creates it on the first start.
    ///
    /// A damaged file is never replaced, because other servers may refuse the new key.
    ///
    /// # Errors
    /// A [`SecretFileError`], displayed as one line for the operator: the file cannot be read or
    /// written, others may read it, or it is damaged.
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
            what: "this server key is invalid".to_owned(),
            remedy: FILE.remedy,
        })
    }

    /// Generates a key pair that is not stored, for servers without a disk.
    ///
    /// # Errors
    /// [`SecretFileError::Random`]: the system provides no random numbers.
    pub fn generate() -> Result<Self, SecretFileError> {
        Self::from_seed(secret_file::random()?).ok_or(SecretFileError::Random)
    }

    /// Returns the key by which other servers know this one.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Returns endpoint settings that are the same after a restart.
    ///
    /// With them, a restarted server resets the connections of its former process at once. The
    /// stateless reset key alone is not enough: quinn drops packets for a connection id that it
    /// does not recognise as its own. So the key of connection ids is derived as well.
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

    /// Returns the key that seals address validation tokens.
    pub(super) fn token_key(&self) -> hkdf::Prk {
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.derive("token"))
    }

    /// Returns the pair for TLS, with a raw public key (RFC 7250).
    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Derives a secret for one purpose. It reveals neither the other secrets nor the key.
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
