//! Work items leased by their state, and several leases at once.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Name, Text, View};

use super::bench::{Bench, LONG, PATIENT, ask, complete, nonce, release, shown, side_by_side};
use crate::leases::{AcquireAllRequest, AcquiredAll, ClaimRequest, Claimed, Leases, PutRequest};
use crate::{Error, ListRequest, UpdateRequest, Updated};

super::promises!(Leases:
    the_oldest_items_are_claimed_first,
    items_put_one_after_the_other_keep_that_order,
    a_put_without_a_body_keeps_it,
    a_claimed_item_moves_on_in_one_write,
    a_claim_keeps_to_its_state_and_prefix,
    an_item_of_a_dead_worker_returns,
    a_claim_waits_for_work,
    claims_at_once_never_overlap,
    a_wrong_claim_is_refused,
    a_leased_item_stays_as_it_is,
    several_are_taken_all_or_none,
);

/// A state that no other case has.
pub(super) fn state(bench: &Bench, label: &str) -> Text {
    format!("{}{label}", bench.prefix()).into()
}

pub(super) fn claim(state: &Text, limit: usize) -> ClaimRequest {
    ClaimRequest {
        state: state.clone(),
        prefix: String::new(),
        limit,
        ttl: LONG,
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
    leases.put(request).await.expect("nobody has it");
}

pub(super) async fn claimed(leases: &dyn Leases, request: ClaimRequest) -> Vec<Claimed> {
    leases.claim(request).await.expect("the store answers")
}

fn names(claimed: &[Claimed]) -> Vec<Name> {
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

async fn the_oldest_items_are_claimed_first(bench: Bench) {
    let (leases, new) = (bench.leases().await, state(&bench, "NEW"));
    for number in 0..5 {
        put(&*leases, &bench.name(&format!("{number}")), &new, "work").await;
    }
    let oldest_first = in_state(&*leases, &new).await;
    assert_eq!(oldest_first.len(), 5);
    let first = claimed(&*leases, claim(&new, 3)).await;
    assert_eq!(names(&first), oldest_first[..3]);
    for item in &first {
        let grant = &item.hold.grant;
        assert_eq!(&*grant.body, "work");
        assert_eq!(grant.state.as_ref().map(|state| &state.label), Some(&new));
    }
    let rest = claimed(&*leases, claim(&new, 3)).await;
    assert_eq!(
        names(&rest),
        oldest_first[3..],
        "what is claimed is left out"
    );
    assert_eq!(claimed(&*leases, claim(&new, 3)).await, []);
    for item in first {
        assert!(release(&*leases, &item.name, item.hold.grant.fence).await);
    }
    let again = claimed(&*leases, claim(&new, 9)).await;
    assert_eq!(
        names(&again),
        oldest_first[..3],
        "what is free again is claimed"
    );
}

/// One service dates what it writes in order, however well it knows the store's time.
async fn items_put_one_after_the_other_keep_that_order(bench: Bench) {
    const ITEMS: usize = 40;
    let (leases, new) = (bench.leases().await, state(&bench, "NEW"));
    let mut put_order = Vec::new();
    for number in (0..ITEMS).rev() {
        // Their names are in another order.
        let item = bench.name(&format!("{number:03}"));
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
    let first = claimed(&*leases, claim(&new, ITEMS / 2)).await;
    assert_eq!(names(&first), put_order[..ITEMS / 2]);
}

async fn a_put_without_a_body_keeps_it(bench: Bench) {
    let (leases, item) = (bench.leases().await, bench.name("item"));
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
        leases.put(request).await.expect("nobody has it");
        let record = shown(&*leases, &item).await.record;
        let state = record.state.expect("it is an item");
        assert_eq!((&*state.label, &*record.body), (label, kept));
    }
}

async fn a_claimed_item_moves_on_in_one_write(bench: Bench) {
    let leases = bench.leases().await;
    let (new, done, item) = (
        state(&bench, "NEW"),
        state(&bench, "DONE"),
        bench.name("item"),
    );
    put(&*leases, &item, &new, "work").await;
    let taken = claimed(&*leases, claim(&new, 1)).await;
    let fence = taken[0].hold.grant.fence;
    let finish = UpdateRequest {
        name: item.clone(),
        fence,
        body: Some("result".into()),
        state: Some(Some(done.clone())),
        then_release: true,
    };
    let updated = leases.update(finish.clone()).await;
    assert_eq!(updated, Ok(Updated::Completed));
    assert_eq!(claimed(&*leases, claim(&new, 1)).await, []);
    let next = claimed(&*leases, claim(&done, 1)).await;
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
    assert_eq!(&*shown(&*leases, &item).await.record.body, "result");
}

async fn a_claim_keeps_to_its_state_and_prefix(bench: Bench) {
    let leases = bench.leases().await;
    let (new, other) = (state(&bench, "NEW"), state(&bench, "OTHER"));
    put(&*leases, &bench.name("a/1"), &new, "").await;
    put(&*leases, &bench.name("b/1"), &new, "").await;
    put(&*leases, &bench.name("a/2"), &other, "").await;
    let prefix = format!("{}a/", bench.prefix());
    let found = claimed(
        &*leases,
        ClaimRequest {
            prefix,
            ..claim(&new, 9)
        },
    )
    .await;
    assert_eq!(names(&found), [bench.name("a/1")]);
}

async fn an_item_of_a_dead_worker_returns(bench: Bench) {
    let (leases, other) = (bench.leases().await, bench.leases().await);
    let (new, item) = (state(&bench, "NEW"), bench.name("item"));
    put(&*leases, &item, &new, "work").await;
    let ttl = bench.short().await;
    let dead = claimed(
        &*leases,
        ClaimRequest {
            ttl,
            ..claim(&new, 1)
        },
    )
    .await;
    let wait = PATIENT;
    let next = claimed(
        &*other,
        ClaimRequest {
            wait,
            ..claim(&new, 1)
        },
    )
    .await;
    assert_eq!(names(&next), std::slice::from_ref(&item));
    let (old, new) = (dead[0].hold.grant.fence, next[0].hold.grant.fence);
    assert!(new > old);
    let late = complete(&*leases, &item, old, "stale").await;
    assert!(
        matches!(late, Err(Error::Fenced | Error::Expired)),
        "{late:?}"
    );
}

async fn a_claim_waits_for_work(bench: Bench) {
    let (here, there, new) = (
        bench.leases().await,
        bench.leases().await,
        state(&bench, "NEW"),
    );
    let wait = Duration::from_millis(50);
    assert_eq!(
        claimed(
            &*here,
            ClaimRequest {
                wait,
                ..claim(&new, 1)
            }
        )
        .await,
        []
    );
    for (number, putter) in [&here, &there].into_iter().enumerate() {
        let patient = ClaimRequest {
            wait: PATIENT,
            ..claim(&new, 5)
        };
        let item = bench.name(&format!("{number}"));
        let put = put(&**putter, &item, &new, "work");
        let (claimed, ()) = tokio::join!(claimed(&*here, patient), put);
        assert_eq!(names(&claimed), [item]);
    }
}

async fn claims_at_once_never_overlap(bench: Bench) {
    const ITEMS: usize = 200;
    let (leases, new) = (bench.leases().await, state(&bench, "NEW"));
    let items = (0..ITEMS).map(|number| bench.name(&format!("{number}")));
    let puts = items.map(|name| {
        let (leases, new) = (leases.clone(), new.clone());
        async move { put(&*leases, &name, &new, "").await }
    });
    side_by_side(puts).await;
    // Stores that tell the time by HTTP take a request for each item, and their emulators long for each request.
    let by_http = bench.store().await.facts().margin >= Duration::from_secs(2);
    let (fleet, share) = if by_http { (4, 5) } else { (8, 10) };
    let mut workers = Vec::new();
    for _ in 0..fleet {
        let (leases, request) = (bench.leases().await, claim(&new, share));
        workers.push(async move { names(&claimed(&*leases, request).await) });
    }
    let shares = side_by_side(workers).await;
    assert!(shares.iter().all(|share| !share.is_empty()), "{shares:?}");
    let all: Vec<_> = shares.iter().flatten().collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "an item was claimed twice");
}

async fn a_wrong_claim_is_refused(bench: Bench) {
    let (leases, new) = (bench.leases().await, state(&bench, "NEW"));
    put(&*leases, &bench.name("item"), &new, "").await;
    for wrong in [
        claim(&new, 0),
        claim(&new, 1_001),
        claim(&Text::default(), 1),
        ClaimRequest {
            ttl: Duration::ZERO,
            ..claim(&new, 1)
        },
    ] {
        let refused = leases.claim(wrong).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(
        claimed(&*leases, claim(&new, 1)).await.len(),
        1,
        "nothing changed"
    );
}

async fn a_leased_item_stays_as_it_is(bench: Bench) {
    let (leases, new, item) = (
        bench.leases().await,
        state(&bench, "NEW"),
        bench.name("item"),
    );
    put(&*leases, &item, &new, "work").await;
    let taken = claimed(&*leases, claim(&new, 1)).await;
    let other = PutRequest {
        name: item.clone(),
        state: state(&bench, "OTHER"),
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
    assert_eq!(&*shown(&*leases, &item).await.record.body, "work");
    assert!(release(&*leases, &item, taken[0].hold.grant.fence).await);
    assert_eq!(leases.remove(&item).await, Ok(()));
    assert_eq!(claimed(&*leases, claim(&new, 1)).await, []);
}

pub(super) fn all(names: &[&Name]) -> AcquireAllRequest {
    AcquireAllRequest {
        names: names.iter().copied().cloned().collect(),
        nonce: nonce(),
        owner: "both".into(),
        ttl: LONG,
        wait: Duration::ZERO,
    }
}

async fn several_are_taken_all_or_none(bench: Bench) {
    let leases = bench.leases().await;
    let (a, b, c) = (bench.name("a"), bench.name("b"), bench.name("c"));
    let mine = ask(&b, "ada").granted(&*leases).await;
    let refused = leases_all(&*leases, all(&[&c, &b, &a])).await;
    assert!(
        matches!(&refused, AcquiredAll::Held(name, held) if *name == b && &*held.owner == "ada"),
        "{refused:?}"
    );
    // Another service finds it free at once.
    ask(&a, "eve").granted(&*bench.leases().await).await;
    assert!(release(&*leases, &b, mine.grant.fence).await);
    let granted = leases_all(&*leases, all(&[&c, &b, &c])).await;
    let AcquiredAll::Granted(granted) = granted else {
        panic!("both are free: {granted:?}");
    };
    assert_eq!(names(&granted), [b, c], "in order, each once");
    for none in [
        all(&[]),
        AcquireAllRequest {
            ttl: Duration::ZERO,
            ..all(&[&a])
        },
    ] {
        let refused = leases.acquire_all(none).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

pub(super) async fn leases_all(leases: &dyn Leases, request: AcquireAllRequest) -> AcquiredAll {
    leases
        .acquire_all(request)
        .await
        .expect("the store answers")
}
