//! Claims and several leases, as only an engine shows them.

use leasehold_core::Name;

use super::bench::{Bench, PATIENT, ask, release, renew};
use super::claims::{all, claim, claimed, leases_all, put, state};
use super::engine_waiting::until_waiting;
use crate::leases::{AcquireAllRequest, AcquiredAll};

super::promises!(Engine:
    a_claim_is_one_search_and_one_batch,
    several_wait_for_the_last_and_keep_the_first,
);

async fn a_claim_is_one_search_and_one_batch(bench: Bench) {
    let new = state(&bench, "NEW");
    let names: Vec<Name> = (0..30)
        .map(|number| bench.name(&format!("{number}")))
        .collect();
    for name in &names {
        put(&bench.engine().await, name, &new, "").await;
    }
    let engine = bench.engine().await;
    let before = engine.stats();
    assert_eq!(claimed(&engine, claim(&new, 30)).await.len(), 30);
    let after = engine.stats();
    let asked = (after.searches - before.searches, after.loads - before.loads);
    assert_eq!(asked, (1, 0));
    let batches = 30_usize.div_ceil(bench.store().await.facts().batch) as u64;
    assert_eq!(after.swaps - before.swaps, batches);
}

async fn several_wait_for_the_last_and_keep_the_first(bench: Bench) {
    let leases = bench.engine().await;
    let (a, b) = (bench.name("a"), bench.name("b"));
    let held = ask(&b, "ada").granted(&leases).await;
    let ttl = bench.short().await;
    let request = AcquireAllRequest {
        ttl,
        wait: PATIENT,
        ..all(&[&a, &b])
    };
    let (engine, other) = (leases.clone(), bench.engine().await);
    let taking = tokio::spawn(async move { leases_all(&engine, request).await });
    until_waiting(&leases, &b, 1).await;
    // Longer than the ttl: the first is kept all the while.
    tokio::time::sleep(ttl + ttl / 2).await;
    ask(&a, "eve").refused(&other).await;
    assert!(release(&leases, &b, held.grant.fence).await);
    let granted = taking.await.expect("it does not fail");
    let AcquiredAll::Granted(granted) = granted else {
        panic!("both are free: {granted:?}");
    };
    for item in granted {
        renew(&leases, &item.name, item.hold.grant.fence)
            .await
            .expect("it is held");
    }
}
