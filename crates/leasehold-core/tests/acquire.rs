//! Acquiring: grants, repeated grants, keeping, refusals, reservations.

mod common;

use common::*;
use leasehold_core::{
    Acquire, EndReason, Fence, GrantKind, Mode, Operation, Outcome, Reserve, limits,
};

#[test]
fn first_grant_starts_from_the_store_time() {
    let mut name = Name::default();
    let grant = name.expect_granted(acquire("a"));
    assert_eq!(grant.granted, GrantKind::Fresh);
    assert_eq!(grant.fence.get(), at(0).as_millis() * 1_000 + 1);
    assert_eq!((grant.acquired_at, grant.expires_at), (at(0), at(10)));
    assert_eq!((&*grant.body, grant.last), ("", None));
}

#[test]
fn next_holder_gets_a_higher_fence_the_body_and_the_last_end() {
    let mut name = Name::default();
    let first = name.expect_granted(acquire("a")).fence;
    name.perform(complete(first, "step 3"));
    let grant = name.after(1).expect_granted(acquire("b"));
    assert_eq!(grant.fence.get(), first.get() + 1);
    assert_eq!(&*grant.body, "step 3");
    let last = grant.last.expect("the record keeps its last holder");
    assert_eq!((last.fence, &*last.owner), (first, "a"));
    assert!(matches!(last.how, EndReason::Completed(_)));
}

#[test]
fn live_holder_blocks_grants_until_it_has_certainly_expired() {
    let mut name = Name::default();
    let first = name.expect_granted(acquire("a")).fence;
    let held = name.after(4).expect_held(acquire("b"));
    assert_eq!((&*held.owner, held.since), ("a", at(0)));
    assert_eq!(
        held.retry_after,
        secs(6) + std::time::Duration::from_micros(1)
    );
    name.after(6).expect_held(acquire("b"));
    let grant = name.after(1).expect_granted(acquire("b"));
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
    let old = name.expect_granted(acquire("a")).fence;
    let again = name.after(1).expect_granted(acquire("a"));
    assert_eq!((again.granted, again.fence > old), (GrantKind::Again, true));
    assert_eq!(name.stored().holders.len(), 1);
    assert_eq!(name.expect_refused(renew(old)), Outcome::Fenced);
    assert_eq!(
        name.expect_refused(Operation::Update(write(old, "zombie"))),
        Outcome::Fenced
    );
}

#[test]
fn caller_that_presents_its_fence_keeps_it() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    let shown = Acquire {
        fence: Some(fence),
        ..acquire("a")
    };
    let kept = name.after(4).expect_granted(shown.clone());
    assert_eq!((kept.granted, kept.fence), (GrantKind::Kept, fence));
    assert_eq!((kept.acquired_at, kept.expires_at), (at(0), at(14)));
    // After the expiry, the old fence is not kept.
    assert!(name.after(20).expect_granted(shown).fence > fence);
}

#[test]
fn same_nonce_of_another_principal_is_another_caller() {
    let mut name = Name::default();
    name.expect_granted(Acquire {
        principal: Some("alice".into()),
        ..acquire("a")
    });
    name.expect_held(Acquire {
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
    let a = name.expect_granted(shared("a")).fence;
    let b = name.after(2).expect_granted(shared("b")).fence;
    assert!(b > a);
    let held = name.expect_held(shared("c"));
    assert!(
        held.retry_after < secs(9),
        "free when the first sharer expires"
    );
    let held = name.expect_held(acquire("alone"));
    assert!(
        held.retry_after > secs(9),
        "exclusive only after the last sharer expires"
    );
    name.perform(release(a));
    name.expect_granted(shared("c"));
}

#[test]
fn different_limit_is_an_error_and_never_waits() {
    let mut name = Name::default();
    name.expect_granted(Acquire {
        mode: TWO,
        ..acquire("a")
    });
    let unlimited = Operation::Acquire(Acquire {
        mode: SHARED,
        ..acquire("b")
    });
    assert_eq!(
        name.expect_refused(unlimited),
        Outcome::LimitMismatch { limit: Some(2) }
    );
    // The only holder may change its own limit.
    name.expect_granted(Acquire {
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
    name.expect_granted(shared("a"));
    name.expect_granted(shared("b"));
    name.expect_held(acquire("a"));
    name.perform(Operation::Release(release_by(
        leasehold_core::HolderRef::Nonce(nonce("b")),
    )));
    assert_eq!(name.expect_granted(acquire("a")).granted, GrantKind::Again);
    name.expect_held(shared("b"));
}

#[test]
fn record_has_a_maximum_number_of_holders() {
    let mut name = Name::default();
    for n in 0..limits::MAX_HOLDERS {
        name.expect_granted(Acquire {
            mode: SHARED,
            ..acquire(&n.to_string())
        });
    }
    name.expect_held(Acquire {
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
    let refused = name.expect_refused(Operation::Acquire(claim("NEW")));
    assert_eq!(refused, Outcome::StateMismatch, "there is no item");
    name.perform(put("NEW", "work", None));
    let refused = name.expect_refused(Operation::Acquire(claim("DONE")));
    assert_eq!(refused, Outcome::StateMismatch);
    assert_eq!(&*name.expect_granted(claim("NEW")).body, "work");
    name.expect_held(claim("NEW"));
}

#[test]
fn fences_start_above_the_floor_and_can_be_exhausted() {
    let mut name = Name::default();
    let floor = |number| Acquire {
        floor: Fence::new(number).unwrap(),
        ..acquire("a")
    };
    assert_eq!(
        name.expect_granted(floor(1 << 52)).fence.get(),
        (1 << 52) + 1
    );
    let last = Operation::Acquire(floor(Fence::MAX.get()));
    assert_eq!(name.expect_refused(last), Outcome::Exhausted);
}

#[test]
fn reservation_blocks_all_other_callers() {
    let mut name = Name::default();
    assert_eq!(name.expect_refused(reserve("w")), Outcome::Free);
    let fence = name.expect_granted(acquire("a")).fence;
    assert_eq!(
        name.perform(reserve("w")),
        Outcome::Reserved { until: at(5) }
    );
    assert!(matches!(
        name.expect_refused(reserve("x")),
        Outcome::Held(_)
    ));
    name.perform(release(fence));
    let held = name.after(1).expect_held(acquire("b"));
    assert_eq!(&*held.owner, "");
    name.expect_granted(acquire("w"));
    assert_eq!(
        name.stored().next,
        None,
        "the grant uses up the reservation"
    );
}

#[test]
fn reservation_lapses_and_can_be_withdrawn() {
    let mut name = Name::default();
    let fence = name.expect_granted(acquire("a")).fence;
    name.perform(reserve("w"));
    name.perform(release(fence));
    name.after(5).expect_held(acquire("b"));
    let fence = name.after(1).expect_granted(acquire("b")).fence;
    name.perform(reserve("w"));
    let withdraw = Operation::Reserve(Reserve {
        nonce: nonce("w"),
        mode: Mode::Exclusive,
        span: secs(0),
    });
    assert_eq!(name.perform(withdraw.clone()), Outcome::Free);
    assert_eq!(name.expect_refused(withdraw), Outcome::Free);
    name.perform(release(fence));
    name.expect_granted(acquire("c"));
}

#[test]
fn waiter_reserves_for_thirty_seconds_and_is_then_barred_for_as_long() {
    let mut name = Name::default();
    let long = Acquire {
        ttl: secs(1_000),
        ..acquire("a")
    };
    name.expect_granted(long);
    let mut reserved = Vec::new();
    for second in 0..70 {
        name.second = second;
        if let Outcome::Reserved { until } = name.perform(reserve("w")) {
            assert!(until <= at(second + 5));
            reserved.push(second);
        }
    }
    let expected: Vec<_> = (0..30).chain(61..70).collect();
    assert_eq!(reserved, expected);
}
