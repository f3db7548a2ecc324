//! Simulated surroundings: one true time, and machines whose clocks only roughly follow it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::conformance::Random;
use leasehold::core::BootTime;
use leasehold::host::Host;
use tokio::time::Instant;

/// What all of a simulation share: true time, an order of events, and a trace of them.
pub(crate) struct World {
    start: Instant,
    events: AtomicU64,
    random: Mutex<Random>,
    trace: Mutex<Vec<String>>,
}

/// A moment: its place in the order of all events, and its true time in microseconds.
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

    /// Now, as the next event.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            order: self.events.fetch_add(1, Ordering::Relaxed),
            micros: self.micros(),
        }
    }

    /// Draws from the simulation's random numbers.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.random.lock().expect("not poisoned"))
    }

    /// A random span of so many milliseconds.
    pub(crate) fn span(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.draw(|random| from + random.below(to - from + 1)))
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.draw(|random| random.percent(percent))
    }

    pub(crate) fn note(&self, line: String) {
        let line = format!("{:>9} {line}", self.micros());
        self.trace.lock().expect("not poisoned").push(line);
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.trace.lock().expect("not poisoned").clone()
    }
}

/// A machine of the simulation.
pub(crate) struct Machine {
    world: Arc<World>,
    offset_us: u64,
    /// How much too fast its clock runs, in parts per million.
    drift: i64,
    step_us: AtomicI64,
    /// The present slew in parts per million, positive if the clock runs too fast, and the true time of its start.
    slew: Mutex<(i64, u64)>,
}

impl Machine {
    /// One that booted at some time, and whose clock runs off by up to so many parts per million.
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

    /// Steps the clock: only a store's may do that.
    pub(crate) fn step(&self, by_us: i64) {
        self.step_us.fetch_add(by_us, Ordering::Relaxed);
    }

    /// Slews the clock from now on, by this many parts per million. Only a store's clock may be slewed.
    pub(crate) fn slew(&self, per_million: i64) {
        let shifted = self.slewed_us();
        self.step(shifted);
        *self.slew.lock().expect("not poisoned") = (per_million, self.world.micros());
    }

    /// By how much the present slew has shifted the clock so far.
    fn slewed_us(&self) -> i64 {
        let (per_million, since) = *self.slew.lock().expect("not poisoned");
        let elapsed = i64::try_from(self.world.micros() - since).expect("a short simulation");
        elapsed * per_million / 1_000_000
    }

    /// The true time at which this machine's boot clock shows (or showed) this.
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
