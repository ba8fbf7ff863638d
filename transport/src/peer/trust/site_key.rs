//! The secret that all servers of a site share.

use super::secret_file::{self, Kind, SecretFileError};
use ring::hmac;
use std::fmt;
use std::path::Path;

const FILE: Kind = Kind {
    label: "zoolet-site-key-1",
    name: "site key",
    remedy: "copy the file of another server of this site, or make a new one for all of them with `zoolet keygen`",
};

/// 256 random bits that admit a server to its site. Never shown: what it is known by is its [`SiteKey::fingerprint`].
#[derive(Clone, PartialEq, Eq)]
pub struct SiteKey([u8; 32]);

impl SiteKey {
    /// A new one.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn generate() -> Result<Self, SecretFileError> {
        secret_file::random().map(Self)
    }

    /// Reads the file that `zoolet keygen` makes. One that others may read, that is short or damaged is refused.
    ///
    /// # Errors
    /// One line for the operator, which names the file and what to do.
    pub fn read(path: &Path) -> Result<Self, SecretFileError> {
        match secret_file::read(FILE, path)? {
            Some(secret) => Ok(Self(secret)),
            None => Err(SecretFileError::Content {
                path: path.to_owned(),
                what: "there is no site key".to_owned(),
                remedy: FILE.remedy,
            }),
        }
    }

    /// What its file holds: one line with its line feed. The only way to see the secret; it goes into a file of mode 0600 and nowhere else.
    pub fn to_file_text(&self) -> String {
        secret_file::text(FILE, &self.0)
    }

    /// Eight hexadecimal digits by which people see whether two servers have the same key. They say nothing of the key itself.
    pub fn fingerprint(&self) -> String {
        let tag = hmac::sign(&self.mac_key(), b"zoolet site key fingerprint");
        tag.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// For proofs.
    pub(super) fn mac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Debug for SiteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiteKey({})", self.fingerprint())
    }
}
