//! Keys, and who is let in.
//!
//! A server is a key, not an address: each makes a pair on its first start ([`Identity`]), TLS shows that the other side has its pair, and the [`Gate`] judges
//! whether that key may be the server that it says it is. A stranger who opens a connection learns a public key and nothing else.

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
pub use refusal::{Refused, Why, close_code};
pub use secret_file::SecretFileError;
pub use site_key::SiteKey;
pub use tls::prefers_aes;

#[cfg(test)]
mod tests;
