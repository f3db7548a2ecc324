//! Releasing and breaking.

use leasehold_core::{EndReason, Fence};

use super::bench::{Bench, LONG, ask, body, nonce, release, renew, shown, update};
use crate::{BreakRequest, Broke, Error, Holding, Leases};
use leasehold_core::Name;

super::promises!(Leases:
    a_release_may_be_repeated,
    a_release_by_nonce_needs_no_fence,
    a_release_of_nothing_is_no_error,
    breaking_ones_own_is_a_release,
    breaking_somebody_elses_is_refused,
    a_forced_break_stops_the_holder_but_stays_in_the_way,
    a_forced_break_at_once_frees_the_name,
    a_forced_break_may_mean_one_holder,
    a_forced_break_needs_a_reason,
);

async fn force(leases: &dyn Leases, name: &Name, fence: Option<Fence>, now: bool) -> Broke {
    let how = BreakRequest::Force {
        fence,
        reason: "it hung".into(),
        now,
    };
    leases.break_lease(name, how).await.expect("it is broken")
}

async fn a_release_may_be_repeated(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let grant = ask(&name, "ada").granted(&*leases).await.grant;
    leases
        .update(update(&name, grant.fence, "kept"))
        .await
        .expect("it is held");
    assert!(release(&*leases, &name, grant.fence).await);
    assert!(
        release(&*leases, &name, grant.fence).await,
        "it had succeeded"
    );
    let record = shown(&*leases, &name).await.record;
    assert_eq!((&*record.body, record.fence), ("kept", grant.fence));
    let next = ask(&name, "bob").granted(&*leases).await.grant;
    // The first holder's call comes once more, late: it must not let go of the next one's.
    release(&*leases, &name, grant.fence).await;
    renew(&*leases, &name, next.fence)
        .await
        .expect("bob holds it");
}

async fn a_release_by_nonce_needs_no_fence(bench: Bench) {
    let (leases, name, mine) = (bench.leases().await, bench.name("one"), nonce());
    ask(&name, "ada").nonce(&mine).granted(&*leases).await;
    assert_eq!(
        leases.release(&name, Holding::Nonce(nonce())).await,
        Ok(false)
    );
    ask(&name, "bob").refused(&*leases).await;
    assert_eq!(leases.release(&name, Holding::Nonce(mine)).await, Ok(true));
    ask(&name, "bob").granted(&*leases).await;
}

async fn a_release_of_nothing_is_no_error(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    for fence in [Fence::default(), Fence::MAX] {
        assert!(!release(&*leases, &name, fence).await);
    }
    assert_eq!(
        leases.release(&name, Holding::Nonce(nonce())).await,
        Ok(false)
    );
    assert_eq!(leases.show(&name).await, Ok(None), "nothing was written");
}

async fn breaking_ones_own_is_a_release(bench: Bench) {
    let (leases, name, mine) = (bench.leases().await, bench.name("one"), nonce());
    let nobodys = BreakRequest::Own(Holding::Nonce(mine.clone()));
    assert_eq!(
        leases.break_lease(&name, nobodys.clone()).await,
        Ok(Broke::NotHeld)
    );
    let first = ask(&name, "ada")
        .nonce(&mine)
        .granted(&*leases)
        .await
        .grant
        .fence;
    let by_fence = BreakRequest::Own(Holding::Fence(first));
    assert_eq!(leases.break_lease(&name, by_fence).await, Ok(Broke::Free));
    let second = ask(&name, "ada")
        .nonce(&mine)
        .granted(&*leases)
        .await
        .grant
        .fence;
    assert!(second > first);
    assert_eq!(leases.break_lease(&name, nobodys).await, Ok(Broke::Free));
    ask(&name, "bob").granted(&*leases).await;
}

async fn breaking_somebody_elses_is_refused(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let theirs = ask(&name, "ada").granted(&*leases).await.grant.fence;
    for holding in [Holding::Nonce(nonce()), Holding::Fence(Fence::MAX)] {
        let answer = leases.break_lease(&name, BreakRequest::Own(holding)).await;
        assert_eq!(answer, Err(Error::Fenced));
    }
    renew(&*leases, &name, theirs).await.expect("ada holds it");
}

async fn a_forced_break_stops_the_holder_but_stays_in_the_way(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    assert_eq!(force(&*leases, &name, None, false).await, Broke::NotHeld);
    let hold = ask(&name, "ada").granted(&*leases).await;
    let fence = hold.grant.fence;
    leases
        .update(update(&name, fence, "kept"))
        .await
        .expect("it is held");
    let broke = force(&*leases, &name, None, false).await;
    let Broke::Until(until) = broke else {
        panic!("it is in the way until it expires: {broke:?}");
    };
    assert!(until >= hold.grant.expires_at);
    assert_eq!(renew(&*leases, &name, fence).await, Err(Error::Fenced));
    assert_eq!(
        leases.update(update(&name, fence, "late")).await,
        Err(Error::Fenced)
    );
    let held = ask(&name, "bob").refused(&*leases).await;
    assert_eq!(&*held.owner, "ada");
    assert!(held.retry_after > LONG / 2);
    let view = shown(&*leases, &name).await;
    assert_eq!(view.record.holders[0].broken.as_deref(), Some("it hung"));
    assert_eq!(&*body(&*leases, &name).await, "kept");
}

async fn a_forced_break_at_once_frees_the_name(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    assert_eq!(force(&*leases, &name, None, true).await, Broke::NotHeld);
    let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
    assert_eq!(force(&*leases, &name, None, true).await, Broke::Free);
    assert_eq!(renew(&*leases, &name, fence).await, Err(Error::Fenced));
    let next = ask(&name, "bob").granted(&*leases).await.grant;
    assert!(next.fence > fence);
    let last = next.last.expect("it says how the last one ended");
    assert_eq!((last.fence, last.how), (fence, EndReason::Broken));
}

async fn a_forced_break_may_mean_one_holder(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let one = ask(&name, "ada")
        .shared(None)
        .granted(&*leases)
        .await
        .grant
        .fence;
    let other = ask(&name, "bob")
        .shared(None)
        .granted(&*leases)
        .await
        .grant
        .fence;
    assert_eq!(
        force(&*leases, &name, Some(Fence::MAX), true).await,
        Broke::NotHeld
    );
    force(&*leases, &name, Some(one), true).await;
    assert_eq!(renew(&*leases, &name, one).await, Err(Error::Fenced));
    renew(&*leases, &name, other).await.expect("bob holds it");
}

async fn a_forced_break_needs_a_reason(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
    let how = BreakRequest::Force {
        fence: None,
        reason: "".into(),
        now: true,
    };
    let answer = leases.break_lease(&name, how).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    renew(&*leases, &name, fence).await.expect("ada holds it");
}
