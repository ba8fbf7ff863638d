//! Authentication of a connection (surface 6.3).

use base64ct::{Base64, Encoding};
use sha1::{Digest, Sha1};
use zoolet_model::{AuthId, Text};

/// Maximum length of a proof, in bytes. Every write of the connection carries the identity derived
/// from it.
const PROOF_BYTES_MAX: usize = 1024;

/// The result of an auth packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proved {
    /// The new identity; `None` for the address, which needs none.
    pub id: Option<AuthId>,
    /// Whether the connection passes every check from now on.
    pub is_super: bool,
}

/// Checks an auth packet. `None` for an unknown scheme or an unusable proof.
pub fn prove(scheme: Option<&str>, proof: Option<&[u8]>, super_digest: Option<&str>) -> Option<Proved> {
    match (scheme?, proof) {
        ("digest", Some(proof)) if proof.len() <= PROOF_BYTES_MAX => {
            let id = digest_id(proof);
            let is_super = super_digest == Some(&*id);
            Some(Proved { id: Some(AuthId { scheme: Text::from_static("digest"), id: id.into() }), is_super })
        }
        // The address was taken from the socket.
        ("ip", _) => Some(Proved { id: None, is_super: false }),
        _ => None,
    }
}

/// Returns whether an auth packet claims to be the super user, with any password.
pub fn names_super(scheme: Option<&str>, proof: Option<&[u8]>, super_digest: Option<&str>) -> bool {
    let user = |text: &[u8]| text.split(|&byte| byte == b':').next().unwrap_or_default().to_vec();
    match (scheme, proof, super_digest) {
        (Some("digest"), Some(proof), Some(digest)) => user(proof) == user(digest.as_bytes()),
        _ => false,
    }
}

/// Returns `user:base64(sha1(user:password))`, hashing the whole proof.
///
/// A proof without a colon is all user name.
pub fn digest_id(proof: &[u8]) -> String {
    let user = proof.split(|&byte| byte == b':').next().unwrap_or_default();
    let hash = Sha1::digest(proof);
    format!("{}:{}", String::from_utf8_lossy(user), Base64::encode_string(&hash))
}

/// Generates session secrets from the server's startup entropy.
///
/// It uses SHA-1 as a keyed function over inputs of one length.
#[derive(Clone)]
pub struct Secrets {
    seed: [u8; 32],
    count: u64,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

impl Secrets {
    /// Creates a generator. `seed` must be operating-system entropy, except in a simulation.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, count: 0 }
    }

    /// Returns a number that differs between processes, and says nothing about any secret.
    pub fn first_number(&self) -> u64 {
        let hash: [u8; 20] = Sha1::new().chain_update(self.seed).chain_update(u64::MAX.to_le_bytes()).finalize().into();
        hash.first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    /// Returns the next secret, never the same twice.
    pub fn next_secret(&mut self) -> [u8; 16] {
        self.count += 1;
        let hash: [u8; 20] =
            Sha1::new().chain_update(self.seed).chain_update(self.count.to_le_bytes()).finalize().into();
        let mut secret = [0; 16];
        secret.copy_from_slice(&hash[..16]);
        secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_ids_equal_zookeepers_and_prove_the_super_user() {
        // The example from ZooKeeper's administrator guide: super:test.
        assert_eq!(digest_id(b"super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        let proved = prove(Some("digest"), Some(b"super:test"), Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=")).unwrap();
        assert!(proved.is_super);
        assert!(
            !prove(Some("digest"), Some(b"super:tesT"), Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=")).unwrap().is_super
        );
    }

    #[test]
    fn unknown_schemes_and_missing_or_long_proofs_prove_nothing() {
        for scheme in [None, Some("world"), Some("super"), Some("sasl"), Some("x")] {
            assert_eq!(prove(scheme, Some(b"a:b"), None), None);
        }
        assert_eq!(prove(Some("digest"), None, None), None);
        assert_eq!(prove(Some("digest"), Some(&[b'u'; 1025]), None), None);
        assert_eq!(
            prove(Some("digest"), Some(b"nocolon"), None).unwrap().id.unwrap().id.split(':').next(),
            Some("nocolon")
        );
    }

    #[test]
    fn consecutive_session_secrets_differ() {
        let mut secrets = Secrets::new([1; 32]);
        assert_ne!(secrets.next_secret(), secrets.next_secret());
    }
}
