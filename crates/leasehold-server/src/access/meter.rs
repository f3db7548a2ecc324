//! How much one credential asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How far ahead of its rate somebody may get in a burst.
const BURST_NS: u64 = 1_000_000_000;

/// How much one token or certificate may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second, on average over one.
    pub rate: u32,
    /// Requests at once that wait.
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

/// How much was asked for so far.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    /// When everything admitted so far would have come at an even pace, from the start.
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
    /// Counts a request, unless it comes too early: by so much.
    pub(crate) fn count(&self, limits: &Limits) -> Result<(), Duration> {
        let now = self.now();
        let step = 1_000_000_000 / u64::from(limits.rate.max(1));
        let most = now + BURST_NS.max(step);
        let next = |due: u64| due.max(now).saturating_add(step);
        let admitted = |due| (next(due) <= most).then(|| next(due));
        self.due_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, admitted)
            .map(drop)
            .map_err(|due| Duration::from_nanos(next(due) - most))
    }

    /// Counts so many more for a request that was admitted. They are not refused, so that large requests are possible at every
    /// rate; the next ones are until an even pace has caught up.
    pub(crate) fn charge(&self, limits: &Limits, more: usize) {
        let now = self.now();
        let step = 1_000_000_000 / u64::from(limits.rate.max(1));
        let cost = step.saturating_mul(more as u64);
        let later = |due: u64| Some(due.max(now).saturating_add(cost));
        let _ = self
            .due_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts one that waits, for as long as it does; `None`: too many do.
    pub(crate) fn wait(self: &Arc<Self>, limits: &Limits) -> Option<Waiting> {
        let before = self.waits.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(self));
        (before < limits.waits).then_some(waiting)
    }
}

/// One that waits.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Meter>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_a_second_is_admitted_and_the_rest_told_when_to_come() {
        let limits = Limits { rate: 10, waits: 0 };
        let meter = Meter::default();
        let admitted = (0..100)
            .take_while(|_| meter.count(&limits).is_ok())
            .count();
        // One more for every tenth of a second that this took.
        assert!((10..20).contains(&admitted), "{admitted}");
        let early = meter.count(&limits).unwrap_err();
        assert!(early <= Duration::from_millis(100), "{early:?}");
    }

    #[test]
    fn a_large_request_is_admitted_and_made_up_for_by_a_pause() {
        let limits = Limits { rate: 10, waits: 0 };
        let meter = Meter::default();
        assert!(meter.count(&limits).is_ok());
        meter.charge(&limits, 99);
        let early = meter.count(&limits).unwrap_err();
        // A hundred and one take ten seconds beyond the first burst.
        let expected = Duration::from_millis(8_000)..=Duration::from_millis(9_100);
        assert!(expected.contains(&early), "{early:?}");
    }

    #[test]
    fn who_waits_is_counted_until_they_do_not() {
        let limits = Limits { rate: 1, waits: 2 };
        let meter = Arc::new(Meter::default());
        let first = meter.wait(&limits).unwrap();
        let _second = meter.wait(&limits).unwrap();
        assert!(meter.wait(&limits).is_none());
        drop(first);
        assert!(meter.wait(&limits).is_some());
    }
}
