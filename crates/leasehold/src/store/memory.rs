//! Leases in this process's memory.
//!
//! # Guarantee
//! Linearizable; gone when the process ends. Fences grow over restarts all the same, as long as the wall clock
//! does not go back by more than the restart took: a record starts from the store's time.
//!
//! # Stored form
//! Each record is packed, with its name, into one piece of memory (`memory/packed.rs`), and found by the hash of the
//! name. A held lock with a name of 19 bytes takes about 145 bytes, all told. Only a name that comes or goes moves
//! anything in the order of names, and only an item that changes its state in the order of items.
//!
//! # Set-up
//! None. Each `memory:` that is opened is a store of its own.
//!
//! # Options
//! None.
//!
//! # Limits
//! What fits into memory. What deleted records took is used for new ones, not all of it given back.

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

/// Records in memory.
pub struct Memory {
    records: Mutex<Records>,
    host: Arc<dyn Host>,
    /// Store time when the boot clock was zero: wall time at first, then boot time.
    epoch: Time,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    if url != "memory:" {
        return Err(Error::invalid("nothing may follow `memory:`"));
    }
    Ok(Arc::new(Memory::new()))
}

impl Memory {
    /// An empty store whose time starts from this machine's wall clock.
    pub fn new() -> Self {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let wall = Time::from_micros(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX));
        let boot = Machine.boot_time().since(BootTime::from_micros(0));
        Self::with_clock(Machine::shared(), wall - boot)
    }

    /// An empty store on another host; its time is the host's boot clock, counted from `epoch`.
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

    fn is_near(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<Vec<Check>> {
        Ok(vec![Check::yellow(
            "leases are in this process's memory: they are gone when it ends",
            "use `sqlite:PATH`, or a database, where leases must outlive it",
        )])
    }
}
