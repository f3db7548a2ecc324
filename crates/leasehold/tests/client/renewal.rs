//! Renewals in the background.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold::Error;
use tokio::time::sleep;

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

fn down() -> Error {
    Error::Unavailable("down, for a test".into())
}

#[tokio::test(start_paused = true)]
async fn short_lease_is_renewed_for_many_ttls() {
    let world = World::new().await;
    let lease = world.lease("x", ms(300)).await;
    let (fence, expires_at) = (lease.fence(), lease.expires_at());
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
    assert_eq!(lease.fence(), fence);
    assert!(lease.expires_at() > expires_at + secs(29));
    assert!(lease.time_left() > ms(100));
    let refused = world.other.lease("x").acquire().await;
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn lease_is_renewed_after_about_a_third_of_its_ttl() {
    let world = World::new().await;
    let _lease = world.lease("x", secs(30)).await;
    sleep(secs(8)).await;
    assert_eq!(world.faulty.calls(Op::Renew), 0);
    sleep(secs(3)).await;
    assert_eq!(world.faulty.calls(Op::Renew), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_retried_until_one_succeeds() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    for error in [down(), Error::Indeterminate("no response".into())] {
        world.faulty.always(Op::Renew, Fault::Fail(error));
        sleep(secs(2)).await;
        assert!(!lease.is_lost());
        world.faulty.always(Op::Renew, Fault::None);
        sleep(secs(9)).await;
        assert!(!lease.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn shortest_lease_survives_one_failed_renewal() {
    let world = World::new().await;
    let lease = world.lease("x", ms(90)).await;
    for _ in 0..20 {
        world.faulty.once(Op::Renew, Fault::Fail(down()));
        sleep(ms(200)).await;
        assert!(!lease.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn long_lease_does_not_delay_the_renewal_of_a_short_one() {
    let world = World::new().await;
    let _long = world.lease("long", secs(600)).await;
    for _ in 0..20 {
        sleep(ms(17)).await;
        let short = world.lease("short", ms(60)).await;
        sleep(ms(100)).await;
        assert!(!short.is_lost());
        short.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_attempt_times_out_early_enough_for_another() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Renew, Fault::Hang);
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn hanging_attempt_times_out_soon_even_with_a_long_ttl() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3600)).await;
    let deadline = lease.deadline();
    world.faulty.once(Op::Renew, Fault::Hang);
    sleep(secs(1200 + 30)).await;
    assert!(lease.deadline() > deadline + secs(1000));
}

#[tokio::test(start_paused = true)]
async fn unavailable_store_is_retried_with_backoff() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.always(Op::Renew, Fault::Fail(down()));
    assert_eq!(lease.lost().await, Error::Expired);
    let calls = world.faulty.calls(Op::Renew);
    assert!((5..100).contains(&calls), "{calls} attempts");
}

#[tokio::test(start_paused = true)]
async fn renewals_of_one_lease_never_overlap() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world
        .faulty
        .always(Op::Renew, Fault::DelayResponse(ms(100)));
    let renewals = async { tokio::join!(lease.renew(), lease.renew(), lease.renew()) };
    let (a, b, c) = renewals.await;
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    sleep(secs(30)).await;
    let trace = world.faulty.trace();
    use crate::faults::TraceEvent::{Request, Response};
    let renewals: Vec<_> = trace
        .iter()
        .filter(|event| matches!(event, Request(Op::Renew) | Response(Op::Renew)))
        .collect();
    for pair in renewals.chunks_exact(2) {
        assert_eq!(pair, [&Request(Op::Renew), &Response(Op::Renew)]);
    }
}

#[tokio::test(start_paused = true)]
async fn explicit_renewal_extends_the_lease_or_returns_the_error() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let (deadline, watch) = (lease.deadline(), lease.watch_deadline());
    sleep(secs(5)).await;
    lease.renew().await.unwrap();
    assert!(lease.deadline() >= deadline + secs(5));
    assert!(watch.has_changed().unwrap());
    assert_eq!(*watch.borrow(), lease.deadline());
    world.faulty.once(Op::Renew, Fault::Fail(down()));
    assert_eq!(lease.renew().await, Err(down()));
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn cancelled_renewal_does_not_lose_the_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Renew, Fault::DelayResponse(ms(500)));
    tokio::time::timeout(ms(10), lease.renew())
        .await
        .unwrap_err();
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn many_leases_are_renewed_in_few_calls() {
    let world = World::new().await;
    let mut leases = Vec::new();
    for i in 0..1000 {
        let builder = world.client.lease(format!("x{i}")).ttl(secs(30));
        leases.push(builder.acquire().await.unwrap());
        // Acquired one by one, over twenty seconds: later they are renewed in common batches.
        sleep(ms(20)).await;
    }
    let before = world.faulty.batches().len();
    sleep(secs(300)).await;
    assert!(leases.iter().all(|lease| !lease.is_lost()));
    let batches = &world.faulty.batches()[before..];
    assert!(batches.iter().all(|batch| *batch <= 256));
    let renewed: usize = batches.iter().sum();
    assert!(
        (1000 * 300 / 30..1000 * 300 / 6).contains(&renewed),
        "{renewed}"
    );
    assert!(
        batches.len() <= renewed / 50,
        "{} calls for {renewed}",
        batches.len()
    );
}

#[tokio::test(start_paused = true)]
async fn idle_leases_need_no_wake_ups_of_their_own() {
    let world = World::new().await;
    let mut leases = Vec::new();
    for i in 0..10_000 {
        let builder = world.client.lease(format!("x{i}")).ttl(secs(24 * 3600));
        leases.push(builder.acquire().await.unwrap());
    }
    // Each activity of the keeper reads the clock, so this counts them.
    let before = world.host.clock_reads.load(Ordering::Relaxed);
    sleep(secs(600)).await;
    let clock_reads = world.host.clock_reads.load(Ordering::Relaxed) - before;
    // The nearest timer is checked ten times a second, whatever the number of leases.
    assert!(
        clock_reads < 600 * 10 * 10,
        "{clock_reads} reads of the clock"
    );
}

#[tokio::test(start_paused = true)]
async fn keeper_ends_after_the_last_lease() {
    let world = World::new().await;
    for _ in 0..3 {
        let lease = world.lease("x", secs(3)).await;
        sleep(secs(10)).await;
        lease.release().await.unwrap();
    }
    let (faulty, calls) = (world.faulty.clone(), world.faulty.calls(Op::Renew));
    drop(world);
    sleep(secs(10)).await;
    assert_eq!(faulty.calls(Op::Renew), calls);
    assert_eq!(
        Arc::strong_count(&faulty),
        1,
        "all parts of the client were dropped"
    );
}
