//! Gates: one caller passes per period.

use std::time::Duration;

use leasehold_core::Kind;

use super::context::{LONG_TTL, TestContext, acquire, nonce, release, run_concurrently, show};
use crate::{AcquireOutcome, ListRequest};

super::define_cases!(Leases:
    gate_is_passed_once_per_period,
    gate_can_be_reopened,
    gate_and_lock_of_one_name_are_distinct,
    one_of_many_callers_passes_a_gate,
);

async fn gate_is_passed_once_per_period(context: TestContext) {
    let (leases, gate) = (
        context.leases().await,
        context.name_of_kind(Kind::Gate, "device"),
    );
    // Below the minimum ttl of a lock on most stores: a gate has no holder whose clock matters.
    let period = Duration::from_millis(20);
    let first = acquire(&gate, "ada")
        .ttl(period)
        .expect_granted(&*leases)
        .await;
    let passed_again = loop {
        let again = acquire(&gate, "bob").ttl(LONG_TTL).send(&*leases).await;
        if let Ok(AcquireOutcome::Granted(hold)) = again {
            break hold;
        }
        tokio::time::sleep(period).await;
    };
    assert!(passed_again.grant.fence > first.grant.fence);
    let shut = acquire(&gate, "eve")
        .ttl(period)
        .expect_refused(&*leases)
        .await;
    assert_eq!(&*shut.owner, "bob");
    assert!(shut.retry_after > LONG_TTL / 2, "{shut:?}");
    assert!(shut.retry_after <= LONG_TTL * 2, "{shut:?}");
}

async fn gate_can_be_reopened(context: TestContext) {
    let (leases, gate) = (
        context.leases().await,
        context.name_of_kind(Kind::Gate, "device"),
    );
    let (own_nonce, years) = (nonce(), Duration::from_secs(3_000 * 24 * 60 * 60));
    let first = acquire(&gate, "ada").nonce(&own_nonce).ttl(years);
    let passed = first.clone().expect_granted(&*leases).await;
    // As after a lost answer: the same call passes again.
    let passed_again = first.expect_granted(&*leases).await;
    assert!(!release(&*leases, &gate, passed.grant.fence).await);
    acquire(&gate, "eve").expect_refused(&*leases).await;
    assert!(release(&*leases, &gate, passed_again.grant.fence).await);
    acquire(&gate, "eve").expect_granted(&*leases).await;
}

async fn gate_and_lock_of_one_name_are_distinct(context: TestContext) {
    let leases = context.leases().await;
    let [lock, gate] = Kind::ALL.map(|kind| context.name_of_kind(kind, "device"));
    acquire(&gate, "ada").expect_granted(&*leases).await;
    assert_eq!(leases.show(&lock).await, Ok(None));
    acquire(&lock, "eve").expect_granted(&*leases).await;
    let holder = &show(&*leases, &gate).await.record.holders[0];
    assert_eq!(&*holder.owner, "ada");
    for (gates, name) in [(true, gate), (false, lock)] {
        let request = ListRequest {
            gates,
            prefix: context.prefix().into(),
            ..ListRequest::default()
        };
        let listing = leases.list(request).await.expect("the store answers");
        let names: Vec<_> = listing.leases.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [name]);
    }
}

async fn one_of_many_callers_passes_a_gate(context: TestContext) {
    let gate = context.name_of_kind(Kind::Gate, "device");
    let mut callers = Vec::new();
    for _ in 0..4 {
        let leases = context.leases().await;
        for _ in 0..8 {
            let (leases, call) = (leases.clone(), acquire(&gate, "caller"));
            callers.push(async move { call.send(&*leases).await.expect("the store answers") });
        }
    }
    let answers = run_concurrently(callers).await;
    let passed = answers
        .iter()
        .filter(|answer| matches!(answer, AcquireOutcome::Granted(_)));
    assert_eq!(passed.count(), 1, "{answers:?}");
}
