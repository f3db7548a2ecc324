//! The health of a component, derived from its successes and failures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::BootTime;

/// How long after the last failure a success counts as a recovery. Avoids a state change at every use of a component that
/// fails intermittently.
const SETTLE: Duration = Duration::from_secs(1);

/// The health of a component. Recording a success costs one atomic read while it is healthy.
///
/// [`failed`](Self::failed) and [`succeeded`](Self::succeeded) return whether the state has changed, so that callers can log
/// each change once.
#[derive(Debug, Default)]
pub struct Health {
    failing: AtomicBool,
    last_failure: AtomicU64,
}

impl Health {
    /// Records a failure.
    pub fn failed(&self, at: BootTime) -> bool {
        self.last_failure
            .fetch_max(at.as_micros(), Ordering::AcqRel);
        !self.failing.swap(true, Ordering::AcqRel)
    }

    /// Records the success of a call that began at `began`. A call that began within a second after the last failure, or
    /// before it, changes nothing.
    pub fn succeeded(&self, began: BootTime) -> bool {
        self.is_failing() && self.has_settled(began) && self.failing.swap(false, Ordering::AcqRel)
    }

    /// Returns whether the last failure was at least a second ago.
    pub fn has_settled(&self, now: BootTime) -> bool {
        now >= self.last_failure() + SETTLE
    }

    /// Returns whether a failure was recorded at this moment or later.
    pub fn has_failed_since(&self, moment: BootTime) -> bool {
        self.last_failure.load(Ordering::Acquire) >= moment.as_micros().max(1)
    }

    /// Returns whether the component is failing.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    fn last_failure(&self) -> BootTime {
        BootTime::from_micros(self.last_failure.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime::from_micros(1_000 * millis)
    }

    #[test]
    fn each_change_is_reported_once() {
        let health = Health::default();
        assert!(!health.succeeded(at(0)));
        assert!(!health.has_failed_since(at(0)));
        assert!(health.failed(at(10)));
        assert!(!health.failed(at(20)));
        assert!(health.has_failed_since(at(20)) && !health.has_failed_since(at(21)));
        assert!(health.is_failing());
        assert!(health.succeeded(at(2_000)));
        assert!(!health.succeeded(at(2_001)));
        assert!(!health.is_failing());
        assert!(health.failed(at(3_000)));
    }

    #[test]
    fn success_soon_after_a_failure_is_not_a_recovery() {
        let health = Health::default();
        health.failed(at(5_000));
        for began in [0, 4_999, 5_000, 5_999] {
            assert!(!health.succeeded(at(began)), "{began}");
        }
        // A failure that is reported late does not hide a later one.
        health.failed(at(1_000));
        assert!(!health.succeeded(at(5_500)));
        assert!(health.succeeded(at(6_000)));
    }
}
