//! Several leases, acquired all or none.

use leasehold::Error;
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, name, secs};

#[tokio::test(start_paused = true)]
async fn several_leases_are_acquired_and_released_together() {
    let world = World::new().await;
    let all = world.client.lease_all(["b", "a", "b"]).acquire().await;
    let all = all.unwrap();
    let names: Vec<_> = all.fences().map(|(name, _)| name.clone()).collect();
    assert_eq!(
        names,
        [name("a"), name("b")],
        "in order, without duplicates"
    );
    sleep(secs(300)).await;
    assert!(!all.is_lost(), "they are renewed");
    assert!(all.deadline() > world.now());
    for name in ["a", "b"] {
        let refused = world.other.lease(name).acquire().await;
        assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    }
    assert_eq!(all.release().await, Ok(true));
    drop(world.other.lease_all(["a", "b"]).acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn none_is_acquired_while_one_is_held() {
    let world = World::new().await;
    world.faulty.limit_waits(secs(5));
    let held = world.other.lease("b").owner("ada").acquire().await.unwrap();
    let refused = world.client.lease_all(["a", "b", "c"]).acquire().await;
    assert!(
        matches!(&refused, Err(Error::Held(held)) if &*held.owner == "ada"),
        "{refused:?}"
    );
    for free in ["a", "c"] {
        assert_eq!(world.holders(free).await, 0, "{free}");
    }
    let waiter = tokio::spawn(world.client.lease_all(["a", "b"]).wait_forever().acquire());
    sleep(secs(17)).await;
    held.release().await.unwrap();
    let all = timeout(secs(1), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(all.leases().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn acquisitions_in_different_orders_cannot_deadlock() {
    let world = World::new().await;
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let rounds = (0..30).map(|number| {
        let client = [&world.client, &world.other][number % 2];
        let all = client.lease_all(orders[number % 3]).wait(secs(60));
        tokio::spawn(async move {
            let all = all.acquire().await.unwrap();
            sleep(ms(10)).await;
            assert_eq!(all.release().await, Ok(true));
        })
    });
    for round in rounds.collect::<Vec<_>>() {
        round.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn loss_of_one_lease_is_the_loss_of_all() {
    let world = World::new().await;
    let all = world.client.lease_all(["a", "b"]).ttl(secs(9)).acquire();
    let all = all.await.unwrap();
    let lost = tokio::spawn(all.lost());
    sleep(secs(20)).await;
    assert!(!lost.is_finished());
    let request = leasehold::BreakRequest::Force {
        fence: None,
        reason: "it hangs".into(),
        now: true,
    };
    let broken = world.other.leases().break_lease(&name("b"), request).await;
    broken.unwrap();
    let reason = timeout(secs(4), lost).await.unwrap().unwrap();
    assert_eq!(reason, Error::Fenced);
    assert!(all.is_lost());
    assert_eq!(all.release().await, Ok(false));
    assert_eq!(world.holders("a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn grants_that_arrive_too_late_are_not_returned() {
    let world = World::new().await;
    let all = || world.client.lease_all(["a", "b"]).ttl(secs(2)).acquire();
    world
        .faulty
        .once(Op::Acquire, Fault::DelayResponse(secs(3)));
    assert_eq!(all().await.unwrap().release().await, Ok(true));
    world
        .faulty
        .always(Op::Acquire, Fault::DelayResponse(secs(3)));
    let refused = all().await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_names_are_refused() {
    let world = World::new().await;
    let many: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    for names in [vec![], vec!["a".to_owned(), String::new()], many] {
        let refused = world.client.lease_all(names).acquire().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(world.holders("a").await, 0);
}
