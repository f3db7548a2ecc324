//! Reproducible random numbers.

use crate::host::{Host, Machine};

/// A stream of random numbers that is the same for the same seed, so that a randomized test can be repeated.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a seed for a run: `LEASEHOLD_SEED` if it is set, otherwise a random one.
    pub fn any_seed() -> u64 {
        std::env::var("LEASEHOLD_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(Machine.random() as u64 % 1_000_000)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        // SplitMix64: a Weyl sequence with a mixing function.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below this limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// Returns true with this probability in percent.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Returns one of these values.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
