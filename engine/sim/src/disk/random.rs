//! Random draws of a disk.

/// A small random generator (splitmix64), which yields the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. All seeds are equally good.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// Returns true in half of all cases.
    pub const fn coin(&mut self) -> bool {
        self.bits() >> 63 == 1
    }
}
