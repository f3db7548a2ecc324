//! Random numbers that a seed repeats.

use crate::host::{Host, Machine};

/// A stream of random numbers, the same for the same seed: what a random test draws its choices from, so that it can
/// say how to repeat them.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed for a run: `LEASEHOLD_SEED` if that is set, otherwise another one each time.
    pub fn any_seed() -> u64 {
        std::env::var("LEASEHOLD_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(Machine.random() as u64 % 1_000_000)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        // SplitMix64: a Weyl sequence, mixed.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
