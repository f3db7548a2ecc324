//! The pure core of Leasehold: what a lease is, and how it changes.
//!
//! A lease is a [`Record`] under compare-and-swap. [`apply`] decides what an [`Operation`] does to it at a given
//! [`Now`]; everything else in Leasehold moves records. There is no I/O in here, no async, no clock and no
//! randomness, so every decision can be replayed and model-checked.
//!
//! ```
//! use leasehold_core::{Acquire, Clock, Fence, Hash, Mode, Operation, Outcome, Observations, Stamp, Time, BootTime, apply};
//! use std::time::Duration;
//!
//! let boot = BootTime::from_micros(0);
//! let stamp = Stamp { time: Time::from_micros(1_700_000_000_000_000), resolution: Duration::ZERO };
//! let clock = Clock::new(boot, boot, stamp, Duration::ZERO);
//! let observations = Observations::none();
//! let acquire = Operation::Acquire(Acquire {
//!     nonce: Hash::of(&[b"my nonce"]),
//!     owner: "host:42".into(),
//!     principal: None,
//!     ttl: Duration::from_secs(30),
//!     mode: Mode::Exclusive,
//!     fence: None,
//!     floor: Fence::default(),
//!     in_state: None,
//! });
//! let decision = apply(None, &acquire, &clock.now(boot, &observations));
//! assert!(matches!(decision.outcome, Outcome::Granted(grant) if grant.fence.get() == 1_700_000_000_000_001));
//! ```

mod apply;
mod clock;
mod event;
mod high_water;
pub mod limits;
mod name;
mod operation;
mod record;
mod time;

use std::borrow::Cow;

pub use apply::{Change, Decision, View, apply, view};
pub use clock::{
    Clock, ClockChange, EarlierClocks, Now, Observations, deadline, holder_margin, min_ttl,
};
pub use event::{Event, events, latest};
pub use name::{Kind, Name};
pub use operation::{
    Acquire, Break, Grant, GrantKind, Held, HolderRef, Operation, Outcome, Put, Release, Renew,
    Renewal, Reserve, Update,
};
pub use record::{
    EndReason, Fence, Hash, Holder, LastHolder, Mode, Nonce, Record, Reservation, State, Text,
};
pub use time::{BootTime, Interval, Stamp, Time};

/// Input outside its limits. The message says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(Cow<'static, str>);

impl Invalid {
    /// Creates an error from a message that says what is invalid and what would be valid.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}
