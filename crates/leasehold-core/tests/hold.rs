//! Holding and letting go: renew, update, release, break, items, purge.

mod common;

use common::*;
use leasehold_core::{
    Acquire, Break, EndReason, HolderRef, Operation, Outcome, Put, Release, Renew, Update, limits,
};

#[test]
fn renewal_keeps_the_fence_and_moves_the_expiry() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let renewal = name.after(4).renews(renew(fence));
    assert_eq!((renewal.fence, renewal.ttl), (fence, TTL));
    assert_eq!((renewal.acquired_at, renewal.expires_at), (at(0), at(14)));
}

#[test]
fn shorter_ttl_never_moves_the_expiry_back() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let short = Operation::Renew(Renew {
        fence,
        principal: None,
        ttl: Some(secs(2)),
    });
    let renewal = name.after(4).renews(short.clone());
    assert_eq!((renewal.ttl, renewal.expires_at), (TTL, at(10)));
    assert_eq!(name.stored().holders[0].renewed_at, at(4), "seen to live");
    let renewal = name.after(5).renews(short);
    assert_eq!((renewal.ttl, renewal.expires_at), (secs(2), at(11)));
}

#[test]
fn narrower_interval_never_moves_the_expiry_back() {
    let mut name = Name::default();
    let granted = name.after(3).grants(acquire("a"));
    // The writer's interval was three seconds ahead.
    name.second = 0;
    let renewal = name.renews(renew(granted.fence));
    assert_eq!(renewal.expires_at, granted.expires_at);
}

#[test]
fn each_renewal_changes_the_holder_entry() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let before = name.stored().holders[0].clone();
    name.renews(renew(fence));
    assert_ne!(name.stored().holders[0], before);
}

#[test]
fn wrong_fence_is_fenced_and_the_last_expired_one_is_expired() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let wrong = leasehold_core::Fence::new(7).unwrap();
    assert_eq!(Name::default().refuses(renew(fence)), Outcome::Fenced);
    assert_eq!(name.refuses(renew(wrong)), Outcome::Fenced);
    assert_eq!(name.after(11).refuses(renew(fence)), Outcome::Expired);
    name.grants(acquire("b"));
    assert_eq!(name.refuses(renew(fence)), Outcome::Expired);
    assert_eq!(name.refuses(complete(fence, "x")), Outcome::Expired);
}

#[test]
fn lease_belongs_to_its_principal() {
    let mut name = Name::default();
    let alice = Some("alice".into());
    let fence = name
        .grants(Acquire {
            principal: alice.clone(),
            ..acquire("a")
        })
        .fence;
    assert_eq!(name.refuses(renew(fence)), Outcome::Denied);
    assert_eq!(name.refuses(release(fence)), Outcome::NotHeld);
    let own = Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    };
    assert_eq!(
        name.refuses(Operation::Break(Break::Own(own.clone()))),
        Outcome::Denied
    );
    let alices = Release {
        principal: alice,
        ..own
    };
    assert_eq!(name.does(Operation::Release(alices)), Outcome::Released);
}

#[test]
fn update_writes_and_renews() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let both = Update {
        state: Some(Some("HALFWAY".into())),
        ..write(fence, "step 1")
    };
    let renewal = name.after(3).renews(Operation::Update(both));
    assert_eq!((&*renewal.body, renewal.expires_at), ("step 1", at(13)));
    let state = name.stored().state.clone().unwrap();
    assert_eq!((&*state.label, state.since), ("HALFWAY", at(3)));
    let clear = Update {
        body: None,
        state: Some(None),
        ..write(fence, "")
    };
    name.renews(Operation::Update(clear));
    assert_eq!(
        (&*name.stored().body, &name.stored().state),
        ("step 1", &None)
    );
}

#[test]
fn completion_is_idempotent_for_the_same_result_only() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    assert_eq!(name.does(complete(fence, "done")), Outcome::Completed);
    assert!(name.stored().holders.is_empty());
    name.grants(acquire("b"));
    assert_eq!(name.refuses(complete(fence, "done")), Outcome::Completed);
    assert_eq!(name.refuses(complete(fence, "other")), Outcome::Fenced);
    assert_eq!(
        name.refuses(Operation::Update(write(fence, "done"))),
        Outcome::Fenced
    );
}

#[test]
fn release_is_idempotent_and_never_an_error() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    assert_eq!(Name::default().refuses(release(fence)), Outcome::NotHeld);
    assert_eq!(name.does(release(fence)), Outcome::Released);
    assert_eq!(name.refuses(release(fence)), Outcome::Released);
    assert_eq!(name.stored().fence, fence, "the fence stays");
    let next = name.grants(acquire("b")).fence;
    assert_eq!(name.refuses(release(fence)), Outcome::Released);
    assert_eq!(name.after(11).refuses(release(next)), Outcome::NotHeld);
}

#[test]
fn release_by_nonce_ends_only_the_callers_lease() {
    let mut name = Name::default();
    for owner in ["a", "b"] {
        name.grants(Acquire {
            mode: SHARED,
            ..acquire(owner)
        });
    }
    let by_nonce = |owner| Operation::Release(by(HolderRef::Nonce(nonce(owner))));
    assert_eq!(name.refuses(by_nonce("c")), Outcome::NotHeld);
    assert_eq!(name.does(by_nonce("b")), Outcome::Released);
    assert_eq!(&*name.stored().holders[0].owner, "a");
}

#[test]
fn breaking_an_own_lease_that_is_another_callers_is_an_error() {
    let own = |fence| Operation::Break(Break::Own(by(HolderRef::Fence(fence))));
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    assert_eq!(name.does(own(fence)), Outcome::Released);
    let stranger = leasehold_core::Fence::new(7).unwrap();
    assert_eq!(name.refuses(own(stranger)), Outcome::NotHeld);
    name.grants(acquire("b"));
    assert_eq!(name.refuses(own(stranger)), Outcome::Fenced);
}

#[test]
fn broken_holder_is_refused_and_blocks_others_until_its_expiry() {
    let mut name = Name::default();
    assert_eq!(name.refuses(force(None, false)), Outcome::NotHeld);
    let fence = name.grants(acquire("a")).fence;
    let until = Some(at(10));
    assert_eq!(name.does(force(None, false)), Outcome::Broken { until });
    assert_eq!(name.refuses(renew(fence)), Outcome::Fenced);
    name.is_held(acquire("b"));
    name.is_held(acquire("a"));
    let last = name.after(11).grants(acquire("b")).last.unwrap();
    assert_eq!((last.fence, last.how), (fence, EndReason::Broken));
}

#[test]
fn broken_holder_that_releases_frees_the_lease() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    name.does(force(Some(fence), false));
    assert_eq!(name.does(release(fence)), Outcome::Released);
    assert_eq!(
        name.grants(acquire("b")).last.unwrap().how,
        EndReason::Broken
    );
}

#[test]
fn immediate_break_frees_the_lease_at_once() {
    let mut name = Name::default();
    name.grants(acquire("a"));
    let stranger = leasehold_core::Fence::new(7);
    assert_eq!(name.refuses(force(stranger, true)), Outcome::NotHeld);
    assert_eq!(
        name.does(force(None, true)),
        Outcome::Broken { until: None }
    );
    name.grants(acquire("b"));
}

#[test]
fn put_without_a_body_keeps_the_present_one() {
    let mut name = Name::default();
    let bodiless = || {
        Operation::Put(Put {
            state: "AGAIN".into(),
            body: None,
            nonce: None,
        })
    };
    name.does(bodiless());
    assert_eq!(&*name.stored().body, "");
    name.does(put("NEW", "3 apples", None));
    name.does(bodiless());
    let state = name.stored().state.as_ref();
    assert_eq!(state.map(|state| &*state.label), Some("AGAIN"));
    assert_eq!(&*name.stored().body, "3 apples");
}

#[test]
fn item_is_put_once_per_nonce_and_never_while_leased() {
    let mut name = Name::default();
    assert_eq!(name.does(put("NEW", "1", Some("p"))), Outcome::Put);
    assert_eq!(name.refuses(put("NEW", "2", Some("p"))), Outcome::Put);
    let grant = name.grants(acquire("worker"));
    assert_eq!((&*grant.body, &*grant.state.unwrap().label), ("1", "NEW"));
    assert!(matches!(
        name.refuses(put("NEW", "3", Some("q"))),
        Outcome::Held(_)
    ));
    assert!(matches!(name.refuses(Operation::Remove), Outcome::Held(_)));
    let done = Update {
        state: Some(Some("DONE".into())),
        then_release: true,
        ..write(grant.fence, "1")
    };
    name.does(Operation::Update(done));
    assert_eq!(
        name.refuses(put("NEW", "1", Some("p"))),
        Outcome::Put,
        "not reset"
    );
    assert_eq!(name.does(put("NEW", "4", None)), Outcome::Put);
    assert_eq!(name.stored().fence, grant.fence);
}

#[test]
fn removal_empties_an_item_and_a_late_put_does_not_restore_it() {
    let mut name = Name::default();
    assert_eq!(name.refuses(Operation::Remove), Outcome::Removed);
    name.does(put("NEW", "1", Some("p")));
    assert_eq!(name.does(Operation::Remove), Outcome::Removed);
    assert_eq!((&*name.stored().body, &name.stored().state), ("", &None));
    assert_eq!(name.refuses(put("NEW", "1", Some("p"))), Outcome::Put);
}

#[test]
fn only_free_empty_and_old_records_are_purged() {
    let purge = Operation::Purge {
        retention: limits::MIN_RETENTION,
    };
    let mut name = Name::default();
    assert_eq!(name.refuses(purge.clone()), Outcome::Purged);
    let day = Acquire {
        ttl: limits::MAX_TTL,
        ..acquire("a")
    };
    let fence = name.grants(day).fence;
    assert_eq!(
        name.after(7_200).refuses(purge.clone()),
        Outcome::NotPurged,
        "held"
    );
    name.renews(Operation::Update(write(fence, "body")));
    name.does(complete(fence, ""));
    assert_eq!(
        name.after(3_600).refuses(purge.clone()),
        Outcome::NotPurged,
        "ended lately"
    );
    assert_eq!(name.after(1).does(purge.clone()), Outcome::Purged);
    assert_eq!(name.record, None);
    let again = name.after(1).grants(acquire("a"));
    assert!(again.fence > fence, "fences grow over a purge");
    name.does(complete(again.fence, "not empty"));
    assert_eq!(name.after(9_999).refuses(purge), Outcome::NotPurged);
}
