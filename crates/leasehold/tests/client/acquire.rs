//! Acquisition of leases.

use leasehold::core::GrantKind;
use leasehold::{Client, Error};
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

#[tokio::test(start_paused = true)]
async fn held_lease_is_refused_or_waited_for() {
    let world = World::new().await;
    let builder = world.other.lease("x").owner("web-1").ttl(secs(30));
    let lease = builder.acquire().await.unwrap();
    let refused = world.client.lease("x").acquire().await;
    let Err(Error::Held(held)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(&*held.owner, "web-1");
    let start = world.now();
    let refused = world.client.lease("x").wait(secs(5)).acquire().await;
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    let waited = world.now().since(start);
    assert!((secs(5)..secs(6)).contains(&waited), "{waited:?}");

    let waiter = tokio::spawn(world.client.lease("x").wait(secs(60)).acquire());
    sleep(secs(10)).await;
    lease.release().await.unwrap();
    let next = timeout(secs(1), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(next.granted(), GrantKind::Fresh);
}

#[tokio::test(start_paused = true)]
async fn long_wait_is_split_into_requests_with_the_same_nonce() {
    let world = World::new().await;
    world.faulty.limit_waits(secs(20));
    let lease = world.other.lease("x").acquire().await.unwrap();
    let start = world.now();
    let refused = world.client.lease("x").wait(secs(50)).acquire().await;
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    let waited = world.now().since(start);
    assert!((secs(50)..secs(51)).contains(&waited), "{waited:?}");
    let earlier = world.faulty.nonces().len();
    let waiter = tokio::spawn(world.client.lease("x").wait_forever().acquire());
    sleep(secs(90)).await;
    lease.release().await.unwrap();
    let next = timeout(secs(1), waiter).await.unwrap().unwrap().unwrap();
    assert!(!next.is_lost());
    let nonces = world.faulty.nonces().split_off(earlier);
    assert_eq!(nonces.len(), 5);
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]));
}

#[tokio::test(start_paused = true)]
async fn every_acquisition_has_its_own_nonce() {
    let world = World::new().await;
    let _a = world.client.lease("a").acquire().await.unwrap();
    let _b = world.client.lease("b").acquire().await.unwrap();
    let nonces = world.faulty.nonces();
    assert_ne!(nonces[0], nonces[1]);
}

#[tokio::test(start_paused = true)]
async fn grant_that_arrives_after_its_deadline_is_requested_again() {
    let world = World::new().await;
    world
        .faulty
        .once(Op::Acquire, Fault::DelayResponse(secs(2)));
    let lease = world.lease("x", secs(2)).await;
    let nonces = world.faulty.nonces();
    assert_eq!((nonces.len(), &nonces[0]), (2, &nonces[1]));
    assert!(lease.time_left() > secs(1));
    assert_eq!(world.holders("x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn ttl_shorter_than_the_response_time_is_an_error() {
    let world = World::new().await;
    world
        .faulty
        .always(Op::Acquire, Fault::DelayResponse(secs(2)));
    let refused = world.client.lease("x").ttl(secs(2)).acquire().await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let next = world.other.lease("x").acquire().await;
    assert!(next.is_ok(), "no lease is left behind");
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiter_leaves_nothing_behind() {
    let world = World::new().await;
    let lease = world.other.lease("x").acquire().await.unwrap();
    let waiter = world.client.lease("x").wait(secs(60)).acquire();
    timeout(secs(5), waiter).await.unwrap_err();
    lease.release().await.unwrap();
    sleep(secs(1)).await;
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn caller_that_presents_its_fence_keeps_it() {
    let world = World::new().await;
    let builder = world.client.lease("x").nonce("mine");
    let lease = builder.clone().acquire().await.unwrap();
    let again = builder.fence(lease.fence()).acquire().await.unwrap();
    assert_eq!(again.granted(), GrantKind::Kept);
    assert_eq!(again.fence(), lease.fence());
}

#[tokio::test(start_paused = true)]
async fn shared_leases_are_granted_up_to_the_limit() {
    let world = World::new().await;
    let acquire = || world.client.lease("x").shared(2).acquire();
    let (a, b) = (acquire().await.unwrap(), acquire().await.unwrap());
    assert_ne!(a.fence(), b.fence());
    let third = acquire().await;
    assert!(matches!(third, Err(Error::Held(_))), "{third:?}");
    let other_limit = world.other.lease("x").shared(None).acquire().await;
    assert!(
        matches!(other_limit, Err(Error::Invalid(_))),
        "{other_limit:?}"
    );
    a.release().await.unwrap();
    drop(acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_refused_and_change_nothing() {
    let world = World::new().await;
    let lease = |name: &str| world.client.lease(name);
    for builder in [
        lease(""),
        lease("line\nbreak"),
        lease(&"x".repeat(513)),
        lease("x").nonce(""),
        lease("x").nonce("n".repeat(65)),
        lease("x").ttl(ms(0)),
        lease("x").ttl(secs(24 * 3600 + 1)),
        lease("x").owner("o".repeat(129)),
        lease("x").shared(0),
    ] {
        let refused = builder.acquire().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test]
async fn urls_without_a_known_store_are_refused() {
    for url in ["nothing", "nosuch:thing", "memory:here"] {
        let refused = leasehold::connect(url).await;
        assert!(
            matches!(refused, Err(Error::Invalid(_))),
            "{url}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn default_owner_is_this_process() {
    let client: Client = leasehold::connect("memory:").await.unwrap();
    let _lease = client.lease("x").acquire().await.unwrap();
    let refused = client.lease("x").acquire().await;
    let Err(Error::Held(held)) = refused else {
        panic!("{refused:?}");
    };
    assert!(held.owner.ends_with(&format!(":{}", std::process::id())));
    client.close().await;
}
