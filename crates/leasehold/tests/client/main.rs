//! Tests of the client with the real engine and the `memory:` store, in simulated time, so that runs are fast and
//! deterministic. [`faults::FaultyLeases`] injects failures.

mod acquire;
mod claim;
mod election;
mod faults;
mod gate;
mod lease_set;
mod loss;
mod release;
mod renewal;
mod run;
mod shared_leases;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::{BootTime, Name, Time};
use leasehold::engine::{Config, Engine};
use leasehold::host::Host;
use leasehold::store::memory::Memory;
use leasehold::{Client, Lease};

use faults::FaultyLeases;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

/// A host whose boot clock follows the runtime's paused time, plus the time for which it was suspended. Counts the reads of
/// the clock.
struct Simulated {
    start: tokio::time::Instant,
    suspended: Mutex<Duration>,
    clock_reads: AtomicU64,
    randoms: AtomicU64,
}

impl Host for Simulated {
    fn boot_time(&self) -> BootTime {
        self.clock_reads.fetch_add(1, Ordering::Relaxed);
        BootTime::from_micros(1_000_000) + self.start.elapsed() + *self.suspended.lock().unwrap()
    }

    fn random(&self) -> u128 {
        let count = self.randoms.fetch_add(1, Ordering::Relaxed);
        u128::from(count + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }
}

/// Two clients of one store. The first one uses [`FaultyLeases`].
struct World {
    host: Arc<Simulated>,
    faulty: Arc<FaultyLeases>,
    client: Client,
    other: Client,
}

impl World {
    async fn new() -> Self {
        let host = Arc::new(Simulated {
            start: tokio::time::Instant::now(),
            suspended: Mutex::default(),
            clock_reads: AtomicU64::new(0),
            randoms: AtomicU64::new(0),
        });
        let epoch = Time::from_micros(1_700_000_000_000_000);
        let store = Arc::new(Memory::with_clock(host.clone(), epoch));
        let engine = Engine::start_with(store, host.clone(), Config::default());
        let engine = Arc::new(engine.await.expect("the memory store never fails"));
        let faulty = Arc::new(FaultyLeases::new(engine.clone()));
        Self {
            client: Client::with_host(faulty.clone(), host.clone()),
            other: Client::with_host(engine, host.clone()),
            faulty,
            host,
        }
    }

    /// Acquires a free lease with the first client.
    async fn lease(&self, name: &str, ttl: Duration) -> Lease {
        let lease = self.client.lease(name).ttl(ttl).acquire().await;
        lease.expect("the lease is free")
    }

    fn now(&self) -> BootTime {
        self.host.boot_time()
    }

    /// Suspends the machine: its boot clock advances, and its timers do not.
    fn suspend(&self, span: Duration) {
        *self.host.suspended.lock().unwrap() += span;
    }

    /// Returns the number of live holders in the store.
    async fn holders(&self, text: &str) -> usize {
        let view = self.other.leases().show(&name(text)).await.expect("shown");
        view.map_or(0, |view| view.remaining.len())
    }
}
