//! The loss of leases.

use leasehold::core::{GrantKind, Text};
use leasehold::{BreakRequest, Error};
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op, TraceEvent};
use crate::{World, ms, name, secs};

#[tokio::test(start_paused = true)]
async fn lost_completes_just_before_the_deadline_if_renewals_hang() {
    for ttl in [ms(50), ms(500), secs(3), secs(30), secs(600)] {
        let world = World::new().await;
        let lease = world.lease("x", ttl).await;
        sleep(ttl * 3).await;
        world.faulty.always(Op::Renew, Fault::Hang);
        let contender = world.other.lease("x").wait_forever();
        let contender = tokio::spawn(contender.acquire());
        assert_eq!(lease.lost().await, Error::Expired);
        let (now, deadline) = (world.now(), lease.deadline());
        assert!(now <= deadline, "{ttl:?}: too late");
        assert!(deadline.since(now) <= ms(6), "{ttl:?}: too early");
        assert!(!contender.is_finished(), "{ttl:?}: two holders at once");
        let next = contender.await.unwrap().unwrap();
        assert!(next.fence() > lease.fence());
        assert!(next.acquired_at() >= lease.expires_at());
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_batch_does_not_delay_the_expiry_of_other_leases() {
    let world = World::new().await;
    let short = world.lease("a", secs(2)).await;
    let long = world.lease("b", secs(20)).await;
    world.faulty.always(Op::Renew, Fault::Hang);
    short.lost().await;
    assert!(world.now() <= short.deadline());
    assert!(!long.is_lost());
    long.lost().await;
    assert!(world.now() <= long.deadline());
}

#[tokio::test(start_paused = true)]
async fn lost_can_be_awaited_any_number_of_times() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    let awaiters: Vec<_> = (0..10).map(|_| tokio::spawn(lease.lost())).collect();
    for _ in 0..10 {
        timeout(ms(100), lease.lost()).await.unwrap_err();
    }
    world.faulty.always(Op::Renew, Fault::Hang);
    for awaiter in awaiters {
        assert_eq!(awaiter.await.unwrap(), Error::Expired);
    }
    assert_eq!(lease.lost().await, Error::Expired);
    assert!(lease.is_lost());
    assert!(lease.time_left().is_zero());
}

#[tokio::test(start_paused = true)]
async fn lease_granted_again_by_the_same_nonce_is_lost_to_the_earlier_holder() {
    let world = World::new().await;
    let builder = world.client.lease("x").nonce("mine").ttl(secs(30));
    let zombie = builder.acquire().await.unwrap();
    let builder = world.other.lease("x").nonce("mine").ttl(secs(30));
    let lease = builder.acquire().await.unwrap();
    assert_eq!(lease.granted(), GrantKind::Again);
    assert!(lease.fence() > zombie.fence());
    let reason = timeout(secs(11), zombie.lost()).await;
    assert_eq!(reason, Ok(Error::Fenced), "at its next renewal");
    drop(zombie);
    world.client.close().await;
    sleep(secs(60)).await;
    assert!(!lease.is_lost(), "the zombie's release does not affect it");
}

#[tokio::test(start_paused = true)]
async fn broken_lease_is_lost_at_the_next_renewal() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let request = BreakRequest::Force {
        fence: None,
        reason: "test".into(),
        now: false,
    };
    let broken = world.other.leases().break_lease(&name("x"), request).await;
    broken.unwrap();
    assert_eq!(lease.renew().await, Err(Error::Fenced));
    assert_eq!(lease.lost().await, Error::Fenced);
    assert_eq!(
        world.holders("x").await,
        1,
        "it blocks others until it expires or releases"
    );
    assert_eq!(lease.release().await, Ok(true));
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn late_response_does_not_revive_a_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let deadline = lease.deadline();
    world.faulty.always(Op::Renew, Fault::DelayResponse(ms(50)));
    while world.faulty.calls(Op::Renew) == 0 {
        sleep(ms(1)).await;
    }
    // The response arrives before any timer fires. It would extend the lease beyond the present time, but the old deadline
    // has passed.
    world.suspend(secs(25));
    let reason = timeout(secs(1), lease.lost()).await;
    assert_eq!(reason, Ok(Error::Expired));
    assert_eq!(
        world.faulty.trace().last(),
        Some(&TraceEvent::Response(Op::Renew))
    );
    assert_eq!(lease.deadline(), deadline);
    sleep(secs(10)).await;
    assert!(lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn lease_expires_while_the_machine_is_suspended() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let lost = tokio::spawn(lease.lost());
    world.suspend(secs(20));
    sleep(secs(1)).await;
    assert!(
        !lease.is_lost(),
        "resumed before the deadline, and renewed at once"
    );
    world.suspend(secs(40));
    let reason = timeout(ms(100), lost)
        .await
        .expect("lost at the next check of the clock");
    assert_eq!(reason.unwrap(), Error::Expired);
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_lost_before_the_timer_has_fired() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.suspend(secs(4));
    assert!(lease.is_lost());
    assert_eq!(lease.update("too late").await, Err(Error::Expired));
    assert_eq!(world.faulty.calls(Op::Update), 0);
    assert_eq!(lease.lost().await, Error::Expired);
}

#[tokio::test(start_paused = true)]
async fn deadlines_never_move_back() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.once(Op::Renew, Fault::DelayResponse(secs(2)));
    let early = tokio::join!(lease.renew(), async {
        sleep(secs(1)).await;
        lease.update("overtakes the renewal").await.unwrap();
        lease.deadline()
    });
    assert_eq!(early.0, Ok(()));
    assert_eq!(lease.deadline(), early.1);
}

#[tokio::test(start_paused = true)]
async fn update_ends_by_the_deadline_of_the_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Renew, Fault::Hang);
    world.faulty.always(Op::Update, Fault::Hang);
    let update = lease.update("may have arrived").await;
    assert!(matches!(update, Err(Error::Indeterminate(_))), "{update:?}");
    assert!(world.now() <= lease.deadline());
    assert_eq!(lease.body(), Text::default());
}

#[test]
fn leases_are_lost_when_their_runtime_is_dropped() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let first = runtime().unwrap();
    let (client, lease) = first.block_on(async {
        let client = leasehold::connect("memory:").await.unwrap();
        let lease = client.lease("x").acquire().await.unwrap();
        (client, lease)
    });
    drop(first);
    assert!(lease.is_lost(), "it can no longer be renewed");
    drop(lease);
    drop(client);
}
