//! One task: acquires and releases one lease after another, and records latencies and errors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::core::{Mode, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::wire::Problem;
use leasehold::{AcquireOutcome, AcquireRequest, Client, Error, HolderKey};
use tokio::sync::watch;

/// How long a task waits after a failed cycle, so that it does not add load to a failing store.
const FAILURE_DELAY: Duration = Duration::from_millis(20);
/// The longest latency that is recorded; longer ones count as this.
const MAX_LATENCY: Duration = Duration::from_secs(3_600);
/// The significant digits of recorded latencies.
const DIGITS: u8 = 3;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    WarmUp,
    Measuring,
    /// Unfinished cycles are completed, and no new ones begin.
    Stopping,
    /// Unfinished cycles are cancelled.
    Cancelled,
}

/// What all tasks of a run count while it lasts.
#[derive(Debug, Default)]
pub(super) struct LiveCounts {
    cycles: AtomicU64,
    first_error: OnceLock<Error>,
}

impl LiveCounts {
    /// Returns the number of completed cycles, the warm-up included.
    pub(super) fn cycles(&self) -> u64 {
        self.cycles.load(Ordering::Relaxed)
    }

    /// Returns the first error if no cycle was completed.
    pub(super) fn failure(&self) -> Option<Error> {
        let error = self.first_error.get()?;
        (self.cycles() == 0).then(|| error.clone())
    }
}

/// The latencies and errors of a run.
#[derive(Debug)]
pub(super) struct Summary {
    /// Latencies of complete cycles, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// How many cycles failed, by problem type.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Summary {
    pub(super) fn new() -> Self {
        let max = nanos(MAX_LATENCY);
        Self {
            latency: Histogram::new_with_max(max, DIGITS).expect("the bounds are valid"),
            errors: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let added = self.latency.add(&other.latency);
        added.expect("the bounds are equal");
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
    }

    fn count(&mut self, kind: &str) {
        *self.errors.entry(kind.to_owned()).or_default() += 1;
    }
}

/// One task of a run.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) names: Arc<[Name]>,
    /// The index of its first name.
    pub(super) first: usize,
    /// The distance to its next name: the number of tasks, so that no two tasks use the same name.
    pub(super) stride: usize,
    pub(super) ttl: Duration,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) live: Arc<LiveCounts>,
}

impl Worker {
    /// Works until the run stops, or until an error that a retry cannot fix.
    pub(super) async fn work(self) -> leasehold::Result<Summary> {
        let mut summary = Summary::new();
        let mut phase = self.phase.clone();
        let result = tokio::select! {
            result = self.run_cycles(&mut summary) => Some(result),
            _ = phase.wait_for(|phase| *phase == Phase::Cancelled) => None,
        };
        match result {
            Some(result) => result?,
            None => summary.count("unanswered"),
        }
        Ok(summary)
    }

    async fn run_cycles(&self, summary: &mut Summary) -> leasehold::Result<()> {
        let names = self.names.iter().skip(self.first).step_by(self.stride);
        for name in names.cycle() {
            let phase = *self.phase.borrow();
            if phase >= Phase::Stopping {
                break;
            }
            let is_measured = phase == Phase::Measuring;
            let started = Instant::now();
            match self.run_cycle(name).await {
                Ok(()) => {
                    self.live.cycles.fetch_add(1, Ordering::Relaxed);
                    if is_measured {
                        summary.latency.saturating_record(nanos(started.elapsed()));
                    }
                }
                Err(error @ (Error::Invalid(_) | Error::Denied(_) | Error::Corrupt(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    if is_measured {
                        summary.count(&problem_type(&error));
                    }
                    let _ = self.live.first_error.set(error);
                    tokio::time::sleep(FAILURE_DELAY).await;
                }
            }
        }
        Ok(())
    }

    /// Acquires the lease and releases it.
    async fn run_cycle(&self, name: &Name) -> leasehold::Result<()> {
        let nonce = Nonce::new(format!("{:032x}", Machine.random()))?;
        let request = AcquireRequest {
            name: name.clone(),
            nonce: nonce.clone(),
            owner: self.client.owner().clone(),
            ttl: self.ttl,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        let leases = self.client.leases();
        let released = match leases.acquire(request).await {
            Ok(AcquireOutcome::Granted(hold)) => {
                let holding = HolderKey::Fence(hold.grant.fence);
                leases.release(name, holding).await
            }
            Ok(AcquireOutcome::Held(held)) => return Err(Error::Held(held)),
            Err(error) => Err(error),
        };
        match released {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Expired),
            Err(error) => {
                // The lease may be held nevertheless, and would stay so for its ttl.
                let _ = leases.release(name, HolderKey::Nonce(nonce)).await;
                Err(error)
            }
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the problem type of an error, as the service names it.
fn problem_type(error: &Error) -> String {
    let name = serde_json::to_value(Problem::from(error).problem_type).unwrap_or_default();
    name.as_str().unwrap_or("other").to_owned()
}
