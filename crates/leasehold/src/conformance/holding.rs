//! Taking a lease, keeping it, writing with it.

use std::time::Duration;

use leasehold_core::{EndReason, Fence, GrantKind};

use super::bench::{Bench, LONG, ask, body, boot, nonce, release, renew, renew_for, shown, update};
use super::store_names::ODD;
use crate::{Error, RenewRequest};

super::promises!(Leases:
    a_free_lease_is_granted,
    a_held_lease_is_refused,
    a_released_lease_passes_on,
    a_repeated_nonce_takes_it_back_with_a_higher_fence,
    a_regrant_through_another_service_ends_no_earlier,
    showing_the_fence_keeps_it,
    a_wrong_fence_does_not_keep_it,
    a_renewal_keeps_the_fence,
    a_renewal_never_shortens,
    renewals_stand_each_for_itself,
    fences_only_grow,
    odd_names_are_leases_of_their_own,
);

async fn a_free_lease_is_granted(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let sent = boot();
    let hold = ask(&name, "ada").granted(&*leases).await;
    assert!(hold.grant.fence > Fence::default());
    assert_eq!(hold.grant.granted, GrantKind::Fresh);
    assert_eq!(&*hold.grant.body, "");
    assert_eq!((hold.grant.state, hold.grant.last), (None, None));
    assert_eq!(hold.grant.expires_at.since(hold.grant.acquired_at), LONG);
    assert!(hold.deadline > sent, "it may be believed in");
    assert!(hold.deadline < boot() + LONG, "for less than it lasts");
    let view = shown(&*leases, &name).await;
    assert_eq!(view.record.holders.len(), 1);
    assert_eq!(&*view.record.holders[0].owner, "ada");
    assert!(!view.remaining[0].is_zero() && view.remaining[0] <= LONG + Duration::from_secs(5));
}

async fn a_held_lease_is_refused(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let hold = ask(&name, "ada").granted(&*leases).await;
    let held = ask(&name, "bob").refused(&*leases).await;
    assert_eq!(&*held.owner, "ada");
    assert_eq!(held.since, hold.grant.acquired_at);
    assert!(held.retry_after > LONG / 2, "{:?}", held.retry_after);
    assert!(
        held.retry_after < LONG + Duration::from_secs(5),
        "{:?}",
        held.retry_after
    );
    renew(&*leases, &name, hold.grant.fence)
        .await
        .expect("its holder holds it");
}

async fn a_released_lease_passes_on(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let first = ask(&name, "ada").granted(&*leases).await.grant;
    assert!(release(&*leases, &name, first.fence).await);
    assert!(shown(&*leases, &name).await.record.holders.is_empty());
    let second = ask(&name, "bob").granted(&*leases).await.grant;
    assert!(second.fence > first.fence);
    let last = second.last.expect("it says how the last one ended");
    assert_eq!(
        (last.fence, &*last.owner, last.how),
        (first.fence, "ada", EndReason::Released)
    );
}

async fn a_repeated_nonce_takes_it_back_with_a_higher_fence(bench: Bench) {
    let (leases, name, nonce) = (bench.leases().await, bench.name("one"), nonce());
    let first = ask(&name, "ada")
        .nonce(&nonce)
        .granted(&*leases)
        .await
        .grant;
    let again = ask(&name, "ada")
        .nonce(&nonce)
        .granted(&*leases)
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
        "the zombie lets go of nothing"
    );
    renew(&*leases, &name, again.fence)
        .await
        .expect("the new fence acts");
}

/// Each service knows the store's time in its own way: one may know it to a second, another to two.
async fn a_regrant_through_another_service_ends_no_earlier(bench: Bench) {
    let services = [bench.leases().await, bench.leases().await];
    let (name, nonce) = (bench.name("one"), nonce());
    let mut before = None;
    for turn in 0..10 {
        let asked = ask(&name, "ada").nonce(&nonce);
        let grant = asked.granted(&*services[turn % 2]).await.grant;
        let ends = Some((grant.fence, grant.expires_at));
        if let (Some((fence, expires_at)), Some(now)) = (before, ends) {
            let grows = now.0 > fence && now.1 >= expires_at;
            assert!(grows, "{now:?} after {before:?}");
        }
        before = ends;
    }
}

async fn showing_the_fence_keeps_it(bench: Bench) {
    let (leases, name, nonce) = (bench.leases().await, bench.name("one"), nonce());
    let first = ask(&name, "ada")
        .nonce(&nonce)
        .granted(&*leases)
        .await
        .grant;
    let longer = LONG * 2;
    let asked = ask(&name, "ada")
        .nonce(&nonce)
        .fence(first.fence)
        .ttl(longer);
    let kept = asked.granted(&*leases).await.grant;
    assert_eq!((kept.fence, kept.granted), (first.fence, GrantKind::Kept));
    assert_eq!((kept.acquired_at, kept.ttl), (first.acquired_at, longer));
    assert!(kept.expires_at > first.expires_at);
    renew(&*leases, &name, first.fence)
        .await
        .expect("the fence acts on");
}

async fn a_wrong_fence_does_not_keep_it(bench: Bench) {
    let (leases, name, nonce) = (bench.leases().await, bench.name("one"), nonce());
    let first = ask(&name, "ada")
        .nonce(&nonce)
        .granted(&*leases)
        .await
        .grant;
    let second = ask(&name, "ada")
        .nonce(&nonce)
        .granted(&*leases)
        .await
        .grant;
    let third = ask(&name, "ada")
        .nonce(&nonce)
        .fence(first.fence)
        .granted(&*leases)
        .await
        .grant;
    assert_eq!(third.granted, GrantKind::Again);
    assert!(third.fence > second.fence);
    ask(&name, "bob").fence(third.fence).refused(&*leases).await;
}

async fn a_renewal_keeps_the_fence(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let hold = ask(&name, "ada").granted(&*leases).await;
    let renewed = renew(&*leases, &name, hold.grant.fence)
        .await
        .expect("it goes on");
    assert_eq!(renewed.renewal.fence, hold.grant.fence);
    assert_eq!(renewed.renewal.acquired_at, hold.grant.acquired_at);
    assert!(renewed.renewal.expires_at >= hold.grant.expires_at);
    let longer = renew_for(&*leases, &name, hold.grant.fence, Some(LONG * 2))
        .await
        .expect("it goes on");
    assert_eq!(longer.renewal.ttl, LONG * 2);
    assert!(longer.deadline > hold.deadline + LONG / 2);
}

async fn a_renewal_never_shortens(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let hold = ask(&name, "ada").granted(&*leases).await;
    let shorter = renew_for(&*leases, &name, hold.grant.fence, Some(LONG / 10))
        .await
        .expect("it goes on");
    assert!(shorter.renewal.expires_at >= hold.grant.expires_at);
    let view = shown(&*leases, &name).await;
    assert!(view.remaining[0] > LONG / 2);
}

async fn renewals_stand_each_for_itself(bench: Bench) {
    let leases = bench.leases().await;
    let mut requests = Vec::new();
    for n in 0..6 {
        let name = bench.name(&n.to_string());
        let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
        if n % 2 == 1 {
            release(&*leases, &name, fence).await;
        }
        requests.push(RenewRequest {
            name,
            fence,
            ttl: None,
        });
    }
    let answers = leases.renew(requests.clone(), LONG).await;
    assert_eq!(answers.len(), requests.len());
    for (n, (request, answer)) in requests.iter().zip(answers).enumerate() {
        match answer {
            Ok(renewed) if n % 2 == 0 => assert_eq!(renewed.renewal.fence, request.fence),
            Err(Error::Fenced) if n % 2 == 1 => {}
            other => panic!("renewal {n}: {other:?}"),
        }
    }
    assert!(leases.renew(Vec::new(), LONG).await.is_empty());
}

async fn fences_only_grow(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let others = bench.leases().await;
    let mut highest = Fence::default();
    for round in 0..20 {
        let leases = if round % 2 == 0 { &leases } else { &others };
        let fence = ask(&name, "ada").granted(&**leases).await.grant.fence;
        assert!(fence > highest, "{fence} after {highest}");
        highest = fence;
        assert!(release(&**leases, &name, fence).await);
    }
    assert_eq!(shown(&*leases, &name).await.record.fence, highest);
}

async fn odd_names_are_leases_of_their_own(bench: Bench) {
    let leases = bench.leases().await;
    let mut fences = Vec::new();
    for odd in ODD {
        let name = bench.name(odd);
        let fence = ask(&name, odd.trim()).granted(&*leases).await.grant.fence;
        leases
            .update(update(&name, fence, odd))
            .await
            .expect("it is held");
        fences.push((name, fence, *odd));
    }
    for (name, fence, odd) in fences {
        assert_eq!(&*body(&*leases, &name).await, odd);
        assert!(release(&*leases, &name, fence).await, "{name:?}");
        assert!(
            shown(&*leases, &name).await.record.holders.is_empty(),
            "{name:?}"
        );
    }
}
