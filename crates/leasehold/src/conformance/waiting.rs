//! Waiting for a lease.

use std::time::Duration;

use super::context::{
    LONG_TTL, TIMEOUT, TestContext, acquire, boot_time, nonce, release, renew, run_concurrently,
    show,
};

super::define_cases!(Leases:
    release_grants_the_waiter,
    release_grants_a_waiter_of_another_service,
    wait_times_out,
    timed_out_waiter_leaves_no_reservation,
    cancelled_waiter_leaves_no_grant,
    every_waiter_is_granted,
    waiter_sees_the_body_of_the_last_holder,
    holder_reacquires_without_waiting,
    readers_do_not_starve_a_writer,
);

async fn release_grants_the_waiter(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let first = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    let (waiting, request) = (leases.clone(), acquire(&name, "bob").wait(TIMEOUT));
    let waiter = tokio::spawn(async move { request.expect_granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiter.is_finished());
    release(&*leases, &name, first.fence).await;
    let hold = waiter.await.expect("the task does not panic");
    assert!(hold.grant.fence > first.fence);
    // The ttl counts from the grant, not from the beginning of the wait.
    assert!(hold.deadline > boot_time() + LONG_TTL / 2 && hold.deadline < boot_time() + LONG_TTL);
    renew(&*leases, &name, hold.grant.fence)
        .await
        .expect("bob holds it");
}

async fn release_grants_a_waiter_of_another_service(context: TestContext) {
    let (here, there, name) = (
        context.leases().await,
        context.leases().await,
        context.name("one"),
    );
    let first = acquire(&name, "ada").expect_granted(&*here).await.grant;
    let (waiting, request) = (there.clone(), acquire(&name, "bob").wait(TIMEOUT));
    let waiter = tokio::spawn(async move { request.expect_granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(release(&*here, &name, first.fence).await);
    let hold = waiter.await.expect("the task does not panic");
    assert!(hold.grant.fence > first.fence);
}

async fn wait_times_out(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    acquire(&name, "ada").expect_granted(&*leases).await;
    let wait = Duration::from_millis(150);
    let started = boot_time();
    let held = acquire(&name, "bob")
        .wait(wait)
        .expect_refused(&*leases)
        .await;
    assert_eq!(&*held.owner, "ada");
    assert!(
        boot_time().since(started) >= wait,
        "it waited for the requested time"
    );
}

async fn timed_out_waiter_leaves_no_reservation(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let first = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    acquire(&name, "bob")
        .wait(Duration::from_millis(50))
        .expect_refused(&*leases)
        .await;
    release(&*leases, &name, first.fence).await;
    let view = show(&*leases, &name).await;
    assert!(view.record.holders.is_empty() && !view.reserved);
    acquire(&name, "eve").expect_granted(&*leases).await;
}

async fn cancelled_waiter_leaves_no_grant(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let first = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    for owner in ["bob", "eve", "fay"] {
        let (waiting, request) = (leases.clone(), acquire(&name, owner).wait(TIMEOUT));
        let waiter = tokio::spawn(async move { request.send(&*waiting).await });
        tokio::time::sleep(Duration::from_millis(30)).await;
        waiter.abort();
        // Awaited, so that its connection, if any, is closed before the test continues.
        assert!(waiter.await.is_err_and(|error| error.is_cancelled()));
    }
    release(&*leases, &name, first.fence).await;
    // One of them may have been granted at the moment of its cancellation. Its lease is released before the ttl ends.
    let next = acquire(&name, "ivy")
        .wait(TIMEOUT)
        .expect_granted(&*leases)
        .await
        .grant;
    renew(&*leases, &name, next.fence)
        .await
        .expect("ivy holds it");
}

async fn every_waiter_is_granted(context: TestContext) {
    let (one, other, name) = (
        context.leases().await,
        context.leases().await,
        context.name("one"),
    );
    let tasks = (0..8).map(|n| {
        let leases = if n % 2 == 0 {
            one.clone()
        } else {
            other.clone()
        };
        let name = name.clone();
        async move {
            let request = acquire(&name, &n.to_string()).wait(TIMEOUT);
            let fence = request.expect_fence(&*leases).await;
            assert!(release(&*leases, &name, fence).await);
            fence
        }
    });
    let mut fences = run_concurrently(tasks).await;
    fences.sort();
    fences.dedup();
    assert_eq!(fences.len(), 8, "fences are unique");
}

async fn waiter_sees_the_body_of_the_last_holder(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let first = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    let (waiting, request) = (leases.clone(), acquire(&name, "bob").wait(TIMEOUT));
    let waiter = tokio::spawn(async move { request.expect_granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    super::context::complete(&*leases, &name, first.fence, "done")
        .await
        .expect("the lease is held");
    assert_eq!(
        &*waiter.await.expect("the task does not panic").grant.body,
        "done"
    );
}

async fn holder_reacquires_without_waiting(context: TestContext) {
    let (leases, name, own_nonce) = (context.leases().await, context.name("one"), nonce());
    let first = acquire(&name, "ada")
        .nonce(&own_nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    let (waiting, request) = (leases.clone(), acquire(&name, "bob").wait(TIMEOUT));
    let waiter = tokio::spawn(async move { request.expect_granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Another waiter is in the queue, but ada holds the lease.
    let again = acquire(&name, "ada")
        .nonce(&own_nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(again.fence > first.fence);
    assert!(!waiter.is_finished());
    release(&*leases, &name, again.fence).await;
    waiter.await.expect("the task does not panic");
}

async fn readers_do_not_starve_a_writer(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("index"));
    let first = acquire(&name, "reader")
        .shared(None)
        .expect_granted(&*leases)
        .await
        .grant;
    let (waiting, request) = (leases.clone(), acquire(&name, "writer").wait(TIMEOUT));
    let writer = tokio::spawn(async move { request.expect_granted(&*waiting).await });
    // Overlapping readers: without a reservation, the writer never finds the name free.
    let mut reading = Some(first.fence);
    let give_up = boot_time() + TIMEOUT;
    while !writer.is_finished() {
        assert!(boot_time() < give_up, "the writer starved");
        let request = acquire(&name, "reader")
            .shared(None)
            .wait(Duration::from_millis(20));
        let next = match request.send(&*leases).await {
            Ok(crate::AcquireOutcome::Granted(hold)) => Some(hold.grant.fence),
            Ok(crate::AcquireOutcome::Held(_)) => None,
            Err(error) => panic!("{error}"),
        };
        if let Some(fence) = std::mem::replace(&mut reading, next) {
            release(&*leases, &name, fence).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    writer.await.expect("the task does not panic");
}
