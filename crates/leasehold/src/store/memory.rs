//! Leases in this process's memory.
//!
//! # Guarantee
//! Linearizable; gone when the process ends. Fences grow over restarts all the same, as long as the wall clock
//! does not go back by more than the restart took: a record starts from the store's time.
//!
//! # Stored form
//! The records themselves, in ordered maps.
//!
//! # Set-up
//! None. Each `memory:` that is opened is a store of its own.
//!
//! # Options
//! None.
//!
//! # Limits
//! What fits into memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use leasehold_core::{BootTime, Name, Stamp, Time};

use super::{
    Answer, Availability, Check, Facts, Page, Query, Store, Stored, Swapped, Version, Write,
    held_until,
};
use crate::host::{Host, Machine};
use crate::{Error, Result};

/// Records in memory.
pub struct Memory {
    records: Mutex<BTreeMap<Name, Stored>>,
    host: Arc<dyn Host>,
    /// Store time when the boot clock was zero: wall time at first, then boot time.
    epoch: Time,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    if url != "memory:" {
        return Err(Error::invalid(format!(
            "`{url}`: nothing may follow `memory:`"
        )));
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

    fn records(&self) -> std::sync::MutexGuard<'_, BTreeMap<Name, Stored>> {
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
        let value = names
            .iter()
            .map(|name| records.get(name).cloned())
            .collect();
        Ok(Answer {
            value,
            stamp: self.stamp(),
        })
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let mut records = self.records();
        let value = writes
            .into_iter()
            .map(|write| swap_one(&mut records, write))
            .collect();
        Ok(Answer {
            value,
            stamp: self.stamp(),
        })
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let records = self.records();
        let page = if query.state.is_some() {
            by_state(&records, query)
        } else {
            by_name(&records, query)
        };
        Ok(Answer {
            value: page?,
            stamp: self.stamp(),
        })
    }

    async fn check(&self) -> Result<Vec<Check>> {
        Ok(vec![Check::yellow(
            "leases are in this process's memory: they are gone when it ends",
            "use `sqlite:PATH`, or a database, where leases must outlive it",
        )])
    }
}

fn swap_one(records: &mut BTreeMap<Name, Stored>, write: Write) -> Swapped {
    let current = records.get(&write.name);
    if current.map(|stored| stored.version.write) != write.expect.map(|version| version.write) {
        return Swapped::Conflict(current.cloned());
    }
    match write.put {
        None => {
            records.remove(&write.name);
        }
        Some((id, record)) => {
            records.insert(
                write.name,
                Stored {
                    version: Version {
                        write: id,
                        tag: None,
                    },
                    record,
                },
            );
        }
    }
    Swapped::Written { tag: None }
}

fn wanted(query: &Query, name: &Name, stored: &Stored) -> bool {
    let label = stored.record.state.as_ref().map(|state| &state.label);
    name.kind() == query.kind
        && name.as_str().starts_with(&query.prefix)
        && query
            .state
            .as_ref()
            .is_none_or(|state| Some(state) == label)
        && match query.availability {
            None => true,
            Some(Availability::Free(at)) => held_until(&stored.record) < at,
            Some(Availability::Held(at)) => held_until(&stored.record) >= at,
        }
}

fn by_name(records: &BTreeMap<Name, Stored>, query: &Query) -> Result<Page> {
    let start = match &query.cursor {
        Some(after) => Bound::Excluded(Name::new(query.kind, after)?),
        None if query.prefix.is_empty() => Bound::Unbounded,
        None => Bound::Included(Name::new(query.kind, &query.prefix)?),
    };
    let mut found: Vec<_> = records
        .range((start, Bound::Unbounded))
        .filter(|(name, stored)| wanted(query, name, stored))
        .take(query.limit + 1)
        .map(|(name, stored)| (name.clone(), stored.clone()))
        .collect();
    let more = found.len() > query.limit;
    found.truncate(query.limit);
    let cursor = found
        .last()
        .filter(|_| more)
        .map(|(name, _)| name.as_str().to_owned());
    Ok(Page {
        records: found,
        cursor,
    })
}

fn by_state(records: &BTreeMap<Name, Stored>, query: &Query) -> Result<Page> {
    let after = query
        .cursor
        .as_deref()
        .map(parse_state_cursor)
        .transpose()?;
    let since = |stored: &Stored| {
        stored
            .record
            .state
            .as_ref()
            .map_or(0, |state| state.since.as_micros())
    };
    let mut found: Vec<_> = records
        .iter()
        .filter(|(name, stored)| wanted(query, name, stored))
        .filter(|(name, stored)| {
            after
                .as_ref()
                .is_none_or(|after| (since(stored), name.as_str()) > (after.0, &*after.1))
        })
        .collect();
    found.sort_by_key(|(name, stored)| (since(stored), (*name).clone()));
    let more = found.len() > query.limit;
    found.truncate(query.limit);
    let records: Vec<_> = found
        .into_iter()
        .map(|(name, stored)| (name.clone(), stored.clone()))
        .collect();
    let cursor = records
        .last()
        .filter(|_| more)
        .map(|(name, stored)| format!("{}:{name}", since(stored)));
    Ok(Page { records, cursor })
}

fn parse_state_cursor(cursor: &str) -> Result<(u64, String)> {
    cursor
        .split_once(':')
        .and_then(|(since, name)| Some((since.parse().ok()?, name.to_owned())))
        .ok_or_else(|| Error::invalid("that cursor was not made by this store: start without one"))
}
