//! Who shares a commit with whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Renew, Time};
use leasehold::engine::{Config, Engine, Patience};
use leasehold::host::{Host, Machine};
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use tokio::task::JoinHandle;

use crate::support::{self, LONG, acquire, granted, name, outcome, release};

/// A clock that moves when it is told to.
struct Still(AtomicU64);

impl Still {
    fn pass(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Host for Still {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

/// A store whose commits are dear.
struct Dear(Memory);

#[async_trait]
impl Store for Dear {
    fn facts(&self) -> Facts {
        self.0.facts()
    }

    fn blocks(&self) -> bool {
        true
    }

    fn is_dear(&self) -> bool {
        true
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.0.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.0.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.0.find(query).await
    }
}

async fn start() -> (Arc<Still>, Engine) {
    let host = Arc::new(Still(AtomicU64::new(3_600_000_000)));
    let epoch = Time::from_micros(1_800_000_000_000_000);
    let store = Arc::new(Dear(Memory::with_clock(host.clone(), epoch)));
    let engine = Engine::start_with(store, host.clone(), Config::default()).await;
    (host, engine.unwrap())
}

async fn take(engine: &Engine, name: &Name, ttl: Duration) -> Fence {
    let reply = engine.perform(name, acquire("me", ttl), Patience::NONE);
    granted(reply.await).fence
}

fn renew(engine: &Engine, name: &Name, fence: Fence) -> JoinHandle<Outcome> {
    let (engine, name) = (engine.clone(), name.clone());
    let renew = Operation::Renew(Renew {
        fence,
        principal: None,
        ttl: None,
    });
    tokio::spawn(async move { outcome(&engine, &name, renew).await })
}

async fn queued(engine: &Engine, count: u64) {
    while engine.stats().queued != count {
        tokio::task::yield_now().await;
    }
}

fn is_renewed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Renewed(_))
}

#[tokio::test]
async fn renewals_that_come_soon_after_one_another_share_a_commit() {
    let (host, engine) = start().await;
    let names = ["a", "b", "c"].map(name);
    let mut fences = Vec::new();
    for name in &names {
        fences.push(take(&engine, name, LONG).await);
    }
    // The first has nobody to wait for.
    assert!(is_renewed(
        &renew(&engine, &names[0], fences[0]).await.unwrap()
    ));
    let before = engine.stats().swaps;
    let second = renew(&engine, &names[1], fences[1]);
    queued(&engine, 1).await;
    let third = renew(&engine, &names[2], fences[2]);
    queued(&engine, 2).await;
    assert_eq!(engine.stats().swaps, before);
    host.pass(Duration::from_millis(10));
    for renewal in [second, third] {
        assert!(is_renewed(&renewal.await.unwrap()));
    }
    assert_eq!(engine.stats().swaps, before + 1);
}

#[tokio::test]
async fn renewals_come_along_with_whatever_is_in_a_hurry() {
    let (_host, engine) = start().await;
    let names = ["a", "b"].map(name);
    let mut fences = Vec::new();
    for name in &names {
        fences.push(take(&engine, name, LONG).await);
    }
    assert!(is_renewed(
        &renew(&engine, &names[0], fences[0]).await.unwrap()
    ));
    let before = engine.stats().swaps;
    let patient = renew(&engine, &names[1], fences[1]);
    queued(&engine, 1).await;
    // Even if it is the same lease that is let go: in order.
    let released = outcome(&engine, &names[1], release(fences[1])).await;
    assert_eq!(released, Outcome::Released);
    assert!(is_renewed(&patient.await.unwrap()));
    assert_eq!(engine.stats().swaps, before + 1);
}

#[tokio::test]
async fn a_short_lease_is_renewed_at_once() {
    let (_host, engine) = start().await;
    let name = name("short");
    let fence = take(&engine, &name, Duration::from_millis(900)).await;
    for _ in 0..3 {
        assert!(is_renewed(&renew(&engine, &name, fence).await.unwrap()));
    }
}

#[tokio::test]
async fn names_that_are_loaded_first_share_a_commit_with_the_others() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let names = ["a", "b", "c", "d", "e"].map(name);
    let earlier = support::engine(store.clone()).await;
    for name in &names {
        let fence = take(&earlier, name, LONG).await;
        assert_eq!(
            outcome(&earlier, name, release(fence)).await,
            Outcome::Released
        );
    }
    let engine = support::engine(store).await;
    let mut fences = Vec::new();
    // After so many wrong guesses it does not guess any more that a name it has never seen is new.
    for name in &names[..4] {
        fences.push(take(&engine, name, LONG).await);
    }
    let before = engine.stats();
    let asked = vec![
        (names[0].clone(), release(fences[0])),
        (names[4].clone(), acquire("me", LONG)),
    ];
    let mut replies = engine.perform_all(asked, None).await.into_iter();
    let (released, taken) = (replies.next().unwrap(), replies.next().unwrap());
    assert_eq!(released.unwrap().take().0, Outcome::Released);
    granted(taken);
    let after = engine.stats();
    let calls = (after.loads - before.loads, after.swaps - before.swaps);
    assert_eq!(calls, (1, 1));
}
