//! Body and state.

use leasehold::Error;
use leasehold::core::EndReason;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

fn down() -> Error {
    Error::Unavailable("down, for a test".into())
}

#[tokio::test(start_paused = true)]
async fn the_next_holder_resumes_from_the_body() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    assert_eq!(&*lease.body(), "");
    lease.update("step 3").await.unwrap();
    assert_eq!(&*lease.body(), "step 3");
    world.faulty.always(Op::Renew, Fault::Hangs);
    world.faulty.always(Op::Release, Fault::Hangs);
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
async fn an_update_renews() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    let mut watch = lease.watch_deadline();
    for step in 0..20 {
        sleep(secs(5)).await;
        lease.update(format!("step {step}")).await.unwrap();
        assert!(watch.has_changed().unwrap());
        assert_eq!(*watch.borrow_and_update(), lease.deadline());
    }
    assert_eq!(world.faulty.calls(Op::Renew), 0, "there was no need to");
}

#[tokio::test(start_paused = true)]
async fn an_update_that_fails_changes_nothing() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    lease.edit().body("one").state("ONE").save().await.unwrap();
    world.faulty.once(Op::Update, Fault::Fails(down()));
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
async fn an_update_by_a_dead_fence_is_the_loss_of_the_lease() {
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
async fn completing_writes_and_lets_go_in_one_call() {
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
async fn completing_can_be_repeated_until_it_works() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Update, Fault::Fails(down()));
    assert_eq!(
        lease.complete().body("result").state("DONE").await,
        Err(down())
    );
    sleep(secs(30)).await;
    assert!(!lease.is_lost(), "renewed all the while");
    let unheard = Error::Indeterminate("no answer".into());
    world
        .faulty
        .once(Op::Update, Fault::Unanswered(unheard.clone()));
    assert_eq!(
        lease.complete().body("result").state("DONE").await,
        Err(unheard)
    );
    assert_eq!(
        lease.complete().body("result").state("DONE").await,
        Ok(()),
        "it had worked"
    );
}

#[tokio::test(start_paused = true)]
async fn completing_that_is_cancelled_leaves_the_lease_held() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.once(Op::Update, Fault::Hangs);
    timeout(ms(10), lease.complete().body("result").state("DONE"))
        .await
        .unwrap_err();
    sleep(secs(30)).await;
    assert!(!lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_after_completing_is_no_loss() {
    let world = World::new().await;
    let lease = world.lease("x", secs(30)).await;
    world.faulty.always(Op::Renew, Fault::Delayed(secs(2)));
    world.faulty.always(Op::Update, Fault::Slow(secs(3)));
    while world.faulty.calls(Op::Renew) == 0 {
        sleep(ms(10)).await;
    }
    assert_eq!(lease.complete().body("result").state("DONE").await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn completing_never_outlasts_the_lease() {
    let world = World::new().await;
    let lease = world.lease("x", secs(3)).await;
    world.faulty.always(Op::Update, Fault::Hangs);
    let completed = lease.complete().body("result").state("DONE").await;
    assert!(
        matches!(completed, Err(Error::Indeterminate(_))),
        "{completed:?}"
    );
    assert!(world.now() <= lease.deadline());
    assert_eq!(lease.lost().await, Error::Expired);
}

#[tokio::test(start_paused = true)]
async fn bodies_and_states_have_limits() {
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
