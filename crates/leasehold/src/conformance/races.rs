//! What leases are for: many workers, and something that only one may touch at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Fence;
use tokio::sync::Barrier;

use super::bench::{Bench, LONG, PATIENT, ask, body, boot, complete, release, side_by_side};
use crate::{Acquired, Leases, Updated};

super::promises!(Leases:
    a_lease_protects_a_counter,
    a_body_counts_without_loss,
    a_fence_stops_a_zombie,
    one_of_many_gets_it,
    a_semaphore_never_has_one_too_many,
);

const WORKERS: u64 = 8;
const ROUNDS: u64 = 4;

/// Two doors, many workers through each.
async fn doors(bench: &Bench) -> Vec<Arc<dyn Leases>> {
    let doors = [bench.leases().await, bench.leases().await];
    (0..WORKERS as usize)
        .map(|worker| doors[worker % 2].clone())
        .collect()
}

/// Adds one as a program without atomic additions does: whoever else comes in between is overwritten.
async fn add_one(counter: &AtomicU64) {
    let count = counter.load(Ordering::SeqCst);
    tokio::task::yield_now().await;
    counter.store(count + 1, Ordering::SeqCst);
}

async fn a_lease_protects_a_counter(bench: Bench) {
    let (name, counter) = (bench.name("counter"), Arc::new(AtomicU64::new(0)));
    let tasks = doors(&bench).await.into_iter().map(|leases| {
        let (name, counter) = (name.clone(), counter.clone());
        async move {
            for _ in 0..ROUNDS {
                let hold = ask(&name, "worker").wait(PATIENT).granted(&*leases).await;
                add_one(&counter).await;
                assert!(boot() < hold.deadline, "it held all the while");
                assert!(release(&*leases, &name, hold.grant.fence).await);
            }
        }
    });
    side_by_side(tasks).await;
    assert_eq!(counter.load(Ordering::SeqCst), WORKERS * ROUNDS);

    // The control: without the lease, workers that read at the same time lose all additions but one.
    let (counter, together) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(Barrier::new(WORKERS as usize)),
    );
    let tasks = (0..WORKERS).map(|_| {
        let (counter, together) = (counter.clone(), together.clone());
        async move {
            let count = counter.load(Ordering::SeqCst);
            together.wait().await;
            counter.store(count + 1, Ordering::SeqCst);
        }
    });
    side_by_side(tasks).await;
    assert!(
        counter.load(Ordering::SeqCst) < WORKERS,
        "the race is no race"
    );
}

async fn a_body_counts_without_loss(bench: Bench) {
    let name = bench.name("counter");
    let tasks = doors(&bench).await.into_iter().map(|leases| {
        let name = name.clone();
        async move {
            for _ in 0..ROUNDS {
                let grant = ask(&name, "worker")
                    .wait(PATIENT)
                    .granted(&*leases)
                    .await
                    .grant;
                let count: u64 = grant.body.parse().unwrap_or(0);
                let next = (count + 1).to_string();
                let done = complete(&*leases, &name, grant.fence, &next).await;
                assert_eq!(done, Ok(Updated::Completed));
            }
        }
    });
    side_by_side(tasks).await;
    let total = body(&*bench.leases().await, &name).await;
    assert_eq!(&*total, (WORKERS * ROUNDS).to_string());
}

/// A resource that knows nothing of leases but the highest fence that it has seen.
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

async fn a_fence_stops_a_zombie(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let short = bench.short().await;
    let mut resource = Resource::default();
    let mut unchecked = Vec::new();
    // The first holder is paused, and does not look at its deadline when it comes back.
    let zombie = ask(&name, "zombie")
        .ttl(short)
        .granted(&*leases)
        .await
        .grant;
    assert!(resource.write(zombie.fence, "zombie's first"));
    let holder = ask(&name, "holder")
        .wait(PATIENT)
        .granted(&*leases)
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
    // The control: a resource that does not check takes the zombie's late write.
    assert_eq!(unchecked.last(), Some(&"zombie's second"));
}

async fn one_of_many_gets_it(bench: Bench) {
    for round in 0..4 {
        let (name, start) = (
            bench.name(&round.to_string()),
            Arc::new(Barrier::new(WORKERS as usize)),
        );
        let tasks = doors(&bench).await.into_iter().map(|leases| {
            let (name, start) = (name.clone(), start.clone());
            async move {
                start.wait().await;
                ask(&name, "worker").of(&*leases).await.expect("an answer")
            }
        });
        let answers = side_by_side(tasks).await;
        let granted = answers
            .iter()
            .filter(|answer| matches!(answer, Acquired::Granted(_)));
        assert_eq!(granted.count(), 1, "in round {round}");
    }
}

async fn a_semaphore_never_has_one_too_many(bench: Bench) {
    const LIMIT: u64 = 3;
    let (name, inside) = (bench.name("gpu"), Arc::new(AtomicU64::new(0)));
    let tasks = doors(&bench).await.into_iter().map(|leases| {
        let (name, inside) = (name.clone(), inside.clone());
        async move {
            for _ in 0..ROUNDS {
                let asked = ask(&name, "worker").shared(Some(LIMIT as u16)).ttl(LONG);
                let grant = asked.wait(PATIENT).granted(&*leases).await.grant;
                let others = inside.fetch_add(1, Ordering::SeqCst);
                assert!(others < LIMIT, "{others} others are inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(release(&*leases, &name, grant.fence).await);
            }
        }
    });
    side_by_side(tasks).await;
}
