//! Taking a lease: grants, grants again, keeping, refusals, reservations.

mod common;

use common::*;
use leasehold_core::{Acquire, Fence, Granted, How, Mode, Operation, Outcome, Reserve, limits};

#[test]
fn the_first_grant_starts_from_the_stores_time() {
    let mut name = Name::default();
    let grant = name.grants(acquire("a"));
    assert_eq!(grant.granted, Granted::Fresh);
    assert_eq!(grant.fence.get(), at(0).as_millis() * 1_000 + 1);
    assert_eq!((grant.acquired_at, grant.expires_at), (at(0), at(10)));
    assert_eq!((&*grant.body, grant.last), ("", None));
}

#[test]
fn the_next_holder_gets_a_higher_fence_the_body_and_how_the_last_one_ended() {
    let mut name = Name::default();
    let first = name.grants(acquire("a")).fence;
    name.does(complete(first, "step 3"));
    let grant = name.after(1).grants(acquire("b"));
    assert_eq!(grant.fence.get(), first.get() + 1);
    assert_eq!(&*grant.body, "step 3");
    let last = grant.last.expect("somebody held it before");
    assert_eq!((last.fence, &*last.owner), (first, "a"));
    assert!(matches!(last.how, How::Completed(_)));
}

#[test]
fn a_live_holder_is_in_the_way_until_surely_over() {
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
        (first, How::Expired, at(10))
    );
    assert_eq!(name.stored().holders.len(), 1);
}

#[test]
fn the_same_nonce_is_granted_again_at_once_and_its_older_fence_is_dead() {
    let mut name = Name::default();
    let old = name.grants(acquire("a")).fence;
    let again = name.after(1).grants(acquire("a"));
    assert_eq!((again.granted, again.fence > old), (Granted::Again, true));
    assert_eq!(name.stored().holders.len(), 1);
    assert_eq!(name.refuses(renew(old)), Outcome::Fenced);
    assert_eq!(
        name.refuses(Operation::Update(write(old, "zombie"))),
        Outcome::Fenced
    );
}

#[test]
fn whoever_shows_its_fence_keeps_it() {
    let mut name = Name::default();
    let fence = name.grants(acquire("a")).fence;
    let shown = Acquire {
        fence: Some(fence),
        ..acquire("a")
    };
    let kept = name.after(4).grants(shown.clone());
    assert_eq!((kept.granted, kept.fence), (Granted::Kept, fence));
    assert_eq!((kept.acquired_at, kept.expires_at), (at(0), at(14)));
    // Once over, the fence is worth nothing: a new one.
    assert!(name.after(20).grants(shown).fence > fence);
}

#[test]
fn a_nonce_of_another_principal_is_somebody_else() {
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
fn sharers_up_to_the_limit_and_nobody_alone() {
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
fn another_limit_is_an_error_never_a_wait() {
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
        Outcome::OtherLimit { limit: Some(2) }
    );
    // Its own limit it may change.
    name.grants(Acquire {
        mode: SHARED,
        ..acquire("a")
    });
}

#[test]
fn an_exclusive_holder_keeps_sharers_out_and_a_sharer_may_become_exclusive() {
    let mut name = Name::default();
    let shared = |owner| Acquire {
        mode: SHARED,
        ..acquire(owner)
    };
    name.grants(shared("a"));
    name.grants(shared("b"));
    name.is_held(acquire("a"));
    name.does(Operation::Release(by(leasehold_core::Who::Nonce(nonce(
        "b",
    )))));
    assert_eq!(name.grants(acquire("a")).granted, Granted::Again);
    name.is_held(shared("b"));
}

#[test]
fn no_more_holders_than_a_record_can_hold() {
    let mut name = Name::default();
    for n in 0..limits::HOLDERS {
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
fn an_item_is_granted_only_in_the_state_that_was_asked_for() {
    let claim = |state: &str| Acquire {
        in_state: Some(state.into()),
        ..acquire("a")
    };
    let mut name = Name::default();
    let refused = name.refuses(Operation::Acquire(claim("NEW")));
    assert_eq!(refused, Outcome::OtherState, "there is none");
    name.does(put("NEW", "work", None));
    let refused = name.refuses(Operation::Acquire(claim("DONE")));
    assert_eq!(refused, Outcome::OtherState);
    assert_eq!(&*name.grants(claim("NEW")).body, "work");
    name.is_held(claim("NEW"));
}

#[test]
fn fences_grow_from_a_floor_and_end_somewhere() {
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
fn a_reservation_keeps_everybody_else_out() {
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
fn a_reservation_lapses_and_can_be_withdrawn() {
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
fn a_waiter_reserves_for_thirty_seconds_then_lapses_for_as_long() {
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
