//! The writes of one engine stay in order, although it knows the store's time only as an interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Put, Stamp, Time};
use leasehold::engine::{Config, Engine};
use leasehold::host::{Host, Machine};
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{ListRequest, Result};

use crate::support::{name, outcome, release, take};

const EPOCH: u64 = 1_700_000_000_000_000;

/// A host whose clock the test sets.
struct ManualClock(AtomicU64);

impl ManualClock {
    fn set(&self, millis: u64) {
        self.0.store(millis * 1_000, Ordering::SeqCst);
    }
}

impl Host for ManualClock {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

/// A store whose time has a resolution of one second, like an HTTP `Date`.
struct CoarseStore(Memory);

fn truncate_stamp<T>(answer: Answer<T>) -> Answer<T> {
    let micros = answer.stamp.time.as_micros();
    let stamp = Stamp {
        time: Time::from_micros(micros - micros % 1_000_000),
        resolution: Duration::from_secs(1),
    };
    Answer { stamp, ..answer }
}

#[async_trait]
impl Store for CoarseStore {
    fn facts(&self) -> Facts {
        self.0.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.0.load(names).await.map(truncate_stamp)
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.0.swap(writes).await.map(truncate_stamp)
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.0.find(query).await.map(truncate_stamp)
    }
}

async fn start() -> (Engine, Arc<CoarseStore>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock(0.into()));
    let epoch = Time::from_micros(EPOCH);
    let store = Arc::new(CoarseStore(Memory::with_clock(clock.clone(), epoch)));
    let engine = Engine::start_with(store.clone(), clock.clone(), Config::default());
    (engine.await.expect("starts"), store, clock)
}

/// Puts items one after the other while the answers narrow the interval of the store's time: to one second at first,
/// and to 0.1 s once the clock is at 0.9 s and still shows the same second.
async fn put_while_the_interval_narrows(engine: &Engine, clock: &ManualClock) -> Vec<Name> {
    let mut names = Vec::new();
    for number in 0..6 {
        clock.set([0, 0, 900, 900, 950, 950][number]);
        // Sorted by name, the order would be the opposite.
        let item = name(&format!("item-{}", 9 - number));
        let put = Operation::Put(Put {
            state: "NEW".into(),
            body: None,
            nonce: None,
        });
        assert_eq!(outcome(engine, &item, put).await, Outcome::Put);
        names.push(item);
    }
    names
}

#[tokio::test]
async fn items_are_listed_in_the_order_of_their_puts() {
    let (engine, _, clock) = start().await;
    let names = put_while_the_interval_narrows(&engine, &clock).await;
    let request = ListRequest {
        state: Some("NEW".into()),
        ..ListRequest::default()
    };
    let listing = engine.list(request).await.expect("answers");
    let listed: Vec<_> = listing.leases.into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, names);
}

/// Deletes a record without the engine.
async fn delete(store: &CoarseStore, name: &Name) {
    let loaded = store.load(std::slice::from_ref(name)).await;
    let stored = loaded.expect("answers").value.remove(0).expect("is there");
    let write = Write {
        name: name.clone(),
        expect: Some(stored.version),
        put: None,
        body_changed: true,
    };
    let swapped = store.swap(vec![write]).await.expect("answers").value;
    assert!(matches!(swapped[..], [Swapped::Written { .. }]));
}

#[tokio::test]
async fn engine_grants_higher_fences_after_its_database_was_emptied() {
    let (engine, store, clock) = start().await;
    let job = name("job");
    let mut last = Fence::default();
    for turn in 0..20 {
        clock.set([0, 900][usize::from(turn > 1)]);
        let grant = take(&engine, &job, &turn.to_string()).await;
        assert!(grant.fence > last, "{} after {last}", grant.fence);
        last = grant.fence;
        outcome(&engine, &job, release(last)).await;
        if turn % 2 == 1 {
            delete(&store, &job).await;
        }
    }
}
