//! The store's own time: wall time at first, then this boot's clock; never backwards. What a wall clock shows after a
//! reboot proves nothing about a holder: the core lets each keep a whole ttl from then on.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::{BootTime, Time};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::file::{File, Transaction};
use crate::host::{Host, Machine};
use crate::{Error, Result};

/// How far the time may have come beyond what the file says. So that not every commit has another page to write.
const BEYOND: Duration = Duration::from_secs(1);

/// One boot of one machine, seen from one time namespace: whose boot clock it is.
#[derive(Clone)]
pub struct Boot {
    /// Differs for each boot and each machine.
    pub id: String,
    /// Within a boot, processes of different time namespaces have different boot clocks.
    pub time_namespace: String,
    /// What the wall clock says it was when the boot clock was zero.
    pub epoch: Time,
    /// The boot clock.
    pub host: Arc<dyn Host>,
}

impl Boot {
    /// This process's.
    pub fn current() -> Result<Self> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            Error::Denied(format!(
                "a SQLite store needs this boot's id: /proc/sys/kernel/random/boot_id: {error}"
            ))
        })?;
        // A kernel without time namespaces has no such link, and one boot clock for all.
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

/// Tells the store's time.
pub(super) struct StoreClock {
    boot: Boot,
    /// The store's time when the boot clock was zero.
    epoch: Time,
    /// When the time was carried over from another boot, unless the file was new.
    restarted: Option<Time>,
}

/// The row of the table `clock`.
struct Kept {
    boot_id: String,
    time_namespace: String,
    epoch: Time,
    high_water: Time,
    restarted: Option<Time>,
}

impl StoreClock {
    /// Goes on with the time that the file keeps; starts it in a new file; carries it over into a new boot.
    pub(super) fn adopt(file: &File, connection: &mut Connection, boot: Boot) -> Result<Self> {
        let before = |error| file.before_commit(&error);
        if let Some(kept) = running(file, kept(connection).map_err(before)?, &boot)? {
            return Ok(Self::new(boot, &kept));
        }
        // Two processes that come first after a boot must agree: whoever is second finds the first one's row.
        let tx = file.begin(connection)?;
        let kept = kept(&tx).map_err(before)?;
        let before_boot = kept.as_ref().map(|kept| kept.high_water);
        let kept = match running(file, kept, &boot)? {
            Some(kept) => kept,
            None => restart(&tx, before_boot, &boot).map_err(before)?,
        };
        file.commit(tx)?;
        Ok(Self::new(boot, &kept))
    }

    fn new(boot: Boot, kept: &Kept) -> Self {
        Self {
            boot,
            epoch: kept.epoch,
            restarted: kept.restarted,
        }
    }

    /// When the time was carried over from another boot, unless the file was new.
    pub(super) fn restarted_at(&self) -> Option<Time> {
        self.restarted
    }

    /// The store's time.
    pub(super) fn now(&self) -> Time {
        self.epoch + uptime(&*self.boot.host)
    }

    /// Keeps how far the time has come, now and then, with whatever else this transaction writes. Fails if the file has
    /// gone over to another clock: two clocks would each have their own idea of who is expired.
    pub(super) fn keep(&self, file: &File, tx: &Transaction<'_>) -> Result<()> {
        let before = |error| file.before_commit(&error);
        let kept = self.high_water(tx).map_err(before)?.ok_or_else(|| {
            Error::Denied(format!(
                "`{}` now counts another machine's time: a SQLite file is for the processes of one machine",
                file.path().display()
            ))
        })?;
        let now = self.now();
        if now > kept + BEYOND / 2 {
            tx.prepare_cached("update clock set high_water_us = ?1")
                .and_then(|mut update| update.execute([micros(now)]))
                .map_err(before)?;
        }
        Ok(())
    }

    /// How far the time has come by the file's account; `None` if the file counts another clock.
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

/// The kept time, if it counts this very boot clock.
fn running(file: &File, kept: Option<Kept>, boot: &Boot) -> Result<Option<Kept>> {
    let Some(kept) = kept.filter(|kept| kept.boot_id == boot.id) else {
        return Ok(None);
    };
    if kept.time_namespace != boot.time_namespace {
        return Err(Error::Denied(format!(
            "`{}` is used from another time namespace ({}; this process is in {}), where clocks differ: run all \
             processes that share it in one",
            file.path().display(),
            kept.time_namespace,
            boot.time_namespace
        )));
    }
    // A machine that was restored from a snapshot keeps its boot id while its boot clock goes back.
    let now = kept.epoch + uptime(&*boot.host);
    Ok((now >= kept.high_water).then_some(kept))
}

/// Makes the time count this boot's clock, from where it had come before or from the wall clock.
fn restart(
    connection: &Connection,
    high_water: Option<Time>,
    boot: &Boot,
) -> rusqlite::Result<Kept> {
    let beyond = high_water.unwrap_or_default() + BEYOND;
    let epoch = boot.epoch.max(beyond - uptime(&*boot.host));
    let now = epoch + uptime(&*boot.host);
    let restarted = high_water.map(|_| now);
    connection.execute("delete from clock", [])?;
    connection.execute(
        "insert into clock (boot_id, time_namespace, epoch_us, high_water_us, restarted_us) values (?1, ?2, ?3, ?4, ?5)",
        params![boot.id, boot.time_namespace, micros(epoch), micros(now), restarted.map(micros)],
    )?;
    Ok(Kept {
        boot_id: boot.id.clone(),
        time_namespace: boot.time_namespace.clone(),
        epoch,
        high_water: now,
        restarted,
    })
}

fn kept(connection: &Connection) -> rusqlite::Result<Option<Kept>> {
    connection
        .query_row(
            "select boot_id, time_namespace, epoch_us, high_water_us, restarted_us from clock",
            [],
            |row| {
                Ok(Kept {
                    boot_id: row.get(0)?,
                    time_namespace: row.get(1)?,
                    epoch: time(row, 2)?,
                    high_water: time(row, 3)?,
                    restarted: row.get::<_, Option<i64>>(4)?.map(of_micros),
                })
            },
        )
        .optional()
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Time> {
    row.get(column).map(of_micros)
}

fn of_micros(micros: i64) -> Time {
    Time::from_micros(micros.cast_unsigned())
}

/// As SQLite's integer; what lies beyond the year 294,000 comes back unharmed, but sorts before everything.
pub(super) fn micros(time: Time) -> i64 {
    time.as_micros().cast_signed()
}
