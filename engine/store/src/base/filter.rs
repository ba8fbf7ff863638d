//! The filter of a run: a Bloom filter that keeps all bits of a key in one cache line.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes that hold all bits of one key.
const LINE: usize = 64;
/// Bits per key. The rate of false positives is about one in a hundred.
const BITS_PER_KEY: usize = 10;
/// Bits set per key.
const PROBES: u32 = 6;

/// Answers "surely not" or "maybe". An empty filter always answers "maybe".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Filter(Vec<u8>);

/// Returns the hash of a key that filters use.
pub(super) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

impl Filter {
    /// Creates a filter with room for this many keys.
    pub(super) fn for_keys(keys: u64) -> Self {
        let bits = usize::try_from(keys).unwrap_or(usize::MAX / 16).saturating_mul(BITS_PER_KEY);
        Self(vec![0; bits.div_ceil(LINE * 8).max(1) * LINE])
    }

    /// Restores a stored filter. If the length is not a filter's, the result always answers
    /// "maybe".
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len().is_multiple_of(LINE) { Self(bytes.to_vec()) } else { Self::default() }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn add(&mut self, hash: u64) {
        let Some(line) = line_of(hash, self.0.len()).and_then(|line| self.0.get_mut(line)) else { return };
        for bit in bits_of(hash) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }

    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let Some(line) = line_of(hash, self.0.len()).and_then(|line| self.0.get(line)) else { return true };
        bits_of(hash).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
    }
}

/// Selects the line by the upper half of the hash.
fn line_of(hash: u64, bytes: usize) -> Option<std::ops::Range<usize>> {
    let lines = (bytes / LINE) as u64;
    let line = usize::try_from(((hash >> 32) * lines) >> 32).ok().filter(|_| lines > 0)?;
    Some(line * LINE..(line + 1) * LINE)
}

/// Selects the bits by the lower half of the hash: for each probe, the top nine bits of its product
/// with an odd number.
fn bits_of(hash: u64) -> impl Iterator<Item = usize> {
    let low = hash as u32;
    (0..PROBES).map(move |probe| {
        let odd = 0x9e37_79b1_u32.wrapping_add(probe.wrapping_mul(0x3c6e_f372));
        (low.wrapping_mul(odd) >> 23) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_has_no_false_negatives_and_few_false_positives() {
        let mut filter = Filter::for_keys(10_000);
        let key = |n: u64| hash(format!("n/app\0k{n}").as_bytes());
        (0..10_000).for_each(|n| filter.add(key(n)));
        assert!((0..10_000).all(|n| filter.may_hold(key(n))));
        let wrong = (10_000..30_000).filter(|&n| filter.may_hold(key(n))).count();
        assert!(wrong < 600, "{wrong} of 20,000");
        assert_eq!(Filter::from_bytes(filter.as_bytes()), filter);
    }

    #[test]
    fn missing_or_malformed_filter_may_hold_any_key() {
        assert!(Filter::default().may_hold(7));
        assert!(Filter::from_bytes(&[0; 63]).may_hold(7));
        assert!(!Filter::for_keys(0).may_hold(7));
    }

    /// Filters are stored. With another choice of bits, a filter would deny keys that an older file
    /// holds.
    #[test]
    fn golden_filter() {
        let mut filter = Filter::for_keys(100);
        filter.add(hash(b"n/\0a"));
        filter.add(hash(b"n/\0b"));
        let set: Vec<usize> = (0..filter.0.len() * 8).filter(|&bit| filter.0[bit / 8] & 1 << (bit % 8) != 0).collect();
        assert_eq!(set, [534, 590, 594, 610, 626, 641, 657, 673, 676, 818, 904, 960]);
    }
}
