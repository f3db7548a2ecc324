//! The simulated environment: one true time, and machines whose clocks follow it inaccurately.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::conformance::Random;
use leasehold::core::BootTime;
use leasehold::host::Host;
use tokio::time::Instant;

/// The state that a whole simulation shares: true time, the order of events, and their trace.
pub(crate) struct World {
    start: Instant,
    events: AtomicU64,
    random: Mutex<Random>,
    trace: Mutex<Vec<String>>,
}

/// An event: its place in the order of all events, and its true time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) order: u64,
    pub(crate) micros: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            events: AtomicU64::new(0),
            random: Mutex::new(Random::new(seed)),
            trace: Mutex::default(),
        })
    }

    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).expect("a short simulation")
    }

    /// Returns the current moment, as the next event.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            order: self.events.fetch_add(1, Ordering::Relaxed),
            micros: self.micros(),
        }
    }

    /// Draws from the random numbers of the simulation.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.random.lock().expect("not poisoned"))
    }

    /// Returns a random duration between these numbers of milliseconds.
    pub(crate) fn duration(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.draw(|random| from + random.below(to - from + 1)))
    }

    /// Returns true in this percentage of calls.
    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.draw(|random| random.percent(percent))
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&self, line: String) {
        let line = format!("{:>9} {line}", self.micros());
        self.trace.lock().expect("not poisoned").push(line);
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.trace.lock().expect("not poisoned").clone()
    }
}

/// A simulated machine, the host of an engine or of the store.
pub(crate) struct Machine {
    world: Arc<World>,
    offset_us: u64,
    /// The rate error of its clock in parts per million, positive if it runs too fast.
    drift: i64,
    step_us: AtomicI64,
    /// The current slew in parts per million, positive if the clock runs too fast, and the true time of its start.
    slew: Mutex<(i64, u64)>,
}

impl Machine {
    /// Creates a machine with a random uptime, whose clock drifts by up to this many parts per million.
    pub(crate) fn new(world: &Arc<World>, drift: u64) -> Arc<Self> {
        let (offset_us, drift) = world.draw(|random| {
            let offset = random.below(1_000_000_000_000);
            let drift = random.below(2 * drift + 1) as i64 - drift as i64;
            (offset, drift)
        });
        Arc::new(Self {
            world: world.clone(),
            offset_us,
            drift,
            step_us: AtomicI64::new(0),
            slew: Mutex::default(),
        })
    }

    /// Steps the clock. Only a store's clock may be stepped.
    pub(crate) fn step(&self, by_us: i64) {
        self.step_us.fetch_add(by_us, Ordering::Relaxed);
    }

    /// Slews the clock from now on, by this many parts per million. Only a store's clock may be slewed.
    pub(crate) fn slew(&self, per_million: i64) {
        let shifted = self.slewed_us();
        self.step(shifted);
        *self.slew.lock().expect("not poisoned") = (per_million, self.world.micros());
    }

    /// Returns by how many microseconds the current slew has shifted the clock so far.
    fn slewed_us(&self) -> i64 {
        let (per_million, since) = *self.slew.lock().expect("not poisoned");
        let elapsed = i64::try_from(self.world.micros() - since).expect("a short simulation");
        elapsed * per_million / 1_000_000
    }

    /// Returns the true time at which this machine's boot clock shows this time.
    pub(crate) fn true_micros(&self, boot: BootTime) -> u64 {
        let shown = i128::from(boot.as_micros()) - i128::from(self.offset_us);
        let micros = shown * 1_000_000 / i128::from(1_000_000 + self.drift);
        u64::try_from(micros).unwrap_or(0)
    }
}

impl Host for Machine {
    fn boot_time(&self) -> BootTime {
        let elapsed =
            i128::from(self.world.micros()) * i128::from(1_000_000 + self.drift) / 1_000_000;
        let shifted = self.step_us.load(Ordering::Relaxed) + self.slewed_us();
        let shown = i128::from(self.offset_us) + elapsed + i128::from(shifted);
        BootTime::from_micros(u64::try_from(shown).unwrap_or(0))
    }

    fn random(&self) -> u128 {
        self.world
            .draw(|random| (u128::from(random.number()) << 64) | u128::from(random.number()))
    }
}
