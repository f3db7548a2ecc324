//! Writes of the body and the state.

use leasehold::Error;
use leasehold::core::EndReason;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

fn down() -> Error {
    Error::Unavailable("down, for a test".into())
}

#[tokio::test(start_paused = true)]
async fn next_holder_resumes_from_the_body() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    assert_eq!(&*lease.body(), "");
    lease.update("step 3").await.unwrap();
    assert_eq!(&*lease.body(), "step 3");
    world.faulty.always(Op::Renew, Fault::Hang);
    world.faulty.always(Op::Release, Fault::Hang);
    drop(lease);
    let next = world
        .other
        .lease("x")
        .wait(secs(5))
        .acquire()
        .await
        .unwrap();
    assert_eq!(&*next.body(), "step 3");
    assert_eq!(next.last().unwrap().how, EndReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn update_renews_the_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let mut watch = lease.watch_deadline();
    for step in 0..20 {
        sleep(secs(5)).await;
        lease.update(format!("step {step}")).await.unwrap();
        assert!(watch.has_changed().unwrap());
        assert_eq!(*watch.borrow_and_update(), lease.deadline());
    }
    assert_eq!(world.faulty.calls(Op::Renew), 0, "the updates renewed it");
}

#[tokio::test(start_paused = true)]
async fn failed_update_changes_nothing() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    lease.edit().body("one").state("ONE").save().await.unwrap();
    world.faulty.once(Op::Update, Fault::Fail(down()));
    let failed = lease.edit().body("two").clear_state().save().await;
    assert_eq!(failed, Err(down()));
    assert_eq!(
        (&*lease.body(), lease.state().as_deref()),
        ("one", Some("ONE"))
    );
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
    lease.edit().clear_state().save().await.unwrap();
    assert_eq!((&*lease.body(), lease.state()), ("one", None));
}

#[tokio::test(start_paused = true)]
async fn update_with_a_refused_fence_loses_the_lease() {
    let world = World::new().await;
    let zombie = world
        .client
        .lease("x")
        .nonce("mine")
        .acquire()
        .await
        .unwrap();
    let lease = world
        .other
        .lease("x")
        .nonce("mine")
        .acquire()
        .await
        .unwrap();
    assert_eq!(zombie.update("stale").await, Err(Error::Fenced));
    assert_eq!(zombie.lost().await, Error::Fenced);
    lease.release().await.unwrap();
    let next = world.other.lease("x").acquire().await.unwrap();
    assert_eq!(&*next.body(), "");
}

#[tokio::test(start_paused = true)]
async fn completion_writes_and_releases_in_one_call() {
    let world = World::new().await;
    let lease = world.client.lease("x").acquire().await.unwrap();
    lease.complete().body("result").state("DONE").await.unwrap();
    assert!(lease.is_lost());
    assert_eq!(lease.update("more").await, Err(Error::Fenced));
    drop(lease);
    world.client.close().await;
    sleep(secs(60)).await;
    assert_eq!(world.faulty.calls(Op::Update), 1);
    assert_eq!(world.faulty.calls(Op::Release), 0);
    assert_eq!(world.faulty.calls(Op::Renew), 0);
    let next = world.other.lease("x").acquire().await.unwrap();
    assert_eq!(
        (&*next.body(), next.state().as_deref()),
        ("result", Some("DONE"))
    );
    assert!(matches!(next.last().unwrap().how, EndReason::Completed(_)));
}

#[tokio::test(start_paused = true)]
async fn completion_can_be_retried_until_it_succeeds() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Update, Fault::Fail(down()));
    assert_eq!(
        lease.complete().body("result").state("DONE").await,
        Err(down())
    );
    sleep(secs(30)).await;
    assert!(!lease.is_lost(), "it was renewed meanwhile");
    let no_response = Error::Indeterminate("no response".into());
    world
        .faulty
        .once(Op::Update, Fault::LoseResponse(no_response.clone()));
    assert_eq!(
        lease.complete().body("result").state("DONE").await,
        Err(no_response)
    );
    assert_eq!(
        lease.complete().body("result").state("DONE").await,
        Ok(()),
        "the write had been applied"
    );
}

#[tokio::test(start_paused = true)]
async fn cancelled_completion_leaves_the_lease_held() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Update, Fault::Hang);
    timeout(ms(10), lease.complete().body("result").state("DONE"))
        .await
        .unwrap_err();
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn renewal_that_is_refused_after_a_completion_is_not_a_loss() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.always(Op::Renew, Fault::DelayRequest(secs(2)));
    world
        .faulty
        .always(Op::Update, Fault::DelayResponse(secs(3)));
    while world.faulty.calls(Op::Renew) == 0 {
        sleep(ms(10)).await;
    }
    assert_eq!(lease.complete().body("result").state("DONE").await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn completion_ends_by_the_deadline_of_the_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Update, Fault::Hang);
    let completed = lease.complete().body("result").state("DONE").await;
    assert!(
        matches!(completed, Err(Error::Indeterminate(_))),
        "{completed:?}"
    );
    assert!(world.now() <= lease.deadline());
    assert_eq!(lease.lost().await, Error::Expired);
}

#[tokio::test(start_paused = true)]
async fn body_and_state_have_a_maximum_length() {
    let world = World::new().await;
    let lease = world.client.lease("x").acquire().await.unwrap();
    for edit in [
        lease.edit().body("b".repeat(64 * 1024 + 1)),
        lease.edit().state("s".repeat(65)),
        lease.edit().state(""),
    ] {
        let refused = edit.save().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert!(!lease.is_lost());
    lease.update("b".repeat(64 * 1024)).await.unwrap();
}
