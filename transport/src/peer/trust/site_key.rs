//! The secret that all servers of a site share.

use super::secret_file::{self, Kind, SecretFileError};
use ring::hmac;
use std::fmt;
use std::path::Path;

const FILE: Kind = Kind {
    label: "zoolet-site-key-1",
    name: "site key",
    remedy: "copy the file from another server of this site, or make a new one for all servers with `zoolet keygen`",
};

/// 256 random bits that admit a server to its site.
///
/// Never displayed. Operators compare its [`SiteKey::fingerprint`] instead.
#[derive(Clone, PartialEq, Eq)]
pub struct SiteKey([u8; 32]);

impl SiteKey {
    /// Generates a site key.
    ///
    /// # Errors
    /// [`SecretFileError::Random`]: the system provides no random numbers.
    pub fn generate() -> Result<Self, SecretFileError> {
        secret_file::random().map(Self)
    }

    /// Reads a file made by `zoolet keygen`.
    ///
    /// # Errors
    /// A [`SecretFileError`], displayed as one line for the operator with the file and the remedy.
    /// The file is missing, damaged or too short, or others may read it.
    pub fn read(path: &Path) -> Result<Self, SecretFileError> {
        match secret_file::read(FILE, path)? {
            Some(secret) => Ok(Self(secret)),
            None => Err(SecretFileError::Content {
                path: path.to_owned(),
                what: "no such file".to_owned(),
                remedy: FILE.remedy,
            }),
        }
    }

    /// Returns the content of the key's file: one line with its line feed.
    ///
    /// This is the only way to see the secret. Write it only to a file of mode 0600.
    pub fn to_file_text(&self) -> String {
        secret_file::text(FILE, &self.0)
    }

    /// Returns eight hexadecimal digits by which operators compare the keys of two servers.
    ///
    /// They reveal nothing about the key.
    pub fn fingerprint(&self) -> String {
        let tag = hmac::sign(&self.mac_key(), b"zoolet site key fingerprint");
        tag.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the key for computing proofs.
    pub(super) fn mac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Debug for SiteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiteKey({})", self.fingerprint())
    }
}
