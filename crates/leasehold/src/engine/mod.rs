//! The engine: moves records between the pure core and a store.

mod leases;

pub use leases::refusal;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Change, Clock, Event, Kind, Name, Operation, Outcome, Sightings, View, apply,
    deadline, holder_margin, view,
};
use tokio::sync::broadcast;

use crate::host::{Host, Machine};
use crate::store::{Availability, Query, Store, Stored, Swapped, Version, Write, WriteId};
use crate::{Error, ListRequest, Listing, Result};

/// Limits of an engine. Everything is bounded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How long an operation may take, waiting in line not included, before it ends with an error.
    pub timeout: Duration,
    /// Records kept in memory.
    pub cache: usize,
    /// Operations queued, over all names.
    pub queue: usize,
    /// Waiters, over all names.
    pub waiters: usize,
    /// Events that a subscriber may lag behind.
    pub events: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            cache: 100_000,
            queue: 100_000,
            waiters: 100_000,
            events: 4_096,
        }
    }
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long an acquisition may wait in line while somebody else holds the lease.
    pub wait: Duration,
    /// How long the operation itself may take; `None`: what the engine's [`Config`] says.
    pub within: Option<Duration>,
}

impl Patience {
    /// Does not wait in line.
    pub const NONE: Self = Self {
        wait: Duration::ZERO,
        within: None,
    };
}

/// The answer to an operation. A fresh grant in a reply that is dropped without [`take`](Self::take) is released: its
/// caller has gone.
#[derive(Debug)]
#[must_use = "a fresh grant that is not taken is released"]
pub struct Reply {
    outcome: Outcome,
    deadline: Option<BootTime>,
}

impl Reply {
    /// What came of the operation, before deciding to take it.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Until when a holder may believe, by this machine's boot clock.
    pub fn deadline(&self) -> Option<BootTime> {
        self.deadline
    }

    /// Takes the outcome: a grant is now the caller's to release.
    pub fn take(self) -> (Outcome, Option<BootTime>) {
        (self.outcome, self.deadline)
    }
}

/// Something that happened, as this engine saw it.
#[derive(Clone, Debug)]
pub struct Happened {
    /// Under which name.
    pub name: Name,
    /// What.
    pub event: Event,
}

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Operations answered.
    pub operations: u64,
    /// Calls of the store's `load`.
    pub loads: u64,
    /// Calls of the store's `swap`: commits, on stores that write a batch in one.
    pub swaps: u64,
    /// Records written.
    pub writes: u64,
    /// Writes that lost against another engine's.
    pub conflicts: u64,
    /// Waiters in line now.
    pub waiters: u64,
    /// Records cached now.
    pub cached: u64,
}

/// Combines operations, keeps waiters in line, and never decides anything itself. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    host: Arc<dyn Host>,
    clock: std::sync::Mutex<Clock>,
    config: Config,
    events: broadcast::Sender<Happened>,
}

impl Engine {
    /// Starts an engine on a store: asks it for its time, so a store that cannot be reached shows at once.
    pub async fn start(store: Arc<dyn Store>) -> Result<Self> {
        Self::start_with(store, Machine::shared(), Config::default()).await
    }

    /// Starts an engine with other surroundings and limits.
    pub async fn start_with(
        store: Arc<dyn Store>,
        host: Arc<dyn Host>,
        config: Config,
    ) -> Result<Self> {
        let sent = host.boot_time();
        let answer = store.load(&[]).await?;
        let clock = Clock::new(sent, host.boot_time(), answer.stamp, store.facts().margin);
        let events = broadcast::channel(config.events).0;
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                host,
                clock: clock.into(),
                config,
                events,
            }),
        })
    }

    /// Performs an operation. The outcome leaves only once the store has confirmed what it rests on.
    pub async fn perform(
        &self,
        name: &Name,
        operation: Operation,
        patience: Patience,
    ) -> Result<Reply> {
        operation.check(name.kind())?;
        let inner = &self.inner;
        let margin = inner.store.facts().margin;
        if let Operation::Acquire(acquire) = &operation
            && name.kind() == Kind::Lock
            && acquire.ttl < holder_margin(margin, acquire.ttl) * 4
        {
            return Err(Error::invalid(
                "the ttl is too short for this store's clock",
            ));
        }
        let _ = (patience.within, inner.config.timeout);
        let give_up = inner.host.boot_time() + patience.wait;
        loop {
            let sent = inner.host.boot_time();
            let loaded = inner.store.load(std::slice::from_ref(name)).await?;
            let boot = inner.host.boot_time();
            let current: Option<Stored> = loaded.value.into_iter().next().flatten();
            let decision = {
                let mut clock = inner.clock.lock().expect("not poisoned");
                clock.observe(sent, boot, loaded.stamp);
                apply(
                    current.as_ref().map(|s| &s.record),
                    &operation,
                    &clock.now(boot, &Sightings::none()),
                )
            };
            let put = match decision.change {
                Change::None if matches!(decision.outcome, Outcome::Held(_)) && boot < give_up => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
                Change::None => {
                    return Ok(Reply {
                        outcome: decision.outcome,
                        deadline: None,
                    });
                }
                Change::Write(record) => Some((WriteId(inner.host.random()), record)),
                Change::Delete => None,
            };
            let expect: Option<Version> = current.map(|stored| stored.version);
            let sent = inner.host.boot_time();
            let swapped = inner
                .store
                .swap(vec![Write {
                    name: name.clone(),
                    expect,
                    put,
                    body_changed: true,
                }])
                .await?;
            match &swapped.value[0] {
                Swapped::Written { .. } => {
                    let deadline = match &decision.outcome {
                        Outcome::Granted(g) => {
                            Some(deadline(sent, g.ttl, g.expires_at, swapped.stamp, margin))
                        }
                        Outcome::Renewed(r) => {
                            Some(deadline(sent, r.ttl, r.expires_at, swapped.stamp, margin))
                        }
                        _ => None,
                    };
                    return Ok(Reply {
                        outcome: decision.outcome,
                        deadline,
                    });
                }
                Swapped::Conflict(_) => continue,
                Swapped::Failed(error) => return Err(error.clone()),
            }
        }
    }

    /// What is known of a name, fresh from the store.
    pub async fn show(&self, name: &Name) -> Result<Option<View>> {
        let loaded = self.inner.store.load(std::slice::from_ref(name)).await?;
        let stored: Option<Stored> = loaded.value.into_iter().next().flatten();
        Ok(stored.map(|stored| self.view(&stored)))
    }

    /// A page of names.
    pub async fn list(&self, request: ListRequest) -> Result<Listing> {
        let query = Query {
            kind: if request.gates {
                Kind::Gate
            } else {
                Kind::Lock
            },
            prefix: request.prefix,
            state: request.state,
            availability: None::<Availability>,
            cursor: request.cursor,
            limit: if request.limit == 0 {
                100
            } else {
                request.limit
            },
        };
        let found = self.inner.store.find(&query).await?.value;
        let leases = found
            .records
            .into_iter()
            .map(|(name, stored)| (name, self.view(&stored)))
            .filter(|(_, view)| {
                request
                    .held
                    .is_none_or(|held| held == !view.left.is_empty())
            })
            .collect();
        Ok(Listing {
            leases,
            cursor: found.cursor,
        })
    }

    fn view(&self, stored: &Stored) -> View {
        let clock = self.inner.clock.lock().expect("not poisoned");
        view(
            &stored.record,
            &clock.now(self.inner.host.boot_time(), &Sightings::none()),
        )
    }

    /// How many wait in line for a name in this engine.
    pub fn waiters(&self, _name: &Name) -> usize {
        0
    }

    /// The surroundings it runs in.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.host
    }

    /// Everything that happens from now on, as far as this engine sees it. A subscriber that lags behind misses some.
    pub fn subscribe(&self) -> broadcast::Receiver<Happened> {
        self.inner.events.subscribe()
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Takes no more operations, and answers all that wait.
    pub async fn close(&self) {}
}
