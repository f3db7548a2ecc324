//! One task: takes and releases one lease after another, and keeps its own account of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::core::{Mode, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::wire::Problem;
use leasehold::{AcquireRequest, Acquired, Client, Error, Holding};
use tokio::sync::watch;

/// How long a task waits after a cycle that failed: a store in trouble is not helped by more questions.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest cycle that is told from a longer one.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Of the latencies, so many digits count.
const DIGITS: u8 = 3;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    WarmUp,
    Measuring,
    /// Cycles under way are finished, and no others begun.
    Stopping,
    /// What is still under way is dropped.
    GivenUp,
}

/// What is known while a run goes on.
#[derive(Debug, Default)]
pub(super) struct Live {
    cycles: AtomicU64,
    trouble: OnceLock<Error>,
}

impl Live {
    /// How many cycles were completed, measured or not.
    pub(super) fn cycles(&self) -> u64 {
        self.cycles.load(Ordering::Relaxed)
    }

    /// The first error, if there was nothing but errors.
    pub(super) fn failure(&self) -> Option<Error> {
        let trouble = self.trouble.get()?;
        (self.cycles() == 0).then(|| trouble.clone())
    }
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Tally {
    /// Of whole cycles, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// How many cycles failed, by the `type` that the service would give the problem.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let longest = nanos(LONGEST);
        Self {
            latency: Histogram::new_with_max(longest, DIGITS).expect("sound bounds"),
            errors: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let added = self.latency.add(&other.latency);
        added.expect("equal bounds");
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
    /// Its first name; the next one is so many further on. So no two tasks meet.
    pub(super) first: usize,
    pub(super) stride: usize,
    pub(super) ttl: Duration,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) live: Arc<Live>,
}

impl Worker {
    /// Works until it is told to stop; an error that no further try would mend ends it at once.
    pub(super) async fn work(self) -> leasehold::Result<Tally> {
        let mut tally = Tally::new();
        let mut phase = self.phase.clone();
        let worked = tokio::select! {
            worked = self.cycles(&mut tally) => Some(worked),
            _ = phase.wait_for(|phase| *phase == Phase::GivenUp) => None,
        };
        match worked {
            Some(worked) => worked?,
            None => tally.count("unanswered"),
        }
        Ok(tally)
    }

    async fn cycles(&self, tally: &mut Tally) -> leasehold::Result<()> {
        let share = self.names.iter().skip(self.first).step_by(self.stride);
        for name in share.cycle() {
            let phase = *self.phase.borrow();
            if phase >= Phase::Stopping {
                break;
            }
            let measured = phase == Phase::Measuring;
            let begun = Instant::now();
            match self.cycle(name).await {
                Ok(()) => {
                    self.live.cycles.fetch_add(1, Ordering::Relaxed);
                    if measured {
                        tally.latency.saturating_record(nanos(begun.elapsed()));
                    }
                }
                Err(error @ (Error::Invalid(_) | Error::Denied(_) | Error::Corrupt(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    if measured {
                        tally.count(&kind(&error));
                    }
                    let _ = self.live.trouble.set(error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Takes the lease and releases it.
    async fn cycle(&self, name: &Name) -> leasehold::Result<()> {
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
            Ok(Acquired::Granted(hold)) => {
                let who = Holding::Fence(hold.grant.fence);
                leases.release(name, who).await
            }
            Ok(Acquired::Held(held)) => return Err(Error::Held(held)),
            Err(error) => Err(error),
        };
        match released {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Expired),
            Err(error) => {
                // It may be held all the same, and would then stay so for its ttl.
                let _ = leases.release(name, Holding::Nonce(nonce)).await;
                Err(error)
            }
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The kind of an error, as the service names it.
fn kind(error: &Error) -> String {
    let trouble = serde_json::to_value(Problem::from(error).trouble).unwrap_or_default();
    trouble.as_str().unwrap_or("other").to_owned()
}
