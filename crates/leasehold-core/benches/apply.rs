//! The cost of one decision of the core.
//!
//! ```sh
//! cargo bench -p leasehold-core
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Duration;

use common::{acquire, at, release, renew};
use criterion::{Criterion, criterion_group, criterion_main};
use leasehold_core::{
    BootTime, Change, Clock, Name, Nonce, Observations, Operation, Outcome, Record, Stamp, apply,
};

const BOOT: BootTime = BootTime::from_micros(86_400_000_000);

fn clock() -> Clock {
    let stamp = Stamp {
        time: at(0),
        resolution: Duration::from_micros(1),
    };
    let margin = Duration::from_millis(500);
    Clock::new(BOOT, BOOT, stamp, margin)
}

/// Returns the record after these operations.
fn after<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Record {
    let (clock, seen) = (clock(), Observations::none());
    let mut record = None;
    for operation in operations {
        let decision = apply(record.as_ref(), operation, &clock.now(BOOT, &seen));
        let Change::Write(next) = decision.change else {
            panic!("{operation:?}: {:?}", decision.outcome);
        };
        record = Some(next);
    }
    record.expect("a record")
}

fn decisions(criterion: &mut Criterion) {
    let ada = Operation::Acquire(acquire("ada"));
    let bob = Operation::Acquire(acquire("bob"));
    let held = after([&ada]);
    let fence = held.fence;
    let free = after([&ada, &release(fence)]);
    for (name, record, operation, wanted) in [
        ("acquire", &free, &bob, is_granted as fn(&Outcome) -> bool),
        ("acquire, refused", &held, &bob, is_held),
        ("renew", &held, &renew(fence), is_renewed),
        ("release", &held, &release(fence), is_released),
    ] {
        let (clock, seen) = (clock(), Observations::none());
        let decide = || {
            let now = black_box(&clock).now(BOOT, &seen);
            apply(Some(black_box(record)), black_box(operation), &now)
        };
        let outcome = decide().outcome;
        assert!(wanted(&outcome), "{name}: {outcome:?}");
        criterion.bench_function(name, |bencher| bencher.iter(decide));
    }
}

fn is_granted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Granted(_))
}

fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held(_))
}

fn is_renewed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Renewed(_))
}

fn is_released(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Released)
}

/// The work around a decision: hashing the nonce, and serialising the record for most stores.
fn supporting_work(criterion: &mut Criterion) {
    let secret = Nonce::new("0123456789abcdef0123456789abcdef").expect("a nonce");
    let name = Name::lock("nightly-report").expect("a name");
    criterion.bench_function("hash a nonce", |bencher| {
        bencher.iter(|| black_box(&secret).hash(black_box(&name)));
    });
    let record = after([&Operation::Acquire(acquire("ada"))]);
    criterion.bench_function("write a record as JSON", |bencher| {
        bencher.iter(|| serde_json::to_vec(black_box(&record)));
    });
    let json = serde_json::to_vec(&record).expect("JSON");
    criterion.bench_function("read a record from JSON", |bencher| {
        bencher.iter(|| serde_json::from_slice::<Record>(black_box(&json)));
    });
}

/// Takes seconds instead of minutes: it shows large factors only, and `bench/instructions` counts the rest.
fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = benches;
    config = short();
    targets = decisions, supporting_work
}
criterion_main!(benches);
