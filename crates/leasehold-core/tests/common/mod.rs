//! Builders of operations, and a name with its record and a settable clock.
#![allow(dead_code)] // each test file uses its own part

use std::time::Duration;

use leasehold_core::{
    Acquire, BootTime, Break, Change, Clock, Fence, Grant, Hash, HolderRef, Mode, Now,
    Observations, Operation, Outcome, Put, Record, Release, Renew, Renewal, Reserve, Stamp, Time,
    Update, apply,
};

pub(crate) const SHARED: Mode = Mode::Shared { limit: None };
pub(crate) const TWO: Mode = Mode::Shared { limit: Some(2) };
pub(crate) const TTL: Duration = secs(10);

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the store's time this many seconds after the start of a test.
pub(crate) fn at(seconds: u64) -> Time {
    Time::from_micros(1_700_000_000_000_000) + secs(seconds)
}

pub(crate) fn nonce(name: &str) -> Hash {
    Hash::of(&[name.as_bytes()])
}

pub(crate) fn acquire(name: &str) -> Acquire {
    Acquire {
        nonce: nonce(name),
        owner: name.into(),
        principal: None,
        ttl: TTL,
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    }
}

pub(crate) fn renew(fence: Fence) -> Operation {
    Operation::Renew(Renew {
        fence,
        principal: None,
        ttl: None,
    })
}

pub(crate) fn write(fence: Fence, body: &str) -> Update {
    Update {
        fence,
        principal: None,
        body: Some(body.into()),
        state: None,
        then_release: false,
    }
}

pub(crate) fn complete(fence: Fence, body: &str) -> Operation {
    Operation::Update(Update {
        then_release: true,
        ..write(fence, body)
    })
}

pub(crate) fn release_by(holder: HolderRef) -> Release {
    Release {
        holder,
        principal: None,
    }
}

pub(crate) fn release(fence: Fence) -> Operation {
    Operation::Release(release_by(HolderRef::Fence(fence)))
}

pub(crate) fn force(fence: Option<Fence>, now: bool) -> Operation {
    Operation::Break(Break::Force {
        fence,
        reason: "stuck".into(),
        now,
    })
}

pub(crate) fn reserve(name: &str) -> Operation {
    Operation::Reserve(Reserve {
        nonce: nonce(name),
        mode: Mode::Exclusive,
        span: secs(5),
    })
}

pub(crate) fn put(state: &str, body: &str, name: Option<&str>) -> Operation {
    Operation::Put(Put {
        state: state.into(),
        body: Some(body.into()),
        nonce: name.map(nonce),
    })
}

/// One name on a store whose clock is known exactly.
#[derive(Default)]
pub(crate) struct Name {
    pub(crate) record: Option<Record>,
    pub(crate) second: u64,
    /// The high-water mark of the process that performs the operations.
    pub(crate) high_water: Time,
}

impl Name {
    /// Performs an operation at the current second and updates the record. Returns the outcome.
    pub(crate) fn perform(&mut self, operation: impl Into<Operation>) -> Outcome {
        self.perform_within(Duration::ZERO, operation)
    }

    /// Performs an operation with an uncertain clock: the store's time is the current second or up to `width` later.
    pub(crate) fn perform_within(
        &mut self,
        width: Duration,
        operation: impl Into<Operation>,
    ) -> Outcome {
        let boot = BootTime::from_micros(0);
        let stamp = Stamp {
            time: at(self.second),
            resolution: width,
        };
        let clock = Clock::new(boot, boot, stamp, Duration::ZERO);
        let seen = Observations::none();
        let now = Now {
            high_water: self.high_water,
            ..clock.now(boot, &seen)
        };
        let decision = apply(self.record.as_ref(), &operation.into(), &now);
        match decision.change {
            Change::None => {}
            Change::Write(record) => {
                assert!(record.is_sound(), "{record:?}");
                self.high_water = now.high_water_with(&record);
                self.record = Some(record);
            }
            Change::Delete => self.record = None,
        }
        decision.outcome
    }

    /// Advances the clock.
    pub(crate) fn after(&mut self, seconds: u64) -> &mut Self {
        self.second += seconds;
        self
    }

    /// Performs an operation that must not change the record.
    pub(crate) fn expect_refused(&mut self, operation: impl Into<Operation>) -> Outcome {
        let before = self.record.clone();
        let outcome = self.perform(operation);
        assert_eq!(self.record, before, "a refusal writes nothing");
        outcome
    }

    pub(crate) fn expect_granted(&mut self, acquire: Acquire) -> Grant {
        match self.perform(Operation::Acquire(acquire)) {
            Outcome::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) fn expect_renewed(&mut self, operation: impl Into<Operation>) -> Renewal {
        match self.perform(operation) {
            Outcome::Renewed(renewal) => renewal,
            other => panic!("not renewed: {other:?}"),
        }
    }

    pub(crate) fn expect_held(&mut self, acquire: Acquire) -> leasehold_core::Held {
        match self.expect_refused(Operation::Acquire(acquire)) {
            Outcome::Held(held) => held,
            other => panic!("not held: {other:?}"),
        }
    }

    pub(crate) fn stored(&self) -> &Record {
        self.record.as_ref().expect("the record exists")
    }
}
