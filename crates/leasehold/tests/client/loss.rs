//! The loss of a lease: in time, once, and for good.

use leasehold::core::{GrantKind, Text};
use leasehold::{BreakRequest, Error};
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op, Seen};
use crate::{World, ms, name, secs};

#[tokio::test(start_paused = true)]
async fn hung_renewals_fire_just_before_the_deadline() {
    for ttl in [ms(50), ms(500), secs(3), secs(30), secs(600)] {
        let world = World::new().await;
        let lease = world.lease("x", ttl).await;
        sleep(ttl * 3).await;
        world.faulty.always(Op::Renew, Fault::Hangs);
        let contender = world.other.lease("x").wait_forever();
        let contender = tokio::spawn(contender.acquire());
        assert_eq!(lease.lost().await, Error::Expired);
        let (now, deadline) = (world.now(), lease.deadline());
        assert!(now <= deadline, "{ttl:?}: too late");
        assert!(deadline.since(now) <= ms(6), "{ttl:?}: too early");
        assert!(!contender.is_finished(), "{ttl:?}: two at once");
        let next = contender.await.unwrap().unwrap();
        assert!(next.fence() > lease.fence());
        assert!(next.acquired_at() >= lease.expires_at());
    }
}

#[tokio::test(start_paused = true)]
async fn one_hung_batch_does_not_keep_the_others_from_their_time() {
    let world = World::new().await;
    let short = world.lease("a", secs(2)).await;
    let long = world.lease("b", secs(20)).await;
    world.faulty.always(Op::Renew, Fault::Hangs);
    short.lost().await;
    assert!(world.now() <= short.deadline());
    assert!(!long.is_lost());
    long.lost().await;
    assert!(world.now() <= long.deadline());
}

#[tokio::test(start_paused = true)]
async fn lost_has_any_number_of_awaiters() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    let awaiters: Vec<_> = (0..10).map(|_| tokio::spawn(lease.lost())).collect();
    for _ in 0..10 {
        timeout(ms(100), lease.lost()).await.unwrap_err();
    }
    world.faulty.always(Op::Renew, Fault::Hangs);
    for awaiter in awaiters {
        assert_eq!(awaiter.await.unwrap(), Error::Expired);
    }
    assert_eq!(lease.lost().await, Error::Expired);
    assert!(lease.is_lost());
    assert!(lease.time_left().is_zero());
}

#[tokio::test(start_paused = true)]
async fn the_same_nonce_elsewhere_takes_the_lease_over() {
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
    assert!(!lease.is_lost(), "the zombie's release is not the lease's");
}

#[tokio::test(start_paused = true)]
async fn a_broken_lease_is_lost_at_the_next_renewal() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let how = BreakRequest::Force {
        fence: None,
        reason: "test".into(),
        now: false,
    };
    let broke = world.other.leases().break_lease(&name("x"), how).await;
    broke.unwrap();
    assert_eq!(lease.renew().await, Err(Error::Fenced));
    assert_eq!(lease.lost().await, Error::Fenced);
    assert_eq!(
        world.holders("x").await,
        1,
        "in the way, until it is known to be gone"
    );
    assert_eq!(lease.release().await, Ok(true));
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_revives_nothing() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let deadline = lease.deadline();
    world.faulty.always(Op::Renew, Fault::Slow(ms(50)));
    while world.faulty.calls(Op::Renew) == 0 {
        sleep(ms(1)).await;
    }
    // The answer comes before any timer has noticed. It is good for more time than has passed, but between the old
    // deadline and now nobody had a right to believe.
    world.suspend(secs(25));
    let reason = timeout(secs(1), lease.lost()).await;
    assert_eq!(reason, Ok(Error::Expired));
    assert_eq!(world.faulty.seen().last(), Some(&Seen::Answered(Op::Renew)));
    assert_eq!(lease.deadline(), deadline);
    sleep(secs(10)).await;
    assert!(lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lease_does_not_survive_its_machine_s_sleep() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let lost = tokio::spawn(lease.lost());
    world.suspend(secs(20));
    sleep(secs(1)).await;
    assert!(!lease.is_lost(), "woken in time, and renewed at once");
    world.suspend(secs(40));
    let reason = timeout(ms(100), lost)
        .await
        .expect("at the next look at the clock");
    assert_eq!(reason.unwrap(), Error::Expired);
}

#[tokio::test(start_paused = true)]
async fn the_clock_is_believed_before_the_timer_has_fired() {
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
    world.faulty.once(Op::Renew, Fault::Slow(secs(2)));
    let early = tokio::join!(lease.renew(), async {
        sleep(secs(1)).await;
        lease.update("overtakes the renewal").await.unwrap();
        lease.deadline()
    });
    assert_eq!(early.0, Ok(()));
    assert_eq!(lease.deadline(), early.1);
}

#[tokio::test(start_paused = true)]
async fn an_update_never_outlasts_the_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Renew, Fault::Hangs);
    world.faulty.always(Op::Update, Fault::Hangs);
    let update = lease.update("may have arrived").await;
    assert!(matches!(update, Err(Error::Indeterminate(_))), "{update:?}");
    assert!(world.now() <= lease.deadline());
    assert_eq!(lease.body(), Text::default());
}

#[test]
fn leases_do_not_outlive_the_runtime_that_renews_them() {
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
    assert!(lease.is_lost(), "nobody can renew it any more");
    drop(lease);
    drop(client);
}
