//! Limits of size and time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Name, Nonce, Operation, Outcome, Put, Time};
use leasehold::engine::{Config, Engine, WaitLimit};
use leasehold::host::Machine;
use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::{AcquireAllRequest, ClaimRequest, Error, ListRequest};
use tokio::time::Instant;

use crate::clock_steps::Clock;
use crate::faults::FaultyStore;
use crate::support::{
    LONG, acquire, engine, memory, name, outcome, release, take, wait_for_waiters, wait_up_to,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn number_of_waiters_is_limited() {
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
                    .perform(&job, acquire(&number.to_string(), LONG), wait_up_to(LONG))
                    .await
            })
        })
        .collect();
    wait_for_waiters(&engine, &job, 10).await;
    let refused = engine
        .perform(&job, acquire("one too many", LONG), wait_up_to(LONG))
        .await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    drop(waiters);
}

#[tokio::test]
async fn cache_is_limited_in_records_and_bytes() {
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
async fn store_in_memory_caches_few_free_names_unless_there_are_subscribers() {
    let engine = memory().await;
    let take_many = async |prefix: &str, and_release: bool| {
        for number in 0..3_000 {
            let name = name(&format!("{prefix} {number}"));
            let grant = take(&engine, &name, prefix).await;
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
async fn hanging_store_causes_an_error_within_the_timeout() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    let mine = take(&engine, &job, "me").await;
    let _gate = store.hold_swaps();
    let started = tokio::time::Instant::now();
    // Sent, and not answered: it may have happened.
    let unanswered = engine
        .perform(&job, release(mine.fence), WaitLimit::NONE)
        .await;
    assert!(
        matches!(unanswered, Err(Error::Indeterminate(_))),
        "{unanswered:?}"
    );
    let _loads = store.hold_loads();
    // Not sent: nothing happened.
    let unsent = engine
        .perform(&name("other"), release(mine.fence), WaitLimit::NONE)
        .await;
    assert!(matches!(unsent, Err(Error::Unavailable(_))), "{unsent:?}");
    let wait_limit = WaitLimit {
        wait: Duration::ZERO,
        within: Some(Duration::from_millis(100)),
    };
    let unsent_in_time = engine
        .perform(&name("third"), release(mine.fence), wait_limit)
        .await;
    assert!(
        matches!(unsent_in_time, Err(Error::Unavailable(_))),
        "{unsent_in_time:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(12),
        "{:?}",
        started.elapsed()
    );
}

/// Starts an engine in simulated time on a store that can be delayed.
async fn start_in_simulated_time() -> (Arc<FaultyStore<Memory>>, Engine) {
    let epoch = Time::from_micros(1_780_000_000_000_000);
    let store = FaultyStore::new(Memory::with_clock(Clock::new(), epoch));
    let engine = Engine::start_with(store.clone(), Clock::new(), Config::default());
    let engine = engine.await.expect("starts");
    (store, engine)
}

#[tokio::test(start_paused = true)]
async fn waiter_is_refused_only_by_an_answer_within_the_timeout() {
    let timeout = Config::default().timeout;
    for (wait, is_refused) in [(timeout - SECOND, true), (timeout + SECOND, false)] {
        let (store, engine) = start_in_simulated_time().await;
        let job = name("job");
        take(&engine, &job, "holder").await;
        let began = Instant::now();
        let waiter = tokio::spawn({
            let (engine, job) = (engine.clone(), job.clone());
            let acquire = acquire("waiter", LONG);
            async move { engine.perform(&job, acquire, wait_up_to(wait)).await }
        });
        // It is in the wait queue once the store has shown the holder. Then the store hangs.
        wait_for_waiters(&engine, &job, 1).await;
        while engine.stats().loads == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _loads = store.hold_loads();
        let answer = waiter.await.expect("no panic");
        let took = began.elapsed();
        match answer.map(|reply| reply.take().0) {
            Ok(Outcome::Held(_)) => assert!(is_refused, "by an answer that is {took:?} old"),
            Err(Error::Unavailable(_)) => assert!(!is_refused),
            other => panic!("{other:?}"),
        }
        assert!(took < wait + timeout + SECOND / 2, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_is_refused_if_the_store_answers() {
    let (_, engine) = start_in_simulated_time().await;
    let job = name("job");
    take(&engine, &job, "holder").await;
    let waiting = engine.perform(&job, acquire("waiter", LONG), wait_up_to(LONG / 2));
    let answer = waiting.await.expect("the store answers").take().0;
    assert!(matches!(answer, Outcome::Held(_)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn claim_returns_within_the_timeout_after_its_wait() {
    let timeout = Config::default().timeout;
    for wait in [Duration::ZERO, 2 * SECOND] {
        let (store, engine) = start_in_simulated_time().await;
        let put = Operation::Put(Put {
            state: "NEW".into(),
            body: None,
            nonce: None,
        });
        assert_eq!(outcome(&engine, &name("item"), put).await, Outcome::Put);
        let (finds, _swaps) = (store.hold_finds(), store.hold_swaps());
        let began = Instant::now();
        let claim = claim_waiting(wait);
        let claiming = tokio::spawn(async move { engine.claim(claim, None).await });
        // The search takes nearly the whole timeout, and the write hangs.
        tokio::time::sleep(timeout - SECOND).await;
        finds.open();
        let answer = claiming.await.expect("no panic");
        assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
        let took = began.elapsed();
        assert!(took < wait + timeout + SECOND / 2, "{took:?}");
    }
}

fn claim_waiting(wait: Duration) -> ClaimRequest {
    ClaimRequest {
        state: "NEW".into(),
        prefix: String::new(),
        limit: 1,
        ttl: LONG,
        owner: "me".into(),
        nonce: Nonce::new("mine").expect("a nonce"),
        wait,
    }
}

#[tokio::test(start_paused = true)]
async fn queued_claim_is_empty_only_if_a_search_was_empty() {
    let timeout = Config::default().timeout;
    for hangs in [false, true] {
        let (store, engine) = start_in_simulated_time().await;
        let _finds = hangs.then(|| store.hold_finds());
        let first = tokio::spawn({
            let engine = engine.clone();
            async move { engine.claim(claim_waiting(LONG), None).await }
        });
        while engine.stats().searches == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = Instant::now();
        let answer = engine.claim(claim_waiting(2 * SECOND), None).await;
        let answer = answer.map(|items| items.len());
        match hangs {
            true => assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}"),
            false => assert_eq!(answer, Ok(0)),
        }
        assert!(began.elapsed() < 2 * SECOND + timeout + SECOND / 2);
        first.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_all_returns_within_one_and_a_half_timeouts_after_its_wait() {
    let timeout = Config::default().timeout;
    for wait in [Duration::ZERO, 2 * SECOND] {
        let (store, engine) = start_in_simulated_time().await;
        let names = ["a", "b", "c", "d"].map(name);
        let request = AcquireAllRequest {
            names: names.to_vec(),
            nonce: Nonce::new("several").expect("a nonce"),
            owner: "several".into(),
            ttl: LONG,
            wait,
        };
        let began = Instant::now();
        let mut gate = store.hold_swaps();
        let mut acquiring = tokio::spawn(async move { engine.acquire_all(request, None).await });
        // Each call takes nearly the whole timeout of an operation.
        let answer = loop {
            tokio::select! {
                answer = &mut acquiring => break answer.expect("no panic"),
                () = tokio::time::sleep(timeout - SECOND) => {}
            }
            let next = store.hold_swaps();
            gate.open();
            gate = next;
        };
        assert!(answer.is_err(), "{answer:?}");
        let took = began.elapsed();
        assert!(took < wait + timeout * 3 / 2 + SECOND / 2, "{took:?}");
        gate.open();
        while holders(&*store, &names).await > 0 {
            tokio::time::sleep(SECOND).await;
        }
    }
}

/// Counts the holders of these names.
async fn holders(store: &dyn Store, names: &[Name]) -> usize {
    let loaded = store.load(names).await.expect("the store answers");
    let stored = loaded.value.iter().flatten();
    stored.map(|stored| stored.record.holders.len()).sum()
}

#[tokio::test]
async fn closing_refuses_all_waiters() {
    let (engine, job) = (memory().await, name("job"));
    take(&engine, &job, "first").await;
    let waiter = {
        let (engine, job) = (engine.clone(), job.clone());
        tokio::spawn(async move {
            engine
                .perform(&job, acquire("second", LONG), wait_up_to(LONG))
                .await
        })
    };
    wait_for_waiters(&engine, &job, 1).await;
    engine.close().await;
    let refused = waiter.await.expect("no panic");
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let late = engine
        .perform(&job, acquire("third", LONG), WaitLimit::NONE)
        .await;
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
}

#[tokio::test]
async fn concurrent_searches_load_a_limited_number_of_records() {
    let store = FaultyStore::new(Memory::new());
    let engine = engine(store.clone()).await;
    let finds = store.hold_finds();
    let list = |limit| {
        let engine = engine.clone();
        let request = ListRequest {
            limit,
            ..ListRequest::default()
        };
        tokio::spawn(async move { engine.list(request).await })
    };
    let lists: Vec<_> = [100, 50, 50, 1, 1_000, 1].map(list).into();
    while engine.stats().searches < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.stats().searches, 3, "the other searches wait");
    finds.open();
    for list in lists {
        list.await.expect("no panic").expect("the store answers");
    }
    assert_eq!(engine.stats().searches, 6);
}

#[tokio::test]
async fn claim_is_limited_in_bytes() {
    let engine = memory().await;
    let body = "x".repeat(64 * 1024);
    for number in 0..40 {
        let put = Operation::Put(Put {
            state: "NEW".into(),
            // Control characters take six bytes in JSON.
            body: Some(if number < 38 {
                body.as_str().into()
            } else {
                "\u{1}".repeat(60_000).into()
            }),
            nonce: None,
        });
        let item = name(&format!("{number:02}"));
        assert_eq!(outcome(&engine, &item, put).await, Outcome::Put);
    }
    let mut next = 0;
    for expected in [15, 15, 9, 1] {
        let claim = ClaimRequest {
            state: "NEW".into(),
            prefix: String::new(),
            limit: 100,
            ttl: LONG,
            owner: "me".into(),
            nonce: Nonce::new(format!("claim {next}")).expect("a nonce"),
            wait: Duration::ZERO,
        };
        let claimed = engine.claim(claim, None).await.expect("the store answers");
        let names = claimed.iter().map(|(name, _)| name.as_str().to_owned());
        let ordered = (next..next + expected).map(|number| format!("{number:02}"));
        assert!(names.eq(ordered), "{claimed:?}");
        next += expected;
        claimed
            .into_iter()
            .for_each(|(_, reply)| drop(reply.take()));
    }
}
