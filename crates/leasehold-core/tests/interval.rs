//! The store's time is an interval, and each process knows its own: what one wrote, another may not move back.

mod common;

use common::*;
use leasehold_core::{Acquire, Grant, Granted, Holder, Operation, Outcome};

fn grants_within(name: &mut Name, width: u64, acquire: Acquire) -> Grant {
    match name.does_within(secs(width), Operation::Acquire(acquire)) {
        Outcome::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn holder(name: &Name) -> &Holder {
    &name.stored().holders[0]
}

#[test]
fn a_regrant_by_a_narrower_clock_does_not_end_earlier() {
    let mut name = Name::default();
    let first = grants_within(&mut name, 2, acquire("a"));
    let again = name.after(1).grants(acquire("a"));
    assert_eq!(again.granted, Granted::Again);
    assert!(again.fence > first.fence);
    assert_eq!(again.expires_at, first.expires_at);
    // Counted from the moment that the first was counted from: otherwise it would look like a clock that stepped.
    assert_eq!((again.ttl, holder(&name).ttl), (TTL, TTL));
    let later = name.after(5).grants(acquire("a"));
    assert_eq!(later.expires_at, at(6) + TTL);
}

#[test]
fn a_regrant_with_a_shorter_ttl_does_not_end_while_the_older_self_may_believe() {
    let mut name = Name::default();
    let first = name.grants(acquire("a"));
    let brief = Acquire {
        ttl: secs(2),
        ..acquire("a")
    };
    let again = name.after(1).grants(brief.clone());
    assert_eq!((again.expires_at, again.ttl), (first.expires_at, TTL));
    // Its older self obeys until then, so another may not be granted before.
    name.after(8).is_held(acquire("b"));
    let short = name.grants(brief);
    assert_eq!((short.expires_at, short.ttl), (at(11), secs(2)));
    name.after(3).grants(acquire("b"));
}

#[test]
fn a_regrant_after_a_clock_step_does_not_keep_an_expiry_years_ahead() {
    let mut name = Name::default();
    name.after(1_000_000).grants(acquire("a"));
    name.second = 0;
    let again = name.grants(acquire("a"));
    assert_eq!(again.expires_at, at(0) + TTL);
}
