//! Text form of 32 bytes with a checksum, against mistyped or truncated keys.

use base64ct::{Base64UrlUnpadded, Encoding};
use ring::digest;

/// Length of the text in characters, for 32 bytes and their checksum.
pub(super) const CHARACTERS: usize = 48;

const CHECKSUM_BYTES: usize = 4;

/// Encodes as 48 characters of base64url.
///
/// The checksum covers `kind`, so that one kind of key cannot pass for another.
pub(super) fn encode(kind: &str, bytes: &[u8; 32]) -> String {
    let mut all = [0; 32 + CHECKSUM_BYTES];
    all[..32].copy_from_slice(bytes);
    all[32..].copy_from_slice(&checksum(kind, bytes));
    Base64UrlUnpadded::encode_string(&all)
}

/// Decodes the output of [`encode`]; `None` for any other text.
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
