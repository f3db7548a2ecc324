//! The store's time: intervals, steps, observation, deadlines.

mod common;

use std::time::Duration;

use common::{TTL, acquire, at, renew, secs};
use leasehold_core::{
    BootTime, Change, Clock, ClockChange, Interval, Observations, Operation, Record, Stamp, apply,
    deadline, holder_margin, limits,
};

fn boot(seconds: u64) -> BootTime {
    BootTime::from_micros(0) + secs(seconds)
}

fn stamp(second: u64) -> Stamp {
    coarse(second, 0)
}

fn coarse(second: u64, resolution: u64) -> Stamp {
    Stamp {
        time: at(second),
        resolution: secs(resolution),
    }
}

fn between(earliest: u64, latest: u64) -> Interval {
    Interval {
        earliest: at(earliest),
        latest: at(latest),
    }
}

/// Returns a clock that is known exactly at boot second 0, which is second 100 of the store.
fn exact(margin: u64) -> Clock {
    Clock::new(boot(0), boot(0), stamp(100), secs(margin))
}

/// Applies an operation at this boot second with these observations. Returns the record to write, if any.
fn perform(
    record: Option<&Record>,
    operation: Operation,
    clock: &Clock,
    second: u64,
    observations: &Observations,
) -> Option<Record> {
    let decision = apply(record, &operation, &clock.now(boot(second), observations));
    match decision.change {
        Change::Write(record) => Some(record),
        Change::None | Change::Delete => None,
    }
}

fn is_granted(
    record: Option<&Record>,
    nonce: &str,
    clock: &Clock,
    second: u64,
    observations: &Observations,
) -> bool {
    perform(
        record,
        Operation::Acquire(acquire(nonce)),
        clock,
        second,
        observations,
    )
    .is_some()
}

fn granted(clock: &Clock, second: u64) -> Record {
    let acquire = Operation::Acquire(acquire("a"));
    perform(None, acquire, clock, second, &Observations::none()).expect("free")
}

#[test]
fn interval_of_an_answer_covers_its_round_trip_and_its_resolution() {
    let clock = Clock::new(boot(0), boot(3), coarse(100, 1), secs(0));
    assert_eq!(clock.interval(boot(3)), between(100, 104));
}

#[test]
fn interval_widens_with_age_and_narrows_with_each_answer() {
    let mut clock = Clock::new(boot(0), boot(0), stamp(0), secs(0));
    let aged = clock.interval(boot(2_000));
    assert_eq!((aged.earliest, aged.latest), (at(1_999), at(2_001)));
    let observed = clock.observe(boot(2_000), boot(2_000), stamp(2_000));
    assert_eq!(observed, ClockChange::None);
    assert_eq!(clock.interval(boot(2_000)), between(2_000, 2_000));
    assert_eq!(clock.age(boot(2_007)), secs(7));
}

#[test]
fn shift_within_the_margin_widens_the_interval() {
    let mut clock = exact(2);
    assert_eq!(
        clock.observe(boot(1), boot(1), stamp(103)),
        ClockChange::Widened
    );
    for second in 1..5 {
        clock.observe(boot(second), boot(second), stamp(102 + second));
        let interval = clock.interval(boot(second));
        let before = at(100 + second) + Duration::from_millis(3);
        assert!(interval.earliest <= before, "{interval:?}");
        assert!(interval.latest >= at(102 + second), "{interval:?}");
    }
    assert_eq!(clock.stepped_at(), None);
}

#[test]
fn shift_beyond_the_margin_is_a_step() {
    for after in [90, 110] {
        let mut clock = exact(2);
        assert_eq!(
            clock.observe(boot(1), boot(1), stamp(after)),
            ClockChange::Stepped
        );
        assert_eq!(clock.interval(boot(1)), between(after, after));
        assert_eq!(clock.stepped_at(), Some(boot(1)));
    }
}

#[test]
fn slow_answer_that_may_hide_a_step_widens_the_interval() {
    // The clock has stepped back by 5 s. The answer took 6 s, so it is consistent with and without the step.
    let mut clock = exact(0);
    assert_eq!(
        clock.observe(boot(0), boot(6), stamp(101)),
        ClockChange::None
    );
    assert!(
        clock.interval(boot(6)).earliest <= at(101),
        "only these bounds are certain"
    );
    assert_eq!(
        clock.observe(boot(7), boot(7), stamp(102)),
        ClockChange::Stepped
    );
}

#[test]
fn answer_processed_late_does_not_narrow_the_interval() {
    let mut clock = exact(0);
    clock.observe(boot(10), boot(10), stamp(110));
    assert_eq!(
        clock.observe(boot(5), boot(6), stamp(105)),
        ClockChange::None
    );
    assert_eq!(clock.age(boot(10)), secs(0));
    let interval = clock.interval(boot(10));
    assert!(interval.earliest <= at(110) && interval.latest >= at(110));
}

#[test]
fn times_out_of_range_saturate() {
    let early = Stamp {
        time: leasehold_core::Time::from_micros(1),
        resolution: Duration::ZERO,
    };
    let clock = Clock::new(boot(5), boot(5), early, secs(0));
    assert_eq!(clock.interval(boot(0)).earliest.as_micros(), 0);
}

#[test]
fn deadline_counts_from_the_send_and_ends_a_margin_early() {
    let margin = holder_margin(secs(2), TTL);
    assert_eq!(margin, secs(2) + Duration::from_millis(10));
    let until = deadline(boot(50), TTL, at(110), stamp(100), secs(2));
    assert_eq!(until, boot(50) + TTL - margin);
    // The request arrived late: less than the ttl remains.
    let until = deadline(boot(50), TTL, at(110), stamp(104), secs(0));
    assert_eq!(until, boot(56) - Duration::from_millis(10));
    // A coarse time may be older than it shows.
    let until = deadline(boot(50), TTL, at(110), coarse(104, 1), secs(0));
    assert_eq!(until, boot(55) - Duration::from_millis(10));
    // No time remains: the caller must acquire again.
    assert_eq!(
        deadline(boot(50), TTL, at(110), stamp(999), secs(0)),
        boot(50)
    );
}

/// Observes an answer without a round-trip time.
fn observe_at(clock: &mut Clock, second: u64, store: u64) -> ClockChange {
    clock.observe(boot(second), boot(second), stamp(store))
}

#[test]
fn holder_keeps_its_remaining_time_after_a_step_forward() {
    let mut clock = exact(0);
    let record = granted(&clock, 0);
    assert_eq!(observe_at(&mut clock, 1, 500), ClockChange::Stepped);
    let none = Observations::none();
    assert!(!is_granted(Some(&record), "b", &clock, 1, &none));
    assert!(!is_granted(Some(&record), "b", &clock, 10, &none));
    assert!(is_granted(Some(&record), "b", &clock, 11, &none));
}

#[test]
fn holder_expires_later_by_at_most_the_step_after_a_step_back() {
    let mut clock = exact(0);
    let record = granted(&clock, 0);
    assert_eq!(observe_at(&mut clock, 1, 98), ClockChange::Stepped);
    let none = Observations::none();
    assert!(!is_granted(Some(&record), "b", &clock, 13, &none));
    assert!(is_granted(Some(&record), "b", &clock, 14, &none));
}

#[test]
fn holder_expires_by_observation_after_a_long_step_back() {
    let mut clock = exact(0);
    let record = granted(&clock, 0);
    assert_eq!(observe_at(&mut clock, 1, 50), ClockChange::Stepped);
    let mut observations = Observations::none();
    assert!(
        !is_granted(Some(&record), "b", &clock, 59, &observations),
        "never observed"
    );
    observations.update(Some(&record), &clock, boot(1));
    assert!(!is_granted(Some(&record), "b", &clock, 11, &observations));
    observations.update(Some(&record), &clock, boot(11));
    assert!(is_granted(Some(&record), "b", &clock, 12, &observations));
}

#[test]
fn renewal_restarts_the_observation() {
    let mut clock = exact(0);
    let record = granted(&clock, 0);
    observe_at(&mut clock, 1, 50);
    let mut observations = Observations::none();
    observations.update(Some(&record), &clock, boot(1));
    let fence = record.holders[0].fence;
    // The engine of the renewal has not noticed the step.
    let renewed = perform(Some(&record), renew(fence), &exact(0), 8, &observations).expect("live");
    observations.update(Some(&renewed), &clock, boot(8));
    assert!(!is_granted(Some(&renewed), "b", &clock, 12, &observations));
    assert!(is_granted(Some(&renewed), "b", &clock, 19, &observations));
}

#[test]
fn lease_of_a_day_is_not_doubled_by_a_small_step() {
    let day = 24 * 3_600;
    for (after, over) in [(105, 0), (95, 10)] {
        let mut clock = exact(0);
        let long = leasehold_core::Acquire {
            ttl: secs(day),
            ..acquire("a")
        };
        let record = perform(
            None,
            Operation::Acquire(long),
            &clock,
            0,
            &Observations::none(),
        );
        assert_eq!(observe_at(&mut clock, 1, after + 1), ClockChange::Stepped);
        // At 500 ppm, the clocks may have drifted apart by 43 s meanwhile.
        let none = Observations::none();
        assert!(!is_granted(
            record.as_ref(),
            "b",
            &clock,
            day + over / 2,
            &none
        ));
        assert!(is_granted(
            record.as_ref(),
            "b",
            &clock,
            day + over + 44,
            &none
        ));
    }
}

#[test]
fn holder_is_judged_by_the_slowest_clock_after_several_steps() {
    let mut clock = exact(0);
    let before = granted(&clock, 0);
    observe_at(&mut clock, 1, 95);
    let between = granted(&clock, 2);
    observe_at(&mut clock, 3, 120);
    let none = Observations::none();
    // The expiry is 110 by a clock that would show 94 now, and 106 by one that would show 96.
    assert!(!is_granted(Some(&before), "b", &clock, 15, &none));
    assert!(is_granted(Some(&before), "b", &clock, 17, &none));
    assert!(!is_granted(Some(&between), "b", &clock, 12, &none));
    assert!(is_granted(Some(&between), "b", &clock, 13, &none));
}

#[test]
fn lease_granted_after_a_step_is_judged_by_the_clock_again() {
    let mut clock = exact(0);
    clock.observe(boot(1), boot(1), stamp(500));
    let record = granted(&clock, 2);
    assert!(!is_granted(
        Some(&record),
        "b",
        &clock,
        12,
        &Observations::none()
    ));
    assert!(is_granted(
        Some(&record),
        "b",
        &clock,
        13,
        &Observations::none()
    ));
}

#[test]
fn lease_granted_after_a_step_back_is_judged_by_the_present_clock() {
    let mut clock = exact(0);
    observe_at(&mut clock, 1, 50);
    let record = granted(&clock, 2);
    assert!(!is_granted(
        Some(&record),
        "b",
        &clock,
        12,
        &Observations::none()
    ));
    assert!(is_granted(
        Some(&record),
        "b",
        &clock,
        13,
        &Observations::none()
    ));
}

#[test]
fn shifts_below_the_margin_accumulate_to_a_step() {
    for direction in [1, -1] {
        let mut clock = exact(10);
        let mut shown = 100;
        let heard: Vec<_> = (1..=3)
            .map(|second| {
                shown += 1 + 4 * direction;
                observe_at(
                    &mut clock,
                    second,
                    shown.try_into().expect("after the epoch"),
                )
            })
            .collect();
        assert_eq!(
            heard,
            [
                ClockChange::Widened,
                ClockChange::Widened,
                ClockChange::Stepped
            ]
        );
    }
}

#[test]
fn shift_back_and_forth_beyond_the_margin_is_a_step() {
    let mut clock = exact(10);
    assert_eq!(observe_at(&mut clock, 1, 101 - 8), ClockChange::Widened);
    assert_eq!(observe_at(&mut clock, 2, 102 + 1), ClockChange::Widened);
    assert_eq!(observe_at(&mut clock, 3, 103 + 8), ClockChange::Stepped);
}

#[test]
fn expiry_written_by_a_clock_years_ahead_does_not_block_the_name() {
    let year = 365 * 24 * 3_600;
    let ahead = Clock::new(boot(0), boot(0), stamp(year), secs(0));
    let record = granted(&ahead, 0);
    // For a process that did not notice the step, the expiry itself proves it.
    let clock = exact(0);
    let mut observations = Observations::none();
    observations.update(Some(&record), &clock, boot(0));
    assert!(!is_granted(Some(&record), "b", &clock, 10, &observations));
    assert!(is_granted(Some(&record), "b", &clock, 11, &observations));
    // It stays expired while the clock approaches that expiry.
    assert!(is_granted(
        Some(&record),
        "b",
        &clock,
        year - 101,
        &observations
    ));
    // A renewal corrects the expiry.
    let fence = record.holders[0].fence;
    let mended = perform(Some(&record), renew(fence), &clock, 5, &observations).expect("live");
    assert_eq!(
        mended.holders[0].expires_at,
        at(115) + Duration::from_micros(2_500)
    );
}

#[test]
fn holder_with_a_wide_interval_keeps_its_whole_ttl() {
    let mut clock = Clock::new(boot(0), boot(2), stamp(100), secs(0));
    let record = granted(&clock, 2);
    assert_eq!(record.holders[0].expires_at, at(112));
    // The answer to the write was fast: the time is now known exactly, two seconds before the written one.
    clock.observe(boot(2), boot(2), stamp(100));
    let mut observations = Observations::none();
    observations.update(Some(&record), &clock, boot(2));
    assert!(!is_granted(Some(&record), "b", &clock, 14, &observations));
    assert!(is_granted(Some(&record), "b", &clock, 15, &observations));
}

#[test]
fn no_record_is_purged_within_a_retention_of_a_step() {
    let mut clock = exact(0);
    let record = granted(&clock, 0);
    clock.observe(boot(1), boot(1), stamp(20_000));
    let mut observations = Observations::none();
    observations.update(Some(&record), &clock, boot(1));
    let purge = Operation::Purge {
        retention: limits::MIN_RETENTION,
    };
    let purged = |second| {
        apply(
            Some(&record),
            &purge,
            &clock.now(boot(second), &observations),
        )
        .change
    };
    assert_eq!(purged(3_601), Change::None);
    assert_eq!(purged(3_602), Change::Delete);
}

#[test]
fn reservation_written_by_a_clock_ahead_is_ignored() {
    let ahead = Clock::new(boot(0), boot(0), stamp(1_000), secs(0));
    let none = Observations::none();
    let held = granted(&ahead, 0);
    let mut record = perform(Some(&held), common::reserve("w"), &ahead, 0, &none).expect("held");
    record.holders.clear();
    assert!(!is_granted(Some(&record), "b", &ahead, 1, &none));
    assert!(is_granted(Some(&record), "b", &exact(0), 1, &none));
}
