//! Stand-in for `ca` in builds without the feature `certificates`.
//!
//! A configuration that names an authority fails with an explanation.

use super::public_key::PublicKey;
use super::secret_file::SecretFileError;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, Error, ServerConfig};
use std::path::Path;
use zoolet_model::ServerId;

/// An authority. The type has no values, because this build supports none.
#[derive(Clone, Debug)]
pub enum Authority {}

impl Authority {
    /// Fails, because this build does not support certificates.
    ///
    /// # Errors
    /// Always [`SecretFileError::Content`], displayed as one line for the operator.
    pub fn read(ca: &Path, _certificate: &Path, _key: &Path, _own: ServerId) -> Result<Self, SecretFileError> {
        Err(SecretFileError::Content {
            path: ca.to_owned(),
            what: "this build does not support certificates".to_owned(),
            remedy: "use the full build, a site key or pinned keys",
        })
    }

    pub(super) fn public_key(&self) -> PublicKey {
        match *self {}
    }

    pub(super) fn key_of(_: &CertificateDer<'_>) -> Option<PublicKey> {
        None
    }

    pub(super) fn names(_: &CertificateDer<'_>, _: ServerId) -> bool {
        false
    }

    pub(super) fn server_config(&self) -> Result<ServerConfig, Error> {
        match *self {}
    }

    pub(super) fn client_config(&self) -> Result<ClientConfig, Error> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimal_build_refuses_certificates_and_names_the_alternatives() {
        let [ca, certificate, key] = ["/etc/zoolet/ca.pem", "own.pem", "own.key"].map(Path::new);
        let refused = Authority::read(ca, certificate, key, ServerId::new(1).unwrap()).unwrap_err();
        let line = "/etc/zoolet/ca.pem: this build does not support certificates: use the full build, a site key or pinned keys";
        assert_eq!(refused.to_string(), line);
    }
}
