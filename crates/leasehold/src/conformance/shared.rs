//! Shared leases: semaphores and reader-writer locks.

use super::bench::{Bench, PATIENT, ask, nonce, release, renew, shown};
use crate::Error;

super::promises!(Leases:
    as_many_share_as_the_limit_says,
    another_limit_is_refused,
    readers_keep_a_writer_out,
    a_writer_keeps_readers_out,
    sharing_without_a_limit_is_for_many,
    each_sharer_has_a_fence_of_its_own,
    one_leaves_and_one_comes,
    a_reader_may_become_the_writer_when_alone,
);

async fn as_many_share_as_the_limit_says(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("gpu"));
    let mut fences = Vec::new();
    for owner in ["a", "b", "c"] {
        fences.push(
            ask(&name, owner)
                .shared(Some(3))
                .granted(&*leases)
                .await
                .grant
                .fence,
        );
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    let held = ask(&name, "d").shared(Some(3)).refused(&*leases).await;
    assert_eq!(&*held.owner, "a");
    assert_eq!(shown(&*leases, &name).await.record.holders.len(), 3);
    assert!(release(&*leases, &name, fences[1]).await);
    ask(&name, "d").shared(Some(3)).granted(&*leases).await;
    ask(&name, "e").shared(Some(3)).refused(&*leases).await;
}

async fn another_limit_is_refused(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("gpu"));
    let fence = ask(&name, "a")
        .shared(Some(3))
        .granted(&*leases)
        .await
        .grant
        .fence;
    for limit in [Some(2), Some(4), None] {
        // An error, never a wait: with patience it would otherwise take a minute.
        let answer = ask(&name, "b")
            .shared(limit)
            .wait(PATIENT)
            .of(&*leases)
            .await;
        assert!(
            matches!(answer, Err(Error::Invalid(_))),
            "{limit:?}: {answer:?}"
        );
    }
    release(&*leases, &name, fence).await;
    ask(&name, "b").shared(Some(2)).granted(&*leases).await;
}

async fn readers_keep_a_writer_out(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("index"));
    let one = ask(&name, "a")
        .shared(None)
        .granted(&*leases)
        .await
        .grant
        .fence;
    let two = ask(&name, "b")
        .shared(None)
        .granted(&*leases)
        .await
        .grant
        .fence;
    ask(&name, "writer").refused(&*leases).await;
    release(&*leases, &name, one).await;
    ask(&name, "writer").refused(&*leases).await;
    release(&*leases, &name, two).await;
    let writer = ask(&name, "writer").granted(&*leases).await.grant;
    assert!(writer.fence > two);
}

async fn a_writer_keeps_readers_out(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("index"));
    let writer = ask(&name, "writer").granted(&*leases).await.grant.fence;
    for limit in [None, Some(1), Some(9)] {
        let held = ask(&name, "a").shared(limit).refused(&*leases).await;
        assert_eq!(&*held.owner, "writer");
    }
    release(&*leases, &name, writer).await;
    ask(&name, "a").shared(None).granted(&*leases).await;
}

async fn sharing_without_a_limit_is_for_many(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("index"));
    for n in 0..20 {
        ask(&name, &n.to_string())
            .shared(None)
            .granted(&*leases)
            .await;
    }
    assert_eq!(shown(&*leases, &name).await.record.holders.len(), 20);
}

async fn each_sharer_has_a_fence_of_its_own(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("gpu"));
    let one = ask(&name, "a")
        .shared(Some(2))
        .granted(&*leases)
        .await
        .grant
        .fence;
    let two = ask(&name, "b")
        .shared(Some(2))
        .granted(&*leases)
        .await
        .grant
        .fence;
    release(&*leases, &name, one).await;
    assert_eq!(renew(&*leases, &name, one).await, Err(Error::Fenced));
    renew(&*leases, &name, two).await.expect("it is b's");
    let mine = nonce();
    let first = ask(&name, "c")
        .nonce(&mine)
        .shared(Some(2))
        .granted(&*leases)
        .await
        .grant
        .fence;
    // Full, but for the one who asks again.
    let again = ask(&name, "c")
        .nonce(&mine)
        .shared(Some(2))
        .granted(&*leases)
        .await
        .grant
        .fence;
    assert!(again > first);
    assert_eq!(renew(&*leases, &name, first).await, Err(Error::Fenced));
    renew(&*leases, &name, two).await.expect("it is b's");
}

async fn one_leaves_and_one_comes(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("gpu"));
    let mut fences = Vec::new();
    for n in 0..2 {
        fences.push(
            ask(&name, &n.to_string())
                .shared(Some(2))
                .granted(&*leases)
                .await
                .grant
                .fence,
        );
    }
    let (waiting, asked) = (
        leases.clone(),
        ask(&name, "waiter").shared(Some(2)).wait(PATIENT),
    );
    let waiter = tokio::spawn(async move { asked.granted(&*waiting).await });
    release(&*leases, &name, fences[0]).await;
    let hold = waiter.await.expect("it does not fail");
    assert!(hold.grant.fence > fences[1]);
    assert_eq!(shown(&*leases, &name).await.record.holders.len(), 2);
}

async fn a_reader_may_become_the_writer_when_alone(bench: Bench) {
    let (leases, name, mine) = (bench.leases().await, bench.name("index"), nonce());
    ask(&name, "a")
        .nonce(&mine)
        .shared(None)
        .granted(&*leases)
        .await;
    let other = ask(&name, "b")
        .shared(None)
        .granted(&*leases)
        .await
        .grant
        .fence;
    ask(&name, "a").nonce(&mine).refused(&*leases).await;
    release(&*leases, &name, other).await;
    ask(&name, "a").nonce(&mine).granted(&*leases).await;
    ask(&name, "b").shared(None).refused(&*leases).await;
}
