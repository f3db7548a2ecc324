//! Taking a lease: grants, grants again, keeping, refusals, reservations.

mod common;

use common::*;
use leasehold_core::{
    Acquire, EndReason, Fence, GrantKind, Mode, Operation, Outcome, Reserve, limits,
};

#[test]
fn first_grant_starts_from_the_store_time() {
    let mut name = Name::default();
    let grant = name.grants(acquire("a"));
    assert_eq!(grant.granted, GrantKind::Fresh);
    assert_eq!(grant.fence.get(), at(0).as_millis() * 1_000 + 1);
    assert_eq!((grant.acquired_at, grant.expires_at), (at(0), at(10)));
    assert_eq!((&*grant.body, grant.last), ("", None));
}

#[test]
fn next_holder_gets_a_higher_fence_the_body_and_the_last_end() {
    let mut name = Name::default();
    let first = name.grants(acquire("a")).fence;
    name.does(complete(first, "step 3"));
    let grant = name.after(1).grants(acquire("b"));
    assert_eq!(grant.fence.get(), first.get() + 1);
    assert_eq!(&*grant.body, "step 3");
    let last = grant.last.expect("somebody held it before");
    assert_eq!((last.fence, &*last.owner), (first, "a"));
    assert!(matches!(last.how, EndReason::Completed(_)));
}

#[test]
fn live_holder_blocks_grants_until_it_has_certainly_expired() {
    let mut name = Name::default();
    let first = name.grants(acquire("a")).fence;
    let held = name.after(4).is_held(acquire("b"));
    assert_eq!((&*held.owner, held.since), ("a", at(0)));
    assert_eq!(
        held.retry_after,
        secs(6) + std::time::Duration::from_micros(1)
    );
    name.after(6).is_held(acquire("b"));
    let grant = name.after(1).grants(acquire("b"));
    let last = grant.last.expect("expired");
    assert_eq!(
        (last.fence, last.how, last.at),
        (first, EndReason::Expired, at(10))
    );
    assert_eq!(name.stored().holders.len(), 1);
}

#[test]
fn same_nonce_is_granted_again_at_once_and_invalidates_the_older_fence() {
    let mut name = Name::default();
    let old = name.grants(acquire("a")).fence;
    let again = name.after(1).grants(acquire("a"));
    assert_eq!((again.granted, again.fence > old), (GrantKind::Again, true));
    assert_eq!(name.stored().holders.len(), 1);
    assert_eq!(name.refuses(renew(old)), Outcome::Fenced);
    assert_eq!(
        name.refuses(Operation::Update(write(old, "zombie"))),
        Outcome::Fenced
    );
}

#[test]
fn caller_that_presents_its_fence_keeps_it() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let shown = Acquire {
        fence: Some(fence),
        ..acquire("a")
    };
    let kept = name.after(4).grants(shown.clone());
    assert_eq!((kept.granted, kept.fence), (GrantKind::Kept, fence));
    assert_eq!((kept.acquired_at, kept.expires_at), (at(0), at(14)));
    // Once over, the fence is worth nothing: a new one.
    assert!(name.after(20).grants(shown).fence > fence);
}

#[test]
fn same_nonce_of_another_principal_is_another_caller() {
    let mut name = Name::default();
    name.grants(Acquire {
        principal: Some("alice".into()),
        ..acquire("a")
    });
    name.is_held(Acquire {
        principal: Some("bob".into()),
        ..acquire("a")
    });
}

#[test]
fn shared_holders_are_granted_up_to_the_limit_and_block_exclusive_ones() {
    let shared = |owner| Acquire {
        mode: TWO,
        ..acquire(owner)
    };
    let mut name = Name::default();
    let a = name.grants(shared("a")).fence;
    let b = name.after(2).grants(shared("b")).fence;
    assert!(b > a);
    let held = name.is_held(shared("c"));
    assert!(
        held.retry_after < secs(9),
        "a place comes free with the first"
    );
    let held = name.is_held(acquire("alone"));
    assert!(held.retry_after > secs(9), "alone only after the last");
    name.does(release(a));
    name.grants(shared("c"));
}

#[test]
fn different_limit_is_an_error_and_never_waits() {
    let mut name = Name::default();
    name.grants(Acquire {
        mode: TWO,
        ..acquire("a")
    });
    let unlimited = Operation::Acquire(Acquire {
        mode: SHARED,
        ..acquire("b")
    });
    assert_eq!(
        name.refuses(unlimited),
        Outcome::LimitMismatch { limit: Some(2) }
    );
    // Its own limit it may change.
    name.grants(Acquire {
        mode: SHARED,
        ..acquire("a")
    });
}

#[test]
fn exclusive_holder_blocks_shared_ones_and_a_shared_holder_can_become_exclusive() {
    let mut name = Name::default();
    let shared = |owner| Acquire {
        mode: SHARED,
        ..acquire(owner)
    };
    name.grants(shared("a"));
    name.grants(shared("b"));
    name.is_held(acquire("a"));
    name.does(Operation::Release(by(leasehold_core::HolderRef::Nonce(
        nonce("b"),
    ))));
    assert_eq!(name.grants(acquire("a")).granted, GrantKind::Again);
    name.is_held(shared("b"));
}

#[test]
fn record_has_a_maximum_number_of_holders() {
    let mut name = Name::default();
    for n in 0..limits::MAX_HOLDERS {
        name.grants(Acquire {
            mode: SHARED,
            ..acquire(&n.to_string())
        });
    }
    name.is_held(Acquire {
        mode: SHARED,
        ..acquire("one more")
    });
}

#[test]
fn item_is_granted_only_in_the_requested_state() {
    let claim = |state: &str| Acquire {
        in_state: Some(state.into()),
        ..acquire("a")
    };
    let mut name = Name::default();
    let refused = name.refuses(Operation::Acquire(claim("NEW")));
    assert_eq!(refused, Outcome::StateMismatch, "there is none");
    name.does(put("NEW", "work", None));
    let refused = name.refuses(Operation::Acquire(claim("DONE")));
    assert_eq!(refused, Outcome::StateMismatch);
    assert_eq!(&*name.grants(claim("NEW")).body, "work");
    name.is_held(claim("NEW"));
}

#[test]
fn fences_start_above_the_floor_and_can_be_exhausted() {
    let mut name = Name::default();
    let floor = |number| Acquire {
        floor: Fence::new(number).unwrap(),
        ..acquire("a")
    };
    assert_eq!(name.grants(floor(1 << 52)).fence.get(), (1 << 52) + 1);
    let last = Operation::Acquire(floor(Fence::MAX.get()));
    assert_eq!(name.refuses(last), Outcome::Exhausted);
}

#[test]
fn reservation_blocks_all_other_callers() {
    let mut name = Name::default();
    assert_eq!(name.refuses(reserve("w")), Outcome::Free);
    let fence = name.grants(acquire("a")).fence;
    assert_eq!(name.does(reserve("w")), Outcome::Reserved { until: at(5) });
    assert!(matches!(name.refuses(reserve("x")), Outcome::Held(_)));
    name.does(release(fence));
    let held = name.after(1).is_held(acquire("b"));
    assert_eq!(&*held.owner, "");
    name.grants(acquire("w"));
    assert_eq!(name.stored().next, None, "its turn has come");
}

#[test]
fn reservation_lapses_and_can_be_withdrawn() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    name.does(reserve("w"));
    name.does(release(fence));
    name.after(5).is_held(acquire("b"));
    let fence = name.after(1).grants(acquire("b")).fence;
    name.does(reserve("w"));
    let withdraw = Operation::Reserve(Reserve {
        nonce: nonce("w"),
        mode: Mode::Exclusive,
        span: secs(0),
    });
    assert_eq!(name.does(withdraw.clone()), Outcome::Free);
    assert_eq!(name.refuses(withdraw), Outcome::Free);
    name.does(release(fence));
    name.grants(acquire("c"));
}

#[test]
fn waiter_reserves_for_thirty_seconds_and_is_then_barred_for_as_long() {
    let mut name = Name::default();
    let long = Acquire {
        ttl: secs(1_000),
        ..acquire("a")
    };
    name.grants(long);
    let mut reserved = Vec::new();
    for second in 0..70 {
        name.second = second;
        if let Outcome::Reserved { until } = name.does(reserve("w")) {
            assert!(until <= at(second + 5));
            reserved.push(second);
        }
    }
    let expected: Vec<_> = (0..30).chain(61..70).collect();
    assert_eq!(reserved, expected);
}
