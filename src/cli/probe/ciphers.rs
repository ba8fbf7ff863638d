//! Measures the speed of the ciphers that links between servers use.

use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::time::{Duration, Instant};
use zoolet_transport::peer::trust;

/// Duration of each cipher's measurement.
const TIME: Duration = Duration::from_millis(40);
/// Packet size that every path must carry, in bytes (RFC 9000, section 14).
const PACKET: usize = 1200;
/// Packets encrypted between two looks at the clock.
const BATCH: u64 = 16;

/// Encryption rate of one processor for each cipher, bytes per second; 0: not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ciphers {
    pub(super) aes: u64,
    pub(super) chacha: u64,
}

impl Ciphers {
    pub(super) fn measure() -> Self {
        Self { aes: bytes_per_second(&AES_128_GCM), chacha: bytes_per_second(&CHACHA20_POLY1305) }
    }

    /// Returns name and rate of the cipher that links between boxes like this one use.
    pub(super) fn used(self) -> (&'static str, u64) {
        if trust::prefers_aes() { ("AES-128-GCM", self.aes) } else { ("ChaCha20-Poly1305", self.chacha) }
    }
}

fn bytes_per_second(algorithm: &'static Algorithm) -> u64 {
    // A fixed key suffices, because the data is not secret.
    let Ok(key) = UnboundKey::new(algorithm, &[7; 32][..algorithm.key_len()]).map(LessSafeKey::new) else { return 0 };
    let (mut packet, mut done) = ([0_u8; PACKET], 0_u64);
    let began = Instant::now();
    while began.elapsed() < TIME {
        for _ in 0..BATCH {
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            // It fails only for a packet that is too long.
            let Ok(_) = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut packet) else { return 0 };
        }
        done += BATCH * PACKET as u64;
    }
    let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    done.saturating_mul(1_000_000) / us.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_link_ciphers_are_measured_and_the_used_cipher_is_named() {
        let found = Ciphers::measure();
        assert!(found.aes > 0 && found.chacha > 0);
        assert_eq!(found.used().1 == found.aes, trust::prefers_aes());
    }
}
