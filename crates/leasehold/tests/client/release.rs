//! Letting go.

use leasehold::Error;
use leasehold::core::EndReason;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op, Seen};
use crate::{World, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_free_and_never_renewed_again() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    sleep(secs(10)).await;
    let (fence, lost) = (lease.fence(), lease.lost());
    assert_eq!(lease.release().await, Ok(true));
    assert_eq!(lost.await, Error::Fenced, "for those who still look");
    let renewals = world.faulty.calls(Op::Renew);
    let next = world.other.lease("x").acquire().await.unwrap();
    let last = next.last().unwrap();
    assert_eq!((last.fence, last.how), (fence, EndReason::Released));
    sleep(secs(60)).await;
    assert_eq!(world.faulty.calls(Op::Renew), renewals);
    assert_eq!(world.faulty.calls(Op::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_ends_before_the_release() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Renew, Fault::Slow(ms(300)));
    while world.faulty.calls(Op::Renew) == 0 {
        sleep(ms(10)).await;
    }
    lease.release().await.unwrap();
    let seen = world.faulty.seen();
    let tail = [
        Seen::Called(Op::Renew),
        Seen::Answered(Op::Renew),
        Seen::Called(Op::Release),
        Seen::Answered(Op::Release),
    ];
    assert!(seen.ends_with(&tail), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_does_not_hold_the_release_up_for_long() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.always(Op::Renew, Fault::Hangs);
    sleep(secs(11)).await;
    let released = timeout(secs(2), lease.release()).await;
    assert_eq!(released, Ok(Ok(true)));
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_loss_says_so() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Renew, Fault::Hangs);
    lease.lost().await;
    sleep(secs(3)).await;
    let _next = world.other.lease("x").acquire().await.unwrap();
    assert_eq!(lease.release().await, Ok(false));
    assert_eq!(world.holders("x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_that_the_store_still_knows_is_released() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    // Renewed in the store, but nobody here hears of it.
    let unheard = Error::Indeterminate("no answer".into());
    world.faulty.always(Op::Renew, Fault::Unanswered(unheard));
    lease.lost().await;
    assert_eq!(world.holders("x").await, 1);
    drop(lease);
    world.client.close().await;
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_releases() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    drop(lease);
    world.client.close().await;
    assert_eq!(world.holders("x").await, 0);
    sleep(secs(60)).await;
    assert_eq!(world.faulty.calls(Op::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_lease_and_client_releases() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.once(Op::Release, Fault::Slow(secs(1)));
    let World { client, other, .. } = world;
    drop(client);
    drop(lease);
    let next = other.lease("x").wait(secs(3)).acquire().await;
    assert!(next.is_ok(), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_cancelled_is_done_in_the_background() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.once(Op::Release, Fault::Hangs);
    timeout(ms(10), lease.release()).await.unwrap_err();
    world.client.close().await;
    assert_eq!(world.holders("x").await, 0);
}

fn multi_threaded() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_time().build().unwrap()
}

/// As with `#[tokio::main]`: the runtime ends as soon as the block has ended and has dropped its variables.
#[test]
fn guards_dropped_at_the_end_of_main_are_released_before_the_runtime_ends() {
    let seen = multi_threaded().block_on(async {
        let world = World::new().await;
        let faulty = world.faulty.clone();
        faulty.always(Op::Release, Fault::Slow(ms(50)));
        let _lease = world.client.lease("x").acquire().await.unwrap();
        let _both = world.client.lease_all(["a", "b"]).acquire().await.unwrap();
        faulty
    });
    let answered = |seen: &&Seen| **seen == Seen::Answered(Op::Release);
    assert_eq!(seen.seen().iter().filter(answered).count(), 3);
}

#[test]
fn a_release_that_hangs_does_not_keep_a_program_from_ending() {
    multi_threaded().block_on(async {
        let world = World::new().await;
        world.faulty.always(Op::Release, Fault::Hangs);
        let _lease = world.client.lease("x").acquire().await.unwrap();
    });
}

#[test]
fn dropping_outside_a_runtime_is_fine() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (client, lease) = runtime.block_on(async {
        let client = leasehold::connect("memory:").await.unwrap();
        let lease = client.lease("x").acquire().await.unwrap();
        (client, lease)
    });
    drop(lease);
    runtime.block_on(async {
        client.close().await;
    });
    let client = runtime.block_on(leasehold::connect("memory:")).unwrap();
    let lease = runtime.block_on(client.lease("x").acquire()).unwrap();
    drop(runtime);
    drop(lease);
}
