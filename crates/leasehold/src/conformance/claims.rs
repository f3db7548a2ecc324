//! Claims of work items by state, and acquisition of several leases in one call.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Name, Text, View};

use super::context::{
    LONG_TTL, TIMEOUT, TestContext, acquire, complete, nonce, release, run_concurrently, show,
};
use crate::leases::{
    AcquireAllOutcome, AcquireAllRequest, ClaimRequest, Leases, NamedHold, PutRequest,
};
use crate::{Error, ListRequest, UpdateOutcome, UpdateRequest};

super::define_cases!(Leases:
    oldest_items_are_claimed_first,
    items_are_claimed_in_put_order,
    put_without_a_body_keeps_the_body,
    claimed_item_changes_state_in_one_write,
    claim_respects_state_and_prefix,
    item_of_a_dead_worker_can_be_claimed_again,
    claim_waits_for_items,
    concurrent_claims_never_overlap,
    invalid_claim_is_refused,
    leased_item_cannot_be_changed,
    several_leases_are_acquired_all_or_none,
);

/// Returns a state that no other case uses.
pub(super) fn unique_state(context: &TestContext, label: &str) -> Text {
    format!("{}{label}", context.prefix()).into()
}

pub(super) fn claim_request(state: &Text, limit: usize) -> ClaimRequest {
    ClaimRequest {
        state: state.clone(),
        prefix: String::new(),
        limit,
        ttl: LONG_TTL,
        owner: "worker".into(),
        nonce: nonce(),
        wait: Duration::ZERO,
    }
}

pub(super) async fn put(leases: &dyn Leases, name: &Name, state: &Text, body: &str) {
    let request = PutRequest {
        name: name.clone(),
        state: state.clone(),
        body: Some(body.into()),
        nonce: Some(nonce()),
    };
    leases.put(request).await.expect("the item is free");
}

pub(super) async fn claim_now(leases: &dyn Leases, request: ClaimRequest) -> Vec<NamedHold> {
    leases.claim(request).await.expect("the store answers")
}

fn names_of(claimed: &[NamedHold]) -> Vec<Name> {
    claimed.iter().map(|item| item.name.clone()).collect()
}

async fn in_state(leases: &dyn Leases, state: &Text) -> Vec<Name> {
    let request = ListRequest {
        state: Some(state.clone()),
        limit: 1_000,
        ..ListRequest::default()
    };
    let listing = leases.list(request).await.expect("the store answers");
    listing.leases.into_iter().map(|(name, _)| name).collect()
}

async fn oldest_items_are_claimed_first(context: TestContext) {
    let (leases, new) = (context.leases().await, unique_state(&context, "NEW"));
    for number in 0..5 {
        put(&*leases, &context.name(&format!("{number}")), &new, "work").await;
    }
    let oldest_first = in_state(&*leases, &new).await;
    assert_eq!(oldest_first.len(), 5);
    let first = claim_now(&*leases, claim_request(&new, 3)).await;
    assert_eq!(names_of(&first), oldest_first[..3]);
    for item in &first {
        let grant = &item.hold.grant;
        assert_eq!(&*grant.body, "work");
        assert_eq!(grant.state.as_ref().map(|state| &state.label), Some(&new));
    }
    let rest = claim_now(&*leases, claim_request(&new, 3)).await;
    assert_eq!(
        names_of(&rest),
        oldest_first[3..],
        "claimed items are left out"
    );
    assert_eq!(claim_now(&*leases, claim_request(&new, 3)).await, []);
    for item in first {
        assert!(release(&*leases, &item.name, item.hold.grant.fence).await);
    }
    let again = claim_now(&*leases, claim_request(&new, 9)).await;
    assert_eq!(
        names_of(&again),
        oldest_first[..3],
        "released items can be claimed again"
    );
}

/// A service stamps its writes in order, whatever the error bound of its clock.
async fn items_are_claimed_in_put_order(context: TestContext) {
    const ITEMS: usize = 40;
    let (leases, new) = (context.leases().await, unique_state(&context, "NEW"));
    let mut put_order = Vec::new();
    for number in (0..ITEMS).rev() {
        // Put order is the reverse of name order.
        let item = context.name(&format!("{number:03}"));
        put(&*leases, &item, &new, "work").await;
        put_order.push(item);
    }
    let listing = ListRequest {
        state: Some(new.clone()),
        limit: ITEMS,
        ..ListRequest::default()
    };
    let listed = leases
        .list(listing)
        .await
        .expect("the store answers")
        .leases;
    let since = |(_, view): &(Name, View)| view.record.state.as_ref().map(|state| state.since);
    assert!(listed.is_sorted_by(|before, after| since(before) < since(after)));
    let listed: Vec<_> = listed.into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, put_order);
    let first = claim_now(&*leases, claim_request(&new, ITEMS / 2)).await;
    assert_eq!(names_of(&first), put_order[..ITEMS / 2]);
}

async fn put_without_a_body_keeps_the_body(context: TestContext) {
    let (leases, item) = (context.leases().await, context.name("item"));
    for (label, body, kept) in [
        ("NEW", None, ""),
        ("REQUESTED", Some("3 apples"), "3 apples"),
        ("FAILED", None, "3 apples"),
        ("REQUESTED", Some(""), ""),
    ] {
        let request = PutRequest {
            name: item.clone(),
            state: label.into(),
            body: body.map(Into::into),
            nonce: None,
        };
        leases.put(request).await.expect("the item is free");
        let record = show(&*leases, &item).await.record;
        let state = record.state.expect("an item has a state");
        assert_eq!((&*state.label, &*record.body), (label, kept));
    }
}

async fn claimed_item_changes_state_in_one_write(context: TestContext) {
    let leases = context.leases().await;
    let (new, done, item) = (
        unique_state(&context, "NEW"),
        unique_state(&context, "DONE"),
        context.name("item"),
    );
    put(&*leases, &item, &new, "work").await;
    let taken = claim_now(&*leases, claim_request(&new, 1)).await;
    let fence = taken[0].hold.grant.fence;
    let finish = UpdateRequest {
        name: item.clone(),
        fence,
        body: Some("result".into()),
        state: Some(Some(done.clone())),
        then_release: true,
    };
    let updated = leases.update(finish.clone()).await;
    assert_eq!(updated, Ok(UpdateOutcome::Completed));
    assert_eq!(claim_now(&*leases, claim_request(&new, 1)).await, []);
    let next = claim_now(&*leases, claim_request(&done, 1)).await;
    assert_eq!(&*next[0].hold.grant.body, "result");
    let late = UpdateRequest {
        body: Some("stale".into()),
        ..finish
    };
    let refused = leases.update(late).await;
    assert!(
        matches!(refused, Err(Error::Fenced | Error::Expired)),
        "{refused:?}"
    );
    assert_eq!(&*show(&*leases, &item).await.record.body, "result");
}

async fn claim_respects_state_and_prefix(context: TestContext) {
    let leases = context.leases().await;
    let (new, other) = (
        unique_state(&context, "NEW"),
        unique_state(&context, "OTHER"),
    );
    put(&*leases, &context.name("a/1"), &new, "").await;
    put(&*leases, &context.name("b/1"), &new, "").await;
    put(&*leases, &context.name("a/2"), &other, "").await;
    let prefix = format!("{}a/", context.prefix());
    let found = claim_now(
        &*leases,
        ClaimRequest {
            prefix,
            ..claim_request(&new, 9)
        },
    )
    .await;
    assert_eq!(names_of(&found), [context.name("a/1")]);
}

async fn item_of_a_dead_worker_can_be_claimed_again(context: TestContext) {
    let (leases, other) = (context.leases().await, context.leases().await);
    let (new, item) = (unique_state(&context, "NEW"), context.name("item"));
    put(&*leases, &item, &new, "work").await;
    let ttl = context.short_ttl().await;
    let dead = claim_now(
        &*leases,
        ClaimRequest {
            ttl,
            ..claim_request(&new, 1)
        },
    )
    .await;
    let wait = TIMEOUT;
    let next = claim_now(
        &*other,
        ClaimRequest {
            wait,
            ..claim_request(&new, 1)
        },
    )
    .await;
    assert_eq!(names_of(&next), std::slice::from_ref(&item));
    let (old, new) = (dead[0].hold.grant.fence, next[0].hold.grant.fence);
    assert!(new > old);
    let late = complete(&*leases, &item, old, "stale").await;
    assert!(
        matches!(late, Err(Error::Fenced | Error::Expired)),
        "{late:?}"
    );
}

async fn claim_waits_for_items(context: TestContext) {
    let (here, there, new) = (
        context.leases().await,
        context.leases().await,
        unique_state(&context, "NEW"),
    );
    let wait = Duration::from_millis(50);
    assert_eq!(
        claim_now(
            &*here,
            ClaimRequest {
                wait,
                ..claim_request(&new, 1)
            }
        )
        .await,
        []
    );
    for (number, putter) in [&here, &there].into_iter().enumerate() {
        let waiting = ClaimRequest {
            wait: TIMEOUT,
            ..claim_request(&new, 5)
        };
        let item = context.name(&format!("{number}"));
        let put = put(&**putter, &item, &new, "work");
        let (claimed, ()) = tokio::join!(claim_now(&*here, waiting), put);
        assert_eq!(names_of(&claimed), [item]);
    }
}

async fn concurrent_claims_never_overlap(context: TestContext) {
    const ITEMS: usize = 200;
    let (leases, new) = (context.leases().await, unique_state(&context, "NEW"));
    let items = (0..ITEMS).map(|number| context.name(&format!("{number}")));
    let puts = items.map(|name| {
        let (leases, new) = (leases.clone(), new.clone());
        async move { put(&*leases, &name, &new, "").await }
    });
    run_concurrently(puts).await;
    // Stores that take their time from HTTP need a request for each item, and their emulators are slow.
    let is_slow = context.store().await.facts().margin >= Duration::from_secs(2);
    let (worker_count, limit) = if is_slow { (4, 5) } else { (8, 10) };
    let mut workers = Vec::new();
    for _ in 0..worker_count {
        let (leases, request) = (context.leases().await, claim_request(&new, limit));
        workers.push(async move { names_of(&claim_now(&*leases, request).await) });
    }
    let batches = run_concurrently(workers).await;
    assert!(batches.iter().all(|batch| !batch.is_empty()), "{batches:?}");
    let all: Vec<_> = batches.iter().flatten().collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "an item was claimed twice");
}

async fn invalid_claim_is_refused(context: TestContext) {
    let (leases, new) = (context.leases().await, unique_state(&context, "NEW"));
    put(&*leases, &context.name("item"), &new, "").await;
    for invalid in [
        claim_request(&new, 0),
        claim_request(&new, 1_001),
        claim_request(&Text::default(), 1),
        ClaimRequest {
            ttl: Duration::ZERO,
            ..claim_request(&new, 1)
        },
    ] {
        let refused = leases.claim(invalid).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(
        claim_now(&*leases, claim_request(&new, 1)).await.len(),
        1,
        "nothing changed"
    );
}

async fn leased_item_cannot_be_changed(context: TestContext) {
    let (leases, new, item) = (
        context.leases().await,
        unique_state(&context, "NEW"),
        context.name("item"),
    );
    put(&*leases, &item, &new, "work").await;
    let taken = claim_now(&*leases, claim_request(&new, 1)).await;
    let other = PutRequest {
        name: item.clone(),
        state: unique_state(&context, "OTHER"),
        body: Some("other".into()),
        nonce: None,
    };
    let refusals = [leases.put(other).await, leases.remove(&item).await];
    for refused in refusals {
        assert!(
            matches!(&refused, Err(Error::Held(held)) if &*held.owner == "worker"),
            "{refused:?}"
        );
    }
    assert_eq!(&*show(&*leases, &item).await.record.body, "work");
    assert!(release(&*leases, &item, taken[0].hold.grant.fence).await);
    assert_eq!(leases.remove(&item).await, Ok(()));
    assert_eq!(claim_now(&*leases, claim_request(&new, 1)).await, []);
}

pub(super) fn acquire_all_request(names: &[&Name]) -> AcquireAllRequest {
    AcquireAllRequest {
        names: names.iter().copied().cloned().collect(),
        nonce: nonce(),
        owner: "both".into(),
        ttl: LONG_TTL,
        wait: Duration::ZERO,
    }
}

async fn several_leases_are_acquired_all_or_none(context: TestContext) {
    let leases = context.leases().await;
    let (a, b, c) = (context.name("a"), context.name("b"), context.name("c"));
    let held = acquire(&b, "ada").expect_granted(&*leases).await;
    let refused = acquire_all_now(&*leases, acquire_all_request(&[&c, &b, &a])).await;
    assert!(
        matches!(&refused, AcquireAllOutcome::Held(name, held) if *name == b && &*held.owner == "ada"),
        "{refused:?}"
    );
    // The failed call has released it: another service can acquire it.
    acquire(&a, "eve")
        .expect_granted(&*context.leases().await)
        .await;
    assert!(release(&*leases, &b, held.grant.fence).await);
    let granted = acquire_all_now(&*leases, acquire_all_request(&[&c, &b, &c])).await;
    let AcquireAllOutcome::Granted(granted) = granted else {
        panic!("both are free: {granted:?}");
    };
    assert_eq!(
        names_of(&granted),
        [b, c],
        "in name order, without duplicates"
    );
    for invalid in [
        acquire_all_request(&[]),
        AcquireAllRequest {
            ttl: Duration::ZERO,
            ..acquire_all_request(&[&a])
        },
    ] {
        let refused = leases.acquire_all(invalid).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

pub(super) async fn acquire_all_now(
    leases: &dyn Leases,
    request: AcquireAllRequest,
) -> AcquireAllOutcome {
    leases
        .acquire_all(request)
        .await
        .expect("the store answers")
}
