//! Everything is bounded, in size and in time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Operation, Outcome, Put};
use leasehold::engine::{Config, Engine, Patience};
use leasehold::host::Machine;
use leasehold::store::memory::Memory;

use crate::faults::Faulty;
use crate::support::{
    LONG, acquire, engine, in_line, memory, name, outcome, release, take, waiting,
};

#[tokio::test]
async fn lines_and_queues_are_bounded() {
    let mut config = Config::default();
    config.waiters = 10;
    let engine = Engine::start_with(Arc::new(Memory::new()), Machine::shared(), config)
        .await
        .expect("starts");
    let job = name("job");
    let _held = take(&engine, &job, "first").await;
    let waiters: Vec<_> = (0..10)
        .map(|number| {
            let (engine, job) = (engine.clone(), job.clone());
            tokio::spawn(async move {
                engine
                    .perform(&job, acquire(&number.to_string(), LONG), waiting(LONG))
                    .await
            })
        })
        .collect();
    in_line(&engine, &job, 10).await;
    let refused = engine
        .perform(&job, acquire("one too many", LONG), waiting(LONG))
        .await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    drop(waiters);
}

#[tokio::test]
async fn the_cache_is_bounded_in_records_and_bytes() {
    let mut config = Config::default();
    (config.cache, config.cache_bytes) = (100, 1_000_000);
    let engine = Engine::start_with(Arc::new(Memory::new()), Machine::shared(), config)
        .await
        .expect("starts");
    for number in 0..1_000 {
        let put = Operation::Put(Put {
            state: "NEW".into(),
            body: Some("x".repeat(50_000).into()),
            nonce: None,
        });
        assert_eq!(
            outcome(&engine, &name(&format!("item {number}")), put).await,
            Outcome::Put
        );
    }
    assert!(engine.stats().cached <= 20, "{:?}", engine.stats());
    for number in 0..1_000 {
        take(&engine, &name(&format!("lock {number}")), "me").await;
    }
    assert!(engine.stats().cached <= 100, "{:?}", engine.stats());
}

#[tokio::test]
async fn of_a_store_in_memory_few_free_names_are_remembered_until_somebody_watches() {
    let engine = memory().await;
    let take_many = async |who: &str, and_release: bool| {
        for number in 0..3_000 {
            let name = name(&format!("{who} {number}"));
            let grant = take(&engine, &name, who).await;
            if and_release {
                outcome(&engine, &name, release(grant.fence)).await;
            }
        }
        engine.stats().cached
    };
    assert_eq!(take_many("free", true).await, 128);
    assert_eq!(take_many("held", false).await, 3_128);
    let _events = engine.subscribe();
    assert_eq!(take_many("watched", true).await, 6_128);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_gives_an_error_in_bounded_time() {
    let store = Faulty::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    let mine = take(&engine, &job, "me").await;
    let _gate = store.hold_swaps();
    let started = tokio::time::Instant::now();
    // Sent, and never answered: it may have happened.
    let unanswered = engine
        .perform(&job, release(mine.fence), Patience::NONE)
        .await;
    assert!(
        matches!(unanswered, Err(Error::Indeterminate(_))),
        "{unanswered:?}"
    );
    let _loads = store.hold_loads();
    // Never sent: nothing happened.
    let unsent = engine
        .perform(&name("other"), release(mine.fence), Patience::NONE)
        .await;
    assert!(matches!(unsent, Err(Error::Unavailable(_))), "{unsent:?}");
    let patience = Patience {
        wait: Duration::ZERO,
        within: Some(Duration::from_millis(100)),
    };
    let hurried = engine
        .perform(&name("third"), release(mine.fence), patience)
        .await;
    assert!(matches!(hurried, Err(Error::Unavailable(_))), "{hurried:?}");
    assert!(
        started.elapsed() < Duration::from_secs(12),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn closing_answers_everybody_in_line() {
    let (engine, job) = (memory().await, name("job"));
    take(&engine, &job, "first").await;
    let waiter = {
        let (engine, job) = (engine.clone(), job.clone());
        tokio::spawn(async move {
            engine
                .perform(&job, acquire("second", LONG), waiting(LONG))
                .await
        })
    };
    in_line(&engine, &job, 1).await;
    engine.close().await;
    let refused = waiter.await.expect("no panic");
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let late = engine
        .perform(&job, acquire("third", LONG), Patience::NONE)
        .await;
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
}
