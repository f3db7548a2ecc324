//! Work under a lease.

use std::sync::Arc;

use leasehold::Error;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, FaultyLeases, Op, TraceEvent};
use crate::{World, ms, secs};

/// Adds the end of the work to the trace when it is dropped.
struct Work(Arc<FaultyLeases>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.note("work ended");
    }
}

const RELEASED_AFTER_WORK: [TraceEvent; 3] = [
    TraceEvent::Note("work ended"),
    TraceEvent::Request(Op::Release),
    TraceEvent::Response(Op::Release),
];

#[tokio::test(start_paused = true)]
async fn lease_is_held_while_the_work_runs_and_free_afterwards() {
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
    assert!(world.faulty.trace().ends_with(&RELEASED_AFTER_WORK));
    let next = world.other.lease("x").acquire().await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_when_the_lease_expires() {
    let world = World::new().await;
    let (faulty, work) = (world.faulty.clone(), Work(world.faulty.clone()));
    let builder = world.client.lease("x").ttl(secs(3));
    let result = builder
        .run(|_| async move {
            let _work = work;
            faulty.always(Op::Renew, Fault::Hang);
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(result, Err(Error::Expired));
    assert!(world.faulty.trace().ends_with(&RELEASED_AFTER_WORK));
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_when_the_lease_is_fenced() {
    let world = World::new().await;
    let other = world.other.clone();
    let builder = world.client.lease("x").nonce("mine").ttl(secs(3));
    let result = builder
        .run(|_| async move {
            let _next = other.lease("x").nonce("mine").acquire().await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(result, Err(Error::Fenced));
}

#[tokio::test(start_paused = true)]
async fn guard_that_outlives_the_work_is_lost() {
    let world = World::new().await;
    let guard = world
        .client
        .lease("x")
        .run(|lease| async { lease })
        .await
        .unwrap();
    assert!(guard.is_lost());
    assert_eq!(guard.update("too late").await, Err(Error::Fenced));
    drop(world.other.lease("x").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn work_can_complete_the_lease_itself() {
    let world = World::new().await;
    let result = world.client.lease("x").run(|lease| async move {
        lease.complete().body("result").state("DONE").await.unwrap();
        sleep(secs(60)).await;
        "and tidied up"
    });
    assert_eq!(result.await, Ok("and tidied up"));
    assert_eq!(world.faulty.calls(Op::Release), 0);
    let next = world.other.lease("x").acquire().await.unwrap();
    assert_eq!(&*next.body(), "result");
}

#[tokio::test(start_paused = true)]
async fn lease_is_released_if_the_work_panics_or_is_dropped() {
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
    assert!(world.faulty.trace().ends_with(&RELEASED_AFTER_WORK));

    let work = Work(world.faulty.clone());
    let dropped = builder.run(|_| async move {
        let _work = work;
        std::future::pending::<()>().await;
    });
    timeout(ms(10), dropped).await.unwrap_err();
    world.client.close().await;
    assert!(world.faulty.trace().ends_with(&RELEASED_AFTER_WORK));
    assert_eq!(world.holders("x").await, 0);
}

#[tokio::test(start_paused = true)]
async fn result_of_the_work_is_returned_even_if_the_release_fails() {
    let world = World::new().await;
    let down = Error::Unavailable("down, for a test".into());
    world.faulty.once(Op::Release, Fault::Fail(down));
    let result = world.client.lease("x").run(|_| async { 42 }).await;
    assert_eq!(result, Ok(42));
}
