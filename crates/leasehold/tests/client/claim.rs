//! Work items.

use std::sync::Arc;

use leasehold::engine::Engine;
use leasehold::store::memory::Memory;
use leasehold::{Client, Error, Lease};
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, name, secs};

async fn put(client: &Client, count: usize) {
    for number in 0..count {
        let item = client.put(format!("item-{number:03}"));
        item.state("NEW").body(format!("{number}")).await.unwrap();
    }
}

fn bodies(leases: &[Lease]) -> Vec<String> {
    leases
        .iter()
        .map(|lease| lease.body().to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn claim_leases_the_oldest_free_items() {
    let world = World::new().await;
    put(&world.client, 5).await;
    let first = world.client.claim("NEW").limit(3).await.unwrap();
    assert_eq!(bodies(&first), ["0", "1", "2"]);
    assert_eq!(first[0].state().as_deref(), Some("NEW"));
    assert_eq!(first[0].ttl(), secs(60));
    let one = world.other.claim("NEW").await.unwrap();
    assert_eq!(bodies(&one), ["3"], "one item by default");
    let rest = world.client.claim("NEW").limit(9).await.unwrap();
    assert_eq!(bodies(&rest), ["4"], "not the items that it holds already");
    assert!(world.client.claim("OLD").await.unwrap().is_empty());
    for lease in first {
        assert_eq!(lease.release().await, Ok(true));
    }
    drop(rest);
    sleep(ms(1)).await;
    let again = world.other.claim("NEW").limit(9).await.unwrap();
    assert_eq!(bodies(&again), ["0", "1", "2", "4"]);
}

#[tokio::test(start_paused = true)]
async fn claimed_items_are_renewed_in_one_call() {
    let world = World::new().await;
    put(&world.client, 100).await;
    let mine = world.client.claim("NEW").limit(100).ttl(secs(6)).await;
    let mine = mine.unwrap();
    sleep(secs(60)).await;
    assert!(mine.iter().all(|lease| !lease.is_lost()));
    assert!(world.other.claim("NEW").await.unwrap().is_empty());
    let batches = world.faulty.batches();
    assert!(
        batches.len() >= 30,
        "one batch every two seconds: {batches:?}"
    );
    assert!(batches.iter().all(|batch| *batch == 100), "{batches:?}");
}

#[tokio::test(start_paused = true)]
async fn item_is_completed_in_one_write() {
    let world = World::new().await;
    put(&world.client, 2).await;
    let mine = world.client.claim("NEW").limit(2).await.unwrap();
    mine[0].complete().body("done").state("DONE").await.unwrap();
    mine[1].complete().state("FAILED").await.unwrap();
    assert_eq!(world.faulty.calls(Op::Update), 2);
    assert_eq!(world.faulty.calls(Op::Release), 0);
    let done = world.other.claim("DONE").await.unwrap();
    assert_eq!(bodies(&done), ["done"]);
    let failed = world.other.claim("FAILED").await.unwrap();
    assert_eq!(bodies(&failed), ["1"], "it keeps its body");
    let twice = mine[0].complete().body("twice").state("NEW").await;
    assert_eq!(twice, Err(Error::Fenced));
}

#[tokio::test(start_paused = true)]
async fn items_of_a_dead_worker_are_claimed_by_others_and_it_cannot_complete_them() {
    let world = World::new().await;
    put(&world.client, 3).await;
    world.faulty.always(Op::Renew, Fault::Hang);
    let mine = world.client.claim("NEW").limit(2).ttl(secs(5)).await;
    let mine = mine.unwrap();
    sleep(secs(4)).await;
    let theirs = world.other.claim("NEW").limit(9).await.unwrap();
    assert_eq!(bodies(&theirs), ["2"]);
    let theirs = world.other.claim("NEW").limit(9).wait(secs(60));
    let theirs = timeout(secs(4), theirs).await.unwrap().unwrap();
    assert_eq!(bodies(&theirs), ["0", "1"]);
    for lease in mine {
        assert!(lease.is_lost());
        let late = lease.complete().body("late").state("DONE").await;
        assert_eq!(late, Err(Error::Expired));
    }
    assert!(world.other.claim("DONE").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn claim_waits_longer_than_one_call_can() {
    let world = World::new().await;
    world.faulty.limit_waits(secs(20));
    let start = world.now();
    assert!(
        world
            .client
            .claim("NEW")
            .wait(secs(50))
            .await
            .unwrap()
            .is_empty()
    );
    let waited = world.now().since(start);
    assert!((secs(50)..secs(52)).contains(&waited), "{waited:?}");
    assert_eq!(world.faulty.calls(Op::Acquire), 3);
    let waiter = tokio::spawn(world.client.claim("NEW").wait_forever().into_future());
    sleep(secs(90)).await;
    put(&world.other, 1).await;
    let claimed = timeout(secs(2), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(bodies(&claimed), ["0"]);
}

#[tokio::test(start_paused = true)]
async fn grants_that_arrive_too_late_are_not_returned() {
    let world = World::new().await;
    put(&world.client, 2).await;
    world
        .faulty
        .once(Op::Acquire, Fault::DelayResponse(secs(3)));
    let claim = || world.client.claim("NEW").limit(2).ttl(secs(2));
    let claimed = claim().await.unwrap();
    assert_eq!(bodies(&claimed), ["0", "1"]);
    assert!(claimed.iter().all(|lease| lease.time_left() > secs(1)));
    drop(claimed);
    sleep(ms(1)).await;
    world
        .faulty
        .always(Op::Acquire, Fault::DelayResponse(secs(3)));
    let refused = claim().await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn claim_respects_its_prefix_and_sets_its_owner() {
    let world = World::new().await;
    for item in ["apples/1", "pears/1"] {
        world.client.put(item).state("NEW").await.unwrap();
    }
    let claim = world.client.claim("NEW").limit(9).prefix("pears/");
    let mine = claim.owner("ada").await.unwrap();
    assert_eq!(mine.len(), 1);
    assert_eq!(mine[0].name(), &name("pears/1"));
    let refused = world.other.lease("pears/1").acquire().await;
    assert!(
        matches!(&refused, Err(Error::Held(held)) if &*held.owner == "ada"),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_put_does_not_reset_the_item() {
    let world = World::new().await;
    let put = || world.client.put("x").state("NEW").nonce("order 17");
    put().await.unwrap();
    let mine = world.client.claim("NEW").await.unwrap();
    mine[0]
        .complete()
        .body("finished")
        .state("DONE")
        .await
        .unwrap();
    put().await.unwrap();
    assert!(world.client.claim("NEW").await.unwrap().is_empty());
    world.client.put("x").state("NEW").await.unwrap();
    assert_eq!(world.client.claim("NEW").await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn item_that_is_put_again_keeps_its_body_by_default() {
    let world = World::new().await;
    put(&world.client, 1).await;
    world.client.put("item-000").state("AGAIN").await.unwrap();
    assert_eq!(bodies(&world.client.claim("AGAIN").await.unwrap()), ["0"]);
    sleep(ms(1)).await;
    let emptied = world.client.put("item-000").state("AGAIN").body("");
    emptied.await.unwrap();
    assert_eq!(bodies(&world.client.claim("AGAIN").await.unwrap()), [""]);
}

#[tokio::test(start_paused = true)]
async fn leased_item_can_be_neither_replaced_nor_removed() {
    let world = World::new().await;
    put(&world.client, 1).await;
    let mine = world.client.claim("NEW").await.unwrap();
    let replaced = world.other.put("item-000").state("OTHER").await;
    assert!(matches!(replaced, Err(Error::Held(_))), "{replaced:?}");
    let removed = world.other.remove("item-000").await;
    assert!(matches!(removed, Err(Error::Held(_))), "{removed:?}");
    drop(mine);
    sleep(ms(1)).await;
    world.other.remove("item-000").await.unwrap();
    world.other.remove("item-000").await.unwrap();
    assert!(world.other.claim("NEW").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_refused_and_change_nothing() {
    let world = World::new().await;
    put(&world.client, 1).await;
    let claim = |state: &str| world.client.claim(state);
    for invalid in [
        claim(""),
        claim(&"s".repeat(65)),
        claim("NEW").limit(0),
        claim("NEW").limit(1_001),
        claim("NEW").ttl(ms(0)),
        claim("NEW").owner("o".repeat(129)),
    ] {
        let refused = invalid.await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    for invalid in [
        world.client.put("x"),
        world.client.put("").state("NEW"),
        world.client.put("x").state("NEW").nonce(""),
        world
            .client
            .put("x")
            .state("NEW")
            .body("b".repeat(65 * 1024)),
    ] {
        let refused = invalid.await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(
        world.client.claim("NEW").limit(1_000).await.unwrap().len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_claims_of_eight_workers_all_get_distinct_items() {
    let store = Arc::new(Memory::new());
    let mut workers = Vec::new();
    for _ in 0..8 {
        let engine = Engine::start(store.clone()).await.unwrap();
        workers.push(Client::new(Arc::new(engine)));
    }
    for number in 0..1_000 {
        let put = workers[0].put(format!("item-{number}")).state("NEW");
        put.await.unwrap();
    }
    let claims = workers.into_iter().map(|worker| {
        tokio::spawn(async move {
            let claimed = worker.claim("NEW").limit(10).await.unwrap();
            let names: Vec<_> = claimed.iter().map(|item| item.name().to_string()).collect();
            (claimed, names)
        })
    });
    let claims: Vec<_> = claims.collect();
    let (mut kept, mut all) = (Vec::new(), std::collections::HashSet::new());
    for claim in claims {
        let (claimed, names) = claim.await.unwrap();
        assert!(!names.is_empty());
        assert!(
            names.into_iter().all(|name| all.insert(name)),
            "one was claimed twice"
        );
        kept.push(claimed);
    }
}
