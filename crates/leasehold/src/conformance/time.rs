//! Leases that run out.

use std::time::Duration;

use leasehold_core::{BootTime, EndReason};

use super::bench::{
    Bench, LONG, PATIENT, ask, body, boot, complete, nonce, release, renew, renew_for, shown,
    update,
};
use crate::host::{Machine, sleep_until};
use crate::{Acquired, Error, Leases};
use leasehold_core::Name;

super::promises!(Leases:
    takes_over_after_expiry,
    nobody_takes_over_while_the_holder_may_believe,
    an_expired_fence_acts_no_more,
    what_was_written_outlives_its_writer,
    a_renewed_lease_is_not_taken_over,
    a_repeated_nonce_after_expiry_is_a_fresh_grant,
    an_expired_lease_shows_as_free,
    a_sharer_runs_out_alone,
    a_broken_holder_makes_way_when_it_expires,
    refuses_a_ttl_that_the_clock_cannot_keep,
);

/// Waits until a lease that is not renewed shows as free.
async fn wait_until_free(leases: &dyn Leases, name: &Name) {
    let give_up = boot() + PATIENT;
    while !shown(leases, name).await.record.holders.is_empty() {
        assert!(boot() < give_up, "{name} never expires");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn takes_over_after_expiry(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let short = bench.short().await;
    let first = ask(&name, "ada").ttl(short).granted(&*leases).await.grant;
    let second = ask(&name, "bob")
        .wait(PATIENT)
        .granted(&*leases)
        .await
        .grant;
    assert!(second.fence > first.fence);
    assert!(
        second.acquired_at > first.expires_at,
        "not before it was over"
    );
    let last = second.last.expect("it says how the last one ended");
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

async fn nobody_takes_over_while_the_holder_may_believe(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let others = bench.leases().await;
    let short = bench.short().await;
    let mut believed = BootTime::default();
    for round in 0..4 {
        let leases = if round % 2 == 0 { &leases } else { &others };
        let hold = ask(&name, "ada")
            .ttl(short)
            .wait(PATIENT)
            .granted(&**leases)
            .await;
        assert!(
            boot() >= believed,
            "granted while the last one still believed"
        );
        believed = hold.deadline;
    }
}

async fn an_expired_fence_acts_no_more(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let short = bench.short().await;
    let fence = ask(&name, "ada")
        .ttl(short)
        .granted(&*leases)
        .await
        .grant
        .fence;
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

async fn what_was_written_outlives_its_writer(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("job"));
    let short = bench.short().await;
    let fence = ask(&name, "ada")
        .ttl(short)
        .granted(&*leases)
        .await
        .grant
        .fence;
    leases
        .update(update(&name, fence, "step 7"))
        .await
        .expect("it is held");
    let next = ask(&name, "bob")
        .wait(PATIENT)
        .granted(&*leases)
        .await
        .grant;
    assert_eq!(&*next.body, "step 7");
}

async fn a_renewed_lease_is_not_taken_over(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let short = bench.short().await + Duration::from_secs(1);
    let hold = ask(&name, "ada").ttl(short).granted(&*leases).await;
    let fence = hold.grant.fence;
    let renewed = renew_for(&*leases, &name, fence, Some(LONG))
        .await
        .expect("it goes on");
    assert!(renewed.renewal.expires_at > hold.grant.expires_at);
    sleep_until(&Machine, hold.deadline + short / 2).await;
    ask(&name, "bob").refused(&*leases).await;
    leases
        .update(update(&name, fence, "still mine"))
        .await
        .expect("it is held");
}

async fn a_repeated_nonce_after_expiry_is_a_fresh_grant(bench: Bench) {
    let (leases, name, nonce) = (bench.leases().await, bench.name("one"), nonce());
    let short = bench.short().await;
    let first = ask(&name, "ada")
        .nonce(&nonce)
        .ttl(short)
        .granted(&*leases)
        .await
        .grant;
    wait_until_free(&*leases, &name).await;
    let again = ask(&name, "ada")
        .nonce(&nonce)
        .fence(first.fence)
        .granted(&*leases)
        .await
        .grant;
    assert!(again.fence > first.fence, "the old fence is not kept");
    assert_eq!(again.granted, leasehold_core::GrantKind::Fresh);
    assert_eq!(again.last.map(|last| last.how), Some(EndReason::Expired));
}

async fn an_expired_lease_shows_as_free(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let short = bench.short().await;
    let grant = ask(&name, "ada").ttl(short).granted(&*leases).await.grant;
    wait_until_free(&*leases, &name).await;
    let record = shown(&*leases, &name).await.record;
    assert_eq!(record.fence, grant.fence);
    let last = record.last.expect("it says how the last one ended");
    assert_eq!((last.fence, last.how), (grant.fence, EndReason::Expired));
}

async fn a_sharer_runs_out_alone(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("gpu"));
    let short = bench.short().await;
    let stays = ask(&name, "ada")
        .shared(Some(2))
        .granted(&*leases)
        .await
        .grant
        .fence;
    ask(&name, "bob")
        .shared(Some(2))
        .ttl(short)
        .granted(&*leases)
        .await;
    ask(&name, "eve")
        .shared(Some(2))
        .wait(PATIENT)
        .granted(&*leases)
        .await;
    renew(&*leases, &name, stays)
        .await
        .expect("ada still shares it");
    ask(&name, "fay").shared(Some(2)).refused(&*leases).await;
}

async fn a_broken_holder_makes_way_when_it_expires(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let short = bench.short().await;
    let hold = ask(&name, "ada").ttl(short).granted(&*leases).await;
    let how = crate::BreakRequest::Force {
        fence: None,
        reason: "it hung".into(),
        now: false,
    };
    leases.break_lease(&name, how).await.expect("it is broken");
    let next = ask(&name, "bob")
        .wait(PATIENT)
        .granted(&*leases)
        .await
        .grant;
    assert!(
        boot() >= hold.deadline,
        "granted while the broken one may still believe"
    );
    let last = next.last.expect("it says how the last one ended");
    assert_eq!(
        (last.fence, last.how),
        (hold.grant.fence, EndReason::Broken)
    );
}

async fn refuses_a_ttl_that_the_clock_cannot_keep(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let margin = bench.store().await.facts().margin;
    if margin.is_zero() {
        let shortest = leasehold_core::limits::MIN_TTL;
        let answer = ask(&name, "ada").ttl(shortest).of(&*leases).await;
        assert!(matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
        return;
    }
    let least = margin * 4;
    let short = least - Duration::from_millis(1);
    let answer = ask(&name, "ada").ttl(short).of(&*leases).await;
    let Err(Error::Invalid(why)) = answer else {
        panic!("{answer:?}");
    };
    let why = why.to_string();
    assert!(why.contains(&format!("give {least:?} or more")), "{why}");
    assert_eq!(leases.show(&name).await, Ok(None), "nothing was written");
    // What the refusal names is enough.
    let answer = ask(&name, "ada").ttl(least).of(&*leases).await;
    assert!(matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
}
