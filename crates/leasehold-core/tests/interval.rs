//! Each process has its own interval of the store's time. No process moves back an expiry or a date of another.

mod common;

use common::*;
use leasehold_core::{Acquire, Grant, GrantKind, Holder, Operation, Outcome, Time, Update};

fn expect_granted_within(name: &mut Name, width: u64, acquire: Acquire) -> Grant {
    match name.perform_within(secs(width), Operation::Acquire(acquire)) {
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
    let first = expect_granted_within(&mut name, 2, acquire("a"));
    let again = name.after(1).expect_granted(acquire("a"));
    assert_eq!(again.granted, GrantKind::Again);
    assert!(again.fence > first.fence);
    assert_eq!(again.expires_at, first.expires_at);
    // The expiry counts from the same time as the first one. Otherwise it would look like a clock step.
    assert_eq!((again.ttl, holder(&name).ttl), (TTL, TTL));
    let later = name.after(5).expect_granted(acquire("a"));
    assert_eq!(later.expires_at, at(6) + TTL);
}

#[test]
fn regrant_with_a_shorter_ttl_does_not_end_before_the_earlier_expiry() {
    let mut name = Name::default();
    let first = name.expect_granted(acquire("a"));
    let brief = Acquire {
        ttl: secs(2),
        ..acquire("a")
    };
    let again = name.after(1).expect_granted(brief.clone());
    assert_eq!((again.expires_at, again.ttl), (first.expires_at, TTL));
    // The earlier process may rely on that expiry, so no other caller may be granted before it.
    name.after(8).expect_held(acquire("b"));
    let short = name.expect_granted(brief);
    assert_eq!((short.expires_at, short.ttl), (at(11), secs(2)));
    name.after(3).expect_granted(acquire("b"));
}

#[test]
fn regrant_after_a_clock_step_does_not_keep_an_expiry_years_ahead() {
    let mut name = Name::default();
    name.after(1_000_000).expect_granted(acquire("a"));
    name.second = 0;
    let again = name.expect_granted(acquire("a"));
    assert_eq!(again.expires_at, at(0) + TTL);
}

fn since(name: &Name) -> Time {
    name.stored()
        .state
        .as_ref()
        .expect("the item has a state")
        .since
}

/// Returns another name that the same process writes next.
fn same_process(name: &Name) -> Name {
    Name {
        record: None,
        ..*name
    }
}

#[test]
fn items_of_one_process_are_dated_in_the_order_of_their_puts() {
    let mut first = Name::default();
    first.perform_within(secs(2), put("NEW", "", None));
    // Another answer has narrowed the interval of the store's time. It now ends before the first item's date.
    let mut second = same_process(first.after(1));
    second.perform(put("NEW", "", None));
    assert!(since(&second) > since(&first));
    let mut third = same_process(&second);
    third.perform(put("NEW", "", None));
    assert!(since(&third) > since(&second));
    // After the store's time has certainly passed these dates, it is used again.
    let mut later = same_process(third.after(2));
    later.perform(put("NEW", "", None));
    assert_eq!(since(&later), at(3));
}

#[test]
fn item_that_changes_state_is_dated_after_earlier_items() {
    let mut first = Name::default();
    first.perform_within(secs(2), put("NEW", "", None));
    let mut second = same_process(&first);
    let fence = second.expect_granted(acquire("a")).fence;
    second.perform(Operation::Update(Update {
        state: Some(Some("NEW".into())),
        ..write(fence, "")
    }));
    assert!(since(&second) > since(&first));
}

#[test]
fn state_is_never_entered_before_the_previous_state() {
    let mut name = Name::default();
    name.perform_within(secs(2), put("NEW", "", None));
    let before = since(&name);
    // Another process, which has not written anything yet.
    name.high_water = Time::default();
    name.perform(put("DONE", "", None));
    assert!(since(&name) > before);
}

#[test]
fn clock_that_was_far_ahead_does_not_date_later_items() {
    let mut name = Name::default();
    name.after(1_000_000).perform(put("NEW", "", None));
    let mut next = same_process(&name);
    next.second = 0;
    next.perform(put("NEW", "", None));
    assert_eq!(since(&next), at(0));
    name.second = 0;
    name.perform(put("DONE", "", None));
    assert_eq!(since(&name), at(0));
    // The high-water mark follows the current clock again.
    let mut last = same_process(&next);
    last.perform(put("NEW", "", None));
    assert!(since(&last) > since(&next) && since(&last) < at(1));
}

#[test]
fn deleted_record_restarts_above_the_fences_that_the_process_granted() {
    let mut name = Name::default();
    let mut last = expect_granted_within(&mut name, 2, acquire("a")).fence;
    for turn in 0..10 {
        name.perform(release(last));
        if turn % 2 == 0 {
            name.record = None;
        }
        let next = name.expect_granted(acquire("a")).fence;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

#[test]
fn another_process_grants_higher_fences_once_the_store_time_passed_the_last_write() {
    let mut name = Name::default();
    let first = expect_granted_within(&mut name, 2, acquire("a")).fence;
    let mut other = Name::default();
    let again = other.after(3).expect_granted(acquire("b")).fence;
    assert!(again > first, "{again} after {first}");
}

#[test]
fn new_records_do_not_start_at_fences_far_ahead_of_the_clock() {
    let mut name = Name::default();
    name.after(1_000_000).expect_granted(acquire("a"));
    let mut next = same_process(&name);
    next.second = 0;
    assert_eq!(
        next.expect_granted(acquire("a")).fence.get(),
        at(0).as_micros() + 1
    );
}
