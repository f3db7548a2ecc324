//! The store's own time: initially wall time, then the boot clock; never backwards. The wall clock after a reboot
//! says nothing about a holder's expiry, so the core gives every holder a full ttl from then on.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::{BootTime, Time};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::file::{File, Transaction};
use crate::host::{Host, Machine};
use crate::{Error, Result};

/// How far the store's time may be ahead of the persisted high-water mark. It saves a page write in most commits.
const HIGH_WATER_LEAD: Duration = Duration::from_secs(1);

/// One boot of one machine in one time namespace, which identifies a boot clock.
#[derive(Clone)]
pub struct Boot {
    /// The boot's id, different for each boot and each machine.
    pub id: String,
    /// The time namespace: within a boot, each namespace has its own boot clock.
    pub time_namespace: String,
    /// The wall clock's time when the boot clock was zero.
    pub epoch: Time,
    /// The boot clock.
    pub host: Arc<dyn Host>,
}

impl Boot {
    /// Returns the boot and time namespace of this process.
    pub fn current() -> Result<Self> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            Error::Denied(format!(
                "cannot open a SQLite store: the boot id in /proc/sys/kernel/random/boot_id is unreadable: {error}"
            ))
        })?;
        // A kernel without time namespaces lacks this link, and has a single boot clock.
        let time_namespace = std::fs::read_link("/proc/self/ns/time")
            .map_or_else(|_| "none".into(), |link| link.display().to_string());
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let wall = Time::from_micros(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX));
        Ok(Self {
            id: id.trim().into(),
            time_namespace,
            epoch: wall - uptime(&Machine),
            host: Machine::shared(),
        })
    }
}

fn uptime(host: &dyn Host) -> std::time::Duration {
    host.boot_time().since(BootTime::from_micros(0))
}

/// The store's clock.
pub(super) struct StoreClock {
    boot: Boot,
    /// The store's time when the boot clock was zero.
    epoch: Time,
    /// When the time was continued from another boot; `None` if the file was new.
    restarted: Option<Time>,
}

/// The row of the table `clock`.
struct ClockRow {
    boot_id: String,
    time_namespace: String,
    epoch: Time,
    high_water: Time,
    restarted: Option<Time>,
}

impl StoreClock {
    /// Continues the time that the file records. Starts it in a new file; carries it over after a reboot.
    pub(super) fn open(file: &File, connection: &mut Connection, boot: Boot) -> Result<Self> {
        let before = |error| file.before_commit(&error);
        if let Some(row) = resumable(file, load_row(connection).map_err(before)?, &boot)? {
            return Ok(Self::new(boot, &row));
        }
        // Two processes that open the file right after a boot must agree: the second one finds the first one's row.
        let tx = file.begin(connection)?;
        let row = load_row(&tx).map_err(before)?;
        let before_boot = row.as_ref().map(|row| row.high_water);
        let row = match resumable(file, row, &boot)? {
            Some(row) => row,
            None => restart(&tx, before_boot, &boot).map_err(before)?,
        };
        file.commit(tx)?;
        Ok(Self::new(boot, &row))
    }

    fn new(boot: Boot, row: &ClockRow) -> Self {
        Self {
            boot,
            epoch: row.epoch,
            restarted: row.restarted,
        }
    }

    /// Returns when the time was continued from another boot; `None` if the file was new.
    pub(super) fn restarted_at(&self) -> Option<Time> {
        self.restarted
    }

    /// Returns the store's time.
    pub(super) fn now(&self) -> Time {
        self.epoch + uptime(&*self.boot.host)
    }

    /// Persists the high-water mark now and then, in this transaction. Fails if the file now follows another clock:
    /// with two clocks, processes would disagree on who has expired.
    pub(super) fn persist(&self, file: &File, tx: &Transaction<'_>) -> Result<()> {
        let before = |error| file.before_commit(&error);
        let high_water = self.high_water(tx).map_err(before)?.ok_or_else(|| {
            Error::Denied(format!(
                "`{}` is now used by another machine: share a SQLite file only between processes of one machine",
                file.path().display()
            ))
        })?;
        let now = self.now();
        if now > high_water + HIGH_WATER_LEAD / 2 {
            tx.prepare_cached("update clock set high_water_us = ?1")
                .and_then(|mut update| update.execute([micros(now)]))
                .map_err(before)?;
        }
        Ok(())
    }

    /// Returns the persisted high-water mark; `None` if the file follows another clock.
    fn high_water(&self, connection: &Connection) -> rusqlite::Result<Option<Time>> {
        connection
            .prepare_cached(
                "select high_water_us from clock where boot_id = ?1 and time_namespace = ?2 and epoch_us = ?3",
            )?
            .query_row(
                params![self.boot.id, self.boot.time_namespace, micros(self.epoch)],
                |row| time(row, 0),
            )
            .optional()
    }
}

/// Returns the persisted clock if it follows this boot clock.
fn resumable(file: &File, row: Option<ClockRow>, boot: &Boot) -> Result<Option<ClockRow>> {
    let Some(row) = row.filter(|row| row.boot_id == boot.id) else {
        return Ok(None);
    };
    if row.time_namespace != boot.time_namespace {
        return Err(Error::Denied(format!(
            "`{}` is used from another time namespace ({}; this process is in {}), whose clock differs: run all \
             processes that share the file in one time namespace",
            file.path().display(),
            row.time_namespace,
            boot.time_namespace
        )));
    }
    // A machine restored from a snapshot keeps its boot id while its boot clock goes back.
    let now = row.epoch + uptime(&*boot.host);
    Ok((now >= row.high_water).then_some(row))
}

/// Restarts the store's time on this boot's clock, from the high-water mark or from the wall clock.
fn restart(
    connection: &Connection,
    high_water: Option<Time>,
    boot: &Boot,
) -> rusqlite::Result<ClockRow> {
    let beyond = high_water.unwrap_or_default() + HIGH_WATER_LEAD;
    let epoch = boot.epoch.max(beyond - uptime(&*boot.host));
    let now = epoch + uptime(&*boot.host);
    let restarted = high_water.map(|_| now);
    connection.execute("delete from clock", [])?;
    connection.execute(
        "insert into clock (boot_id, time_namespace, epoch_us, high_water_us, restarted_us) values (?1, ?2, ?3, ?4, ?5)",
        params![boot.id, boot.time_namespace, micros(epoch), micros(now), restarted.map(micros)],
    )?;
    Ok(ClockRow {
        boot_id: boot.id.clone(),
        time_namespace: boot.time_namespace.clone(),
        epoch,
        high_water: now,
        restarted,
    })
}

fn load_row(connection: &Connection) -> rusqlite::Result<Option<ClockRow>> {
    connection
        .query_row(
            "select boot_id, time_namespace, epoch_us, high_water_us, restarted_us from clock",
            [],
            |row| {
                Ok(ClockRow {
                    boot_id: row.get(0)?,
                    time_namespace: row.get(1)?,
                    epoch: time(row, 2)?,
                    high_water: time(row, 3)?,
                    restarted: row.get::<_, Option<i64>>(4)?.map(from_micros),
                })
            },
        )
        .optional()
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Time> {
    row.get(column).map(from_micros)
}

fn from_micros(micros: i64) -> Time {
    Time::from_micros(micros.cast_unsigned())
}

/// Converts a time to SQLite's integer. Times after the year 294,000 round-trip, but sort before all others.
pub(super) fn micros(time: Time) -> i64 {
    time.as_micros().cast_signed()
}
