//! Operations on held leases: renew, update, release, break. Also items and purging.

mod common;

use common::*;
use leasehold_core::{
    Acquire, Break, EndReason, HolderRef, Operation, Outcome, Put, Release, Renew, Update, limits,
};

#[test]
fn renewal_keeps_the_fence_and_moves_the_expiry() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    let renewal = name.after(4).expect_renewed(renew(fence));
    assert_eq!((renewal.fence, renewal.ttl), (fence, TTL));
    assert_eq!((renewal.acquired_at, renewal.expires_at), (at(0), at(14)));
}

#[test]
fn shorter_ttl_never_moves_the_expiry_back() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    let short = Operation::Renew(Renew {
        fence,
        principal: None,
        ttl: Some(secs(2)),
    });
    let renewal = name.after(4).expect_renewed(short.clone());
    assert_eq!((renewal.ttl, renewal.expires_at), (TTL, at(10)));
    assert_eq!(
        name.stored().holders[0].renewed_at,
        at(4),
        "the entry changes"
    );
    let renewal = name.after(5).expect_renewed(short);
    assert_eq!((renewal.ttl, renewal.expires_at), (secs(2), at(11)));
}

#[test]
fn narrower_interval_never_moves_the_expiry_back() {
    let mut name = Name::default();
    let granted = name.after(3).expect_granted(acquire("a"));
    // The first writer's interval was three seconds wide.
    name.second = 0;
    let renewal = name.expect_renewed(renew(granted.fence));
    assert_eq!(renewal.expires_at, granted.expires_at);
}

#[test]
fn each_renewal_changes_the_holder_entry() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    let before = name.stored().holders[0].clone();
    name.expect_renewed(renew(fence));
    assert_ne!(name.stored().holders[0], before);
}

#[test]
fn wrong_fence_is_fenced_and_the_last_expired_one_is_expired() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    let wrong = leasehold_core::Fence::new(7).unwrap();
    assert_eq!(
        Name::default().expect_refused(renew(fence)),
        Outcome::Fenced
    );
    assert_eq!(name.expect_refused(renew(wrong)), Outcome::Fenced);
    assert_eq!(
        name.after(11).expect_refused(renew(fence)),
        Outcome::Expired
    );
    name.expect_granted(acquire("b"));
    assert_eq!(name.expect_refused(renew(fence)), Outcome::Expired);
    assert_eq!(name.expect_refused(complete(fence, "x")), Outcome::Expired);
}

#[test]
fn lease_belongs_to_its_principal() {
    let mut name = Name::default();
    let alice = Some("alice".into());
    let fence = name
        .expect_granted(Acquire {
            principal: alice.clone(),
            ..acquire("a")
        })
        .fence;
    assert_eq!(name.expect_refused(renew(fence)), Outcome::Denied);
    assert_eq!(name.expect_refused(release(fence)), Outcome::NotHeld);
    let own = Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    };
    assert_eq!(
        name.expect_refused(Operation::Break(Break::Own(own.clone()))),
        Outcome::Denied
    );
    let alices = Release {
        principal: alice,
        ..own
    };
    assert_eq!(name.perform(Operation::Release(alices)), Outcome::Released);
}

#[test]
fn update_writes_and_renews() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    let both = Update {
        state: Some(Some("HALFWAY".into())),
        ..write(fence, "step 1")
    };
    let renewal = name.after(3).expect_renewed(Operation::Update(both));
    assert_eq!((&*renewal.body, renewal.expires_at), ("step 1", at(13)));
    let state = name.stored().state.clone().unwrap();
    assert_eq!((&*state.label, state.since), ("HALFWAY", at(3)));
    let clear = Update {
        body: None,
        state: Some(None),
        ..write(fence, "")
    };
    name.expect_renewed(Operation::Update(clear));
    assert_eq!(
        (&*name.stored().body, &name.stored().state),
        ("step 1", &None)
    );
}

#[test]
fn completion_is_idempotent_for_the_same_result_only() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    assert_eq!(name.perform(complete(fence, "done")), Outcome::Completed);
    assert!(name.stored().holders.is_empty());
    name.expect_granted(acquire("b"));
    assert_eq!(
        name.expect_refused(complete(fence, "done")),
        Outcome::Completed
    );
    assert_eq!(
        name.expect_refused(complete(fence, "other")),
        Outcome::Fenced
    );
    assert_eq!(
        name.expect_refused(Operation::Update(write(fence, "done"))),
        Outcome::Fenced
    );
}

#[test]
fn release_is_idempotent_and_never_an_error() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    assert_eq!(
        Name::default().expect_refused(release(fence)),
        Outcome::NotHeld
    );
    assert_eq!(name.perform(release(fence)), Outcome::Released);
    assert_eq!(name.expect_refused(release(fence)), Outcome::Released);
    assert_eq!(name.stored().fence, fence, "the fence stays");
    let next = name.expect_granted(acquire("b")).fence;
    assert_eq!(name.expect_refused(release(fence)), Outcome::Released);
    assert_eq!(
        name.after(11).expect_refused(release(next)),
        Outcome::NotHeld
    );
}

#[test]
fn release_by_nonce_ends_only_the_callers_lease() {
    let mut name = Name::default();
    for owner in ["a", "b"] {
        name.expect_granted(Acquire {
            mode: SHARED,
            ..acquire(owner)
        });
    }
    let by_nonce = |owner| Operation::Release(release_by(HolderRef::Nonce(nonce(owner))));
    assert_eq!(name.expect_refused(by_nonce("c")), Outcome::NotHeld);
    assert_eq!(name.perform(by_nonce("b")), Outcome::Released);
    assert_eq!(&*name.stored().holders[0].owner, "a");
}

#[test]
fn breaking_an_own_lease_that_is_another_callers_is_an_error() {
    let own = |fence| Operation::Break(Break::Own(release_by(HolderRef::Fence(fence))));
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    assert_eq!(name.perform(own(fence)), Outcome::Released);
    let stranger = leasehold_core::Fence::new(7).unwrap();
    assert_eq!(name.expect_refused(own(stranger)), Outcome::NotHeld);
    name.expect_granted(acquire("b"));
    assert_eq!(name.expect_refused(own(stranger)), Outcome::Fenced);
}

#[test]
fn broken_holder_is_refused_and_blocks_others_until_its_expiry() {
    let mut name = Name::default();
    assert_eq!(name.expect_refused(force(None, false)), Outcome::NotHeld);
    let fence = name.expect_granted(acquire("a")).fence;
    let until = Some(at(10));
    assert_eq!(name.perform(force(None, false)), Outcome::Broken { until });
    assert_eq!(name.expect_refused(renew(fence)), Outcome::Fenced);
    name.expect_held(acquire("b"));
    name.expect_held(acquire("a"));
    let last = name.after(11).expect_granted(acquire("b")).last.unwrap();
    assert_eq!((last.fence, last.how), (fence, EndReason::Broken));
}

#[test]
fn broken_holder_that_releases_frees_the_lease() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    name.perform(force(Some(fence), false));
    assert_eq!(name.perform(release(fence)), Outcome::Released);
    assert_eq!(
        name.expect_granted(acquire("b")).last.unwrap().how,
        EndReason::Broken
    );
}

#[test]
fn immediate_break_frees_the_lease_at_once() {
    let mut name = Name::default();
    name.expect_granted(acquire("a"));
    let stranger = leasehold_core::Fence::new(7);
    assert_eq!(name.expect_refused(force(stranger, true)), Outcome::NotHeld);
    assert_eq!(
        name.perform(force(None, true)),
        Outcome::Broken { until: None }
    );
    name.expect_granted(acquire("b"));
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
    name.perform(bodiless());
    assert_eq!(&*name.stored().body, "");
    name.perform(put("NEW", "3 apples", None));
    name.perform(bodiless());
    let state = name.stored().state.as_ref();
    assert_eq!(state.map(|state| &*state.label), Some("AGAIN"));
    assert_eq!(&*name.stored().body, "3 apples");
}

#[test]
fn item_is_put_once_per_nonce_and_never_while_leased() {
    let mut name = Name::default();
    assert_eq!(name.perform(put("NEW", "1", Some("p"))), Outcome::Put);
    assert_eq!(
        name.expect_refused(put("NEW", "2", Some("p"))),
        Outcome::Put
    );
    let grant = name.expect_granted(acquire("worker"));
    assert_eq!((&*grant.body, &*grant.state.unwrap().label), ("1", "NEW"));
    assert!(matches!(
        name.expect_refused(put("NEW", "3", Some("q"))),
        Outcome::Held(_)
    ));
    assert!(matches!(
        name.expect_refused(Operation::Remove),
        Outcome::Held(_)
    ));
    let done = Update {
        state: Some(Some("DONE".into())),
        then_release: true,
        ..write(grant.fence, "1")
    };
    name.perform(Operation::Update(done));
    assert_eq!(
        name.expect_refused(put("NEW", "1", Some("p"))),
        Outcome::Put,
        "the item is unchanged"
    );
    assert_eq!(name.perform(put("NEW", "4", None)), Outcome::Put);
    assert_eq!(name.stored().fence, grant.fence);
}

#[test]
fn removal_empties_an_item_and_a_late_put_does_not_restore_it() {
    let mut name = Name::default();
    assert_eq!(name.expect_refused(Operation::Remove), Outcome::Removed);
    name.perform(put("NEW", "1", Some("p")));
    assert_eq!(name.perform(Operation::Remove), Outcome::Removed);
    assert_eq!((&*name.stored().body, &name.stored().state), ("", &None));
    assert_eq!(
        name.expect_refused(put("NEW", "1", Some("p"))),
        Outcome::Put
    );
}

#[test]
fn only_free_empty_and_old_records_are_purged() {
    let purge = Operation::Purge {
        retention: limits::MIN_RETENTION,
    };
    let mut name = Name::default();
    assert_eq!(name.expect_refused(purge.clone()), Outcome::Purged);
    let day = Acquire {
        ttl: limits::MAX_TTL,
        ..acquire("a")
    };
    let fence = name.expect_granted(day).fence;
    assert_eq!(
        name.after(7_200).expect_refused(purge.clone()),
        Outcome::NotPurged,
        "held"
    );
    name.expect_renewed(Operation::Update(write(fence, "body")));
    name.perform(complete(fence, ""));
    assert_eq!(
        name.after(3_600).expect_refused(purge.clone()),
        Outcome::NotPurged,
        "the last hold ended recently"
    );
    assert_eq!(name.after(1).perform(purge.clone()), Outcome::Purged);
    assert_eq!(name.record, None);
    let again = name.after(1).expect_granted(acquire("a"));
    assert!(again.fence > fence, "fences increase across a purge");
    name.perform(complete(again.fence, "not empty"));
    assert_eq!(name.after(9_999).expect_refused(purge), Outcome::NotPurged);
}
