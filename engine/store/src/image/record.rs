//! A stored value: the record's bytes, then the CRC32C of key and bytes.
//!
//! The base and the image store the same form. The checksum covers the key, so a value under a
//! wrong key is damage too.

use bytes::Bytes;
use zoolet_zab::{Mutation, mutation};

/// Bytes that a stored value adds to its record.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Appends the stored form of a record.
pub(crate) fn seal(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    // Reserved exactly: otherwise the last four bytes could double the buffer of a large value.
    out.reserve_exact(value.len() + CHECKSUM_BYTES);
    out.extend_from_slice(value);
    out.extend_from_slice(&checksum(key, value).to_le_bytes());
}

/// Returns the record in a stored value; `None` if it is damaged.
pub(crate) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (value, sum) = stored.split_at_checked(stored.len().checked_sub(CHECKSUM_BYTES)?)?;
    let is_right = || sum == checksum(key, value).to_le_bytes();
    (mutation::is_on(Mutation::PageUnverified) || is_right()).then_some(value)
}

/// Returns a copy that clones without allocating.
///
/// A `Bytes` made of a buffer with spare capacity is shared from the start.
pub(crate) fn shared(value: &[u8]) -> Bytes {
    let mut buffer = Vec::with_capacity(value.len() + 1);
    buffer.extend_from_slice(value);
    Bytes::from(buffer)
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_stored_value() {
        let mut stored = Vec::new();
        seal(b"n/a\0b", b"value", &mut stored);
        assert_eq!(stored, b"value\x4e\xd0\x74\x09");
        assert_eq!(unseal(b"n/a\0b", &stored), Some(&b"value"[..]));
    }

    #[test]
    fn flipped_or_shortened_stored_value_fails_its_checksum() {
        let key = b"n/a\0b";
        let mut stored = Vec::new();
        seal(key, b"value", &mut stored);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(key, &flipped), None);
        }
        for bit in 0..key.len() * 8 {
            let mut flipped = *key;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&flipped, &stored), None);
        }
        for length in 0..stored.len() {
            assert_eq!(unseal(key, &stored[..length]), None);
        }
    }
}
