//! Small builders: a name whose record is kept at hand, and a clock that is set.
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

/// The store's time, so many seconds after the tests begin.
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

pub(crate) fn by(holder: HolderRef) -> Release {
    Release {
        holder,
        principal: None,
    }
}

pub(crate) fn release(fence: Fence) -> Operation {
    Operation::Release(by(HolderRef::Fence(fence)))
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
    /// The high-water mark of the process that does it.
    pub(crate) high_water: Time,
}

impl Name {
    /// Does it at this second, as a store would. Returns what came of it; whether it was written shows in the record.
    pub(crate) fn does(&mut self, operation: impl Into<Operation>) -> Outcome {
        self.does_within(Duration::ZERO, operation)
    }

    /// Does it by a clock that is known to this width only: the store's time is this second, or up to `width` later.
    pub(crate) fn does_within(
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

    /// Does it so many seconds later.
    pub(crate) fn after(&mut self, seconds: u64) -> &mut Self {
        self.second += seconds;
        self
    }

    /// Does what must be refused: nothing is written.
    pub(crate) fn refuses(&mut self, operation: impl Into<Operation>) -> Outcome {
        let before = self.record.clone();
        let outcome = self.does(operation);
        assert_eq!(self.record, before, "a refusal writes nothing");
        outcome
    }

    pub(crate) fn grants(&mut self, acquire: Acquire) -> Grant {
        match self.does(Operation::Acquire(acquire)) {
            Outcome::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) fn renews(&mut self, operation: impl Into<Operation>) -> Renewal {
        match self.does(operation) {
            Outcome::Renewed(renewal) => renewal,
            other => panic!("not renewed: {other:?}"),
        }
    }

    pub(crate) fn is_held(&mut self, acquire: Acquire) -> leasehold_core::Held {
        match self.refuses(Operation::Acquire(acquire)) {
            Outcome::Held(held) => held,
            other => panic!("not held: {other:?}"),
        }
    }

    pub(crate) fn stored(&self) -> &Record {
        self.record.as_ref().expect("there is a record")
    }
}
