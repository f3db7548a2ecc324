//! The result of one measurement of lock cycles.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// The number of lock names.
pub(crate) const NAMES: usize = 10_000;

/// Returns a lock name of 19 bytes.
pub(crate) fn lock_name(number: usize) -> String {
    format!("lock-{number:014}")
}

/// Rate and latencies of lock cycles.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Cycles per second.
    pub(crate) rate: f64,
    /// The median latency in microseconds.
    pub(crate) p50: f64,
    /// The 99th percentile of the latency in microseconds.
    pub(crate) p99: f64,
    /// The fraction of the processor time that was stolen meanwhile.
    pub(crate) steal: f64,
}

impl Sample {
    pub(crate) fn new(duration: Duration, nanoseconds: Histogram<u64>) -> Self {
        let micros = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1_000.0;
        Self {
            rate: nanoseconds.len() as f64 / duration.as_secs_f64(),
            p50: micros(0.5),
            p99: micros(0.99),
            steal: 0.0,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, p50, p99, .. } = self;
        write!(f, "{rate:>7.0}/s  p50 {p50:>8.1} us  p99 {p99:>8.1} us")?;
        match 100.0 * self.steal {
            0.0..1.0 => Ok(()),
            steal => write!(f, "  ({steal:.0} % steal time)"),
        }
    }
}

/// Returns an empty histogram of latencies in nanoseconds, up to a minute.
pub(crate) fn latencies() -> crate::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(60_000_000_000, 3)?)
}
