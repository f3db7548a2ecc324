//! The engine on a SQLite file: group commit, hand-offs in one write, and fairness between engines.
#![cfg(feature = "sqlite")]

mod sqlite_support;

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{
    Acquire, Fence, Grant, Hash, HolderRef, Mode, Name, Operation, Outcome, Release,
};
use leasehold::engine::{Engine, WaitLimit};
use leasehold::{Leases as _, RenewRequest};
use sqlite_support::{Folder, open};
use tokio::sync::Barrier;

const LONG: Duration = Duration::from_secs(600);

async fn acquire(engine: &Engine, name: &Name, nonce: &str, wait: Duration) -> Grant {
    let acquire = Operation::Acquire(Acquire {
        nonce: Hash::of(&[nonce.as_bytes()]),
        owner: nonce.into(),
        principal: None,
        ttl: LONG,
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    });
    let limit = WaitLimit {
        wait,
        within: Some(LONG),
    };
    match engine
        .perform(name, acquire, limit)
        .await
        .expect("the store answers")
        .take()
    {
        (Outcome::Granted(grant), Some(_)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn release(engine: &Engine, name: &Name, fence: Fence) {
    let release = Operation::Release(Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    });
    let limit = WaitLimit {
        wait: Duration::ZERO,
        within: Some(LONG),
    };
    let outcome = engine
        .perform(name, release, limit)
        .await
        .expect("the store answers")
        .take()
        .0;
    assert_eq!(outcome, Outcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_of_64_clients_are_batched_into_commits() {
    let folder = Folder::new();
    let engine = Engine::start(open(folder.join("leases.db")).await)
        .await
        .expect("starts");
    let barrier = Arc::new(Barrier::new(64));
    let clients: Vec<_> = (0..64)
        .map(|client| {
            let (engine, barrier) = (engine.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                for cycle in 0..50 {
                    let name =
                        Name::lock(format!("client {client} cycle {cycle}")).expect("a valid name");
                    let grant = acquire(&engine, &name, "me", Duration::ZERO).await;
                    release(&engine, &name, grant.fence).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    let stats = engine.stats();
    assert_eq!(stats.operations, 64 * 50 * 2);
    let per_commit = stats.operations as f64 / stats.swaps as f64;
    assert!(
        per_commit >= 8.0,
        "{per_commit:.1} operations per commit: {stats:?}"
    );
}

#[tokio::test]
async fn batch_of_64_renewals_is_one_commit() {
    let folder = Folder::new();
    let engine = Engine::start(open(folder.join("leases.db")).await)
        .await
        .expect("starts");
    let mut renewals = Vec::new();
    for number in 0..64 {
        let name = Name::lock(format!("job {number}")).expect("a valid name");
        let grant = acquire(&engine, &name, "me", Duration::ZERO).await;
        renewals.push(RenewRequest {
            name,
            fence: grant.fence,
            ttl: None,
        });
    }
    let before = engine.stats();
    for renewed in engine.renew(renewals, LONG).await {
        renewed.expect("renewed");
    }
    let after = engine.stats();
    assert_eq!(
        (after.swaps - before.swaps, after.loads - before.loads),
        (1, 0)
    );
}

#[tokio::test]
async fn hand_off_to_a_waiter_is_one_write() {
    let folder = Folder::new();
    let engine = Engine::start(open(folder.join("leases.db")).await)
        .await
        .expect("starts");
    let job = Name::lock("job").expect("a valid name");
    let mut holder = acquire(&engine, &job, "first", Duration::ZERO).await;
    let waiters: Vec<_> = (0..8)
        .map(|number| {
            let (engine, job) = (engine.clone(), job.clone());
            tokio::spawn(async move { acquire(&engine, &job, &number.to_string(), LONG).await })
        })
        .collect();
    while engine.waiters(&job) < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = engine.stats().writes;
    for waiter in waiters {
        release(&engine, &job, holder.fence).await;
        holder = waiter.await.expect("granted");
    }
    assert_eq!(engine.stats().writes - before, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_with_waiters_on_one_name_take_turns() {
    let folder = Folder::new();
    let job = Name::lock("job").expect("a valid name");
    let (sender, mut turns) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..2 {
        let engine = Engine::start(open(folder.join("leases.db")).await)
            .await
            .expect("starts");
        // Each engine always has waiters of its own, so without fairness it could serve only them.
        for worker in 0..4 {
            let (engine, job, sender) = (engine.clone(), job.clone(), sender.clone());
            tokio::spawn(async move {
                for turn in 0.. {
                    let nonce = format!("{number} {worker} {turn}");
                    let grant = acquire(&engine, &job, &nonce, LONG).await;
                    if sender.send((grant.fence, number)).is_err() {
                        return;
                    }
                    release(&engine, &job, grant.fence).await;
                }
            });
        }
    }
    let (mut last, mut changes) = ((Fence::default(), 0), 0);
    for _ in 0..20_000 {
        let turn = turns.recv().await.expect("the workers are running");
        assert!(turn.0 > last.0, "fence {} after {}", turn.0, last.0);
        changes += usize::from(turn.1 != last.1);
        last = turn;
        if changes == 10 {
            return;
        }
    }
    panic!("in 20,000 grants, the lease passed between engines only {changes} times");
}
