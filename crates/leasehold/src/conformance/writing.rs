//! Writing with a lease: body and state, and who may.

use std::time::Duration;

use leasehold_core::{EndReason, Fence, limits};

use super::bench::{Ask, Bench, ask, body, complete, release, renew, shown, update};
use crate::{Error, Updated};

super::promises!(Leases:
    the_next_holder_resumes_from_the_body,
    an_update_sets_and_clears_the_state,
    an_update_may_let_go_in_the_same_write,
    a_stale_fence_never_writes,
    a_body_at_its_limit_comes_back,
    what_is_out_of_limits_changes_nothing,
);

async fn the_next_holder_resumes_from_the_body(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("job"));
    let first = ask(&name, "ada").granted(&*leases).await.grant;
    for step in ["step 1", "step 2"] {
        let updated = leases.update(update(&name, first.fence, step)).await;
        let Ok(Updated::Renewed(renewed)) = updated else {
            panic!("it was not updated: {updated:?}");
        };
        assert_eq!(
            (renewed.renewal.fence, &*renewed.renewal.body),
            (first.fence, step)
        );
    }
    release(&*leases, &name, first.fence).await;
    let second = ask(&name, "bob").granted(&*leases).await.grant;
    assert_eq!(&*second.body, "step 2");
}

async fn an_update_sets_and_clears_the_state(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("item"));
    let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
    for state in [Some("REQUESTED"), Some("é / 🔒 %"), None] {
        let mut request = update(&name, fence, "");
        (request.body, request.state) = (None, Some(state.map(Into::into)));
        leases.update(request).await.expect("it is updated");
        let record = shown(&*leases, &name).await.record;
        assert_eq!(record.state.as_ref().map(|state| &*state.label), state);
    }
    let mut request = update(&name, fence, "only the body");
    request.state = Some(Some("KEPT".into()));
    leases.update(request).await.expect("it is updated");
    leases
        .update(update(&name, fence, "again"))
        .await
        .expect("it is updated");
    let record = shown(&*leases, &name).await.record;
    assert_eq!(
        record.state.as_ref().map(|state| &*state.label),
        Some("KEPT")
    );
    assert_eq!(&*record.body, "again");
}

async fn an_update_may_let_go_in_the_same_write(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("job"));
    let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
    assert_eq!(
        complete(&*leases, &name, fence, "result").await,
        Ok(Updated::Completed)
    );
    // Repeated, it says again that it succeeded; anything else is too late.
    assert_eq!(
        complete(&*leases, &name, fence, "result").await,
        Ok(Updated::Completed)
    );
    assert_eq!(
        complete(&*leases, &name, fence, "other").await,
        Err(Error::Fenced)
    );
    let next = ask(&name, "bob").granted(&*leases).await.grant;
    assert_eq!(&*next.body, "result");
    let last = next.last.expect("it says how the last one ended");
    assert_eq!(last.fence, fence);
    assert!(
        matches!(last.how, EndReason::Completed(_)),
        "{:?}",
        last.how
    );
}

async fn a_stale_fence_never_writes(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let stale = ask(&name, "ada").granted(&*leases).await.grant.fence;
    release(&*leases, &name, stale).await;
    let live = ask(&name, "bob").granted(&*leases).await.grant.fence;
    leases
        .update(update(&name, live, "bob's"))
        .await
        .expect("it is bob's");
    let future = Fence::new(live.get() + 1).expect("a fence");
    for fence in [stale, future, Fence::default(), Fence::MAX] {
        assert_eq!(
            renew(&*leases, &name, fence).await,
            Err(Error::Fenced),
            "{fence}"
        );
        let updated = leases.update(update(&name, fence, "a zombie's")).await;
        assert_eq!(updated, Err(Error::Fenced), "{fence}");
        assert_eq!(
            complete(&*leases, &name, fence, "a zombie's").await,
            Err(Error::Fenced)
        );
    }
    for fence in [future, Fence::default(), Fence::MAX] {
        assert!(!release(&*leases, &name, fence).await);
    }
    assert_eq!(&*body(&*leases, &name).await, "bob's");
    renew(&*leases, &name, live).await.expect("bob holds it");
    let nowhere = bench.name("nowhere");
    assert_eq!(renew(&*leases, &nowhere, live).await, Err(Error::Fenced));
}

async fn a_body_at_its_limit_comes_back(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
    for largest in [
        "x".repeat(limits::MAX_BODY_BYTES),
        "🔒".repeat(limits::MAX_BODY_BYTES / 4),
        "\"\\\n\t".repeat(1000),
    ] {
        leases
            .update(update(&name, fence, &largest))
            .await
            .expect("it fits");
        assert!(
            *body(&*leases, &name).await == *largest,
            "a body of {} bytes changed",
            largest.len()
        );
    }
}

async fn what_is_out_of_limits_changes_nothing(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let owner = "o".repeat(limits::MAX_OWNER_BYTES + 1);
    let wrong: [Ask; 5] = [
        ask(&name, "ada").ttl(Duration::ZERO),
        ask(&name, "ada").ttl(limits::MAX_TTL + Duration::from_secs(1)),
        ask(&name, &owner),
        ask(&name, "ada").shared(Some(0)),
        ask(&name, "ada").shared(Some(limits::MAX_HOLDERS as u16 + 1)),
    ];
    for ask in wrong {
        let request = ask.0.clone();
        let answer = ask.of(&*leases).await;
        assert!(
            matches!(answer, Err(Error::Invalid(_))),
            "{request:?} gave {answer:?}"
        );
    }
    assert_eq!(leases.show(&name).await, Ok(None), "nothing was written");
    let fence = ask(&name, "ada").granted(&*leases).await.grant.fence;
    let mut requests = vec![update(
        &name,
        fence,
        &"b".repeat(limits::MAX_BODY_BYTES + 1),
    )];
    for state in ["", "line\nbreak", &"s".repeat(limits::MAX_STATE_BYTES + 1)] {
        let mut request = update(&name, fence, "not written");
        request.state = Some(Some(state.into()));
        requests.push(request);
    }
    for request in requests {
        let answer = leases.update(request).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    assert_eq!(&*body(&*leases, &name).await, "");
}
