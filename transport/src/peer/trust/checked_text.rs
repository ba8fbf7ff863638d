//! 32 bytes as text with a checksum, so that whoever copies a key by hand or half of it is told at once.

use base64ct::{Base64UrlUnpadded, Encoding};
use ring::digest;

/// Of the text of 32 bytes and their checksum.
pub(super) const CHARACTERS: usize = 48;

const CHECKSUM_BYTES: usize = 4;

/// 48 characters of base64url. `kind` goes into the checksum, so that one kind of key is not taken for another.
pub(super) fn encode(kind: &str, bytes: &[u8; 32]) -> String {
    let mut all = [0; 32 + CHECKSUM_BYTES];
    all[..32].copy_from_slice(bytes);
    all[32..].copy_from_slice(&checksum(kind, bytes));
    Base64UrlUnpadded::encode_string(&all)
}

/// `None` when it is not what [`encode`] writes.
pub(super) fn decode(kind: &str, text: &str) -> Option<[u8; 32]> {
    let mut all = [0; 32 + CHECKSUM_BYTES];
    if Base64UrlUnpadded::decode(text, &mut all).ok()?.len() != all.len() {
        return None;
    }
    let (bytes, sum) = all.split_first_chunk::<32>()?;
    (checksum(kind, bytes) == sum).then_some(*bytes)
}

fn checksum(kind: &str, bytes: &[u8; 32]) -> [u8; CHECKSUM_BYTES] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(kind.as_bytes());
    context.update(bytes);
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&context.finish().as_ref()[..CHECKSUM_BYTES]);
    sum
}
