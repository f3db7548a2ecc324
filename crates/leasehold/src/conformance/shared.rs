//! Shared leases: semaphores and reader-writer locks.

use super::context::{TIMEOUT, TestContext, acquire, nonce, release, renew, show};
use crate::Error;

super::define_cases!(Leases:
    limit_bounds_the_number_of_sharers,
    different_limit_is_refused,
    readers_exclude_a_writer,
    writer_excludes_readers,
    sharing_without_a_limit_admits_many_holders,
    each_sharer_has_its_own_fence,
    waiter_takes_the_place_of_a_released_sharer,
    only_reader_can_become_the_writer,
);

async fn limit_bounds_the_number_of_sharers(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("gpu"));
    let mut fences = Vec::new();
    for owner in ["a", "b", "c"] {
        fences.push(
            acquire(&name, owner)
                .shared(Some(3))
                .expect_fence(&*leases)
                .await,
        );
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    let held = acquire(&name, "d")
        .shared(Some(3))
        .expect_refused(&*leases)
        .await;
    assert_eq!(&*held.owner, "a");
    assert_eq!(show(&*leases, &name).await.record.holders.len(), 3);
    assert!(release(&*leases, &name, fences[1]).await);
    acquire(&name, "d")
        .shared(Some(3))
        .expect_granted(&*leases)
        .await;
    acquire(&name, "e")
        .shared(Some(3))
        .expect_refused(&*leases)
        .await;
}

async fn different_limit_is_refused(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("gpu"));
    let fence = acquire(&name, "a")
        .shared(Some(3))
        .expect_fence(&*leases)
        .await;
    for limit in [Some(2), Some(4), None] {
        // It is refused immediately, although the request would wait for a minute.
        let answer = acquire(&name, "b")
            .shared(limit)
            .wait(TIMEOUT)
            .send(&*leases)
            .await;
        assert!(
            matches!(answer, Err(Error::Invalid(_))),
            "{limit:?}: {answer:?}"
        );
    }
    release(&*leases, &name, fence).await;
    acquire(&name, "b")
        .shared(Some(2))
        .expect_granted(&*leases)
        .await;
}

async fn readers_exclude_a_writer(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("index"));
    let one = acquire(&name, "a")
        .shared(None)
        .expect_fence(&*leases)
        .await;
    let two = acquire(&name, "b")
        .shared(None)
        .expect_fence(&*leases)
        .await;
    acquire(&name, "writer").expect_refused(&*leases).await;
    release(&*leases, &name, one).await;
    acquire(&name, "writer").expect_refused(&*leases).await;
    release(&*leases, &name, two).await;
    let writer = acquire(&name, "writer")
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(writer.fence > two);
}

async fn writer_excludes_readers(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("index"));
    let writer = acquire(&name, "writer").expect_fence(&*leases).await;
    for limit in [None, Some(1), Some(9)] {
        let held = acquire(&name, "a")
            .shared(limit)
            .expect_refused(&*leases)
            .await;
        assert_eq!(&*held.owner, "writer");
    }
    release(&*leases, &name, writer).await;
    acquire(&name, "a")
        .shared(None)
        .expect_granted(&*leases)
        .await;
}

async fn sharing_without_a_limit_admits_many_holders(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("index"));
    for n in 0..20 {
        acquire(&name, &n.to_string())
            .shared(None)
            .expect_granted(&*leases)
            .await;
    }
    assert_eq!(show(&*leases, &name).await.record.holders.len(), 20);
}

async fn each_sharer_has_its_own_fence(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("gpu"));
    let one = acquire(&name, "a")
        .shared(Some(2))
        .expect_fence(&*leases)
        .await;
    let two = acquire(&name, "b")
        .shared(Some(2))
        .expect_fence(&*leases)
        .await;
    release(&*leases, &name, one).await;
    assert_eq!(renew(&*leases, &name, one).await, Err(Error::Fenced));
    renew(&*leases, &name, two).await.expect("b holds it");
    let own_nonce = nonce();
    let first = acquire(&name, "c")
        .nonce(&own_nonce)
        .shared(Some(2))
        .expect_fence(&*leases)
        .await;
    // The limit is reached, but a repeated nonce replaces its own hold.
    let again = acquire(&name, "c")
        .nonce(&own_nonce)
        .shared(Some(2))
        .expect_fence(&*leases)
        .await;
    assert!(again > first);
    assert_eq!(renew(&*leases, &name, first).await, Err(Error::Fenced));
    renew(&*leases, &name, two).await.expect("b holds it");
}

async fn waiter_takes_the_place_of_a_released_sharer(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("gpu"));
    let mut fences = Vec::new();
    for n in 0..2 {
        fences.push(
            acquire(&name, &n.to_string())
                .shared(Some(2))
                .expect_fence(&*leases)
                .await,
        );
    }
    let (waiting, request) = (
        leases.clone(),
        acquire(&name, "waiter").shared(Some(2)).wait(TIMEOUT),
    );
    let waiter = tokio::spawn(async move { request.expect_granted(&*waiting).await });
    release(&*leases, &name, fences[0]).await;
    let hold = waiter.await.expect("the task does not panic");
    assert!(hold.grant.fence > fences[1]);
    assert_eq!(show(&*leases, &name).await.record.holders.len(), 2);
}

async fn only_reader_can_become_the_writer(context: TestContext) {
    let (leases, name, own_nonce) = (context.leases().await, context.name("index"), nonce());
    acquire(&name, "a")
        .nonce(&own_nonce)
        .shared(None)
        .expect_granted(&*leases)
        .await;
    let other = acquire(&name, "b")
        .shared(None)
        .expect_fence(&*leases)
        .await;
    acquire(&name, "a")
        .nonce(&own_nonce)
        .expect_refused(&*leases)
        .await;
    release(&*leases, &name, other).await;
    acquire(&name, "a")
        .nonce(&own_nonce)
        .expect_granted(&*leases)
        .await;
    acquire(&name, "b")
        .shared(None)
        .expect_refused(&*leases)
        .await;
}
