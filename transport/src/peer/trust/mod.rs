//! Keys, and the admission of peers.
//!
//! A server is identified by a key, not by an address. Each server creates a key pair on its first
//! start ([`Identity`]). TLS verifies that the peer has the private half. The [`Gate`] then decides
//! whether the peer may act as the server it claims to be. A stranger that connects learns one
//! public key and nothing else.

#[cfg(feature = "certificates")]
mod ca;
#[cfg(not(feature = "certificates"))]
#[path = "no_ca.rs"]
mod ca;
mod checked_text;
mod explain;
mod gate;
mod identity;
mod pins;
mod proof;
mod public_key;
mod refusal;
mod secret_file;
mod site_key;
mod tls;

pub use ca::Authority;
pub use gate::{Gate, Guest, TlsError, Trust};
pub use identity::Identity;
pub use pins::{PinnedTwice, Pins};
pub use proof::{Exporter, PROOF_BYTES, prove, verify};
pub use public_key::{PublicKey, PublicKeyError};
pub use refusal::{RefusalReason, Refused, close_code};
pub use secret_file::SecretFileError;
pub use site_key::SiteKey;
pub use tls::prefers_aes;

#[cfg(test)]
mod tests;
