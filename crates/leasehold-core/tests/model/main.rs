//! Exhaustive model check of the core: three clients, one name, and every kind of failure.
//!
//! | module | content |
//! |---|---|
//! | `world` | the state |
//! | `client` | the behaviour of a client |
//! | `model` | the transitions |
//! | `properties` | the properties of every state |
//! | `witness` | situations that an exploration must reach |
//! | `explore` | the search through all states |
//! | `mutants` | deliberately broken rules, which the checker must detect |
//!
//! This file has the configurations. Each is explored exhaustively.
//!
//! See `docs/decisions/0001-a-pure-function-decides.md`.

mod client;
mod explore;
mod model;
mod mutants;
mod properties;
mod witness;
mod world;

use std::time::Duration;

use leasehold_core::{BootTime, Clock, Mode, apply, deadline};

use explore::explore;
use model::Leases;
use witness::Witness::{self, *};
use world::{Action, Config, DeadlineInputs, Rules};

/// The correct rules.
const RULES: Rules = Rules {
    apply,
    deadline: deadline_from_send,
    observe: Clock::observe,
    versions_return: false,
};

fn deadline_from_send(answered: &DeadlineInputs) -> BootTime {
    deadline(
        answered.sent,
        answered.ttl,
        answered.expires_at,
        answered.stamp,
        answered.margin,
    )
}

const TWO: Mode = Mode::Shared { limit: Some(2) };

/// Three identical clients on a perfect store. The other configurations add failures.
const BASELINE: Config = Config {
    tick: Duration::from_secs(1),
    horizon: 6,
    ttl: 2,
    renewed_ttl: 2,
    margin: 0,
    resolution: 0,
    modes: [Mode::Exclusive; 3],
    nonces: [0, 1, 2],
    ahead: [0; 3],
    fast_ppm: [0; 3],
    actions: &[Action::Acquire, Action::Renew, Action::Release],
    operations: 4,
    pauses: 1,
    crashes: 0,
    lost_answers: 0,
    duplicates: 0,
    request_ticks: 0,
    sent_late: false,
    swap_lifetime: 6,
    retention: 3,
    steps: &[],
    step_count: 0,
    connected: false,
    reboots: false,
    rules: RULES,
};

/// A client crashes at any point and restarts, with its nonce or a new one.
const CRASH: Config = Config {
    crashes: 1,
    operations: 3,
    ..BASELINE
};

/// Answers are lost, and requests arrive twice and late.
const LOST: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    lost_answers: 1,
    duplicates: 1,
    operations: 3,
    pauses: 2,
    horizon: 5,
    ..BASELINE
};

/// A client pauses between deciding and sending. Its deadline counts from the send.
const SENT_LATE: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    sent_late: true,
    operations: 3,
    pauses: 2,
    ..BASELINE
};

/// Answers are slow and their times are coarse, so the interval of the store's time is wide.
const SLOW: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    resolution: 2,
    request_ticks: 1,
    pauses: 3,
    operations: 3,
    ..BASELINE
};

/// A renewal requests a shorter ttl than before, and its answer is lost.
const SHORTER: Config = Config {
    ttl: 4,
    renewed_ttl: 1,
    lost_answers: 1,
    operations: 3,
    ..BASELINE
};

/// Holders write, including expired ones. Two clients use the same nonce.
const ZOMBIE: Config = Config {
    actions: &[Action::Acquire, Action::Update, Action::Complete],
    nonces: [0, 0, 1],
    ..BASELINE
};

/// A leader acquires again with its fence.
const LEADER: Config = Config {
    actions: &[Action::Acquire, Action::Keep],
    ..BASELINE
};

/// An admin breaks leases by force.
const BREAK: Config = Config {
    actions: &[Action::Acquire, Action::Update, Action::Break],
    ..BASELINE
};

/// Three clients share a lease with a limit of two.
const SHARED: Config = Config {
    modes: [TWO; 3],
    ..BASELINE
};

/// Two clients share the lease, and a third acquires it exclusively.
const READERS: Config = Config {
    modes: [TWO, TWO, Mode::Exclusive],
    horizon: 5,
    ..BASELINE
};

/// Waiters reserve.
const RESERVE: Config = Config {
    tick: Duration::from_millis(2_500),
    actions: &[Action::Acquire, Action::Release, Action::Reserve],
    ..BASELINE
};

/// The record is purged and recreated. Requests live shorter than the retention.
const PURGE: Config = Config {
    actions: &[Action::Acquire, Action::Purge],
    ttl: 1,
    horizon: 8,
    operations: 3,
    pauses: 2,
    swap_lifetime: 2,
    ..BASELINE
};

/// Each client is served by a different node of the store, and its clock has its own rate.
const AHEAD: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    ttl: 4,
    renewed_ttl: 4,
    horizon: 7,
    margin: 2,
    ahead: [0, 2, 1],
    fast_ppm: [-400, 400, 0],
    crashes: 1,
    operations: 3,
    ..BASELINE
};

/// The store's clock steps by no more than the margin, and clients restart.
const SMALL_STEP: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    ttl: 4,
    renewed_ttl: 4,
    horizon: 7,
    margin: 2,
    steps: &[-2, 2],
    step_count: 1,
    crashes: 1,
    operations: 3,
    ..BASELINE
};

/// The store's clock steps by more than the margin; clients were connected before.
const BIG_STEP: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    ttl: 2,
    horizon: 7,
    steps: &[-5, 5],
    step_count: 1,
    connected: true,
    ..BASELINE
};

/// The store's clock is slewed: several small steps within the margin, whose sum is beyond it.
const SLEW: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    ttl: 4,
    renewed_ttl: 4,
    horizon: 7,
    margin: 1,
    steps: &[-1, 1],
    step_count: 3,
    connected: true,
    operations: 2,
    ..BASELINE
};

/// The machine of an embedded store reboots, and the store resumes its time from a wall clock that may be ahead.
const REBOOT: Config = Config {
    actions: &[Action::Acquire, Action::Renew],
    steps: &[0, 1, 5],
    step_count: 1,
    reboots: true,
    operations: 3,
    horizon: 7,
    ..BASELINE
};

/// Explores a configuration exhaustively. Fails if a property is violated, if there are fewer states than `floor`, or
/// if an expected situation is never reached.
fn check_exploration(name: &str, config: Config, floor: usize, expected: &[Witness]) {
    let model = Leases::new(config);
    let explored = explore(&model).unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
    let missing: Vec<_> = expected
        .iter()
        .filter(|it| !model.has_witness(**it))
        .collect();
    println!("{name}: {explored:?}");
    assert!(missing.is_empty(), "{name} never reached {missing:?}");
    assert!(explored.states >= floor, "{name}: only {explored:?}");
}

macro_rules! explorations {
    ($($(#[$doc:meta])* $test:ident: $config:expr, $floor:expr, [$($expected:expr),*];)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $test() {
                check_exploration(stringify!($test), $config, $floor, &[$($expected),*]);
            }
        )*
    };
}

explorations! {
    crash: CRASH, 70_000, [Granted, GrantedAgain, Takeover, Held, Renewed, Conflict, LandedLate];
    lost: LOST, 800_000, [Takeover, LandedAfterLostAnswer, Conflict, LandedLate, Renewed];
    sent_late: SENT_LATE, 100_000, [Takeover, LandedLate, Renewed];
    slow: SLOW, 700_000, [Takeover, Renewed];
    shorter_ttl: SHORTER, 60_000, [Takeover, Renewed, LandedAfterLostAnswer];
    zombie: ZOMBIE, 550_000, [Takeover, GrantedAgain, Fenced, Expired, Completed];
    leader: LEADER, 60_000, [Kept, Takeover, Held];
    broken: BREAK, 300_000, [Broken, Fenced, Held];
    shared: SHARED, 200_000, [Granted, Held, Renewed];
    readers: READERS, 300_000, [Granted, Held];
    reserve: RESERVE, 300_000, [Reserved, GrantedToWaiter, Held];
    purge: PURGE, 550_000, [Purged, Recreated, LandedLate, Conflict];
    ahead: AHEAD, 250_000, [Takeover, Renewed];
    small_step: SMALL_STEP, 550_000, [Takeover, Widened];
    big_step: BIG_STEP, 1_200_000, [Stepped, GrantedByObservation];
    slew: SLEW, 600_000, [Takeover, Widened, Stepped];
    reboot: REBOOT, 200_000, [Takeover, Renewed, Held];
}
