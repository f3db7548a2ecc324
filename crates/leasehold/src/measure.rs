//! Counters and histograms for metrics, based on atomics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Increments the counter.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of buckets of a [`Histogram`].
const BUCKETS: usize = 20;

/// A histogram of whole numbers, or of durations in microseconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for the values above all bounds.
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    /// Bounds for calls, from microseconds to seconds.
    pub const CALLS: &'static [u64] = &[
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ];
    /// Bounds for longer periods, from milliseconds to a day.
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
    /// Bounds for the sizes of batches.
    pub const SIZES: &'static [u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

    /// Creates a histogram with at most 19 bounds, in ascending order.
    ///
    /// # Panics
    /// With more bounds.
    pub const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < BUCKETS);
        Self {
            bounds,
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
        }
    }

    /// Adds a value.
    pub fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a duration.
    pub fn took(&self, span: Duration) {
        self.add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the number of values up to each bound, the number of all values, and their sum.
    pub fn read(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let mut total = 0;
        let cumulative = self.bounds.iter().zip(&self.counts).map(|(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (*bound, total)
        });
        let cumulative = cumulative.collect();
        total += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        (cumulative, total, self.sum.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound_inclusive() {
        let sizes = Histogram::new(&[1, 10]);
        for value in [0, 1, 2, 10, 11, 1_000] {
            sizes.add(value);
        }
        assert_eq!(sizes.read(), (vec![(1, 2), (10, 4)], 6, 1_024));
    }
}
