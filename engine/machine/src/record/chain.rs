//! The chain hash: one number that identifies a whole history.

use xxhash_rust::xxh3::xxh3_128;
use zoolet_model::Zxid;

/// Kind of a log record that holds an entry. The chain hash covers it.
pub const ENTRY_KIND: u8 = 2;

/// Returns the chain hash after the entry `zxid`, given the one before it.
///
/// Two histories with the same chain hash at the same zxid are equal. The empty history has hash 0.
pub fn chain_after(prev: u128, zxid: Zxid, payload: &[u8]) -> u128 {
    let mut link = [0; 41];
    link[..16].copy_from_slice(&prev.to_le_bytes());
    link[16..24].copy_from_slice(&zxid.to_bits().to_le_bytes());
    link[24] = ENTRY_KIND;
    // The payload's hash takes the place of its bytes, so the payload is not copied.
    link[25..].copy_from_slice(&xxh3_128(payload).to_le_bytes());
    xxh3_128(&link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_hash_depends_on_its_past_zxid_and_payload() {
        let zxid = Zxid::from_bits(1 << 40).unwrap();
        let hashes = [
            chain_after(0, zxid, b"a"),
            chain_after(0, zxid, b"b"),
            chain_after(1, zxid, b"a"),
            chain_after(0, zxid.next().unwrap(), b"a"),
        ];
        for (position, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..position].contains(hash));
        }
    }
}
