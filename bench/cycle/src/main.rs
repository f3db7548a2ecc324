//! Acquires and releases one lease repeatedly, for `bench/instructions` to count instructions.
//!
//! ```sh
//! cargo run --release -p leasehold-cycle 1000
//! ```

use std::time::Duration;

use leasehold_core::{
    Acquire, BootTime, Change, Clock, Fence, Hash, HolderRef, Kind, Mode, Observations, Operation,
    Outcome, Record, Release, Stamp, Time, apply,
};

/// The time between two operations.
const STEP: Duration = Duration::from_micros(150);

fn main() {
    let cycles = std::env::args().nth(1).map_or(Ok(1_000), |n| n.parse());
    let cycles: u64 = cycles.expect("the argument is a number of cycles");
    let mut name = Name::new();
    for _ in 0..cycles {
        name.cycle();
    }
    let record = name.record.expect("the name has a record");
    println!("{cycles} cycles, up to fence {}", record.fence);
}

/// The state of one name in an engine.
struct Name {
    record: Option<Record>,
    clock: Clock,
    boot: BootTime,
    acquire: Operation,
}

impl Name {
    fn new() -> Self {
        let boot = BootTime::from_micros(86_400_000_000);
        let stamp = Stamp {
            time: Time::from_micros(1_700_000_000_000_000),
            resolution: Duration::from_micros(1),
        };
        let acquire = Operation::Acquire(Acquire {
            nonce: Hash::of(&[b"nonce"]),
            owner: "host:4711".into(),
            principal: None,
            ttl: Duration::from_secs(30),
            mode: Mode::Exclusive,
            fence: None,
            floor: Fence::default(),
            in_state: None,
        });
        Self {
            record: None,
            clock: Clock::new(boot, boot + STEP, stamp, Duration::from_millis(500)),
            boot: boot + STEP,
            acquire,
        }
    }

    /// Performs both operations as the engine does: each is checked, and decided at a time of its own.
    fn cycle(&mut self) {
        let acquire = self.acquire.clone();
        let Outcome::Granted(grant) = self.perform(&acquire) else {
            panic!("the lease was free");
        };
        let release = Operation::Release(Release {
            holder: HolderRef::Fence(grant.fence),
            principal: None,
        });
        assert_eq!(self.perform(&release), Outcome::Released);
    }

    fn perform(&mut self, operation: &Operation) -> Outcome {
        operation.check(Kind::Lock).expect("the operation is valid");
        self.boot = self.boot + STEP;
        let observations = Observations::none();
        let now = self.clock.now(self.boot, &observations);
        let decision = apply(self.record.as_ref(), operation, &now);
        if let Change::Write(record) = decision.change {
            self.record = Some(record);
        }
        decision.outcome
    }
}
