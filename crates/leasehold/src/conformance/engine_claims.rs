//! The cost of claims, and waiting for several leases, as measured at the engine.

use leasehold_core::Name;

use super::claims::{
    acquire_all_now, acquire_all_request, claim_now, claim_request, put, unique_state,
};
use super::context::{TIMEOUT, TestContext, acquire, release, renew};
use super::engine_waiting::wait_for_waiters;
use crate::leases::{AcquireAllOutcome, AcquireAllRequest};

super::define_cases!(Engine:
    claim_takes_one_search_and_one_batch,
    acquiring_several_keeps_the_first_while_waiting_for_the_last,
);

async fn claim_takes_one_search_and_one_batch(context: TestContext) {
    let new = unique_state(&context, "NEW");
    let names: Vec<Name> = (0..30)
        .map(|number| context.name(&format!("{number}")))
        .collect();
    for name in &names {
        put(&context.engine().await, name, &new, "").await;
    }
    let engine = context.engine().await;
    let before = engine.stats();
    assert_eq!(claim_now(&engine, claim_request(&new, 30)).await.len(), 30);
    let after = engine.stats();
    let counts = (after.searches - before.searches, after.loads - before.loads);
    assert_eq!(counts, (1, 0));
    let batches = 30_usize.div_ceil(context.store().await.facts().batch) as u64;
    assert_eq!(after.swaps - before.swaps, batches);
}

async fn acquiring_several_keeps_the_first_while_waiting_for_the_last(context: TestContext) {
    let leases = context.engine().await;
    let (a, b) = (context.name("a"), context.name("b"));
    let held = acquire(&b, "ada").expect_granted(&leases).await;
    let ttl = context.short_ttl().await;
    let request = AcquireAllRequest {
        ttl,
        wait: TIMEOUT,
        ..acquire_all_request(&[&a, &b])
    };
    let (engine, other) = (leases.clone(), context.engine().await);
    let taking = tokio::spawn(async move { acquire_all_now(&engine, request).await });
    wait_for_waiters(&leases, &b, 1).await;
    // Longer than the ttl: the engine renews the first lease meanwhile.
    tokio::time::sleep(ttl + ttl / 2).await;
    acquire(&a, "eve").expect_refused(&other).await;
    assert!(release(&leases, &b, held.grant.fence).await);
    let granted = taking.await.expect("the task does not panic");
    let AcquireAllOutcome::Granted(granted) = granted else {
        panic!("both are free: {granted:?}");
    };
    for item in granted {
        renew(&leases, &item.name, item.hold.grant.fence)
            .await
            .expect("the lease is held");
    }
}
