//! Leases of dead holders when the store's clock steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold::core::{BootTime, Hash, Kind, Name, Nonce, Operation, Outcome, Put, Time};
use leasehold::engine::{Config, Engine, WaitLimit};
use leasehold::host::Host;
use leasehold::store::memory::Memory;
use leasehold::{ClaimRequest, ListRequest};
use tokio::time::Instant;

use crate::support::{acquire, expect_grant, name, outcome};

const TTL: Duration = Duration::from_secs(2);
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// A host in simulated time. If it is the store's, its clock can be stepped.
pub(crate) struct Clock {
    start: Instant,
    ahead_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            ahead_ms: AtomicI64::new(0),
        })
    }

    fn step(&self, by_ms: i64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Host for Clock {
    fn boot_time(&self) -> BootTime {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).expect("a short test");
        let shown = elapsed + 1_000 * (DAY + self.ahead_ms.load(Ordering::Relaxed));
        BootTime::from_micros(shown.try_into().expect("after the epoch"))
    }

    fn random(&self) -> u128 {
        leasehold::host::Machine.random()
    }
}

/// A store with a clock of its own, and two engines on it.
struct Setup {
    store_clock: Arc<Clock>,
    store: Arc<Memory>,
    worker: Engine,
    other: Engine,
}

impl Setup {
    /// Starts an engine that has not noticed any step of the store's clock.
    async fn late_engine(&self) -> Engine {
        let engine = Engine::start_with(self.store.clone(), Clock::new(), Config::default());
        engine.await.expect("starts")
    }
}

async fn setup(config: Config) -> Setup {
    let store_clock = Clock::new();
    let epoch = Time::from_micros(1_780_000_000_000_000);
    let store = Arc::new(Memory::with_clock(store_clock.clone(), epoch));
    let engine = |config| Engine::start_with(store.clone(), Clock::new(), config);
    Setup {
        worker: engine(config.clone()).await.expect("starts"),
        other: engine(config).await.expect("starts"),
        store_clock,
        store,
    }
}

fn request(limit: usize) -> ClaimRequest {
    static CLAIMS: AtomicI64 = AtomicI64::new(0);
    let claim = CLAIMS.fetch_add(1, Ordering::Relaxed);
    ClaimRequest {
        state: "REQUESTED".into(),
        prefix: String::new(),
        limit,
        ttl: TTL,
        owner: "worker".into(),
        nonce: Nonce::new(format!("claim {claim}")).expect("short"),
        wait: Duration::ZERO,
    }
}

/// Puts this many items and claims them all with a worker that dies. Returns when its leases expire by its own clock.
async fn dead_worker(setup: &Setup, items: usize) -> Instant {
    for item in 0..items {
        let put = Operation::Put(Put {
            state: "REQUESTED".into(),
            body: None,
            nonce: Some(Hash::of(&[&item.to_le_bytes()])),
        });
        outcome(&setup.worker, &name(&format!("item {item}")), put).await;
    }
    let claimed = setup.worker.claim(request(items), None).await;
    let claimed = claimed.expect("the store answers");
    assert_eq!(claimed.len(), items);
    for (_, reply) in claimed {
        reply.take();
    }
    Instant::now() + TTL
}

/// Claims until every item has been claimed again. Returns when the first and the last were.
async fn claim_all(engine: &Engine, items: usize) -> (Instant, Instant) {
    let give_up = Instant::now() + TTL * 20;
    let (mut first, mut claimed) = (None, 0);
    while claimed < items {
        assert!(
            Instant::now() < give_up,
            "{claimed} of {items} were claimed"
        );
        let some = engine.claim(request(items), None).await;
        for (_, reply) in some.expect("the store answers") {
            reply.take();
            first = first.or(Some(Instant::now()));
            claimed += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (first.expect("one at least"), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn items_of_a_dead_worker_are_claimed_again_after_a_step() {
    for step in [-400, 400, -5_000, 5_000, -HOUR, HOUR, DAY] {
        let setup = setup(Config::default()).await;
        let ends = dead_worker(&setup, 3).await;
        setup.store_clock.step(step);
        let (first, last) = claim_all(&setup.other, 3).await;
        assert!(first > ends, "step {step}: {:?} too early", ends - first);
        let late = last - ends;
        assert!(late < 2 * TTL, "step {step}: {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn engine_started_after_a_step_back_claims_items_of_a_dead_worker() {
    for step in [-5_000, -HOUR, -DAY] {
        let setup = setup(Config::default()).await;
        dead_worker(&setup, 3).await;
        setup.store_clock.step(step);
        let late = setup.late_engine().await;
        let started = Instant::now();
        let (first, last) = claim_all(&late, 3).await;
        assert!(first >= started + TTL, "step {step}: too early");
        // If the step is below the uncertainty of a clock, it waits longer, otherwise for a ttl.
        let waited = last - started;
        assert!(waited < Duration::from_secs(8), "step {step}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_claim_of_an_engine_started_after_a_step_back_gets_items_of_a_dead_worker() {
    let setup = setup(Config::default()).await;
    dead_worker(&setup, 3).await;
    setup.store_clock.step(-HOUR);
    let late = setup.late_engine().await;
    let started = Instant::now();
    let waiting = ClaimRequest {
        wait: TTL * 10,
        ..request(3)
    };
    let claimed = late.claim(waiting, None).await.expect("the store answers");
    assert_eq!(claimed.len(), 3);
    assert!(started.elapsed() < 2 * TTL, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn more_items_of_a_dead_worker_than_the_cache_holds_are_claimed_again_after_a_step() {
    let mut config = Config::default();
    config.cache = 4;
    let setup = setup(config).await;
    let ends = dead_worker(&setup, 60).await;
    setup.store_clock.step(-HOUR);
    let (first, last) = claim_all(&setup.other, 60).await;
    assert!(first > ends, "{:?} too early", ends - first);
    assert!(last - ends < 2 * TTL, "{:?} late", last - ends);
}

/// Acquires a lease that is never renewed.
async fn abandoned(setup: &Setup) -> Name {
    let name = name("job");
    let acquire = acquire("worker", TTL);
    expect_grant(setup.worker.perform(&name, acquire, WaitLimit::NONE).await);
    name
}

#[tokio::test(start_paused = true)]
async fn show_counts_down_the_ttl_of_a_dead_holder_after_a_step() {
    let setup = setup(Config::default()).await;
    let name = abandoned(&setup).await;
    setup.store_clock.step(-HOUR);
    let left = async || {
        let view = setup.other.show(&name).await.expect("the store answers");
        view.expect("a record").remaining.first().copied()
    };
    assert!(left().await > Some(TTL - Duration::from_millis(10)));
    tokio::time::sleep(TTL / 2).await;
    assert!(left().await < Some(TTL * 2 / 3));
    tokio::time::sleep(TTL / 2 + Duration::from_millis(10)).await;
    assert_eq!(left().await, None);
}

#[tokio::test(start_paused = true)]
async fn list_drops_a_dead_holder_a_ttl_after_a_step() {
    let setup = setup(Config::default()).await;
    abandoned(&setup).await;
    setup.store_clock.step(-HOUR);
    let held = async || {
        let request = ListRequest {
            held: Some(true),
            ..ListRequest::default()
        };
        let listing = setup.other.list(request).await;
        listing.expect("the store answers").leases.len()
    };
    assert_eq!(held().await, 1);
    tokio::time::sleep(TTL + Duration::from_millis(10)).await;
    assert_eq!(held().await, 0);
}

#[tokio::test(start_paused = true)]
async fn list_of_held_names_includes_leases_held_by_an_earlier_clock() {
    let setup = setup(Config::default()).await;
    abandoned(&setup).await;
    setup.store_clock.step(HOUR);
    let request = || ListRequest {
        held: Some(true),
        ..ListRequest::default()
    };
    // The first answer reveals the step, so the next list takes it into account.
    setup
        .other
        .list(request())
        .await
        .expect("the store answers");
    let listing = setup.other.list(request()).await;
    assert_eq!(listing.expect("the store answers").leases.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn small_step_does_not_double_a_lease_of_a_day() {
    let setup = setup(Config::default()).await;
    let name = name("job");
    let long = Duration::from_secs(24 * 3_600);
    expect_grant(
        setup
            .worker
            .perform(&name, acquire("worker", long), WaitLimit::NONE)
            .await,
    );
    setup.store_clock.step(5_000);
    setup.other.show(&name).await.expect("the store answers");
    // By 500 ppm, clocks may drift apart by 43 s in a day.
    tokio::time::sleep(long + Duration::from_secs(60)).await;
    expect_grant(
        setup
            .other
            .perform(&name, acquire("other", TTL), WaitLimit::NONE)
            .await,
    );
}

#[tokio::test(start_paused = true)]
async fn step_does_not_shut_a_gate_for_another_period() {
    let period = Duration::from_secs(600);
    // By 500 ppm, clocks may drift apart by 0.3 s in ten minutes.
    let slack = Duration::from_secs(1);
    for step in [-400, 400, -5_000, 5_000, -HOUR, HOUR, DAY] {
        let setup = setup(Config::default()).await;
        let gate = Name::new(Kind::Gate, "report").expect("a good name");
        let passes = async |engine: &Engine, nonce| {
            let reply = engine.perform(&gate, acquire(nonce, period), WaitLimit::NONE);
            let outcome = reply.await.expect("the store answers").take().0;
            matches!(outcome, Outcome::Granted(_))
        };
        assert!(passes(&setup.worker, "first").await);
        let shut = Instant::now();
        setup.store_clock.step(step);
        while !passes(&setup.other, "second").await {
            let shut_for = shut.elapsed();
            assert!(shut_for < period + slack, "step {step}: {shut_for:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(shut.elapsed() >= period, "step {step}: too early");
    }
}
