//! Expiry of leases.

use std::time::Duration;

use leasehold_core::{BootTime, EndReason};

use super::context::{
    LONG_TTL, TIMEOUT, TestContext, acquire, body, boot_time, complete, nonce, release, renew,
    renew_for, show, update,
};
use crate::host::{Machine, sleep_until};
use crate::{AcquireOutcome, Error, Leases};
use leasehold_core::Name;

super::define_cases!(Leases:
    lease_is_taken_over_after_expiry,
    no_takeover_before_the_deadline_of_the_holder,
    expired_fence_is_refused,
    body_outlives_its_writer,
    renewed_lease_is_not_taken_over,
    repeated_nonce_after_expiry_gets_a_fresh_grant,
    expired_lease_shows_as_free,
    sharers_expire_independently,
    broken_lease_is_free_after_expiry,
    ttl_below_the_clock_margin_is_refused,
);

/// Waits until an unrenewed lease shows as free.
async fn wait_until_free(leases: &dyn Leases, name: &Name) {
    let give_up = boot_time() + TIMEOUT;
    while !show(leases, name).await.record.holders.is_empty() {
        assert!(boot_time() < give_up, "{name} never expires");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn lease_is_taken_over_after_expiry(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let short = context.short_ttl().await;
    let first = acquire(&name, "ada")
        .ttl(short)
        .expect_granted(&*leases)
        .await
        .grant;
    let second = acquire(&name, "bob")
        .wait(TIMEOUT)
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(second.fence > first.fence);
    assert!(
        second.acquired_at > first.expires_at,
        "granted only after the expiry"
    );
    let last = second.last.expect("the record keeps its last holder");
    assert_eq!(
        (last.fence, &*last.owner, last.how),
        (first.fence, "ada", EndReason::Expired)
    );
    let late = renew(&*leases, &name, first.fence).await;
    assert!(
        matches!(late, Err(Error::Expired | Error::Fenced)),
        "{late:?}"
    );
}

async fn no_takeover_before_the_deadline_of_the_holder(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let others = context.leases().await;
    let short = context.short_ttl().await;
    let mut last_deadline = BootTime::default();
    for round in 0..4 {
        let leases = if round % 2 == 0 { &leases } else { &others };
        let hold = acquire(&name, "ada")
            .ttl(short)
            .wait(TIMEOUT)
            .expect_granted(&**leases)
            .await;
        assert!(
            boot_time() >= last_deadline,
            "granted before the deadline of the last holder"
        );
        last_deadline = hold.deadline;
    }
}

async fn expired_fence_is_refused(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let short = context.short_ttl().await;
    let fence = acquire(&name, "ada")
        .ttl(short)
        .expect_fence(&*leases)
        .await;
    wait_until_free(&*leases, &name).await;
    assert_eq!(renew(&*leases, &name, fence).await, Err(Error::Expired));
    assert_eq!(
        leases.update(update(&name, fence, "late")).await,
        Err(Error::Expired)
    );
    assert_eq!(
        complete(&*leases, &name, fence, "late").await,
        Err(Error::Expired)
    );
    assert!(!release(&*leases, &name, fence).await);
    assert_eq!(&*body(&*leases, &name).await, "");
}

async fn body_outlives_its_writer(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("job"));
    let short = context.short_ttl().await;
    let fence = acquire(&name, "ada")
        .ttl(short)
        .expect_fence(&*leases)
        .await;
    leases
        .update(update(&name, fence, "step 7"))
        .await
        .expect("the lease is held");
    let next = acquire(&name, "bob")
        .wait(TIMEOUT)
        .expect_granted(&*leases)
        .await
        .grant;
    assert_eq!(&*next.body, "step 7");
}

async fn renewed_lease_is_not_taken_over(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let short = context.short_ttl().await + Duration::from_secs(1);
    let hold = acquire(&name, "ada")
        .ttl(short)
        .expect_granted(&*leases)
        .await;
    let fence = hold.grant.fence;
    let renewed = renew_for(&*leases, &name, fence, Some(LONG_TTL))
        .await
        .expect("the lease is held");
    assert!(renewed.renewal.expires_at > hold.grant.expires_at);
    sleep_until(&Machine, hold.deadline + short / 2).await;
    acquire(&name, "bob").expect_refused(&*leases).await;
    leases
        .update(update(&name, fence, "still mine"))
        .await
        .expect("the lease is held");
}

async fn repeated_nonce_after_expiry_gets_a_fresh_grant(context: TestContext) {
    let (leases, name, nonce) = (context.leases().await, context.name("one"), nonce());
    let short = context.short_ttl().await;
    let first = acquire(&name, "ada")
        .nonce(&nonce)
        .ttl(short)
        .expect_granted(&*leases)
        .await
        .grant;
    wait_until_free(&*leases, &name).await;
    let again = acquire(&name, "ada")
        .nonce(&nonce)
        .fence(first.fence)
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(again.fence > first.fence, "the old fence is not kept");
    assert_eq!(again.granted, leasehold_core::GrantKind::Fresh);
    assert_eq!(again.last.map(|last| last.how), Some(EndReason::Expired));
}

async fn expired_lease_shows_as_free(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let short = context.short_ttl().await;
    let grant = acquire(&name, "ada")
        .ttl(short)
        .expect_granted(&*leases)
        .await
        .grant;
    wait_until_free(&*leases, &name).await;
    let record = show(&*leases, &name).await.record;
    assert_eq!(record.fence, grant.fence);
    let last = record.last.expect("the record keeps its last holder");
    assert_eq!((last.fence, last.how), (grant.fence, EndReason::Expired));
}

async fn sharers_expire_independently(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("gpu"));
    let short = context.short_ttl().await;
    let remaining = acquire(&name, "ada")
        .shared(Some(2))
        .expect_fence(&*leases)
        .await;
    acquire(&name, "bob")
        .shared(Some(2))
        .ttl(short)
        .expect_granted(&*leases)
        .await;
    acquire(&name, "eve")
        .shared(Some(2))
        .wait(TIMEOUT)
        .expect_granted(&*leases)
        .await;
    renew(&*leases, &name, remaining)
        .await
        .expect("ada still shares it");
    acquire(&name, "fay")
        .shared(Some(2))
        .expect_refused(&*leases)
        .await;
}

async fn broken_lease_is_free_after_expiry(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let short = context.short_ttl().await;
    let hold = acquire(&name, "ada")
        .ttl(short)
        .expect_granted(&*leases)
        .await;
    let how = crate::BreakRequest::Force {
        fence: None,
        reason: "it hung".into(),
        now: false,
    };
    leases
        .break_lease(&name, how)
        .await
        .expect("the break succeeds");
    let next = acquire(&name, "bob")
        .wait(TIMEOUT)
        .expect_granted(&*leases)
        .await
        .grant;
    assert!(
        boot_time() >= hold.deadline,
        "granted before the deadline of the broken holder"
    );
    let last = next.last.expect("the record keeps its last holder");
    assert_eq!(
        (last.fence, last.how),
        (hold.grant.fence, EndReason::Broken)
    );
}

async fn ttl_below_the_clock_margin_is_refused(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let margin = context.store().await.facts().margin;
    if margin.is_zero() {
        let shortest = leasehold_core::limits::MIN_TTL;
        let answer = acquire(&name, "ada").ttl(shortest).send(&*leases).await;
        assert!(
            matches!(answer, Ok(AcquireOutcome::Granted(_))),
            "{answer:?}"
        );
        return;
    }
    let least = margin * 4;
    let short = least - Duration::from_millis(1);
    let answer = acquire(&name, "ada").ttl(short).send(&*leases).await;
    let Err(Error::Invalid(why)) = answer else {
        panic!("{answer:?}");
    };
    let why = why.to_string();
    assert!(why.contains(&format!("give {least:?} or more")), "{why}");
    assert_eq!(leases.show(&name).await, Ok(None), "nothing was written");
    // The ttl that the refusal suggests is accepted.
    let answer = acquire(&name, "ada").ttl(least).send(&*leases).await;
    assert!(
        matches!(answer, Ok(AcquireOutcome::Granted(_))),
        "{answer:?}"
    );
}
