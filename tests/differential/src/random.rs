//! Random numbers from a seed.

/// SplitMix (Steele, Lea and Flood): one addition and three mixing steps per number.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns 0 to `count` - 1.
    pub fn below(&mut self, count: usize) -> usize {
        (self.any() % count.max(1) as u64) as usize
    }

    /// Returns true with this probability.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Picks an element of a non-empty slice.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Picks an element by weight.
    pub fn weighted<'a, T>(&mut self, choices: &'a [(usize, T)]) -> &'a T {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if at < *weight {
                return choice;
            }
            at -= weight;
        }
        &choices[0].1
    }
}
