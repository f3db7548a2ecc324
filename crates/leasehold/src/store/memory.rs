//! Leases in this process's memory.
//!
//! # Guarantee
//! Linearizable. Records are lost when the process ends. Fences still grow across restarts, unless the wall clock
//! goes back by more than the restart took, because a new record starts from the store's time.
//!
//! # Stored form
//! Each record is packed, with its name, into one allocation (`memory/packed.rs`), and found by the hash of the name.
//! A held lock with a name of 19 bytes takes about 145 bytes in total. The order of names changes only when a record
//! is created or deleted, and the order of items only when an item changes its state.
//!
//! # Set-up
//! None. Each `memory:` that is opened is a separate store.
//!
//! # Options
//! None.
//!
//! # Limits
//! The available memory. Memory of deleted records is reused for new ones; not all of it is returned to the system.

mod bytes;
mod find;
mod order;
mod packed;
mod records;
#[cfg(all(test, feature = "conformance"))]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::{BootTime, Name, Stamp, Time};

use self::records::Records;
use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::host::{Host, Machine};
use crate::{Error, Result};

/// A store in memory.
pub struct Memory {
    records: Mutex<Records>,
    host: Arc<dyn Host>,
    /// The store's time when the boot clock was zero. The time starts from the wall clock and then follows the boot
    /// clock.
    epoch: Time,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    if url != "memory:" {
        return Err(Error::invalid(
            "`memory:` has no path and no options: use `memory:`",
        ));
    }
    Ok(Arc::new(Memory::new()))
}

impl Memory {
    /// Creates an empty store whose time starts from this machine's wall clock.
    pub fn new() -> Self {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let wall = Time::from_micros(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX));
        let boot = Machine.boot_time().since(BootTime::from_micros(0));
        Self::with_clock(Machine::shared(), wall - boot)
    }

    /// Creates an empty store on another host. Its time is the host's boot clock, counted from `epoch`.
    pub fn with_clock(host: Arc<dyn Host>, epoch: Time) -> Self {
        Self {
            records: Mutex::default(),
            host,
            epoch,
        }
    }

    fn stamp(&self) -> Stamp {
        let time = self.epoch + self.host.boot_time().since(BootTime::from_micros(0));
        Stamp {
            time,
            resolution: Duration::from_micros(1),
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for Memory {
    fn facts(&self) -> Facts {
        Facts {
            margin: Duration::ZERO,
            batch: 1024,
            in_flight: 1,
            poll: Duration::from_millis(50),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let records = self.records();
        let value = names.iter().map(|name| records.get(name)).collect();
        Ok(Answer {
            value,
            stamp: self.stamp(),
        })
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let mut records = self.records();
        let value = writes.iter().map(|write| records.swap(write)).collect();
        Ok(Answer {
            value,
            stamp: self.stamp(),
        })
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let records = self.records();
        Ok(Answer {
            value: find::find(&records, query)?,
            stamp: self.stamp(),
        })
    }

    fn blocks(&self) -> bool {
        true
    }

    fn is_in_process(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<Vec<Check>> {
        Ok(vec![Check::yellow(
            "leases are in this process's memory: they are lost when it ends",
            "use `sqlite:PATH` or a database if leases must survive it",
        )])
    }
}
