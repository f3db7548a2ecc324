//! A slewed store clock: no single answer shows the shift.

mod common;

use std::time::Duration;

use common::{acquire, at, secs};
use leasehold_core::{
    BootTime, Change, Clock, ClockChange, Observations, Operation, Stamp, apply, deadline,
};

const START: BootTime = BootTime::from_micros(0);

/// Returns the stamp of a store whose clock runs at another rate from boot second 0 on.
fn slewed(millis: u64, per_million: i64) -> Stamp {
    let elapsed = i64::try_from(millis * 1_000).expect("short");
    let shown = elapsed + elapsed * per_million / 1_000_000;
    Stamp {
        time: at(100) + Duration::from_micros(shown.try_into().expect("the clock runs forward")),
        resolution: Duration::from_micros(1),
    }
}

fn boot_millis(millis: u64) -> BootTime {
    BootTime::from_micros(millis * 1_000)
}

#[test]
fn slew_beyond_the_margin_is_a_step() {
    let margin = Duration::from_millis(250);
    for per_million in [80_000, -80_000, 2_000, -2_000] {
        let mut clock = Clock::new(START, START, slewed(0, per_million), margin);
        let mut answers = (5..200_000).step_by(5);
        let noticed = answers.find(|millis| {
            let now = boot_millis(*millis);
            clock.observe(now, now, slewed(*millis, per_million)) == ClockChange::Stepped
        });
        let shifted = noticed.expect("in bounded time") * per_million.unsigned_abs() / 1_000;
        // The bounds of the first answer have aged by 500 ppm.
        assert!(
            (250_000..=340_000).contains(&shifted),
            "{per_million}: {shifted} µs"
        );
    }
}

#[test]
fn obeying_holder_is_not_overlapped_while_the_clock_is_slewed() {
    let margin = Duration::from_millis(250);
    let ttl = secs(20);
    for per_million in [80_000, -80_000, 30_000, -30_000] {
        let mut clock = Clock::new(START, START, slewed(0, per_million), margin);
        let long = leasehold_core::Acquire {
            ttl,
            ..acquire("a")
        };
        let none = Observations::none();
        let granted = apply(None, &Operation::Acquire(long), &clock.now(START, &none));
        let Change::Write(record) = granted.change else {
            panic!("the name is free: {granted:?}");
        };
        let expires_at = record.holders[0].expires_at;
        let until = deadline(START, ttl, expires_at, slewed(0, per_million), margin);
        // The contender retries continuously; its round trip takes 5 ms.
        let mut observations = Observations::none();
        let taken = (5..60_000).step_by(5).find(|millis| {
            let (sent, now) = (boot_millis(*millis - 5), boot_millis(*millis));
            clock.observe(sent, now, slewed(*millis - 2, per_million));
            observations.update(Some(&record), &clock, now);
            let acquire = Operation::Acquire(acquire("b"));
            let decision = apply(Some(&record), &acquire, &clock.now(now, &observations));
            decision.change != Change::None
        });
        let taken = boot_millis(taken.expect("in bounded time"));
        assert!(
            taken > until,
            "{per_million}: taken at {taken}, held until {until}"
        );
        assert!(taken < START + ttl * 2, "{per_million}: only at {taken}");
    }
}

#[test]
fn drift_is_never_taken_for_a_step() {
    for per_million in [499, -499] {
        let stamp = |millis| slewed(millis, per_million);
        let mut clock = Clock::new(START, START, stamp(0), Duration::ZERO);
        for millis in (1..20_000).chain((20_000..2_000_000).step_by(777)) {
            let now = boot_millis(millis);
            let observed = clock.observe(now, now, stamp(millis));
            assert_eq!(observed, ClockChange::None, "after {millis} ms");
        }
    }
}
