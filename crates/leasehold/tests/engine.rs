//! What the engine promises beyond the core: combining, order, bounds, and honesty about lost answers.

mod faults;

use std::sync::Arc;
use std::time::Duration;

use faults::{Fault, Faulty};
use leasehold::core::{
    Acquire, BootTime, Event, Fence, Grant, Granted, Hash, How, Mode, Name, Operation, Outcome,
    Put, Release, Renew, Time, Update, Who,
};
use leasehold::engine::{Config, Engine, Patience, Reply};
use leasehold::host::{Host, Machine};
use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::{Error, Result};

const LONG: Duration = Duration::from_secs(600);

fn name(text: &str) -> Name {
    Name::lock(text).expect("a good name")
}

fn acquire(nonce: &str, ttl: Duration) -> Operation {
    acquire_as(nonce, ttl, Mode::Exclusive)
}

fn acquire_as(nonce: &str, ttl: Duration, mode: Mode) -> Operation {
    Operation::Acquire(Acquire {
        nonce: Hash::of(&[nonce.as_bytes()]),
        owner: nonce.into(),
        principal: None,
        ttl,
        mode,
        fence: None,
        floor: Fence::default(),
    })
}

fn release(fence: Fence) -> Operation {
    Operation::Release(Release {
        who: Who::Fence(fence),
        principal: None,
    })
}

fn update(fence: Fence, body: &str) -> Operation {
    Operation::Update(Update {
        fence,
        principal: None,
        body: Some(body.into()),
        state: None,
        then_release: false,
    })
}

fn waiting(wait: Duration) -> Patience {
    Patience { wait, within: None }
}

async fn engine(store: Arc<dyn Store>) -> Engine {
    Engine::start(store).await.expect("the store answers")
}

async fn memory() -> Engine {
    engine(Arc::new(Memory::new())).await
}

fn granted(reply: Result<Reply>) -> Grant {
    match reply.map(Reply::take) {
        Ok((Outcome::Granted(grant), Some(_))) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn take(engine: &Engine, name: &Name, nonce: &str) -> Grant {
    granted(
        engine
            .perform(name, acquire(nonce, LONG), Patience::NONE)
            .await,
    )
}

async fn outcome(engine: &Engine, name: &Name, operation: Operation) -> Outcome {
    engine
        .perform(name, operation, Patience::NONE)
        .await
        .expect("the store answers")
        .take()
        .0
}

/// Waits until so many are in line.
async fn in_line(engine: &Engine, name: &Name, count: usize) {
    while engine.waiters(name) != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_release_and_the_next_waiters_grant_are_one_write() {
    let (engine, job) = (memory().await, name("job"));
    let first = take(&engine, &job, "first").await;
    let waiter = {
        let (engine, job) = (engine.clone(), job.clone());
        tokio::spawn(async move {
            engine
                .perform(&job, acquire("second", LONG), waiting(LONG))
                .await
        })
    };
    in_line(&engine, &job, 1).await;
    let before = engine.stats();
    assert_eq!(
        outcome(&engine, &job, release(first.fence)).await,
        Outcome::Released
    );
    let second = granted(waiter.await.expect("no panic"));
    let after = engine.stats();
    assert_eq!(second.fence.get(), first.fence.get() + 1);
    assert_eq!(
        (after.swaps - before.swaps, after.writes - before.writes),
        (1, 1)
    );
}

#[tokio::test]
async fn ten_thousand_waiters_are_served_in_order_each_once() {
    let (engine, job) = (memory().await, name("job"));
    let first = take(&engine, &job, "first").await;
    let mut waiters = Vec::new();
    for number in 0..10_000u64 {
        let (theirs, job) = (engine.clone(), job.clone());
        waiters.push(tokio::spawn(async move {
            theirs
                .perform(
                    &job,
                    acquire(&format!("waiter {number}"), LONG),
                    waiting(LONG),
                )
                .await
        }));
        // A task starts when it is first polled: one after another, so that the order of arrival is known.
        tokio::task::yield_now().await;
    }
    in_line(&engine, &job, 10_000).await;

    // Every tenth goes away, and leaves nothing behind.
    for waiter in waiters.iter().step_by(10) {
        waiter.abort();
    }
    in_line(&engine, &job, 9_000).await;

    let mut fence = first.fence;
    assert_eq!(
        outcome(&engine, &job, release(fence)).await,
        Outcome::Released
    );
    for (number, waiter) in waiters.into_iter().enumerate() {
        if number % 10 == 0 {
            assert!(waiter.await.expect_err("aborted").is_cancelled());
            continue;
        }
        let grant = granted(waiter.await.expect("no panic"));
        assert_eq!(
            grant.fence.get(),
            fence.get() + 1,
            "waiter {number} was not the next to be granted"
        );
        fence = grant.fence;
        assert_eq!(
            outcome(&engine, &job, release(fence)).await,
            Outcome::Released
        );
    }
    assert_eq!(engine.waiters(&job), 0);
    assert_eq!(engine.stats().queued, 0);
}

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
            body: "x".repeat(50_000).into(),
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
async fn operations_that_arrive_during_a_write_share_the_next() {
    let store = Faulty::new(Memory::new());
    let engine = engine(store.clone()).await;
    let gate = store.hold_swaps();
    let first = {
        let engine = engine.clone();
        tokio::spawn(async move { take(&engine, &name("first"), "me").await })
    };
    gate.entered().await;
    let others: Vec<_> = (0..63)
        .map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move { take(&engine, &name(&format!("{number}")), "me").await })
        })
        .collect();
    while engine.stats().queued < 63 {
        tokio::task::yield_now().await;
    }
    gate.open();
    first.await.expect("granted");
    for other in others {
        other.await.expect("granted");
    }
    assert_eq!(engine.stats().swaps, 2);
}

#[tokio::test]
async fn a_writer_in_line_is_not_overtaken_by_readers() {
    let (engine, index) = (memory().await, name("index"));
    let shared = Mode::Shared { limit: None };
    let reader = granted(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), Patience::NONE)
            .await,
    );
    let writer = {
        let (engine, index) = (engine.clone(), index.clone());
        tokio::spawn(async move {
            engine
                .perform(&index, acquire("writer", LONG), waiting(LONG))
                .await
        })
    };
    in_line(&engine, &index, 1).await;
    let late = outcome(&engine, &index, acquire_as("late reader", LONG, shared)).await;
    assert!(matches!(late, Outcome::Held(_)), "{late:?}");
    // The reader that is there already may ask again.
    let again = granted(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), Patience::NONE)
            .await,
    );
    assert_eq!(again.granted, Granted::Again);
    assert_ne!(again.fence, reader.fence);
    outcome(&engine, &index, release(again.fence)).await;
    granted(writer.await.expect("no panic"));
}

#[tokio::test]
async fn when_the_first_in_line_leaves_the_next_need_not_wait_for_what_it_waited_for() {
    let (engine, index) = (memory().await, name("index"));
    let shared = Mode::Shared { limit: None };
    granted(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), Patience::NONE)
            .await,
    );
    let line = |nonce: &'static str, mode| {
        let (engine, index) = (engine.clone(), index.clone());
        tokio::spawn(async move {
            engine
                .perform(&index, acquire_as(nonce, LONG, mode), waiting(LONG))
                .await
        })
    };
    let writer = line("writer", Mode::Exclusive);
    in_line(&engine, &index, 1).await;
    let second = line("second reader", shared);
    in_line(&engine, &index, 2).await;
    writer.abort();
    granted(second.await.expect("no panic"));
}

#[tokio::test]
async fn a_wait_that_ends_says_who_holds_it() {
    let (engine, job) = (memory().await, name("job"));
    take(&engine, &job, "first").await;
    let refused = engine
        .perform(
            &job,
            acquire("second", LONG),
            waiting(Duration::from_millis(20)),
        )
        .await;
    match refused.expect("an answer").take().0 {
        Outcome::Held(held) => assert_eq!(&*held.owner, "first"),
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.waiters(&job), 0);
}

#[tokio::test]
async fn a_waiter_gets_it_when_the_holder_expires() {
    let (engine, job) = (memory().await, name("job"));
    let short = Duration::from_millis(50);
    let first = granted(
        engine
            .perform(&job, acquire("first", short), Patience::NONE)
            .await,
    );
    let second = granted(
        engine
            .perform(&job, acquire("second", LONG), waiting(LONG))
            .await,
    );
    assert!(
        second.acquired_at > first.expires_at,
        "granted while the first could still believe"
    );
    let stale = outcome(&engine, &job, update(first.fence, "zombie")).await;
    assert_eq!(stale, Outcome::Expired);
}

#[tokio::test]
async fn a_fresh_grant_that_nobody_takes_is_released_and_a_repeated_one_is_not() {
    let (engine, job) = (memory().await, name("job"));
    drop(
        engine
            .perform(&job, acquire("gone", LONG), Patience::NONE)
            .await
            .expect("granted"),
    );
    let mine = take(&engine, &job, "me").await;
    drop(
        engine
            .perform(&job, acquire("me", LONG), Patience::NONE)
            .await
            .expect("granted again"),
    );
    let held = outcome(&engine, &job, acquire("other", LONG)).await;
    assert!(matches!(held, Outcome::Held(_)), "{held:?}");
    assert_eq!(
        outcome(&engine, &job, release(mine.fence)).await,
        Outcome::NotHeld,
        "its fence was replaced"
    );
}

#[tokio::test]
async fn two_engines_with_waiters_on_one_name_both_get_their_turns() {
    let store = Arc::new(Memory::new());
    let engines = [engine(store.clone()).await, engine(store).await];
    let job = name("job");
    let mut workers = Vec::new();
    for (number, engine) in engines.iter().enumerate() {
        for worker in 0..8 {
            let (engine, job) = (engine.clone(), job.clone());
            workers.push(tokio::spawn(async move {
                for turn in 0..20 {
                    let nonce = format!("{number} {worker} {turn}");
                    let grant = granted(
                        engine
                            .perform(&job, acquire(&nonce, LONG), waiting(LONG))
                            .await,
                    );
                    assert_eq!(
                        outcome(&engine, &job, release(grant.fence)).await,
                        Outcome::Released
                    );
                }
            }));
        }
    }
    for worker in workers {
        worker.await.expect("every turn came");
    }
}

#[tokio::test]
async fn a_lost_answer_is_found_out_by_the_write_itself() {
    let store = Faulty::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::AppliedButLost);
    let grant = take(&engine, &job, "me").await;
    assert_eq!(
        grant.granted,
        Granted::Fresh,
        "the write had landed: it was not run again"
    );
    store.next_swap(Fault::AppliedButLost);
    assert!(matches!(
        outcome(&engine, &job, update(grant.fence, "step 1")).await,
        Outcome::Renewed(_)
    ));
    store.next_swap(Fault::AppliedButLost);
    assert_eq!(
        outcome(&engine, &job, release(grant.fence)).await,
        Outcome::Released
    );
    assert_eq!(&*take(&engine, &job, "next").await.body, "step 1");
}

#[tokio::test]
async fn a_lost_request_is_sent_again() {
    let store = Faulty::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::Lost);
    let grant = take(&engine, &job, "me").await;
    store.next_swap(Fault::Unavailable);
    assert_eq!(
        outcome(&engine, &job, release(grant.fence)).await,
        Outcome::Released
    );
    store.next_load(Fault::Unavailable);
    let renew = Operation::Renew(Renew {
        fence: grant.fence,
        principal: None,
        ttl: None,
    });
    assert_eq!(outcome(&engine, &job, renew).await, Outcome::Fenced);
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

/// A machine whose clock the test sets.
struct Set(std::sync::atomic::AtomicU64);

impl Host for Set {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

#[tokio::test]
async fn a_purged_name_goes_on_with_higher_fences() {
    let host = Arc::new(Set(0.into()));
    let epoch = Time::from_micros(1_700_000_000_000_000);
    let store = Arc::new(Memory::with_clock(host.clone(), epoch));
    let engine = Engine::start_with(store.clone(), host.clone(), Config::default())
        .await
        .expect("starts");
    let job = name("job");
    let first = take(&engine, &job, "me").await;
    outcome(&engine, &job, release(first.fence)).await;
    let purge = Operation::Purge {
        retention: Duration::from_secs(3_600),
    };
    assert_eq!(outcome(&engine, &job, purge.clone()).await, Outcome::Kept);
    host.0
        .store(2 * 3_600_000_000, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(outcome(&engine, &job, purge).await, Outcome::Purged);
    assert_eq!(
        store
            .load(std::slice::from_ref(&job))
            .await
            .expect("answers")
            .value,
        [None]
    );
    let second = take(&engine, &job, "me").await;
    assert!(
        second.fence > first.fence,
        "{} after {}",
        second.fence,
        first.fence
    );
}

#[tokio::test]
async fn a_store_in_memory_that_restarts_goes_on_with_higher_fences() {
    let job = name("job");
    let mut last = Fence::default();
    for _ in 0..5 {
        let engine = memory().await;
        for turn in 0..10 {
            let grant = take(&engine, &job, &turn.to_string()).await;
            assert!(grant.fence > last, "{} after {last}", grant.fence);
            last = grant.fence;
            outcome(&engine, &job, release(last)).await;
        }
        // A process takes longer than this to start.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn whoever_subscribes_hears_what_happens() {
    let (engine, job) = (memory().await, name("job"));
    let mut events = engine.subscribe();
    let grant = take(&engine, &job, "me").await;
    outcome(&engine, &job, update(grant.fence, "step 3")).await;
    outcome(&engine, &job, release(grant.fence)).await;
    let (fence, owner) = (grant.fence, leasehold::core::Text::from("me"));
    let how = Some(How::Released);
    for expected in [
        Event::Granted {
            fence,
            owner: owner.clone(),
        },
        Event::Renewed { fence },
        Event::Updated,
        Event::Ended { fence, owner, how },
    ] {
        let happened = events.try_recv().expect("it has happened");
        assert_eq!((happened.name, happened.event), (job.clone(), expected));
    }
}
