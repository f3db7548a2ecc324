//! The client on the real engine and the real `memory:` store, in simulated time: nothing here really sleeps, and
//! every run takes the same course. [`faults::Faulty`] adds the failures that a store cannot be made to have on
//! demand.

mod acquire;
mod claim;
mod election;
mod faults;
mod gate;
mod loss;
mod release;
mod renewal;
mod run;
mod several;
mod shared;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::{BootTime, Name, Time};
use leasehold::engine::{Config, Engine};
use leasehold::host::Host;
use leasehold::store::memory::Memory;
use leasehold::{Client, Lease};

use faults::Faulty;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn name(text: &str) -> Name {
    Name::lock(text).expect("a good name")
}

/// A host in the runtime's own time, which tests pause; but while it is suspended only its boot clock runs. Counts
/// how often somebody looks at that.
struct Simulated {
    start: tokio::time::Instant,
    suspended: Mutex<Duration>,
    looks: AtomicU64,
    randoms: AtomicU64,
}

impl Host for Simulated {
    fn boot_time(&self) -> BootTime {
        self.looks.fetch_add(1, Ordering::Relaxed);
        BootTime::from_micros(1_000_000) + self.start.elapsed() + *self.suspended.lock().unwrap()
    }

    fn random(&self) -> u128 {
        let count = self.randoms.fetch_add(1, Ordering::Relaxed);
        u128::from(count + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }
}

/// Two clients of one store: one through a [`Faulty`] connection, the other through a good one.
struct World {
    host: Arc<Simulated>,
    faulty: Arc<Faulty>,
    client: Client,
    other: Client,
}

impl World {
    async fn new() -> Self {
        let host = Arc::new(Simulated {
            start: tokio::time::Instant::now(),
            suspended: Mutex::default(),
            looks: AtomicU64::new(0),
            randoms: AtomicU64::new(0),
        });
        let epoch = Time::from_micros(1_700_000_000_000_000);
        let store = Arc::new(Memory::with_clock(host.clone(), epoch));
        let engine = Engine::start_with(store, host.clone(), Config::default());
        let engine = Arc::new(engine.await.expect("memory never fails"));
        let faulty = Arc::new(Faulty::new(engine.clone()));
        Self {
            client: Client::with_host(faulty.clone(), host.clone()),
            other: Client::with_host(engine, host.clone()),
            faulty,
            host,
        }
    }

    /// A lease through the faulty connection, granted at once.
    async fn lease(&self, name: &str, ttl: Duration) -> Lease {
        let lease = self.client.lease(name).ttl(ttl).acquire().await;
        lease.expect("nobody has it")
    }

    fn now(&self) -> BootTime {
        self.host.boot_time()
    }

    /// The machine sleeps for so long: its timers stand still meanwhile.
    fn suspend(&self, span: Duration) {
        *self.host.suspended.lock().unwrap() += span;
    }

    /// How many live holders the store knows.
    async fn holders(&self, text: &str) -> usize {
        let view = self.other.leases().show(&name(text)).await.expect("shown");
        view.map_or(0, |view| view.remaining.len())
    }
}
