//! Gates: passed once a period, by whoever comes first.

use std::time::Duration;

use leasehold_core::Kind;

use super::bench::{Bench, LONG, ask, nonce, release, shown, side_by_side};
use crate::{Acquired, ListRequest};

super::promises!(Leases:
    a_gate_is_passed_once_a_period,
    a_gate_is_opened_again,
    a_gate_is_not_the_lock_of_its_name,
    one_of_many_passes_a_gate,
);

async fn a_gate_is_passed_once_a_period(bench: Bench) {
    let (leases, gate) = (bench.leases().await, bench.of_kind(Kind::Gate, "device"));
    // Under what a lock could be held for: nobody holds a gate.
    let period = Duration::from_millis(20);
    let first = ask(&gate, "ada").ttl(period).granted(&*leases).await;
    let passed_again = loop {
        let again = ask(&gate, "bob").ttl(LONG).of(&*leases).await;
        if let Ok(Acquired::Granted(hold)) = again {
            break hold;
        }
        tokio::time::sleep(period).await;
    };
    assert!(passed_again.grant.fence > first.grant.fence);
    let shut = ask(&gate, "eve").ttl(period).refused(&*leases).await;
    assert_eq!(&*shut.owner, "bob");
    assert!(shut.retry_after > LONG / 2, "{shut:?}");
    assert!(shut.retry_after <= LONG * 2, "{shut:?}");
}

async fn a_gate_is_opened_again(bench: Bench) {
    let (leases, gate) = (bench.leases().await, bench.of_kind(Kind::Gate, "device"));
    let (mine, years) = (nonce(), Duration::from_secs(3_000 * 24 * 60 * 60));
    let first = ask(&gate, "ada").nonce(&mine).ttl(years);
    let passed = first.clone().granted(&*leases).await;
    // The answer was lost: the same call passes.
    let passed_again = first.granted(&*leases).await;
    assert!(!release(&*leases, &gate, passed.grant.fence).await);
    ask(&gate, "eve").refused(&*leases).await;
    assert!(release(&*leases, &gate, passed_again.grant.fence).await);
    ask(&gate, "eve").granted(&*leases).await;
}

async fn a_gate_is_not_the_lock_of_its_name(bench: Bench) {
    let leases = bench.leases().await;
    let [lock, gate] = Kind::ALL.map(|kind| bench.of_kind(kind, "device"));
    ask(&gate, "ada").granted(&*leases).await;
    assert_eq!(leases.show(&lock).await, Ok(None));
    ask(&lock, "eve").granted(&*leases).await;
    let holder = &shown(&*leases, &gate).await.record.holders[0];
    assert_eq!(&*holder.owner, "ada");
    for (gates, name) in [(true, gate), (false, lock)] {
        let request = ListRequest {
            gates,
            prefix: bench.prefix().into(),
            ..ListRequest::default()
        };
        let listing = leases.list(request).await.expect("the store answers");
        let names: Vec<_> = listing.leases.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [name]);
    }
}

async fn one_of_many_passes_a_gate(bench: Bench) {
    let gate = bench.of_kind(Kind::Gate, "device");
    let mut callers = Vec::new();
    for _ in 0..4 {
        let leases = bench.leases().await;
        for _ in 0..8 {
            let (leases, call) = (leases.clone(), ask(&gate, "anybody"));
            callers.push(async move { call.of(&*leases).await.expect("the store answers") });
        }
    }
    let answers = side_by_side(callers).await;
    let passed = answers
        .iter()
        .filter(|answer| matches!(answer, Acquired::Granted(_)));
    assert_eq!(passed.count(), 1, "{answers:?}");
}
