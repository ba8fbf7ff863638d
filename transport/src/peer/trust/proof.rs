//! Proofs of the site key, bound to one connection, side and Hello.
//!
//! A proof is an HMAC-SHA256 under the site key. It covers the TLS exporter (RFC 8446 section 7.5),
//! a value known only to the two ends of this connection. A proof relayed to another connection is
//! therefore invalid there. It also covers the side, so an acceptor cannot use a received proof as
//! a dialler, nor the reverse. TLS has verified both keys inside the same connection. A false
//! acceptor receives a proof but cannot guess the site key from it, because the key is 256 random
//! bits.

use super::site_key::SiteKey;
use quinn::{Connection, Side};
use ring::hmac;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

const LABEL: &[u8] = b"zoolet site proof 1\0";

const EXPORTER_LABEL: &[u8] = b"EXPORTER-zoolet-peer-1";

/// A value known only to the two ends of one connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Exporter(pub(super) [u8; 32]);

impl Exporter {
    /// Returns the connection's exporter; `None` before the handshake is complete.
    pub(super) fn of(connection: &Connection) -> Option<Self> {
        let mut value = [0; 32];
        connection.export_keying_material(&mut value, EXPORTER_LABEL, b"").ok()?;
        Some(Self(value))
    }
}

/// Returns the proof for the server on `side`. `hello` is its first message without the proof.
pub fn prove(site_key: &SiteKey, side: Side, exporter: &Exporter, hello: &[u8]) -> [u8; PROOF_BYTES] {
    let mut proof = [0; PROOF_BYTES];
    proof.copy_from_slice(hmac::sign(&site_key.mac_key(), &proven(side, exporter, hello)).as_ref());
    proof
}

/// Returns whether the server on `side` knows the site key. Compares in constant time.
pub fn verify(site_key: &SiteKey, side: Side, exporter: &Exporter, hello: &[u8], proof: &[u8; PROOF_BYTES]) -> bool {
    hmac::verify(&site_key.mac_key(), &proven(side, exporter, hello), proof).is_ok()
}

/// Concatenates the parts. All but the last have a fixed length, so no two inputs collide.
fn proven(side: Side, exporter: &Exporter, hello: &[u8]) -> Vec<u8> {
    let side: &[u8] = match side {
        Side::Client => b"d",
        Side::Server => b"a",
    };
    [LABEL, side, &exporter.0, hello].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_is_valid_only_for_its_key_side_connection_and_hello() {
        let key = SiteKey::generate().unwrap();
        let exporter = Exporter([1; 32]);
        let proof = prove(&key, Side::Client, &exporter, b"hello");
        assert!(verify(&key, Side::Client, &exporter, b"hello", &proof));
        assert!(!verify(&SiteKey::generate().unwrap(), Side::Client, &exporter, b"hello", &proof));
        assert!(!verify(&key, Side::Server, &exporter, b"hello", &proof));
        assert!(!verify(&key, Side::Client, &Exporter([2; 32]), b"hello", &proof));
        assert!(!verify(&key, Side::Client, &exporter, b"hellO", &proof));
        for bit in 0..256 {
            let mut other = proof;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!verify(&key, Side::Client, &exporter, b"hello", &other));
        }
    }
}
