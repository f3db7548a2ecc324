//! The overhead of the engine: lock cycles on the store in memory, which is the cheapest one.
//!
//! ```sh
//! cargo bench -p leasehold
//! ```

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use leasehold::core::{Mode, Name, Nonce};
use leasehold::{AcquireOutcome, AcquireRequest, Client, HolderKey};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The number of different names.
const NAMES: usize = 10_000;

struct Locks {
    client: Client,
    names: Vec<Name>,
    nonces: AtomicU64,
}

impl Locks {
    async fn open() -> Arc<Self> {
        let client = leasehold::connect("memory:").await.expect("a store");
        let names = (0..NAMES).map(|n| Name::lock(format!("bench/{n:05}")).expect("a name"));
        let names = names.collect();
        let nonces = AtomicU64::new(0);
        Arc::new(Self {
            client,
            names,
            nonces,
        })
    }

    /// Acquires a lease and releases it.
    async fn cycle(&self) {
        let number = self.nonces.fetch_add(1, Ordering::Relaxed);
        let name = &self.names[number as usize % NAMES];
        let request = AcquireRequest {
            name: name.clone(),
            nonce: Nonce::new(format!("{number:032x}")).expect("a nonce"),
            owner: self.client.owner().clone(),
            ttl: Duration::from_secs(30),
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        let leases = self.client.leases();
        let acquired = leases.acquire(request).await.expect("an answer");
        let AcquireOutcome::Granted(hold) = acquired else {
            panic!("{name} was free");
        };
        let released = leases.release(name, HolderKey::Fence(hold.grant.fence));
        assert!(black_box(released.await.expect("an answer")));
    }
}

fn cycles(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let locks = runtime.block_on(Locks::open());
    let mut group = criterion.benchmark_group("cycle");
    group.throughput(Throughput::Elements(1));
    for tasks in [1, 64] {
        group.bench_function(format!("{tasks} tasks"), |bencher| {
            bencher.iter_custom(|cycles| runtime.block_on(run_cycles(&locks, tasks, cycles)));
        });
    }
    group.finish();
}

/// Runs this number of cycles, divided between tasks. Returns how long they took.
async fn run_cycles(locks: &Arc<Locks>, tasks: u64, cycles: u64) -> Duration {
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for task in 0..tasks {
        let locks = locks.clone();
        let share = cycles / tasks + u64::from(task < cycles % tasks);
        workers.spawn(async move {
            for _ in 0..share {
                locks.cycle().await;
            }
        });
    }
    workers.join_all().await;
    started.elapsed()
}

/// Returns a configuration for a run of seconds. `bench/compare` measures more precisely.
fn short_run() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
}

criterion_group! {
    name = benches;
    config = short_run();
    targets = cycles
}
criterion_main!(benches);
