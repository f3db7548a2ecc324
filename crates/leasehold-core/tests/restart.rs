//! A store that keeps its own time and was restarted: holders outlive the interruption.

mod common;

use std::time::Duration;

use common::{TTL, acquire, at, force, renew, secs};
use leasehold_core::{
    BootTime, Change, Clock, Decision, Kind, Observations, Operation, Outcome, Record, Renew,
    Stamp, apply,
};

fn boot(second: u64) -> BootTime {
    BootTime::from_micros(0) + secs(second)
}

/// Returns a clock that shows this second of the store's time at boot second 0.
fn clock(second: u64) -> Clock {
    let stamp = Stamp {
        time: at(second),
        resolution: Duration::ZERO,
    };
    Clock::new(boot(0), boot(0), stamp, secs(0))
}

/// Returns the same clock after a restart at that second.
fn restarted(second: u64) -> Clock {
    clock(second).restarted(Some(at(second)))
}

/// Applies an operation at this boot second.
fn perform(
    record: Option<&Record>,
    operation: &Operation,
    clock: &Clock,
    second: u64,
    kind: Kind,
) -> Decision {
    let observations = Observations::none();
    apply(
        record,
        operation,
        &clock.now(boot(second), &observations).for_kind(kind),
    )
}

/// Returns a record that was granted at second 100 for ten seconds.
fn granted() -> Record {
    let acquire = Operation::Acquire(acquire("a"));
    match perform(None, &acquire, &clock(100), 0, Kind::Lock).change {
        Change::Write(record) => record,
        other => panic!("{other:?}"),
    }
}

fn is_granted(record: &Record, clock: &Clock, second: u64, kind: Kind) -> bool {
    let acquire = Operation::Acquire(acquire("b"));
    let outcome = perform(Some(record), &acquire, clock, second, kind).outcome;
    matches!(outcome, Outcome::Granted(_))
}

#[test]
fn holder_keeps_a_whole_ttl_after_a_restart_wherever_the_clock_resumed() {
    let record = granted();
    for resumed in [101, 109, 130, 1_000_000] {
        let clock = restarted(resumed);
        for second in [0, 5, 10] {
            let free = is_granted(&record, &clock, second, Kind::Lock);
            assert!(!free, "resumed at {resumed}, {second} s ago");
        }
        assert!(is_granted(&record, &clock, 11, Kind::Lock), "{resumed}");
    }
}

#[test]
fn lease_granted_after_a_restart_expires_by_the_clock() {
    let clock = restarted(130);
    let acquire = Operation::Acquire(acquire("a"));
    let Change::Write(record) = perform(None, &acquire, &clock, 5, Kind::Lock).change else {
        panic!("free");
    };
    assert!(!is_granted(&record, &clock, 15, Kind::Lock));
    assert!(is_granted(&record, &clock, 16, Kind::Lock));
}

#[test]
fn shorter_ttl_counts_only_from_the_end_of_the_longer_one_across_a_restart() {
    let record = granted();
    let clock = restarted(130);
    let renew = Operation::Renew(Renew {
        fence: record.fence,
        principal: None,
        ttl: Some(secs(1)),
    });
    let Change::Write(renewed) = perform(Some(&record), &renew, &clock, 2, Kind::Lock).change
    else {
        panic!("live");
    };
    assert_eq!(renewed.holders[0].expires_at, at(130) + TTL);
    assert!(!is_granted(&renewed, &clock, 10, Kind::Lock));
    assert!(is_granted(&renewed, &clock, 11, Kind::Lock));
}

#[test]
fn renewal_after_a_restart_is_judged_by_the_clock_again() {
    let record = granted();
    let clock = restarted(130);
    let renewal = perform(Some(&record), &renew(record.fence), &clock, 3, Kind::Lock);
    let Change::Write(renewed) = renewal.change else {
        panic!("live");
    };
    assert!(renewed.holders[0].expires_at >= at(133) + TTL);
    assert!(!is_granted(&renewed, &clock, 13, Kind::Lock));
    assert!(is_granted(&renewed, &clock, 14, Kind::Lock));
}

#[test]
fn forced_break_reports_until_when_the_name_stays_blocked() {
    let record = granted();
    let broken = perform(
        Some(&record),
        &force(None, false),
        &restarted(130),
        0,
        Kind::Lock,
    );
    let until = Some(at(130) + TTL);
    assert_eq!(broken.outcome, Outcome::Broken { until });
}

#[test]
fn gate_opens_by_the_stores_time_after_a_restart_too() {
    let record = granted();
    assert!(!is_granted(&record, &restarted(109), 0, Kind::Gate));
    assert!(is_granted(&record, &restarted(111), 0, Kind::Gate));
}

#[test]
fn after_a_restart_expiries_do_not_select_the_held_records() {
    assert_eq!(clock(130).earliest_live_expiry(boot(0)), at(130));
    assert!(restarted(130).earliest_live_expiry(boot(0)) < granted().holders[0].expires_at);
}
