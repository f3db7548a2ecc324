//! Takes and releases one lease again and again: what `bench/instructions` counts.
//!
//! ```sh
//! cargo run --release -p leasehold-cycle 1000
//! ```

use std::time::Duration;

use leasehold_core::{
    Acquire, BootTime, Change, Clock, Fence, Hash, HolderRef, Kind, Mode, Observations, Operation,
    Outcome, Record, Release, Stamp, Time, apply,
};

/// From one operation to the next.
const STEP: Duration = Duration::from_micros(150);

fn main() {
    let cycles = std::env::args().nth(1).map_or(Ok(1_000), |n| n.parse());
    let cycles: u64 = cycles.expect("a number of cycles");
    let mut name = Name::new();
    for _ in 0..cycles {
        name.cycle();
    }
    let record = name.record.expect("a record that was released");
    println!("{cycles} cycles, up to fence {}", record.fence);
}

/// What an engine keeps of one name.
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

    /// As the engine does it: each operation is checked, and decided at a moment of its own.
    fn cycle(&mut self) {
        let acquire = self.acquire.clone();
        let Outcome::Granted(grant) = self.perform(&acquire) else {
            panic!("it was free");
        };
        let release = Operation::Release(Release {
            holder: HolderRef::Fence(grant.fence),
            principal: None,
        });
        assert_eq!(self.perform(&release), Outcome::Released);
    }

    fn perform(&mut self, operation: &Operation) -> Outcome {
        operation.check(Kind::Lock).expect("within its limits");
        self.boot = self.boot + STEP;
        let seen = Observations::none();
        let now = self.clock.now(self.boot, &seen);
        let decision = apply(self.record.as_ref(), operation, &now);
        if let Change::Write(record) = decision.change {
            self.record = Some(record);
        }
        decision.outcome
    }
}
