//! Releases.

use leasehold::Error;
use leasehold::core::EndReason;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op, TraceEvent};
use crate::{World, ms, secs};

#[tokio::test(start_paused = true)]
async fn released_lease_is_free_and_never_renewed() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    sleep(secs(10)).await;
    let (fence, lost) = (lease.fence(), lease.lost());
    assert_eq!(lease.release().await, Ok(true));
    assert_eq!(
        lost.await,
        Error::Fenced,
        "callers that still await it are notified"
    );
    let renewals = world.faulty.calls(Op::Renew);
    let next = world.other.lease("x").acquire().await.unwrap();
    let last = next.last().unwrap();
    assert_eq!((last.fence, last.how), (fence, EndReason::Released));
    sleep(secs(60)).await;
    assert_eq!(world.faulty.calls(Op::Renew), renewals);
    assert_eq!(world.faulty.calls(Op::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn release_waits_for_a_pending_renewal() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world
        .faulty
        .always(Op::Renew, Fault::DelayResponse(ms(300)));
    while world.faulty.calls(Op::Renew) == 0 {
        sleep(ms(10)).await;
    }
    lease.release().await.unwrap();
    let trace = world.faulty.trace();
    let tail = [
        TraceEvent::Request(Op::Renew),
        TraceEvent::Response(Op::Renew),
        TraceEvent::Request(Op::Release),
        TraceEvent::Response(Op::Release),
    ];
    assert!(trace.ends_with(&tail), "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_renewal_delays_a_release_only_briefly() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.always(Op::Renew, Fault::Hang);
    sleep(secs(11)).await;
    let released = timeout(secs(2), lease.release()).await;
    assert_eq!(released, Ok(Ok(true)));
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn release_of_a_lost_lease_returns_false() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Renew, Fault::Hang);
    lease.lost().await;
    sleep(secs(3)).await;
    let _next = world.other.lease("x").acquire().await.unwrap();
    assert_eq!(lease.release().await, Ok(false));
    assert_eq!(world.holders("x").await, 1);
}

#[tokio::test(start_paused = true)]
async fn lost_lease_that_is_still_held_in_the_store_is_released() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    // Renewed in the store, but the responses are lost.
    let no_response = Error::Indeterminate("no response".into());
    world
        .faulty
        .always(Op::Renew, Fault::LoseResponse(no_response));
    lease.lost().await;
    assert_eq!(world.holders("x").await, 1);
    drop(lease);
    world.client.close().await;
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_lease_is_released() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    drop(lease);
    world.client.close().await;
    assert_eq!(world.holders("x").await, 0);
    sleep(secs(60)).await;
    assert_eq!(world.faulty.calls(Op::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_lease_is_released_after_its_client_was_dropped() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world
        .faulty
        .once(Op::Release, Fault::DelayResponse(secs(1)));
    let World { client, other, .. } = world;
    drop(client);
    drop(lease);
    let next = other.lease("x").wait(secs(3)).acquire().await;
    assert!(next.is_ok(), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_release_is_completed_in_the_background() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.once(Op::Release, Fault::Hang);
    timeout(ms(10), lease.release()).await.unwrap_err();
    world.client.close().await;
    assert_eq!(world.holders("x").await, 0);
}

fn multi_threaded() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_time().build().unwrap()
}

/// Like `#[tokio::main]`: the runtime ends after the block has ended and its variables were dropped.
#[test]
fn guards_dropped_at_the_end_of_main_are_released_before_the_runtime_ends() {
    let faulty = multi_threaded().block_on(async {
        let world = World::new().await;
        let faulty = world.faulty.clone();
        faulty.always(Op::Release, Fault::DelayResponse(ms(50)));
        let _lease = world.client.lease("x").acquire().await.unwrap();
        let _both = world.client.lease_all(["a", "b"]).acquire().await.unwrap();
        faulty
    });
    let is_released = |event: &&TraceEvent| **event == TraceEvent::Response(Op::Release);
    assert_eq!(faulty.trace().iter().filter(is_released).count(), 3);
}

#[test]
fn hanging_release_does_not_prevent_a_program_from_ending() {
    multi_threaded().block_on(async {
        let world = World::new().await;
        world.faulty.always(Op::Release, Fault::Hang);
        let _lease = world.client.lease("x").acquire().await.unwrap();
    });
}

#[test]
fn lease_can_be_dropped_outside_a_runtime() {
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
