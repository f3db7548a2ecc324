//! Leases in a MariaDB or MySQL database.
//!
//! # Guarantee
//! Linearizable on the primary; a read-only server is refused. Acknowledged writes are committed, and as durable as
//! `innodb_flush_log_at_trx_commit` and `sync_binlog` make them; an asynchronous failover may lose the last ones. A
//! row locked by another transaction does not delay other leases.
//!
//! # Stored form
//! One row of the table `leasehold_records` per record, in full: names and states as bytes, lists as JSON, times in
//! microseconds. The view `leasehold_leases` shows the records in readable form.
//!
//! # Set-up
//! The table and the view are created if they are missing and the user has the right to. Otherwise an administrator
//! runs `leasehold init` and grants select, insert, update and delete on the table. Requires MariaDB 10.6 or newer,
//! or MySQL 8.
//!
//! # Options
//! `mysql://USER:PASSWORD@HOST:PORT/DATABASE?…`: `ssl-mode` (disabled, required, verify_ca, verify_identity) and
//! `ssl-ca`, `socket`, `connections` (8), `margin` (250ms). The password may be in `MYSQL_PWD` instead.
//!
//! # Limits
//! No change notifications: waiters poll. Each connection is configured when it is opened, so a proxy must not share
//! sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::sql::{self, LockedRows};
use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::Result;

mod failure;
mod options;
mod pool;
mod row;
mod schema;
mod statements;

use options::MysqlOptions;
use pool::Pool;
use statements::Locks;

/// How long a call may take: less than the engine's own limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// The number of connections for writes that wait for a lock.
const RESERVED: usize = 2;
/// The pause before retrying a locked row.
const PAUSE: Duration = Duration::from_millis(15);

/// A store in a MariaDB or MySQL database.
pub struct Mysql {
    /// For calls that do not wait for locked rows.
    pool: Pool,
    /// For writes that wait for a locked row.
    reserved: Pool,
    locked_rows: LockedRows,
    margin: Duration,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = MysqlOptions::parse(url)?;
    let pool = |size| Pool::new(options.server.clone(), options.location(), size);
    let store = Mysql {
        pool: pool(options.connections),
        reserved: pool(RESERVED),
        locked_rows: LockedRows::default(),
        margin: options.margin,
    };
    store.init().await?;
    Ok(Arc::new(store))
}

impl Mysql {
    /// Sends writes as one transaction, in the order of names. Returns no stamp if another transaction caused a
    /// rollback.
    async fn send_batch(
        &self,
        pool: &Pool,
        writes: &[&Write],
        locks: Locks,
        deadline: Instant,
    ) -> Result<(Vec<Option<Swapped>>, Option<Stamp>)> {
        let script = statements::swap(writes, locks)?;
        match pool.query(deadline, &script).await? {
            None => Ok((writes.iter().map(|_| None).collect(), None)),
            Some(sets) => {
                let answer = statements::swapped(&sets, writes).map_err(failure::after_commit)?;
                Ok((answer.value, Some(answer.stamp)))
            }
        }
    }

    /// Swaps one record that another transaction has locked. As part of a batch, it retries now and then; otherwise
    /// it waits for the lock on a reserved connection.
    async fn swap_single(
        &self,
        write: &Write,
        is_batched: bool,
        deadline: Instant,
    ) -> (Swapped, Option<Stamp>) {
        let wait = self.locked_rows.lock_wait(&write.name, is_batched);
        let until = deadline.min(Instant::now() + wait);
        let (pool, locks) = match is_batched {
            true => (&self.pool, Locks::Skip),
            false => (&self.reserved, Locks::Wait),
        };
        let mut stamp = None;
        while Instant::now() < until {
            match self.send_batch(pool, &[write], locks, deadline).await {
                Err(error) => return (Swapped::Failed(error), stamp),
                Ok((mut outcomes, answered_at)) => {
                    stamp = answered_at.or(stamp);
                    if let Some(swapped) = outcomes.pop().flatten() {
                        self.locked_rows.forget(&write.name);
                        return (swapped, stamp);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        let error = self
            .locked_rows
            .record_locked(&write.name, "information_schema.innodb_trx");
        (Swapped::Failed(error), stamp)
    }
}

#[async_trait]
impl Store for Mysql {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.margin,
            batch: 128,
            in_flight: 4,
            poll: Duration::from_millis(100),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        statements::load(&self.pool, Instant::now() + CALL_TIMEOUT, names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        if writes.is_empty() {
            let Answer { stamp, .. } = self.load(&[]).await?;
            return Ok(Answer {
                value: Vec::new(),
                stamp,
            });
        }
        let mut order: Vec<_> = (0..writes.len()).collect();
        order.sort_by(|a, b| writes[*a].name.cmp(&writes[*b].name));
        let sorted: Vec<_> = order.iter().map(|index| &writes[*index]).collect();
        let (outcomes, stamp) = self
            .send_batch(&self.pool, &sorted, Locks::Skip, deadline)
            .await?;
        let is_batched = writes.len() > 1;
        let done = sorted
            .iter()
            .zip(outcomes)
            .map(async |(write, outcome)| match outcome {
                Some(swapped) => (swapped, None),
                None => self.swap_single(write, is_batched, deadline).await,
            });
        let done = join_all(done).await;
        let stamp = done.iter().find_map(|(_, stamp)| *stamp).or(stamp);
        let mut swapped: Vec<_> = order.into_iter().zip(done).collect();
        swapped.sort_by_key(|(index, _)| *index);
        let swapped: Vec<_> = swapped
            .into_iter()
            .map(|(_, (swapped, _))| swapped)
            .collect();
        match stamp {
            Some(stamp) => Ok(Answer {
                value: swapped,
                stamp,
            }),
            None => Err(sql::all_failed(swapped)),
        }
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        statements::find(&self.pool, Instant::now() + CALL_TIMEOUT, query).await
    }

    async fn init(&self) -> Result<()> {
        schema::init(&self.pool, Instant::now() + CALL_TIMEOUT).await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        schema::check(&self.pool, Instant::now() + CALL_TIMEOUT).await
    }
}
