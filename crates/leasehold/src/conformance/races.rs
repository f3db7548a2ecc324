//! Mutual exclusion of many concurrent workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Fence;
use tokio::sync::Barrier;

use super::context::{
    LONG_TTL, TIMEOUT, TestContext, acquire, body, boot_time, complete, release, run_concurrently,
};
use crate::{AcquireOutcome, Leases, UpdateOutcome};

super::define_cases!(Leases:
    lease_protects_a_counter,
    no_increment_of_a_body_is_lost,
    fence_stops_a_zombie,
    one_of_many_contenders_is_granted,
    shared_lease_never_exceeds_its_limit,
);

const WORKERS: u64 = 8;
const ROUNDS: u64 = 4;

/// Returns the leases of each worker. The workers use two services in turn.
async fn services(context: &TestContext) -> Vec<Arc<dyn Leases>> {
    let pair = [context.leases().await, context.leases().await];
    (0..WORKERS as usize)
        .map(|worker| pair[worker % 2].clone())
        .collect()
}

/// Adds one without atomicity: an addition of another worker in between is overwritten.
async fn add_one(counter: &AtomicU64) {
    let count = counter.load(Ordering::SeqCst);
    tokio::task::yield_now().await;
    counter.store(count + 1, Ordering::SeqCst);
}

async fn lease_protects_a_counter(context: TestContext) {
    let (name, counter) = (context.name("counter"), Arc::new(AtomicU64::new(0)));
    let tasks = services(&context).await.into_iter().map(|leases| {
        let (name, counter) = (name.clone(), counter.clone());
        async move {
            for _ in 0..ROUNDS {
                let hold = acquire(&name, "worker")
                    .wait(TIMEOUT)
                    .expect_granted(&*leases)
                    .await;
                add_one(&counter).await;
                assert!(
                    boot_time() < hold.deadline,
                    "the lease did not expire meanwhile"
                );
                assert!(release(&*leases, &name, hold.grant.fence).await);
            }
        }
    });
    run_concurrently(tasks).await;
    assert_eq!(counter.load(Ordering::SeqCst), WORKERS * ROUNDS);

    // The control: without the lease, workers that read at the same time lose all but one addition.
    let (counter, barrier) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(Barrier::new(WORKERS as usize)),
    );
    let tasks = (0..WORKERS).map(|_| {
        let (counter, barrier) = (counter.clone(), barrier.clone());
        async move {
            let count = counter.load(Ordering::SeqCst);
            barrier.wait().await;
            counter.store(count + 1, Ordering::SeqCst);
        }
    });
    run_concurrently(tasks).await;
    assert!(
        counter.load(Ordering::SeqCst) < WORKERS,
        "the control loses additions"
    );
}

async fn no_increment_of_a_body_is_lost(context: TestContext) {
    let name = context.name("counter");
    let tasks = services(&context).await.into_iter().map(|leases| {
        let name = name.clone();
        async move {
            for _ in 0..ROUNDS {
                let grant = acquire(&name, "worker")
                    .wait(TIMEOUT)
                    .expect_granted(&*leases)
                    .await
                    .grant;
                let count: u64 = grant.body.parse().unwrap_or(0);
                let next = (count + 1).to_string();
                let done = complete(&*leases, &name, grant.fence, &next).await;
                assert_eq!(done, Ok(UpdateOutcome::Completed));
            }
        }
    });
    run_concurrently(tasks).await;
    let total = body(&*context.leases().await, &name).await;
    assert_eq!(&*total, (WORKERS * ROUNDS).to_string());
}

/// A resource that checks fences: it knows nothing about leases but the highest fence so far.
#[derive(Default)]
struct Resource {
    highest: Fence,
    written: Vec<&'static str>,
}

impl Resource {
    fn write(&mut self, fence: Fence, what: &'static str) -> bool {
        let accepted = fence >= self.highest;
        if accepted {
            self.highest = fence;
            self.written.push(what);
        }
        accepted
    }
}

async fn fence_stops_a_zombie(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let short = context.short_ttl().await;
    let mut resource = Resource::default();
    let mut unchecked = Vec::new();
    // The first holder is paused, and does not check its deadline afterwards.
    let zombie = acquire(&name, "zombie")
        .ttl(short)
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(resource.write(zombie.fence, "zombie's first"));
    let holder = acquire(&name, "holder")
        .wait(TIMEOUT)
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(resource.write(holder.fence, "holder's"));
    unchecked.push("holder's");
    assert!(!resource.write(zombie.fence, "zombie's second"));
    unchecked.push("zombie's second");
    assert!(resource.write(holder.fence, "holder's again"));
    assert_eq!(
        resource.written,
        ["zombie's first", "holder's", "holder's again"]
    );
    assert!(
        complete(&*leases, &name, zombie.fence, "zombie's")
            .await
            .is_err()
    );
    // The control: a resource without the check accepts the zombie's late write.
    assert_eq!(unchecked.last(), Some(&"zombie's second"));
}

async fn one_of_many_contenders_is_granted(context: TestContext) {
    for round in 0..4 {
        let (name, start) = (
            context.name(&round.to_string()),
            Arc::new(Barrier::new(WORKERS as usize)),
        );
        let tasks = services(&context).await.into_iter().map(|leases| {
            let (name, start) = (name.clone(), start.clone());
            async move {
                start.wait().await;
                acquire(&name, "worker")
                    .send(&*leases)
                    .await
                    .expect("the store answers")
            }
        });
        let answers = run_concurrently(tasks).await;
        let granted = answers
            .iter()
            .filter(|answer| matches!(answer, AcquireOutcome::Granted(_)));
        assert_eq!(granted.count(), 1, "in round {round}");
    }
}

async fn shared_lease_never_exceeds_its_limit(context: TestContext) {
    const LIMIT: u64 = 3;
    let (name, inside) = (context.name("gpu"), Arc::new(AtomicU64::new(0)));
    let tasks = services(&context).await.into_iter().map(|leases| {
        let (name, inside) = (name.clone(), inside.clone());
        async move {
            for _ in 0..ROUNDS {
                let request = acquire(&name, "worker")
                    .shared(Some(LIMIT as u16))
                    .ttl(LONG_TTL);
                let grant = request.wait(TIMEOUT).expect_granted(&*leases).await.grant;
                let others = inside.fetch_add(1, Ordering::SeqCst);
                assert!(others < LIMIT, "{others} others are inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(release(&*leases, &name, grant.fence).await);
            }
        }
    });
    run_concurrently(tasks).await;
}
