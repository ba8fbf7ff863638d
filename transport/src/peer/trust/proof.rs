//! Proofs that somebody has the site key, good for one connection, one side of it and what that side says first.
//!
//! They are HMAC-SHA256 under the site key. The TLS exporter (RFC 8446 section 7.5) is a value that only the two ends of this very connection have: a proof
//! that is passed on to another connection proves nothing there. What the acceptor is shown is of no use to it as a dialler, nor the other way round. Both
//! keys of TLS were verified inside that connection. The site key is 256 random bits, so whoever gets a proof, as a false acceptor does, cannot guess it.

use super::site_key::SiteKey;
use quinn::{Connection, Side};
use ring::hmac;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

const LABEL: &[u8] = b"zoolet site proof 1\0";

const EXPORTER_LABEL: &[u8] = b"EXPORTER-zoolet-peer-1";

/// What only the two ends of one connection know.
#[derive(Clone, PartialEq, Eq)]
pub struct Exporter(pub(super) [u8; 32]);

impl Exporter {
    /// `None` before the handshake is complete.
    pub(super) fn of(connection: &Connection) -> Option<Self> {
        let mut value = [0; 32];
        connection.export_keying_material(&mut value, EXPORTER_LABEL, b"").ok()?;
        Some(Self(value))
    }
}

/// The proof of the server on this side of the connection, for what it says first, `hello`, without the proof itself.
pub fn prove(site_key: &SiteKey, side: Side, exporter: &Exporter, hello: &[u8]) -> [u8; PROOF_BYTES] {
    let mut proof = [0; PROOF_BYTES];
    proof.copy_from_slice(hmac::sign(&site_key.mac_key(), &proven(side, exporter, hello)).as_ref());
    proof
}

/// Whether the server on this side of the connection has the site key. Takes as long for a proof that is nearly right as for any other.
pub fn verify(site_key: &SiteKey, side: Side, exporter: &Exporter, hello: &[u8], proof: &[u8; PROOF_BYTES]) -> bool {
    hmac::verify(&site_key.mac_key(), &proven(side, exporter, hello), proof).is_ok()
}

/// All but the last part have one length each, so no two different ones look alike.
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
    fn a_proof_holds_for_one_key_one_side_one_connection_and_one_hello() {
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
