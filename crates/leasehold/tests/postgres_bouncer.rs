//! PostgreSQL behind PgBouncer in transaction mode, where each statement may meet another session.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::time::Duration;

use leasehold::core::Outcome;
use leasehold::engine::Engine;
use leasehold::store::Swapped;
use postgres_support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_lose_nothing_in_sessions_that_are_never_the_same() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = server.behind_pgbouncer().await.unwrap();
    let ground = Ground::on(bouncer.port());
    let names: Vec<_> = (0..4).map(|n| name(&format!("counter {n}"))).collect();
    let first = ground.open().await;
    let zeros = names.iter().map(|name| create(name, record(1, "0")));
    first.swap(zeros.collect()).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (store, names) = (ground.open().await, names.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                let mut left = names.clone();
                while !left.is_empty() {
                    let loaded = store.load(&left).await.unwrap().value;
                    let batch = left.iter().zip(loaded).map(|(name, stored)| {
                        let stored = stored.unwrap();
                        let count: u32 = stored.record.body.parse().unwrap();
                        replace(name, &stored, record(1, &(count + 1).to_string()))
                    });
                    let swapped = store.swap(batch.collect()).await.unwrap().value;
                    let mut answers = swapped.into_iter();
                    left.retain(|_| !matches!(answers.next(), Some(Swapped::Written { .. })));
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for stored in first.load(&names).await.unwrap().value {
        assert_eq!(&*stored.unwrap().record.body, "48");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_take_turns_through_it() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = server.behind_pgbouncer().await.unwrap();
    let ground = Ground::on(bouncer.port());
    let name = name("turns");
    let mut tasks = Vec::new();
    for engine in 0..3 {
        let engine_on = Engine::start(ground.open().await).await.unwrap();
        let name = name.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..4 {
                let nonce = format!("{engine} {round}");
                let fence = grant(&engine_on, &name, &nonce, Duration::from_secs(60)).await;
                assert_eq!(
                    release(&engine_on, &name, fence).await,
                    Ok(Outcome::Released)
                );
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
