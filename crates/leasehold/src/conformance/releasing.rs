//! Releasing and breaking.

use leasehold_core::{EndReason, Fence};

use super::context::{LONG_TTL, TestContext, acquire, body, nonce, release, renew, show, update};
use crate::{BreakOutcome, BreakRequest, Error, HolderKey, Leases};
use leasehold_core::Name;

super::define_cases!(Leases:
    release_can_be_repeated,
    release_by_nonce_requires_no_fence,
    releasing_a_free_name_is_no_error,
    breaking_an_own_lease_releases_it,
    breaking_the_lease_of_another_holder_is_refused,
    forced_break_stops_the_holder_but_blocks_until_expiry,
    immediate_forced_break_frees_the_name,
    forced_break_can_target_one_holder,
    forced_break_requires_a_reason,
);

async fn force(leases: &dyn Leases, name: &Name, fence: Option<Fence>, now: bool) -> BreakOutcome {
    let how = BreakRequest::Force {
        fence,
        reason: "it hung".into(),
        now,
    };
    leases
        .break_lease(name, how)
        .await
        .expect("the break succeeds")
}

async fn release_can_be_repeated(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let grant = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    leases
        .update(update(&name, grant.fence, "kept"))
        .await
        .expect("the lease is held");
    assert!(release(&*leases, &name, grant.fence).await);
    assert!(
        release(&*leases, &name, grant.fence).await,
        "the first release succeeded"
    );
    let record = show(&*leases, &name).await.record;
    assert_eq!((&*record.body, record.fence), ("kept", grant.fence));
    let next = acquire(&name, "bob").expect_granted(&*leases).await.grant;
    // A late repetition of the first holder's release must not release the next holder's lease.
    release(&*leases, &name, grant.fence).await;
    renew(&*leases, &name, next.fence)
        .await
        .expect("bob holds it");
}

async fn release_by_nonce_requires_no_fence(context: TestContext) {
    let (leases, name, own_nonce) = (context.leases().await, context.name("one"), nonce());
    acquire(&name, "ada")
        .nonce(&own_nonce)
        .expect_granted(&*leases)
        .await;
    assert_eq!(
        leases.release(&name, HolderKey::Nonce(nonce())).await,
        Ok(false)
    );
    acquire(&name, "bob").expect_refused(&*leases).await;
    assert_eq!(
        leases.release(&name, HolderKey::Nonce(own_nonce)).await,
        Ok(true)
    );
    acquire(&name, "bob").expect_granted(&*leases).await;
}

async fn releasing_a_free_name_is_no_error(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    for fence in [Fence::default(), Fence::MAX] {
        assert!(!release(&*leases, &name, fence).await);
    }
    assert_eq!(
        leases.release(&name, HolderKey::Nonce(nonce())).await,
        Ok(false)
    );
    assert_eq!(leases.show(&name).await, Ok(None), "nothing was written");
}

async fn breaking_an_own_lease_releases_it(context: TestContext) {
    let (leases, name, own_nonce) = (context.leases().await, context.name("one"), nonce());
    let by_nonce = BreakRequest::Own(HolderKey::Nonce(own_nonce.clone()));
    assert_eq!(
        leases.break_lease(&name, by_nonce.clone()).await,
        Ok(BreakOutcome::NotHeld)
    );
    let first = acquire(&name, "ada")
        .nonce(&own_nonce)
        .expect_fence(&*leases)
        .await;
    let by_fence = BreakRequest::Own(HolderKey::Fence(first));
    assert_eq!(
        leases.break_lease(&name, by_fence).await,
        Ok(BreakOutcome::Free)
    );
    let second = acquire(&name, "ada")
        .nonce(&own_nonce)
        .expect_fence(&*leases)
        .await;
    assert!(second > first);
    assert_eq!(
        leases.break_lease(&name, by_nonce).await,
        Ok(BreakOutcome::Free)
    );
    acquire(&name, "bob").expect_granted(&*leases).await;
}

async fn breaking_the_lease_of_another_holder_is_refused(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
    for holding in [HolderKey::Nonce(nonce()), HolderKey::Fence(Fence::MAX)] {
        let answer = leases.break_lease(&name, BreakRequest::Own(holding)).await;
        assert_eq!(answer, Err(Error::Fenced));
    }
    renew(&*leases, &name, fence).await.expect("ada holds it");
}

async fn forced_break_stops_the_holder_but_blocks_until_expiry(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    assert_eq!(
        force(&*leases, &name, None, false).await,
        BreakOutcome::NotHeld
    );
    let hold = acquire(&name, "ada").expect_granted(&*leases).await;
    let fence = hold.grant.fence;
    leases
        .update(update(&name, fence, "kept"))
        .await
        .expect("the lease is held");
    let broke = force(&*leases, &name, None, false).await;
    let BreakOutcome::Until(until) = broke else {
        panic!("it blocks until it expires: {broke:?}");
    };
    assert!(until >= hold.grant.expires_at);
    assert_eq!(renew(&*leases, &name, fence).await, Err(Error::Fenced));
    assert_eq!(
        leases.update(update(&name, fence, "late")).await,
        Err(Error::Fenced)
    );
    let held = acquire(&name, "bob").expect_refused(&*leases).await;
    assert_eq!(&*held.owner, "ada");
    assert!(held.retry_after > LONG_TTL / 2);
    let view = show(&*leases, &name).await;
    assert_eq!(view.record.holders[0].broken.as_deref(), Some("it hung"));
    assert_eq!(&*body(&*leases, &name).await, "kept");
}

async fn immediate_forced_break_frees_the_name(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    assert_eq!(
        force(&*leases, &name, None, true).await,
        BreakOutcome::NotHeld
    );
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
    assert_eq!(force(&*leases, &name, None, true).await, BreakOutcome::Free);
    assert_eq!(renew(&*leases, &name, fence).await, Err(Error::Fenced));
    let next = acquire(&name, "bob").expect_granted(&*leases).await.grant;
    assert!(next.fence > fence);
    let last = next.last.expect("the record keeps its last holder");
    assert_eq!((last.fence, last.how), (fence, EndReason::Broken));
}

async fn forced_break_can_target_one_holder(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let one = acquire(&name, "ada")
        .shared(None)
        .expect_fence(&*leases)
        .await;
    let other = acquire(&name, "bob")
        .shared(None)
        .expect_fence(&*leases)
        .await;
    assert_eq!(
        force(&*leases, &name, Some(Fence::MAX), true).await,
        BreakOutcome::NotHeld
    );
    force(&*leases, &name, Some(one), true).await;
    assert_eq!(renew(&*leases, &name, one).await, Err(Error::Fenced));
    renew(&*leases, &name, other).await.expect("bob holds it");
}

async fn forced_break_requires_a_reason(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
    let how = BreakRequest::Force {
        fence: None,
        reason: "".into(),
        now: true,
    };
    let answer = leases.break_lease(&name, how).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    renew(&*leases, &name, fence).await.expect("ada holds it");
}
