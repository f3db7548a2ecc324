//! Acquiring, reacquiring and renewing leases.

use std::time::Duration;

use leasehold_core::{EndReason, Fence, GrantKind};

use super::context::{
    LONG_TTL, TestContext, acquire, body, boot_time, nonce, release, renew, renew_for, show, update,
};
use super::store_names::ODD_NAMES;
use crate::{Error, RenewRequest};

super::define_cases!(Leases:
    free_lease_is_granted,
    held_lease_is_refused,
    released_lease_can_be_acquired_by_another_client,
    repeated_nonce_reacquires_with_a_higher_fence,
    regrant_through_another_service_expires_no_earlier,
    reacquiring_with_the_fence_keeps_it,
    reacquiring_with_a_stale_fence_gets_a_new_one,
    renewal_keeps_the_fence,
    renewal_never_shortens_the_lease,
    renewals_of_one_call_are_independent,
    fences_only_increase,
    odd_names_are_distinct_leases,
);

async fn free_lease_is_granted(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let sent = boot_time();
    let hold = acquire(&name, "ada").expect_granted(&*leases).await;
    assert!(hold.grant.fence > Fence::default());
    assert_eq!(hold.grant.granted, GrantKind::Fresh);
    assert_eq!(&*hold.grant.body, "");
    assert_eq!((hold.grant.state, hold.grant.last), (None, None));
    assert_eq!(
        hold.grant.expires_at.since(hold.grant.acquired_at),
        LONG_TTL
    );
    assert!(hold.deadline > sent, "the deadline is in the future");
    assert!(
        hold.deadline < boot_time() + LONG_TTL,
        "the deadline is before the expiry"
    );
    let view = show(&*leases, &name).await;
    assert_eq!(view.record.holders.len(), 1);
    assert_eq!(&*view.record.holders[0].owner, "ada");
    assert!(!view.remaining[0].is_zero() && view.remaining[0] <= LONG_TTL + Duration::from_secs(5));
}

async fn held_lease_is_refused(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let hold = acquire(&name, "ada").expect_granted(&*leases).await;
    let held = acquire(&name, "bob").expect_refused(&*leases).await;
    assert_eq!(&*held.owner, "ada");
    assert_eq!(held.since, hold.grant.acquired_at);
    assert!(held.retry_after > LONG_TTL / 2, "{:?}", held.retry_after);
    assert!(
        held.retry_after < LONG_TTL + Duration::from_secs(5),
        "{:?}",
        held.retry_after
    );
    renew(&*leases, &name, hold.grant.fence)
        .await
        .expect("ada holds it");
}

async fn released_lease_can_be_acquired_by_another_client(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let first = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    assert!(release(&*leases, &name, first.fence).await);
    assert!(show(&*leases, &name).await.record.holders.is_empty());
    let second = acquire(&name, "bob").expect_granted(&*leases).await.grant;
    assert!(second.fence > first.fence);
    let last = second.last.expect("the record keeps its last holder");
    assert_eq!(
        (last.fence, &*last.owner, last.how),
        (first.fence, "ada", EndReason::Released)
    );
}

async fn repeated_nonce_reacquires_with_a_higher_fence(context: TestContext) {
    let (leases, name, nonce) = (context.leases().await, context.name("one"), nonce());
    let first = acquire(&name, "ada")
        .nonce(&nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    let again = acquire(&name, "ada")
        .nonce(&nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    assert_eq!(again.granted, GrantKind::Again);
    assert!(again.fence > first.fence);
    assert_eq!(
        renew(&*leases, &name, first.fence).await,
        Err(Error::Fenced)
    );
    assert!(
        !release(&*leases, &name, first.fence).await,
        "the old fence releases nothing"
    );
    renew(&*leases, &name, again.fence)
        .await
        .expect("the new fence is valid");
}

/// The services' error bounds of the store's time differ: one may know it within a second, another within two.
async fn regrant_through_another_service_expires_no_earlier(context: TestContext) {
    let services = [context.leases().await, context.leases().await];
    let (name, nonce) = (context.name("one"), nonce());
    let mut before = None;
    for round in 0..10 {
        let request = acquire(&name, "ada").nonce(&nonce);
        let grant = request.expect_granted(&*services[round % 2]).await.grant;
        let after = Some((grant.fence, grant.expires_at));
        if let (Some((fence, expires_at)), Some(now)) = (before, after) {
            let increases = now.0 > fence && now.1 >= expires_at;
            assert!(increases, "{now:?} after {before:?}");
        }
        before = after;
    }
}

async fn reacquiring_with_the_fence_keeps_it(context: TestContext) {
    let (leases, name, nonce) = (context.leases().await, context.name("one"), nonce());
    let first = acquire(&name, "ada")
        .nonce(&nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    let longer_ttl = LONG_TTL * 2;
    let request = acquire(&name, "ada")
        .nonce(&nonce)
        .fence(first.fence)
        .ttl(longer_ttl);
    let kept = request.expect_granted(&*leases).await.grant;
    assert_eq!((kept.fence, kept.granted), (first.fence, GrantKind::Kept));
    assert_eq!(
        (kept.acquired_at, kept.ttl),
        (first.acquired_at, longer_ttl)
    );
    assert!(kept.expires_at > first.expires_at);
    renew(&*leases, &name, first.fence)
        .await
        .expect("the fence is still valid");
}

async fn reacquiring_with_a_stale_fence_gets_a_new_one(context: TestContext) {
    let (leases, name, nonce) = (context.leases().await, context.name("one"), nonce());
    let first = acquire(&name, "ada")
        .nonce(&nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    let second = acquire(&name, "ada")
        .nonce(&nonce)
        .expect_granted(&*leases)
        .await
        .grant;
    let third = acquire(&name, "ada")
        .nonce(&nonce)
        .fence(first.fence)
        .expect_granted(&*leases)
        .await
        .grant;
    assert_eq!(third.granted, GrantKind::Again);
    assert!(third.fence > second.fence);
    acquire(&name, "bob")
        .fence(third.fence)
        .expect_refused(&*leases)
        .await;
}

async fn renewal_keeps_the_fence(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let hold = acquire(&name, "ada").expect_granted(&*leases).await;
    let renewed = renew(&*leases, &name, hold.grant.fence)
        .await
        .expect("the lease is held");
    assert_eq!(renewed.renewal.fence, hold.grant.fence);
    assert_eq!(renewed.renewal.acquired_at, hold.grant.acquired_at);
    assert!(renewed.renewal.expires_at >= hold.grant.expires_at);
    let longer = renew_for(&*leases, &name, hold.grant.fence, Some(LONG_TTL * 2))
        .await
        .expect("the lease is held");
    assert_eq!(longer.renewal.ttl, LONG_TTL * 2);
    assert!(longer.deadline > hold.deadline + LONG_TTL / 2);
}

async fn renewal_never_shortens_the_lease(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let hold = acquire(&name, "ada").expect_granted(&*leases).await;
    let shorter = renew_for(&*leases, &name, hold.grant.fence, Some(LONG_TTL / 10))
        .await
        .expect("the lease is held");
    assert!(shorter.renewal.expires_at >= hold.grant.expires_at);
    let view = show(&*leases, &name).await;
    assert!(view.remaining[0] > LONG_TTL / 2);
}

async fn renewals_of_one_call_are_independent(context: TestContext) {
    let leases = context.leases().await;
    let mut requests = Vec::new();
    for n in 0..6 {
        let name = context.name(&n.to_string());
        let fence = acquire(&name, "ada").expect_fence(&*leases).await;
        if n % 2 == 1 {
            release(&*leases, &name, fence).await;
        }
        requests.push(RenewRequest {
            name,
            fence,
            ttl: None,
        });
    }
    let answers = leases.renew(requests.clone(), LONG_TTL).await;
    assert_eq!(answers.len(), requests.len());
    for (n, (request, answer)) in requests.iter().zip(answers).enumerate() {
        match answer {
            Ok(renewed) if n % 2 == 0 => assert_eq!(renewed.renewal.fence, request.fence),
            Err(Error::Fenced) if n % 2 == 1 => {}
            other => panic!("renewal {n}: {other:?}"),
        }
    }
    assert!(leases.renew(Vec::new(), LONG_TTL).await.is_empty());
}

async fn fences_only_increase(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let others = context.leases().await;
    let mut highest = Fence::default();
    for round in 0..20 {
        let leases = if round % 2 == 0 { &leases } else { &others };
        let fence = acquire(&name, "ada").expect_fence(&**leases).await;
        assert!(fence > highest, "{fence} after {highest}");
        highest = fence;
        assert!(release(&**leases, &name, fence).await);
    }
    assert_eq!(show(&*leases, &name).await.record.fence, highest);
}

async fn odd_names_are_distinct_leases(context: TestContext) {
    let leases = context.leases().await;
    let mut fences = Vec::new();
    for odd in ODD_NAMES {
        let name = context.name(odd);
        let fence = acquire(&name, odd.trim()).expect_fence(&*leases).await;
        leases
            .update(update(&name, fence, odd))
            .await
            .expect("the lease is held");
        fences.push((name, fence, *odd));
    }
    for (name, fence, odd) in fences {
        assert_eq!(&*body(&*leases, &name).await, odd);
        assert!(release(&*leases, &name, fence).await, "{name:?}");
        assert!(
            show(&*leases, &name).await.record.holders.is_empty(),
            "{name:?}"
        );
    }
}
