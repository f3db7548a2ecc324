//! Exhaustive model check of the core: three clients, one name, and everything that can go wrong.
//!
//! `world` is a state, `client` what a client does, `model` what can happen, `properties` what must hold, `witness`
//! what an exploration must have met, `explore` visits every state. Here are the configurations, each explored to its
//! end; `mutants` are rules that are broken on purpose, which the checker has to catch.
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
use world::{Act, Answered, Config, Rules};

/// The rules as they are.
const RULES: Rules = Rules {
    apply,
    deadline: counted_from_the_send,
    observe: Clock::observe,
    versions_return: false,
};

fn counted_from_the_send(answered: &Answered) -> BootTime {
    deadline(
        answered.sent,
        answered.ttl,
        answered.expires_at,
        answered.stamp,
        answered.margin,
    )
}

const TWO: Mode = Mode::Shared { limit: Some(2) };

/// Three clients that are alike on a perfect store; what goes wrong is added to it.
const CALM: Config = Config {
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
    menu: &[Act::Acquire, Act::Renew, Act::Release],
    begins: 4,
    pauses: 1,
    crashes: 0,
    lost: 0,
    duplicates: 0,
    slow: 0,
    sent_late: false,
    life: 6,
    retention: 3,
    steps: &[],
    step_count: 0,
    connected: false,
    reboots: false,
    rules: RULES,
};

/// A client dies anywhere and comes back, with its nonce or a new one.
const CRASH: Config = Config {
    crashes: 1,
    begins: 3,
    ..CALM
};

/// Answers are lost, requests arrive twice and late.
const LOST: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    lost: 1,
    duplicates: 1,
    begins: 3,
    pauses: 2,
    horizon: 5,
    ..CALM
};

/// A client pauses between deciding and sending, and counts from the send.
const SENT_LATE: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    sent_late: true,
    begins: 3,
    pauses: 2,
    ..CALM
};

/// Answers are slow and their times are coarse, so the interval of the store's time is wide.
const SLOW: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    resolution: 2,
    slow: 1,
    pauses: 3,
    begins: 3,
    ..CALM
};

/// A renewal asks for a shorter ttl than before, and its answer is lost.
const SHORTER: Config = Config {
    ttl: 4,
    renewed_ttl: 1,
    lost: 1,
    begins: 3,
    ..CALM
};

/// Holders write, expired ones too. Two clients use the same nonce.
const ZOMBIE: Config = Config {
    menu: &[Act::Acquire, Act::Update, Act::Complete],
    nonces: [0, 0, 1],
    ..CALM
};

/// A leader asks again, showing its fence.
const LEADER: Config = Config {
    menu: &[Act::Acquire, Act::Keep],
    ..CALM
};

/// An admin breaks leases by force.
const BREAK: Config = Config {
    menu: &[Act::Acquire, Act::Update, Act::Break],
    ..CALM
};

/// Three clients share two places.
const SHARED: Config = Config {
    modes: [TWO; 3],
    ..CALM
};

/// Two share what the third wants for itself.
const READERS: Config = Config {
    modes: [TWO, TWO, Mode::Exclusive],
    horizon: 5,
    ..CALM
};

/// Waiters reserve.
const RESERVE: Config = Config {
    tick: Duration::from_millis(2_500),
    menu: &[Act::Acquire, Act::Release, Act::Reserve],
    ..CALM
};

/// The record is purged, and comes back. Requests live shorter than the retention.
const PURGE: Config = Config {
    menu: &[Act::Acquire, Act::Purge],
    ttl: 1,
    horizon: 8,
    begins: 3,
    pauses: 2,
    life: 2,
    ..CALM
};

/// Each client is answered by another node of the store, and has a clock of its own speed.
const AHEAD: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    ttl: 4,
    renewed_ttl: 4,
    horizon: 7,
    margin: 2,
    ahead: [0, 2, 1],
    fast_ppm: [-400, 400, 0],
    crashes: 1,
    begins: 3,
    ..CALM
};

/// The store's clock steps by no more than the margin; clients come and go.
const SMALL_STEP: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    ttl: 4,
    renewed_ttl: 4,
    horizon: 7,
    margin: 2,
    steps: &[-2, 2],
    step_count: 1,
    crashes: 1,
    begins: 3,
    ..CALM
};

/// The store's clock steps by more than the margin; clients were connected before.
const BIG_STEP: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    ttl: 2,
    horizon: 7,
    steps: &[-5, 5],
    step_count: 1,
    connected: true,
    ..CALM
};

/// The store's clock is slewed: several small steps, each within the margin, their sum beyond it.
const SLEW: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    ttl: 4,
    renewed_ttl: 4,
    horizon: 7,
    margin: 1,
    steps: &[-1, 1],
    step_count: 3,
    connected: true,
    begins: 2,
    ..CALM
};

/// The machine of an embedded store reboots, and the store resumes its time from a wall clock that may be ahead.
const REBOOT: Config = Config {
    menu: &[Act::Acquire, Act::Renew],
    steps: &[0, 1, 5],
    step_count: 1,
    reboots: true,
    begins: 3,
    horizon: 7,
    ..CALM
};

/// Explores a configuration to its end: no property breaks, at least so many states, and everything met.
fn holds(name: &str, config: Config, floor: usize, met: &[Witness]) {
    let model = Leases::new(config);
    let explored = explore(&model).unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
    let missed: Vec<_> = met.iter().filter(|it| !model.has_seen(**it)).collect();
    println!("{name}: {explored:?}");
    assert!(missed.is_empty(), "{name} never met {missed:?}");
    assert!(explored.states >= floor, "{name}: only {explored:?}");
}

macro_rules! explorations {
    ($($(#[$doc:meta])* $test:ident: $config:expr, $floor:expr, [$($met:expr),*];)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $test() {
                holds(stringify!($test), $config, $floor, &[$($met),*]);
            }
        )*
    };
}

explorations! {
    crash: CRASH, 70_000, [Granted, GrantedAgain, TookOver, Held, Renewed, Conflict, LandedLate];
    lost: LOST, 800_000, [TookOver, LostButLanded, Conflict, LandedLate, Renewed];
    sent_late: SENT_LATE, 100_000, [TookOver, LandedLate, Renewed];
    slow: SLOW, 700_000, [TookOver, Renewed];
    shorter_ttl: SHORTER, 60_000, [TookOver, Renewed, LostButLanded];
    zombie: ZOMBIE, 550_000, [TookOver, GrantedAgain, Fenced, Expired, Completed];
    leader: LEADER, 60_000, [Kept, TookOver, Held];
    broken: BREAK, 300_000, [Broken, Fenced, Held];
    shared: SHARED, 200_000, [Granted, Held, Renewed];
    readers: READERS, 300_000, [Granted, Held];
    reserve: RESERVE, 300_000, [Reserved, Turn, Held];
    purge: PURGE, 550_000, [Purged, CameBack, LandedLate, Conflict];
    ahead: AHEAD, 250_000, [TookOver, Renewed];
    small_step: SMALL_STEP, 550_000, [TookOver, Widened];
    big_step: BIG_STEP, 1_200_000, [Stepped, Observed];
    slew: SLEW, 600_000, [TookOver, Widened, Stepped];
    reboot: REBOOT, 200_000, [TookOver, Renewed, Held];
}
