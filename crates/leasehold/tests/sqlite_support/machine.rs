//! A simulated machine, which a test boots and whose clocks it advances.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::Result;
use leasehold::core::{BootTime, Time};
use leasehold::host::{Host, Machine};
use leasehold::store::sqlite::{Boot, Sqlite};

pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const HOUR: u64 = 3_600 * SECOND;
/// A day in 2026.
pub(crate) const TODAY: u64 = 1_790_000_000 * SECOND;

/// A boot clock that a test advances.
pub(crate) struct BootClock(pub(crate) AtomicU64);

impl Host for BootClock {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

/// A simulated machine.
pub(crate) struct SimulatedMachine {
    id: String,
    pub(crate) clock: Arc<BootClock>,
}

impl SimulatedMachine {
    /// Creates a machine that was booted this long ago.
    pub(crate) fn booted_ago(uptime: u64) -> Self {
        Self {
            id: format!("boot-{:x}", Machine.random()),
            clock: Arc::new(BootClock(uptime.into())),
        }
    }

    pub(crate) fn advance(&self, span: u64) {
        self.clock.0.fetch_add(span, Ordering::SeqCst);
    }

    pub(crate) fn boot(&self, wall: u64, time_namespace: &str) -> Boot {
        Boot {
            id: self.id.clone(),
            time_namespace: time_namespace.into(),
            epoch: Time::from_micros(wall.saturating_sub(self.clock.0.load(Ordering::SeqCst))),
            host: self.clock.clone(),
        }
    }

    /// Opens the file in a process of this machine, with this wall clock.
    pub(crate) async fn open(&self, path: &Path, wall: u64) -> Result<Sqlite> {
        Sqlite::open_on(path, self.boot(wall, "time:[1]")).await
    }
}
