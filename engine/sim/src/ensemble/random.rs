//! Random draws that several parts of the simulator need.
//!
//! They use integers only: floating point may differ between machines.

use crate::workload::Random;

/// Bits of the fraction in [`Random::exponential`].
const FRACTION_BITS: u32 = 20;

impl Random {
    /// Returns a number from `from` up to, not including, `to`; `from` if that range is empty.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        if to > from { from + self.below(to - from) } else { from }
    }

    /// Returns true in `cases` of a million draws.
    pub fn in_a_million(&mut self, cases: u32) -> bool {
        cases > 0 && self.below(1_000_000) < u64::from(cases)
    }

    /// Draws an approximately exponential number with this mean.
    ///
    /// It models the time until something that may happen at any moment.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // -log2 of a uniform number: its leading zeroes, and a straight line between two powers of
        // two. The line is off by at most 0.09.
        let bits = self.bits() | 1;
        let zeroes = bits.leading_zeros();
        let mantissa = (bits << zeroes << 1) >> (64 - FRACTION_BITS);
        let log = (u64::from(zeroes + 1) << FRACTION_BITS) - mantissa;
        // The mean of that logarithm is 1.40 with the straight line, not 1.44.
        let scaled = u128::from(mean) * u128::from(log) * 10 / 15;
        u64::try_from(scaled >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// Draws a number between two bounds for values that span orders of magnitude.
    ///
    /// Each doubling of the lower bound is equally likely.
    pub fn logarithmic(&mut self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(1), to.max(1));
        let doublings = (to / from).checked_ilog2().unwrap_or(0);
        let low = from << self.below(u64::from(doublings) + 1);
        self.between(low, low.saturating_mul(2).min(to + 1))
    }

    /// Returns a separate generator for one part, whose draws change nothing elsewhere.
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_draws_have_the_given_mean_and_a_long_tail() {
        let mut random = Random::new(1);
        let draws: Vec<u64> = (0..100_000).map(|_| random.exponential(1000)).collect();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((940..1060).contains(&mean), "{mean}");
        let beyond = draws.iter().filter(|&&draw| draw > 3000).count();
        assert!((3500..6500).contains(&beyond), "about e^-3 of them beyond three means: {beyond}");
    }

    #[test]
    fn logarithmic_draws_cover_the_given_range_and_stay_within_it() {
        let mut random = Random::new(2);
        let draws: Vec<u64> = (0..10_000).map(|_| random.logarithmic(10, 5000)).collect();
        assert!(draws.iter().all(|draw| (10..=5000).contains(draw)));
        assert!(draws.iter().filter(|&&draw| draw < 20).count() > 500);
        assert!(draws.iter().filter(|&&draw| draw > 2560).count() > 200);
    }
}
