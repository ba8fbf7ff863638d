//! Chooses the key of each request.

use super::options::Distribution;
use libm::pow;

/// SplitMix64: small, fast, and reproducible from its seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must be positive; the bias is `bound` / 2^64.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The keys of one connection, in order of use.
pub(super) struct Keys {
    random: Random,
    choice: Choice,
    keys: u64,
}

enum Choice {
    Uniform,
    Sequential { next: u64, step: u64 },
    Zipf(Zipf),
}

impl Keys {
    /// Creates the keys of connection `number` of `connections`.
    ///
    /// Sequential connections take turns. Random ones get different seeds.
    pub(super) fn new(distribution: Distribution, keys: u64, seed: u64, number: usize, connections: usize) -> Self {
        let (number, connections) = (number as u64, connections as u64);
        let choice = match distribution {
            Distribution::Uniform => Choice::Uniform,
            Distribution::Sequential => Choice::Sequential { next: number % keys, step: connections % keys },
            Distribution::Zipf => Choice::Zipf(Zipf::new(keys)),
        };
        Self { random: Random::new(Random::new(seed.wrapping_add(number << 32)).next()), choice, keys }
    }

    pub(super) const fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    pub(super) fn next(&mut self) -> u64 {
        match &mut self.choice {
            Choice::Uniform => self.random.below(self.keys),
            Choice::Sequential { next, step } => {
                let key = *next;
                *next = (key + *step) % self.keys;
                key
            }
            Choice::Zipf(zipf) => zipf.next(&mut self.random),
        }
    }
}

/// Skew of the popularity: the exponent that YCSB uses.
const ZIPF_EXPONENT: f64 = 0.99;

/// Zipf's law by rejection-inversion (Hörmann and Derflinger 1996).
///
/// It needs no table for any number of keys.
struct Zipf {
    keys: u64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        Self {
            keys,
            integral_first: integral(1.5) - 1.0,
            integral_last: integral(keys as f64 + 0.5),
            shortcut: 2.0 - inverse(integral(2.5) - weight(2.0)),
        }
    }

    fn next(&self, random: &mut Random) -> u64 {
        let rank = loop {
            let area = self.integral_last + random.fraction() * (self.integral_first - self.integral_last);
            let at = inverse(area);
            let rank = at.round().clamp(1.0, self.keys as f64);
            if rank - at <= self.shortcut || area >= integral(rank + 0.5) - weight(rank) {
                break rank as u64 - 1;
            }
        };
        // Scatters popular keys, because neighbours would share pages. The factor is prime and
        // larger than any number of keys, so each rank gets a different key.
        (u128::from(rank) * 2_305_843_009_213_693_951 % u128::from(self.keys)) as u64
    }
}

fn weight(rank: f64) -> f64 {
    pow(rank, -ZIPF_EXPONENT)
}

fn integral(rank: f64) -> f64 {
    (pow(rank, 1.0 - ZIPF_EXPONENT) - 1.0) / (1.0 - ZIPF_EXPONENT)
}

fn inverse(area: f64) -> f64 {
    pow(area * (1.0 - ZIPF_EXPONENT) + 1.0, 1.0 / (1.0 - ZIPF_EXPONENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, keys: u64, draws: usize) -> Vec<u64> {
        let mut counts = vec![0; keys as usize];
        let mut chosen = Keys::new(distribution, keys, 1, 0, 1);
        (0..draws).for_each(|_| counts[chosen.next() as usize] += 1);
        counts
    }

    #[test]
    fn sequential_connections_cover_every_key_once_before_any_twice() {
        let mut connections: Vec<_> =
            (0..3).map(|number| Keys::new(Distribution::Sequential, 9, 1, number, 3)).collect();
        let mut seen: Vec<_> = (0..9).map(|turn| connections[turn % 3].next()).collect();
        assert_eq!(seen[..4], [0, 1, 2, 3]);
        seen.sort_unstable();
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn uniform_uses_each_key_about_equally() {
        for count in counts(Distribution::Uniform, 10, 100_000) {
            assert!((9_500..10_500).contains(&count), "{count}");
        }
    }

    #[test]
    fn zipf_key_frequencies_follow_the_law_and_reach_every_key() {
        let (keys, draws) = (100, 1_000_000);
        let mut counts = counts(Distribution::Zipf, keys, draws);
        counts.sort_unstable_by(|left, right| right.cmp(left));
        let sum: f64 = (1..=keys).map(|rank| weight(rank as f64)).sum();
        for rank in [1, 2, 3, 10, 50] {
            let expected = draws as f64 * weight(rank as f64) / sum;
            let count = counts[rank - 1] as f64;
            assert!((count - expected).abs() < expected / 20.0, "rank {rank}: {count}, not {expected}");
        }
        assert!(counts[99] > 0);
        assert_eq!(self::counts(Distribution::Zipf, 1, 3), [3]);
    }

    #[test]
    fn equal_seeds_give_equal_keys_and_connections_differ() {
        let keys = |seed, number| {
            let mut keys = Keys::new(Distribution::Uniform, 1 << 40, seed, number, 2);
            [keys.next(), keys.next()]
        };
        assert_eq!(keys(5, 0), keys(5, 0));
        assert_ne!(keys(5, 0), keys(5, 1));
        assert_ne!(keys(5, 0), keys(6, 0));
    }
}
