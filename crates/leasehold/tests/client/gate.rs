//! Gates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::client::{Pass, Throttle};
use leasehold::core::Name;
use leasehold::{Error, GateOutcome, Result};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

const MINUTE: Duration = Duration::from_secs(60);

async fn passed(gate: Throttle) -> Option<Pass> {
    gate.pass().await.expect("the store responds").passed()
}

async fn refused(gate: Throttle) -> Duration {
    let gated = gate.pass().await.expect("the store responds");
    gated.retry_after().expect("another call has passed")
}

#[tokio::test(start_paused = true)]
async fn gate_is_passed_once_per_period() {
    let world = World::new().await;
    let ours = || world.client.gate("device-42").every(MINUTE);
    let theirs = || world.other.gate("device-42").every(MINUTE);
    let action = || async { Ok::<_, Error>("sent") };
    assert_eq!(ours().run(action).await, Ok(GateOutcome::Passed("sent")));
    sleep(secs(20)).await;
    for gate in [ours(), theirs()] {
        let gated = gate.run(action).await.unwrap();
        let mut notified = None;
        let gated = gated.if_throttled(|retry_after| notified = Some(retry_after));
        let left = gated.retry_after().expect("it is shut");
        assert!((secs(39)..=secs(41)).contains(&left), "{left:?}");
        assert_eq!(notified, Some(left));
    }
    sleep(secs(39)).await;
    refused(theirs()).await;
    sleep(ms(1_100)).await;
    assert_eq!(theirs().run(action).await, Ok(GateOutcome::Passed("sent")));
    refused(ours()).await;
}

#[tokio::test(start_paused = true)]
async fn periods_from_a_millisecond_to_ten_years_are_accurate() {
    let world = World::new().await;
    for period in [ms(1), ms(999), secs(3600), secs(10 * 365 * 24 * 3600)] {
        let gate = || world.client.gate(format!("{period:?}")).every(period);
        assert!(passed(gate()).await.is_some());
        assert!(refused(gate()).await <= period + ms(1));
        sleep(period - ms(1).min(period / 2)).await;
        refused(gate()).await;
        sleep(ms(3)).await;
        assert!(passed(gate()).await.is_some(), "{period:?}");
    }
}

#[derive(Debug, PartialEq)]
enum AlertError {
    Smtp,
    Leases(Error),
}

impl From<Error> for AlertError {
    fn from(error: Error) -> Self {
        Self::Leases(error)
    }
}

#[tokio::test(start_paused = true)]
async fn failed_action_opens_the_gate_and_its_error_is_returned() {
    let world = World::new().await;
    let gate = || world.client.gate("x").every(MINUTE);
    let failed: Result<GateOutcome<()>, _> = gate().run(async || Err(AlertError::Smtp)).await;
    assert_eq!(failed, Err(AlertError::Smtp));
    assert!(passed(world.other.gate("x").every(MINUTE)).await.is_some());
    let invalid = world.client.gate("").every(MINUTE);
    let refused: Result<GateOutcome<()>, _> = invalid.run(async || Err(AlertError::Smtp)).await;
    assert!(
        matches!(refused, Err(AlertError::Leases(Error::Invalid(_)))),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn gate_that_cannot_be_opened_stays_shut_and_the_actions_error_is_returned() {
    let world = World::new().await;
    let down = Error::Unavailable("down".into());
    world.faulty.once(Op::Release, Fault::Fail(down));
    let gate = world.client.gate("x").every(MINUTE);
    let failed: Result<GateOutcome<()>, _> = gate.run(async || Err(AlertError::Smtp)).await;
    assert_eq!(failed, Err(AlertError::Smtp));
    refused(world.other.gate("x").every(MINUTE)).await;
}

#[tokio::test(start_paused = true)]
async fn panicking_action_opens_the_gate_and_its_panic_is_resumed() {
    let world = World::new().await;
    let gate = world.client.gate("x").every(MINUTE);
    let panics = tokio::spawn(gate.clone().run(|| async {
        sleep(secs(1)).await;
        if true {
            panic!("the mailer broke");
        }
        Ok::<_, Error>(())
    }));
    let panic = panics.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"the mailer broke"));
    assert!(passed(gate).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn cancelled_action_leaves_the_gate_shut() {
    let world = World::new().await;
    let gate = || world.client.gate("x").every(MINUTE);
    let hangs = gate().run(std::future::pending::<Result<()>>);
    timeout(secs(10), hangs).await.unwrap_err();
    refused(world.other.gate("x").every(MINUTE)).await;
    assert_eq!(world.faulty.calls(Op::Release), 0);
    sleep(secs(51)).await;
    assert!(passed(gate()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn action_that_fails_after_the_period_does_not_open_a_later_pass() {
    let world = World::new().await;
    let theirs = world.other.gate("x").every(MINUTE);
    let late = world.client.gate("x").every(secs(1)).run(|| async {
        sleep(secs(2)).await;
        let theirs = passed(theirs.clone()).await;
        assert!(theirs.is_some(), "the period is over");
        Err::<(), _>(Error::Unavailable("late".into()))
    });
    late.await.unwrap_err();
    refused(theirs).await;
}

#[tokio::test(start_paused = true)]
async fn passes_have_increasing_fences_and_only_the_latest_can_open_the_gate() {
    let world = World::new().await;
    let gate = || world.client.gate("x").every(MINUTE);
    let first = passed(gate()).await.expect("it is open");
    assert_eq!(first.shut_until().since(first.passed_at()), MINUTE);
    let fence = first.fence();
    assert_eq!(first.open_again().await, Ok(true));
    let second = passed(gate()).await.expect("it is open again");
    assert!(second.fence() > fence);
    sleep(MINUTE + ms(1)).await;
    drop(passed(gate()).await.expect("the period is over"));
    assert_eq!(second.open_again().await, Ok(false));
    refused(gate()).await;
}

#[tokio::test(start_paused = true)]
async fn gate_and_lease_of_the_same_name_are_independent() {
    let world = World::new().await;
    let lease = world.client.lease("x").acquire().await.unwrap();
    let pass = passed(world.client.gate("x").every(MINUTE)).await;
    lease.release().await.unwrap();
    assert!(pass.is_some());
    refused(world.client.gate("x").every(MINUTE)).await;
    drop(world.other.lease("x").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn cache_saves_at_least_nine_of_ten_calls() {
    let world = World::new().await;
    let mut counts = Vec::new();
    for cache_for in [secs(0), Throttle::CACHE_FOR] {
        let (before, mut passes) = (world.faulty.calls(Op::Acquire), 0);
        for _ in 0..2_000 {
            let gate = world.client.gate(format!("{cache_for:?}")).every(MINUTE);
            passes += usize::from(passed(gate.cache_for(cache_for)).await.is_some());
            sleep(ms(100)).await;
        }
        assert_eq!(passes, 4, "in 200 seconds");
        counts.push(world.faulty.calls(Op::Acquire) - before);
    }
    assert_eq!(counts[0], 2_000);
    assert!(counts[1] * 10 <= counts[0], "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn refusal_is_cached_until_the_gate_opens_and_for_three_seconds_at_most() {
    let world = World::new().await;
    let gate = |period| world.client.gate("x").every(period);
    let theirs = passed(world.other.gate("x").every(MINUTE)).await;
    refused(gate(MINUTE)).await;
    assert_eq!(theirs.expect("it was open").open_again().await, Ok(true));
    sleep(ms(2_900)).await;
    assert!(
        refused(gate(ms(10))).await > secs(56),
        "regardless of the period of the call"
    );
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    refused(world.client.gate("x").every(MINUTE).cache_for(secs(9))).await;
    sleep(ms(101)).await;
    assert!(
        passed(gate(secs(1))).await.is_some(),
        "the cache entry has expired"
    );
    refused(gate(secs(1))).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 2);
    sleep(ms(1_002)).await;
    assert!(passed(gate(MINUTE)).await.is_some(), "the gate is open");
    world.suspend(MINUTE + ms(1));
    assert!(passed(gate(MINUTE)).await.is_some(), "by the boot clock");
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_cache_and_a_call_can_bypass_it() {
    let world = World::new().await;
    assert!(passed(world.client.gate("x").every(MINUTE)).await.is_some());
    refused(world.client.clone().gate("x").every(MINUTE)).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    refused(world.client.gate("x").every(MINUTE).cache_for(secs(0))).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 2);
    let nonces = world.faulty.nonces();
    assert_ne!(nonces[0], nonces[1], "each call has its own nonce");
}

#[tokio::test(start_paused = true)]
async fn response_to_a_request_sent_before_a_reopening_is_not_cached() {
    let world = World::new().await;
    let gate = || world.client.gate("x").every(MINUTE);
    let pass = passed(gate()).await.expect("it is open");
    // The request is sent before the gate is opened, and its response arrives after.
    world
        .faulty
        .once(Op::Acquire, Fault::DelayResponse(secs(2)));
    let slow = tokio::spawn(refused(gate().cache_for(secs(0))));
    sleep(secs(1)).await;
    assert_eq!(pass.open_again().await, Ok(true));
    slow.await.unwrap();
    assert!(passed(gate()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_request_and_do_not_wait_for_the_action() {
    let world = World::new().await;
    world
        .faulty
        .always(Op::Acquire, Fault::DelayResponse(secs(1)));
    let (end, runs) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let calls = (0..100).map(|_| {
        let (end, runs) = (end.clone(), runs.clone());
        tokio::spawn(
            world
                .client
                .gate("x")
                .every(MINUTE)
                .run(move || async move {
                    runs.fetch_add(1, Ordering::Relaxed);
                    end.notified().await;
                    Err::<(), _>(Error::Unavailable("the mailer is down".into()))
                }),
        )
    });
    let calls: Vec<_> = calls.collect();
    sleep(ms(1_100)).await;
    assert_eq!(calls.iter().filter(|call| call.is_finished()).count(), 99);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    end.notify_one();
    let (mut refused, mut failed) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Ok(gated) => refused += usize::from(gated.retry_after() > Some(secs(58))),
            Err(_) => failed += 1,
        }
    }
    assert_eq!((refused, failed), (99, 1));
    assert!(passed(world.client.gate("x").every(MINUTE)).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_is_repeated_by_another_call() {
    let world = World::new().await;
    world.faulty.once(Op::Acquire, Fault::Hang);
    let gate = || world.client.gate("x").every(MINUTE);
    let first = tokio::spawn(gate().pass());
    sleep(ms(1)).await;
    let waiters: Vec<_> = (0..10).map(|_| tokio::spawn(passed(gate()))).collect();
    sleep(secs(1)).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    first.abort();
    let mut passes = 0;
    for waiter in waiters {
        passes += usize::from(waiter.await.unwrap().is_some());
    }
    assert_eq!((passes, world.faulty.calls(Op::Acquire)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn error_of_an_unavailable_store_is_shared_by_concurrent_calls() {
    let world = World::new().await;
    let down = Error::Unavailable("down".into());
    let fault = Fault::FailAfter(secs(5), down.clone());
    world.faulty.always(Op::Acquire, fault);
    let calls: Vec<_> = (0..10)
        .map(|_| tokio::spawn(world.client.gate("x").every(MINUTE).pass()))
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().err(), Some(down.clone()));
    }
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    world.faulty.always(Op::Acquire, Fault::None);
    assert!(passed(world.client.gate("x").every(MINUTE)).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_refused_and_do_not_affect_other_calls() {
    let world = World::new().await;
    let gate = |id: &str, period| world.client.gate(id).every(period);
    for gate in [
        gate("", MINUTE),
        gate("line\nbreak", MINUTE),
        gate("x", ms(0)),
        gate("x", Duration::from_micros(999)),
        gate("x", Duration::MAX),
        gate("x", MINUTE).owner("o".repeat(129)),
    ] {
        let refused = gate.pass().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let gate_x = Name::gate("x").unwrap();
    assert_eq!(world.other.leases().show(&gate_x).await, Ok(None));
    world.faulty.once(Op::Acquire, Fault::DelayRequest(secs(1)));
    let invalid = tokio::spawn(gate("x", ms(0)).pass());
    sleep(ms(1)).await;
    assert!(passed(gate("x", MINUTE)).await.is_some());
    assert!(matches!(invalid.await.unwrap(), Err(Error::Invalid(_))));
}
