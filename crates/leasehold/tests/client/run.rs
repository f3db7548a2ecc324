//! Work under a lease.

use std::sync::Arc;

use leasehold::Error;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Faulty, Op, Seen};
use crate::{World, ms, secs};

/// Notes when it is dropped: the end of the work.
struct Work(Arc<Faulty>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.note("work ended");
    }
}

const DRAINED: [Seen; 3] = [
    Seen::Noted("work ended"),
    Seen::Called(Op::Release),
    Seen::Answered(Op::Release),
];

#[tokio::test(start_paused = true)]
async fn the_lease_is_held_while_the_work_runs_and_free_afterwards() {
    let world = World::new().await;
    let (other, work) = (world.other.clone(), Work(world.faulty.clone()));
    let builder = world.client.lease("x").ttl(secs(3));
    let fence = builder
        .run(|lease| async move {
            let _work = work;
            sleep(secs(30)).await;
            other.lease("x").acquire().await.unwrap_err();
            lease.fence()
        })
        .await
        .unwrap();
    assert!(world.faulty.seen().ends_with(&DRAINED));
    let next = world.other.lease("x").acquire().await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn the_work_is_cancelled_when_the_lease_is_lost() {
    let world = World::new().await;
    let (faulty, work) = (world.faulty.clone(), Work(world.faulty.clone()));
    let builder = world.client.lease("x").ttl(secs(3));
    let done = builder
        .run(|_| async move {
            let _work = work;
            faulty.always(Op::Renew, Fault::Hangs);
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(done, Err(Error::Expired));
    assert!(world.faulty.seen().ends_with(&DRAINED));
}

#[tokio::test(start_paused = true)]
async fn the_work_is_cancelled_when_it_is_fenced_off() {
    let world = World::new().await;
    let other = world.other.clone();
    let builder = world.client.lease("x").nonce("mine").ttl(secs(3));
    let done = builder
        .run(|_| async move {
            let _next = other.lease("x").nonce("mine").acquire().await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(done, Err(Error::Fenced));
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_the_work_is_worth_nothing() {
    let world = World::new().await;
    let kept = world
        .client
        .lease("x")
        .run(|lease| async { lease })
        .await
        .unwrap();
    assert!(kept.is_lost());
    assert_eq!(kept.update("too late").await, Err(Error::Fenced));
    drop(world.other.lease("x").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn completing_within_the_work_is_enough() {
    let world = World::new().await;
    let done = world.client.lease("x").run(|lease| async move {
        lease.complete().body("result").state("DONE").await.unwrap();
        sleep(secs(60)).await;
        "and tidied up"
    });
    assert_eq!(done.await, Ok("and tidied up"));
    assert_eq!(world.faulty.calls(Op::Release), 0);
    let next = world.other.lease("x").acquire().await.unwrap();
    assert_eq!(&*next.body(), "result");
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_or_is_dropped_releases_too() {
    let world = World::new().await;
    let work = Work(world.faulty.clone());
    let builder = world.client.lease("x");
    let panics = builder.clone().run(|_| async move {
        let _work = work;
        panic!("on purpose, for a test");
    });
    let panics: Result<Result<(), Error>, _> = tokio::spawn(panics).await;
    assert!(panics.unwrap_err().is_panic());
    world.client.close().await;
    assert!(world.faulty.seen().ends_with(&DRAINED));

    let work = Work(world.faulty.clone());
    let dropped = builder.run(|_| async move {
        let _work = work;
        std::future::pending::<()>().await;
    });
    timeout(ms(10), dropped).await.unwrap_err();
    world.client.close().await;
    assert!(world.faulty.seen().ends_with(&DRAINED));
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_was_done_is_done_even_if_the_release_fails() {
    let world = World::new().await;
    let down = Error::Unavailable("down, for a test".into());
    world.faulty.once(Op::Release, Fault::Fails(down));
    let done = world.client.lease("x").run(|_| async { 42 }).await;
    assert_eq!(done, Ok(42));
}
