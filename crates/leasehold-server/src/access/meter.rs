//! The rate limit of a credential, and the limit of its waiting requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The largest burst: the requests of one second.
const BURST_NS: u64 = 1_000_000_000;

/// The limits of one token or certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests per second, with bursts of up to one second.
    pub rate: u32,
    /// Requests that wait at the same time.
    pub waits: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: 10_000,
            waits: 1_000,
        }
    }
}

/// Counts the requests of a credential (generic cell rate algorithm).
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    /// When all admitted requests would have arrived at an even rate, in nanoseconds from the start.
    due_ns: AtomicU64,
    waits: AtomicUsize,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            due_ns: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
        }
    }
}

impl Meter {
    /// Counts a request. `Err`: the rate is exceeded; retry after this time.
    pub(crate) fn count(&self, limits: &Limits) -> Result<(), Duration> {
        let now = self.now();
        let step = 1_000_000_000 / u64::from(limits.rate.max(1));
        let limit = now + BURST_NS.max(step);
        let next = |due: u64| due.max(now).saturating_add(step);
        let admitted = |due| (next(due) <= limit).then(|| next(due));
        self.due_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, admitted)
            .map(drop)
            .map_err(|due| Duration::from_nanos(next(due) - limit))
    }

    /// Counts `more` requests beyond the one that was admitted. They are not refused, so that large requests are possible at
    /// every rate. Instead, later requests are refused until the rate is kept again.
    pub(crate) fn charge(&self, limits: &Limits, more: usize) {
        let now = self.now();
        let step = 1_000_000_000 / u64::from(limits.rate.max(1));
        let cost = step.saturating_mul(more as u64);
        let charged = |due: u64| Some(due.max(now).saturating_add(cost));
        let _ = self
            .due_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts a waiting request until the permit is dropped. Returns `None` if too many wait.
    pub(crate) fn wait(self: &Arc<Self>, limits: &Limits) -> Option<WaitPermit> {
        let before = self.waits.fetch_add(1, Ordering::Relaxed);
        let permit = WaitPermit(Arc::clone(self));
        (before < limits.waits).then_some(permit)
    }
}

/// Counts as one waiting request until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitPermit(Arc<Meter>);

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_of_one_second_is_admitted_and_later_requests_get_a_retry_time() {
        let limits = Limits { rate: 10, waits: 0 };
        let meter = Meter::default();
        let admitted = (0..100)
            .take_while(|_| meter.count(&limits).is_ok())
            .count();
        // One more for every tenth of a second that the loop took.
        assert!((10..20).contains(&admitted), "{admitted}");
        let retry_after = meter.count(&limits).unwrap_err();
        assert!(retry_after <= Duration::from_millis(100), "{retry_after:?}");
    }

    #[test]
    fn large_request_is_admitted_and_delays_later_ones() {
        let limits = Limits { rate: 10, waits: 0 };
        let meter = Meter::default();
        assert!(meter.count(&limits).is_ok());
        meter.charge(&limits, 99);
        let retry_after = meter.count(&limits).unwrap_err();
        // 101 requests take ten seconds, one of which is the burst.
        let expected = Duration::from_millis(8_000)..=Duration::from_millis(9_100);
        assert!(expected.contains(&retry_after), "{retry_after:?}");
    }

    #[test]
    fn waiting_requests_are_limited_until_a_permit_is_dropped() {
        let limits = Limits { rate: 1, waits: 2 };
        let meter = Arc::new(Meter::default());
        let first = meter.wait(&limits).unwrap();
        let _second = meter.wait(&limits).unwrap();
        assert!(meter.wait(&limits).is_none());
        drop(first);
        assert!(meter.wait(&limits).is_some());
    }
}
