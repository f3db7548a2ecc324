//! Each process knows the store's time as an interval of its own. None may move back what another has written.

mod common;

use common::*;
use leasehold_core::{Acquire, Grant, GrantKind, Holder, Operation, Outcome, Time, Update};

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
fn regrant_by_a_narrower_clock_does_not_end_earlier() {
    let mut name = Name::default();
    let first = grants_within(&mut name, 2, acquire("a"));
    let again = name.after(1).grants(acquire("a"));
    assert_eq!(again.granted, GrantKind::Again);
    assert!(again.fence > first.fence);
    assert_eq!(again.expires_at, first.expires_at);
    // Counted from the moment that the first was counted from: otherwise it would look like a clock that stepped.
    assert_eq!((again.ttl, holder(&name).ttl), (TTL, TTL));
    let later = name.after(5).grants(acquire("a"));
    assert_eq!(later.expires_at, at(6) + TTL);
}

#[test]
fn regrant_with_a_shorter_ttl_does_not_end_before_the_earlier_expiry() {
    let mut name = Name::default();
    let first = name.grants(acquire("a"));
    let brief = Acquire {
        ttl: secs(2),
        ..acquire("a")
    };
    let again = name.after(1).grants(brief.clone());
    assert_eq!((again.expires_at, again.ttl), (first.expires_at, TTL));
    // The process that held it before may rely on that expiry, so no other may be granted earlier.
    name.after(8).is_held(acquire("b"));
    let short = name.grants(brief);
    assert_eq!((short.expires_at, short.ttl), (at(11), secs(2)));
    name.after(3).grants(acquire("b"));
}

#[test]
fn regrant_after_a_clock_step_does_not_keep_an_expiry_years_ahead() {
    let mut name = Name::default();
    name.after(1_000_000).grants(acquire("a"));
    name.second = 0;
    let again = name.grants(acquire("a"));
    assert_eq!(again.expires_at, at(0) + TTL);
}

fn since(name: &Name) -> Time {
    name.stored().state.as_ref().expect("it has a state").since
}

/// Another name, written next by the same process.
fn same_process(name: &Name) -> Name {
    Name {
        record: None,
        ..*name
    }
}

#[test]
fn items_of_one_process_are_dated_in_the_order_of_their_puts() {
    let mut first = Name::default();
    first.does_within(secs(2), put("NEW", "", None));
    // The store has answered, so its time is now known better: to before what the first was dated.
    let mut second = same_process(first.after(1));
    second.does(put("NEW", "", None));
    assert!(since(&second) > since(&first));
    let mut third = same_process(&second);
    third.does(put("NEW", "", None));
    assert!(since(&third) > since(&second));
    // Once the store's time is certainly past all of that, a shorter ttl counts again.
    let mut later = same_process(third.after(2));
    later.does(put("NEW", "", None));
    assert_eq!(since(&later), at(3));
}

#[test]
fn item_that_changes_state_is_dated_after_earlier_items() {
    let mut first = Name::default();
    first.does_within(secs(2), put("NEW", "", None));
    let mut second = same_process(&first);
    let fence = second.grants(acquire("a")).fence;
    second.does(Operation::Update(Update {
        state: Some(Some("NEW".into())),
        ..write(fence, "")
    }));
    assert!(since(&second) > since(&first));
}

#[test]
fn state_is_never_entered_before_the_previous_state() {
    let mut name = Name::default();
    name.does_within(secs(2), put("NEW", "", None));
    let before = since(&name);
    // Another process, which has written nothing so far.
    name.high_water = Time::default();
    name.does(put("DONE", "", None));
    assert!(since(&name) > before);
}

#[test]
fn clock_that_was_far_ahead_does_not_date_later_items() {
    let mut name = Name::default();
    name.after(1_000_000).does(put("NEW", "", None));
    let mut next = same_process(&name);
    next.second = 0;
    next.does(put("NEW", "", None));
    assert_eq!(since(&next), at(0));
    name.second = 0;
    name.does(put("DONE", "", None));
    assert_eq!(since(&name), at(0));
    // The mark is that of the present clock again.
    let mut last = same_process(&next);
    last.does(put("NEW", "", None));
    assert!(since(&last) > since(&next) && since(&last) < at(1));
}

#[test]
fn deleted_record_restarts_above_the_fences_that_the_process_granted() {
    let mut name = Name::default();
    let mut last = grants_within(&mut name, 2, acquire("a")).fence;
    for turn in 0..10 {
        name.does(release(last));
        if turn % 2 == 0 {
            name.record = None;
        }
        let next = name.grants(acquire("a")).fence;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

#[test]
fn another_process_grants_higher_fences_once_the_store_time_passed_the_last_write() {
    let mut name = Name::default();
    let first = grants_within(&mut name, 2, acquire("a")).fence;
    let mut other = Name::default();
    let again = other.after(3).grants(acquire("b")).fence;
    assert!(again > first, "{again} after {first}");
}

#[test]
fn new_records_do_not_start_at_fences_far_ahead_of_the_clock() {
    let mut name = Name::default();
    name.after(1_000_000).grants(acquire("a"));
    let mut next = same_process(&name);
    next.second = 0;
    assert_eq!(next.grants(acquire("a")).fence.get(), at(0).as_micros() + 1);
}
