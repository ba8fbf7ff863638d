//! The digest of a state: an incremental hash of its multiset of records.
//!
//! It sums the XXH3-128 of all records with wrap-around, so records can be added and removed in any
//! order. It detects faults, not forgeries: an attacker that chooses records can construct two
//! states with the same digest.

use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

/// Hashes one record: the key's length (8 bytes, little-endian), the key and the value.
pub fn record_hash(key: &[u8], value: &[u8]) -> u128 {
    let length = (key.len() as u64).to_le_bytes();
    // Hashing one contiguous buffer takes a third of the time, and nearly every record fits.
    let mut buffer = [0; 512];
    let bytes = length.len() + key.len() + value.len();
    if let Some(buffer) = buffer.get_mut(..bytes) {
        buffer[..8].copy_from_slice(&length);
        buffer[8..8 + key.len()].copy_from_slice(key);
        buffer[8 + key.len()..].copy_from_slice(value);
        return xxh3_128(buffer);
    }
    let mut hash = Xxh3Default::new();
    hash.update(&length);
    hash.update(key);
    hash.update(value);
    hash.digest128()
}

/// Returns `digest` after one record was replaced; `None` stands for absence.
pub fn replaced(digest: u128, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> u128 {
    let taken = old.map_or(0, |old| record_hash(key, old));
    let given = new.map_or(0, |new| record_hash(key, new));
    digest.wrapping_sub(taken).wrapping_add(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_digest() {
        assert_eq!(record_hash(b"n/\0a", b"value"), 0x58d8_8c5a_67d8_9be8_4926_127f_4d08_2114);
        assert_eq!(replaced(5, b"n/\0a", Some(b"value"), Some(b"value")), 5);
    }

    #[test]
    fn digest_ignores_change_order_and_keeps_key_and_value_apart() {
        let one = replaced(replaced(0, b"a", None, Some(b"1")), b"b", None, Some(b"2"));
        let other = replaced(replaced(0, b"b", None, Some(b"2")), b"a", None, Some(b"1"));
        assert_eq!(one, other);
        assert_eq!(replaced(replaced(one, b"a", Some(b"1"), None), b"b", Some(b"2"), None), 0);
        assert_ne!(record_hash(b"ab", b"c"), record_hash(b"a", b"bc"));
        assert_ne!(record_hash(b"a", b""), 0);
    }

    #[test]
    fn short_and_long_records_are_hashed_alike() {
        for length in [0, 1, 500, 502, 503, 504, 600, 5000] {
            let value = vec![7; length];
            let whole = [&[2, 0, 0, 0, 0, 0, 0, 0], &b"ab"[..], &value].concat();
            assert_eq!(record_hash(b"ab", &value), xxh3_128(&whole));
        }
    }
}
