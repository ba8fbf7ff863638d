//! The secret that all servers of a site share.

use super::secret_file::{self, Kind, SecretFileError};
use ring::hmac;
use std::fmt;
use std::path::Path;
use zeroize::Zeroize;

const FILE: Kind = Kind {
    label: "zoolet-site-key-1",
    name: "site key",
    remedy: "copy the file from another server of this site, or make a new one for all servers with `zoolet keygen`",
};

/// 256 random bits that admit a server to its site.
///
/// `Debug` shows only its [`SiteKey::fingerprint`], by which operators compare keys.
#[derive(Clone, PartialEq, Eq)]
pub struct SiteKey([u8; 32]);

impl Drop for SiteKey {
    /// Overwrites the key.
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl SiteKey {
    /// Generates a site key.
    ///
    /// # Errors
    /// [`SecretFileError::Random`]: the system provides no random numbers.
    pub fn generate() -> Result<Self, SecretFileError> {
        secret_file::random().map(Self)
    }

    /// Returns the site key with these 256 bits, which must be random and secret.
    #[must_use]
    pub const fn from_bytes(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Reads the file of a site key, made by [`SiteKey::write_new`] or `zoolet keygen`.
    ///
    /// # Errors
    /// - [`SecretFileError::Content`]: the file is missing, damaged or too short.
    /// - [`SecretFileError::Readable`]: other users may read or change the file.
    /// - [`SecretFileError::Io`]: the file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, SecretFileError> {
        let path = path.as_ref();
        match secret_file::read(FILE, path)? {
            Some(secret) => Ok(Self(secret)),
            None => Err(SecretFileError::Content {
                path: path.to_owned(),
                what: "no such file".to_owned(),
                remedy: FILE.remedy,
            }),
        }
    }

    /// Writes the key to a new file with mode 0600, and waits until the file is durable.
    ///
    /// # Errors
    /// - [`SecretFileError::Exists`]: the file exists. It stays as it is.
    /// - [`SecretFileError::NoDirectory`]: its directory does not exist.
    /// - [`SecretFileError::Io`]: the file cannot be written.
    pub fn write_new(&self, path: impl AsRef<Path>) -> Result<(), SecretFileError> {
        secret_file::create_new(FILE, path.as_ref(), &self.0)
    }

    /// Returns the content of the key's file: one line with its line feed.
    ///
    /// It contains the secret. [`SiteKey::write_new`] writes it to a file that only its owner reads.
    #[must_use]
    pub fn to_file_text(&self) -> String {
        secret_file::text(FILE, &self.0)
    }

    /// Returns the secret, 256 bits.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns eight hexadecimal digits by which operators compare the keys of two servers.
    ///
    /// They reveal nothing about the key.
    #[must_use]
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
