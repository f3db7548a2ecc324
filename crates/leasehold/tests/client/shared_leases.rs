//! Semaphores and reader-writer locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::Error;
use tokio::time::{sleep, timeout};

use crate::{World, ms, secs};

#[tokio::test(start_paused = true)]
async fn semaphore_is_never_held_beyond_its_limit() {
    let world = World::new().await;
    let (holders, max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let contenders: Vec<_> = (0..32)
        .map(|number| {
            let client = [&world.client, &world.other][number % 2];
            let lease = client.semaphore("gpu", 4).wait(secs(60));
            let (holders, max) = (holders.clone(), max.clone());
            tokio::spawn(lease.run(move |_| async move {
                let now = holders.fetch_add(1, Ordering::SeqCst) + 1;
                max.fetch_max(now, Ordering::SeqCst);
                sleep(ms(100)).await;
                holders.fetch_sub(1, Ordering::SeqCst);
            }))
        })
        .collect();
    for contender in contenders {
        contender.await.unwrap().unwrap();
    }
    assert_eq!(max.load(Ordering::SeqCst), 4, "the limit is reached");
}

#[tokio::test(start_paused = true)]
async fn different_limit_of_a_semaphore_is_refused() {
    let world = World::new().await;
    let _lease = world.client.semaphore("gpu", 4).acquire().await.unwrap();
    for limit in [0, 3, 257] {
        let refused = world.other.semaphore("gpu", limit).acquire().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn readers_share_the_lock_and_a_writer_excludes_them() {
    let world = World::new().await;
    let (ours, theirs) = (world.client.rw_lock("index"), world.other.rw_lock("index"));
    let readers = [
        ours.read().acquire().await.unwrap(),
        theirs.read().acquire().await.unwrap(),
    ];
    let refused = ours.write().acquire().await;
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    let writer = tokio::spawn(theirs.write().wait(secs(60)).acquire());
    drop(readers);
    let writer = timeout(secs(1), writer).await.unwrap().unwrap().unwrap();
    let refused = ours.read().acquire().await;
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    writer.release().await.unwrap();
    drop(ours.read().acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn overlapping_readers_cannot_starve_a_writer() {
    let world = World::new().await;
    let (ours, theirs) = (world.client.rw_lock("index"), world.other.rw_lock("index"));
    let mut reader = ours.read().acquire().await.unwrap();
    let writer = theirs.write().wait(secs(60));
    let writer = tokio::spawn(writer.run(|_| async {}));
    let mut turns = 0;
    while !writer.is_finished() {
        sleep(ms(100)).await;
        // The next reader acquires before the previous one releases, unless the writer has reserved.
        let next = ours.read().acquire().await;
        reader.release().await.unwrap();
        reader = match next {
            Ok(next) => next,
            Err(_) => ours.read().wait(secs(60)).acquire().await.unwrap(),
        };
        turns += 1;
        assert!(turns < 300, "the writer starves");
    }
    writer.await.unwrap().unwrap();
}
