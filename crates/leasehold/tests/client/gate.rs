//! Gates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::client::{Pass, Throttle};
use leasehold::core::Name;
use leasehold::{Error, Gated, Result};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

const MINUTE: Duration = Duration::from_secs(60);

async fn passed(gate: Throttle) -> Option<Pass> {
    gate.pass().await.expect("the store answers").passed()
}

async fn refused(gate: Throttle) -> Duration {
    let gated = gate.pass().await.expect("the store answers");
    gated.retry_after().expect("somebody passed before")
}

#[tokio::test(start_paused = true)]
async fn a_gate_is_passed_once_per_period() {
    let world = World::new().await;
    let ours = || world.client.gate("device-42").every(MINUTE);
    let theirs = || world.other.gate("device-42").every(MINUTE);
    let action = || async { Ok::<_, Error>("sent") };
    assert_eq!(ours().run(action).await, Ok(Gated::Passed("sent")));
    sleep(secs(20)).await;
    for gate in [ours(), theirs()] {
        let gated = gate.run(action).await.unwrap();
        let mut told = None;
        let gated = gated.if_throttled(|retry_after| told = Some(retry_after));
        let left = gated.retry_after().expect("it is shut");
        assert!((secs(39)..=secs(41)).contains(&left), "{left:?}");
        assert_eq!(told, Some(left));
    }
    sleep(secs(39)).await;
    refused(theirs()).await;
    sleep(ms(1_100)).await;
    assert_eq!(theirs().run(action).await, Ok(Gated::Passed("sent")));
    refused(ours()).await;
}

#[tokio::test(start_paused = true)]
async fn any_period_will_do() {
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
enum Trouble {
    Smtp,
    Leases(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Leases(error)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_action_opens_the_gate_and_hands_its_error_on() {
    let world = World::new().await;
    let gate = || world.client.gate("x").every(MINUTE);
    let failed: Result<Gated<()>, _> = gate().run(async || Err(Trouble::Smtp)).await;
    assert_eq!(failed, Err(Trouble::Smtp));
    assert!(passed(world.other.gate("x").every(MINUTE)).await.is_some());
    let wrong = world.client.gate("").every(MINUTE);
    let wrong: Result<Gated<()>, _> = wrong.run(async || Err(Trouble::Smtp)).await;
    assert!(
        matches!(wrong, Err(Trouble::Leases(Error::Invalid(_)))),
        "{wrong:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_cannot_be_opened_stays_shut_and_the_error_is_the_actions() {
    let world = World::new().await;
    let down = Error::Unavailable("down".into());
    world.faulty.once(Op::Release, Fault::Fails(down));
    let gate = world.client.gate("x").every(MINUTE);
    let failed: Result<Gated<()>, _> = gate.run(async || Err(Trouble::Smtp)).await;
    assert_eq!(failed, Err(Trouble::Smtp));
    refused(world.other.gate("x").every(MINUTE)).await;
}

#[tokio::test(start_paused = true)]
async fn a_panicked_action_opens_the_gate_and_panics_on() {
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
async fn a_cancelled_action_leaves_the_gate_shut() {
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
async fn an_action_that_fails_late_opens_nobody_elses_gate() {
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
async fn passes_are_fenced_and_opened_again_by_fence() {
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
async fn a_gate_and_a_lease_of_one_name_never_meet() {
    let world = World::new().await;
    let lease = world.client.lease("x").acquire().await.unwrap();
    let pass = passed(world.client.gate("x").every(MINUTE)).await;
    lease.release().await.unwrap();
    assert!(pass.is_some());
    refused(world.client.gate("x").every(MINUTE)).await;
    drop(world.other.lease("x").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_cache_saves_nine_calls_of_ten() {
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
async fn a_refusal_is_believed_while_the_gate_is_shut_and_three_seconds_at_most() {
    let world = World::new().await;
    let gate = |period| world.client.gate("x").every(period);
    let theirs = passed(world.other.gate("x").every(MINUTE)).await;
    refused(gate(MINUTE)).await;
    assert_eq!(theirs.expect("it was open").open_again().await, Ok(true));
    sleep(ms(2_900)).await;
    assert!(
        refused(gate(ms(10))).await > secs(56),
        "whatever the period"
    );
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    refused(world.client.gate("x").every(MINUTE).cache_for(secs(9))).await;
    sleep(ms(101)).await;
    assert!(passed(gate(secs(1))).await.is_some(), "faded");
    refused(gate(secs(1))).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 2);
    sleep(ms(1_002)).await;
    assert!(passed(gate(MINUTE)).await.is_some(), "not shut any more");
    world.suspend(MINUTE + ms(1));
    assert!(passed(gate(MINUTE)).await.is_some(), "by the boot clock");
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_cache_and_each_call_may_do_without() {
    let world = World::new().await;
    assert!(passed(world.client.gate("x").every(MINUTE)).await.is_some());
    refused(world.client.clone().gate("x").every(MINUTE)).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    refused(world.client.gate("x").every(MINUTE).cache_for(secs(0))).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 2);
    let nonces = world.faulty.nonces();
    assert_ne!(nonces[0], nonces[1], "a nonce of its own for every call");
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_before_the_gate_was_opened_again_is_not_believed_after() {
    let world = World::new().await;
    let gate = || world.client.gate("x").every(MINUTE);
    let pass = passed(gate()).await.expect("it is open");
    // The answer is older than the opening, and arrives after it.
    world.faulty.once(Op::Acquire, Fault::Slow(secs(2)));
    let slow = tokio::spawn(refused(gate().cache_for(secs(0))));
    sleep(secs(1)).await;
    assert_eq!(pass.open_again().await, Ok(true));
    slow.await.unwrap();
    assert!(passed(gate()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn calls_at_once_ask_once_and_do_not_wait_for_the_action() {
    let world = World::new().await;
    world.faulty.always(Op::Acquire, Fault::Slow(secs(1)));
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
async fn if_the_one_who_asks_goes_away_another_asks() {
    let world = World::new().await;
    world.faulty.once(Op::Acquire, Fault::Hangs);
    let gate = || world.client.gate("x").every(MINUTE);
    let asks = tokio::spawn(gate().pass());
    sleep(ms(1)).await;
    let waits: Vec<_> = (0..10).map(|_| tokio::spawn(passed(gate()))).collect();
    sleep(secs(1)).await;
    assert_eq!(world.faulty.calls(Op::Acquire), 1);
    asks.abort();
    let mut passes = 0;
    for waits in waits {
        passes += usize::from(waits.await.unwrap().is_some());
    }
    assert_eq!((passes, world.faulty.calls(Op::Acquire)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_asked_once_for_all_who_wait() {
    let world = World::new().await;
    let down = Error::Unavailable("down".into());
    let fault = Fault::FailsAfter(secs(5), down.clone());
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
async fn bad_input_is_refused_and_concerns_nobody_else() {
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
        let answer = gate.pass().await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    let gate_x = Name::gate("x").unwrap();
    assert_eq!(world.other.leases().show(&gate_x).await, Ok(None));
    world.faulty.once(Op::Acquire, Fault::Delayed(secs(1)));
    let wrong = tokio::spawn(gate("x", ms(0)).pass());
    sleep(ms(1)).await;
    assert!(passed(gate("x", MINUTE)).await.is_some());
    assert!(matches!(wrong.await.unwrap(), Err(Error::Invalid(_))));
}
