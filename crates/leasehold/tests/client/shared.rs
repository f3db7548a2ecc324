//! Semaphores and reader-writer locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::Error;
use tokio::time::{sleep, timeout};

use crate::{World, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_semaphore_of_four_never_lets_five_in() {
    let world = World::new().await;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let contenders: Vec<_> = (0..32)
        .map(|number| {
            let client = [&world.client, &world.other][number % 2];
            let place = client.semaphore("gpu", 4).wait(secs(60));
            let (inside, most) = (inside.clone(), most.clone());
            tokio::spawn(place.run(move |_| async move {
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                sleep(ms(100)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }))
        })
        .collect();
    for contender in contenders {
        contender.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 4, "all places are used");
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_has_one_limit() {
    let world = World::new().await;
    let _place = world.client.semaphore("gpu", 4).acquire().await.unwrap();
    for limit in [0, 3, 257] {
        let refused = world.other.semaphore("gpu", limit).acquire().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_a_writer_is_alone() {
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
async fn a_writer_gets_its_turn_among_readers_that_always_overlap() {
    let world = World::new().await;
    let (ours, theirs) = (world.client.rw_lock("index"), world.other.rw_lock("index"));
    let mut reader = ours.read().acquire().await.unwrap();
    let writer = theirs.write().wait(secs(60));
    let writer = tokio::spawn(writer.run(|_| async {}));
    let mut turns = 0;
    while !writer.is_finished() {
        sleep(ms(100)).await;
        // The next comes before the last goes, if it is let in.
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
