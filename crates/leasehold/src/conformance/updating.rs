//! Updates of body and state, and which fences may write.

use std::time::Duration;

use leasehold_core::{EndReason, Fence, limits};

use super::context::{
    AcquireBuilder, TestContext, acquire, body, complete, release, renew, show, update,
};
use crate::{Error, UpdateOutcome};

super::define_cases!(Leases:
    next_holder_resumes_from_the_body,
    update_sets_and_clears_the_state,
    update_can_release_in_the_same_write,
    stale_fence_never_writes,
    body_of_maximum_size_is_returned_unchanged,
    requests_over_a_limit_change_nothing,
);

async fn next_holder_resumes_from_the_body(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("job"));
    let first = acquire(&name, "ada").expect_granted(&*leases).await.grant;
    for step in ["step 1", "step 2"] {
        let updated = leases.update(update(&name, first.fence, step)).await;
        let Ok(UpdateOutcome::Renewed(renewed)) = updated else {
            panic!("not updated: {updated:?}");
        };
        assert_eq!(
            (renewed.renewal.fence, &*renewed.renewal.body),
            (first.fence, step)
        );
    }
    release(&*leases, &name, first.fence).await;
    let second = acquire(&name, "bob").expect_granted(&*leases).await.grant;
    assert_eq!(&*second.body, "step 2");
}

async fn update_sets_and_clears_the_state(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("item"));
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
    for state in [Some("REQUESTED"), Some("é / 🔒 %"), None] {
        let mut request = update(&name, fence, "");
        (request.body, request.state) = (None, Some(state.map(Into::into)));
        leases.update(request).await.expect("the lease is held");
        let record = show(&*leases, &name).await.record;
        assert_eq!(record.state.as_ref().map(|state| &*state.label), state);
    }
    let mut request = update(&name, fence, "only the body");
    request.state = Some(Some("KEPT".into()));
    leases.update(request).await.expect("the lease is held");
    leases
        .update(update(&name, fence, "again"))
        .await
        .expect("the lease is held");
    let record = show(&*leases, &name).await.record;
    assert_eq!(
        record.state.as_ref().map(|state| &*state.label),
        Some("KEPT")
    );
    assert_eq!(&*record.body, "again");
}

async fn update_can_release_in_the_same_write(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("job"));
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
    assert_eq!(
        complete(&*leases, &name, fence, "result").await,
        Ok(UpdateOutcome::Completed)
    );
    // The same update can be repeated. A different one is too late.
    assert_eq!(
        complete(&*leases, &name, fence, "result").await,
        Ok(UpdateOutcome::Completed)
    );
    assert_eq!(
        complete(&*leases, &name, fence, "other").await,
        Err(Error::Fenced)
    );
    let next = acquire(&name, "bob").expect_granted(&*leases).await.grant;
    assert_eq!(&*next.body, "result");
    let last = next.last.expect("the record keeps its last holder");
    assert_eq!(last.fence, fence);
    assert!(
        matches!(last.how, EndReason::Completed(_)),
        "{:?}",
        last.how
    );
}

async fn stale_fence_never_writes(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let stale = acquire(&name, "ada").expect_fence(&*leases).await;
    release(&*leases, &name, stale).await;
    let live = acquire(&name, "bob").expect_fence(&*leases).await;
    leases
        .update(update(&name, live, "bob's"))
        .await
        .expect("bob holds it");
    let future = Fence::new(live.get() + 1).expect("a valid fence");
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
    let nowhere = context.name("nowhere");
    assert_eq!(renew(&*leases, &nowhere, live).await, Err(Error::Fenced));
}

async fn body_of_maximum_size_is_returned_unchanged(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
    for largest in [
        "x".repeat(limits::MAX_BODY_BYTES),
        "🔒".repeat(limits::MAX_BODY_BYTES / 4),
        "\"\\\n\t".repeat(1000),
    ] {
        leases
            .update(update(&name, fence, &largest))
            .await
            .expect("the body is within its limit");
        assert!(
            *body(&*leases, &name).await == *largest,
            "a body of {} bytes changed",
            largest.len()
        );
    }
}

async fn requests_over_a_limit_change_nothing(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let owner = "o".repeat(limits::MAX_OWNER_BYTES + 1);
    let invalid: [AcquireBuilder; 5] = [
        acquire(&name, "ada").ttl(Duration::ZERO),
        acquire(&name, "ada").ttl(limits::MAX_TTL + Duration::from_secs(1)),
        acquire(&name, &owner),
        acquire(&name, "ada").shared(Some(0)),
        acquire(&name, "ada").shared(Some(limits::MAX_HOLDERS as u16 + 1)),
    ];
    for builder in invalid {
        let request = builder.0.clone();
        let answer = builder.send(&*leases).await;
        assert!(
            matches!(answer, Err(Error::Invalid(_))),
            "{request:?} gave {answer:?}"
        );
    }
    assert_eq!(leases.show(&name).await, Ok(None), "nothing was written");
    let fence = acquire(&name, "ada").expect_fence(&*leases).await;
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
