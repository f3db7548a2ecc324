//! Renewal in the background.

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
async fn a_short_lease_is_kept_for_many_ttls() {
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
async fn it_is_renewed_at_about_a_third_of_the_ttl() {
    let world = World::new().await;
    let _lease = world.lease("x", secs(30)).await;
    sleep(secs(8)).await;
    assert_eq!(world.faulty.calls(Op::Renew), 0);
    sleep(secs(3)).await;
    assert_eq!(world.faulty.calls(Op::Renew), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_until_one_succeeds() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    for error in [down(), Error::Indeterminate("who knows".into())] {
        world.faulty.always(Op::Renew, Fault::Fails(error));
        sleep(secs(2)).await;
        assert!(!lease.is_lost());
        world.faulty.always(Op::Renew, Fault::None);
        sleep(secs(9)).await;
        assert!(!lease.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn even_the_shortest_lease_has_a_second_chance() {
    let world = World::new().await;
    let lease = world.lease("x", ms(90)).await;
    for _ in 0..20 {
        world.faulty.once(Op::Renew, Fault::Fails(down()));
        sleep(ms(200)).await;
        assert!(!lease.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_not_late_beside_a_long_one() {
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
async fn a_hung_attempt_is_given_up_in_time_for_another() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Renew, Fault::Hangs);
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_hung_attempt_is_given_up_soon_however_long_the_ttl() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3600)).await;
    let deadline = lease.deadline();
    world.faulty.once(Op::Renew, Fault::Hangs);
    sleep(secs(1200 + 30)).await;
    assert!(lease.deadline() > deadline + secs(1000));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_not_hammered() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.always(Op::Renew, Fault::Fails(down()));
    assert_eq!(lease.lost().await, Error::Expired);
    let calls = world.faulty.calls(Op::Renew);
    assert!((5..100).contains(&calls), "{calls} attempts");
}

#[tokio::test(start_paused = true)]
async fn one_renewal_at_a_time() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Renew, Fault::Slow(ms(100)));
    let renewals = async { tokio::join!(lease.renew(), lease.renew(), lease.renew()) };
    let (a, b, c) = renewals.await;
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    sleep(secs(30)).await;
    let seen = world.faulty.seen();
    use crate::faults::Seen::{Answered, Called};
    let renewals: Vec<_> = seen
        .iter()
        .filter(|seen| matches!(seen, Called(Op::Renew) | Answered(Op::Renew)))
        .collect();
    for pair in renewals.chunks_exact(2) {
        assert_eq!(pair, [&Called(Op::Renew), &Answered(Op::Renew)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_asked_for_extends_the_lease_and_tells_of_failure() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let (deadline, watch) = (lease.deadline(), lease.watch_deadline());
    sleep(secs(5)).await;
    lease.renew().await.unwrap();
    assert!(lease.deadline() >= deadline + secs(5));
    assert!(watch.has_changed().unwrap());
    assert_eq!(*watch.borrow(), lease.deadline());
    world.faulty.once(Op::Renew, Fault::Fails(down()));
    assert_eq!(lease.renew().await, Err(down()));
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_waiting_for_a_renewal_does_no_harm() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Renew, Fault::Slow(ms(500)));
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
        // Taken one by one, over twenty seconds: they find together by themselves.
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
async fn idle_leases_cost_no_wake_ups_of_their_own() {
    let world = World::new().await;
    let mut leases = Vec::new();
    for i in 0..10_000 {
        let builder = world.client.lease(format!("x{i}")).ttl(secs(24 * 3600));
        leases.push(builder.acquire().await.unwrap());
    }
    // Everything that happens looks at the clock, so this counts it.
    let before = world.host.looks.load(Ordering::Relaxed);
    sleep(secs(600)).await;
    let looks = world.host.looks.load(Ordering::Relaxed) - before;
    // The nearest timer is checked ten times a second, whatever the number of leases.
    assert!(looks < 600 * 10 * 10, "{looks} looks at the clock");
}

#[tokio::test(start_paused = true)]
async fn the_keeper_goes_with_the_last_lease() {
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
        "nothing is left of the client"
    );
}
