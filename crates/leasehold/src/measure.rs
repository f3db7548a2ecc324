//! Numbers about what was done: plain atomics, so that counting costs next to nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The most bounds of a [`Histogram`].
const BOUNDS: usize = 20;

/// How often values came to lie between which bounds: whole numbers, or spans in microseconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above all.
    counts: [AtomicU64; BOUNDS],
    sum: AtomicU64,
}

impl Histogram {
    /// For what takes microseconds to seconds.
    pub const CALLS: &'static [u64] = &[
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ];
    /// For what takes milliseconds to days.
    pub const SPANS: &'static [u64] = &[
        1_000,
        10_000,
        100_000,
        1_000_000,
        10_000_000,
        60_000_000,
        300_000_000,
        1_800_000_000,
        7_200_000_000,
        43_200_000_000,
        86_400_000_000,
    ];
    /// For how many come together.
    pub const SIZES: &'static [u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

    /// With these bounds, in rising order: at most 19.
    pub const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < BOUNDS);
        Self {
            bounds,
            counts: [const { AtomicU64::new(0) }; BOUNDS],
            sum: AtomicU64::new(0),
        }
    }

    /// A value.
    pub fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// A span.
    pub fn took(&self, span: Duration) {
        self.add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// What came so far: how many values were at most each bound, how many there were, and their sum.
    pub fn read(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let mut total = 0;
        let below = self.bounds.iter().zip(&self.counts).map(|(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (*bound, total)
        });
        let below = below.collect();
        total += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        (below, total, self.sum.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_at_or_below_their_bound() {
        let sizes = Histogram::new(&[1, 10]);
        for value in [0, 1, 2, 10, 11, 1_000] {
            sizes.add(value);
        }
        assert_eq!(sizes.read(), (vec![(1, 2), (10, 4)], 6, 1_024));
    }
}
