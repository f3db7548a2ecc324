//! Waiting in line.

use std::time::Duration;

use super::bench::{Bench, LONG, PATIENT, ask, boot, nonce, release, renew, shown, side_by_side};

super::promises!(Leases:
    a_waiter_gets_it_when_it_is_released,
    a_waiter_gets_it_through_another_door,
    patience_ends,
    a_waiter_that_gave_up_leaves_nothing,
    a_waiter_that_went_away_leaves_nothing,
    every_waiter_gets_its_turn,
    a_waiter_sees_what_the_last_holder_wrote,
    waiting_for_ones_own_lease_needs_no_patience,
    a_writer_gets_its_turn_among_readers,
);

async fn a_waiter_gets_it_when_it_is_released(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let first = ask(&name, "ada").granted(&*leases).await.grant;
    let (waiting, asked) = (leases.clone(), ask(&name, "bob").wait(PATIENT));
    let waiter = tokio::spawn(async move { asked.granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiter.is_finished());
    release(&*leases, &name, first.fence).await;
    let hold = waiter.await.expect("it does not fail");
    assert!(hold.grant.fence > first.fence);
    // Counted from the request that granted it, not from the one that began to wait.
    assert!(hold.deadline > boot() + LONG / 2 && hold.deadline < boot() + LONG);
    renew(&*leases, &name, hold.grant.fence)
        .await
        .expect("it is bob's");
}

async fn a_waiter_gets_it_through_another_door(bench: Bench) {
    let (here, there, name) = (
        bench.leases().await,
        bench.leases().await,
        bench.name("one"),
    );
    let first = ask(&name, "ada").granted(&*here).await.grant;
    let (waiting, asked) = (there.clone(), ask(&name, "bob").wait(PATIENT));
    let waiter = tokio::spawn(async move { asked.granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(release(&*here, &name, first.fence).await);
    let hold = waiter.await.expect("it does not fail");
    assert!(hold.grant.fence > first.fence);
}

async fn patience_ends(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    ask(&name, "ada").granted(&*leases).await;
    let patience = Duration::from_millis(150);
    let asked_at = boot();
    let held = ask(&name, "bob").wait(patience).refused(&*leases).await;
    assert_eq!(&*held.owner, "ada");
    assert!(
        boot().since(asked_at) >= patience,
        "it waited as long as it said"
    );
}

async fn a_waiter_that_gave_up_leaves_nothing(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let first = ask(&name, "ada").granted(&*leases).await.grant;
    ask(&name, "bob")
        .wait(Duration::from_millis(50))
        .refused(&*leases)
        .await;
    release(&*leases, &name, first.fence).await;
    let view = shown(&*leases, &name).await;
    assert!(view.record.holders.is_empty() && !view.reserved);
    ask(&name, "eve").granted(&*leases).await;
}

async fn a_waiter_that_went_away_leaves_nothing(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let first = ask(&name, "ada").granted(&*leases).await.grant;
    for owner in ["bob", "eve", "fay"] {
        let (waiting, asked) = (leases.clone(), ask(&name, owner).wait(PATIENT));
        let waiter = tokio::spawn(async move { asked.of(&*waiting).await });
        tokio::time::sleep(Duration::from_millis(30)).await;
        waiter.abort();
        // It is gone, and so is its connection if it had one, not merely told to go.
        assert!(waiter.await.is_err_and(|gone| gone.is_cancelled()));
    }
    release(&*leases, &name, first.fence).await;
    // One of them may have been granted in the very moment that it went: that is released again, well within its ttl.
    let next = ask(&name, "ivy")
        .wait(PATIENT)
        .granted(&*leases)
        .await
        .grant;
    renew(&*leases, &name, next.fence)
        .await
        .expect("it is ivy's");
}

async fn every_waiter_gets_its_turn(bench: Bench) {
    let (one, other, name) = (
        bench.leases().await,
        bench.leases().await,
        bench.name("one"),
    );
    let tasks = (0..8).map(|n| {
        let leases = if n % 2 == 0 {
            one.clone()
        } else {
            other.clone()
        };
        let name = name.clone();
        async move {
            let asked = ask(&name, &n.to_string()).wait(PATIENT);
            let fence = asked.granted(&*leases).await.grant.fence;
            assert!(release(&*leases, &name, fence).await);
            fence
        }
    });
    let mut fences = side_by_side(tasks).await;
    fences.sort();
    fences.dedup();
    assert_eq!(fences.len(), 8, "each got a fence of its own");
}

async fn a_waiter_sees_what_the_last_holder_wrote(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let first = ask(&name, "ada").granted(&*leases).await.grant;
    let (waiting, asked) = (leases.clone(), ask(&name, "bob").wait(PATIENT));
    let waiter = tokio::spawn(async move { asked.granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    super::bench::complete(&*leases, &name, first.fence, "done")
        .await
        .expect("it is held");
    assert_eq!(&*waiter.await.expect("it does not fail").grant.body, "done");
}

async fn waiting_for_ones_own_lease_needs_no_patience(bench: Bench) {
    let (leases, name, mine) = (bench.leases().await, bench.name("one"), nonce());
    let first = ask(&name, "ada").nonce(&mine).granted(&*leases).await.grant;
    let (waiting, asked) = (leases.clone(), ask(&name, "bob").wait(PATIENT));
    let waiter = tokio::spawn(async move { asked.granted(&*waiting).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Somebody is in line already, but this is ada's lease.
    let again = ask(&name, "ada").nonce(&mine).granted(&*leases).await.grant;
    assert!(again.fence > first.fence);
    assert!(!waiter.is_finished());
    release(&*leases, &name, again.fence).await;
    waiter.await.expect("it does not fail");
}

async fn a_writer_gets_its_turn_among_readers(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("index"));
    let first = ask(&name, "reader")
        .shared(None)
        .granted(&*leases)
        .await
        .grant;
    let (waiting, asked) = (leases.clone(), ask(&name, "writer").wait(PATIENT));
    let writer = tokio::spawn(async move { asked.granted(&*waiting).await });
    // Readers come and go and always overlap: the writer never finds it free by itself.
    let mut reading = Some(first.fence);
    let give_up = boot() + PATIENT;
    while !writer.is_finished() {
        assert!(boot() < give_up, "the writer starves");
        let asked = ask(&name, "reader")
            .shared(None)
            .wait(Duration::from_millis(20));
        let next = match asked.of(&*leases).await {
            Ok(crate::Acquired::Granted(hold)) => Some(hold.grant.fence),
            Ok(crate::Acquired::Held(_)) => None,
            Err(error) => panic!("{error}"),
        };
        if let Some(fence) = std::mem::replace(&mut reading, next) {
            release(&*leases, &name, fence).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    writer.await.expect("it does not fail");
}
