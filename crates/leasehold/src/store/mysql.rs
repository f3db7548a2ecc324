//! Leases in a MariaDB or MySQL database.
//!
//! # Guarantee
//! Linearizable, on the primary: a server that is read-only is refused. What was acknowledged is committed, and as
//! durable as `innodb_flush_log_at_trx_commit` and `sync_binlog` make it; an asynchronous failover may forget the last
//! moments. A row that somebody's transaction has locked delays nobody's other leases.
//!
//! # Stored form
//! A row of the table `leasehold_records` for each record: exact, names and states as bytes, lists as JSON, times in
//! microseconds. The view `leasehold_leases` shows the same to people.
//!
//! # Set-up
//! The table and the view are made when they are not there and the user may create them. Otherwise an administrator
//! runs `leasehold init` and grants select, insert, update and delete on the table. MariaDB 10.6 or newer, or MySQL 8.
//!
//! # Options
//! `mysql://USER:PASSWORD@HOST:PORT/DATABASE?…`: `ssl-mode` (disabled, required, verify_ca, verify_identity) and
//! `ssl-ca`, `socket`, `connections` (8), `margin` (250ms). The password may be in `MYSQL_PWD` instead.
//!
//! # Limits
//! No hints of changes: waiters poll. Each connection is set up when it is made, so a proxy must not share sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::sql::{self, Stuck};
use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::Result;

mod failure;
mod options;
mod pool;
mod row;
mod schema;
mod statements;

use options::Options;
use pool::Pool;
use statements::Locks;

/// How long a call may take; below an engine's own limit.
const PATIENCE: Duration = Duration::from_secs(4);
/// Connections for writes that wait for a lock.
const RESERVED: usize = 2;
/// How long to leave a row alone that somebody has locked.
const PAUSE: Duration = Duration::from_millis(15);

/// Records in a MariaDB or MySQL database.
pub struct Mysql {
    /// For all calls, none of which waits for a row.
    pool: Pool,
    /// For writes that do.
    reserved: Pool,
    stuck: Stuck,
    margin: Duration,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = Options::parse(url)?;
    let pool = |most| Pool::new(options.server.clone(), options.place(), most);
    let store = Mysql {
        pool: pool(options.connections),
        reserved: pool(RESERVED),
        stuck: Stuck::default(),
        margin: options.margin,
    };
    store.init().await?;
    Ok(Arc::new(store))
}

impl Mysql {
    /// Sends writes as one transaction, in the order of names. No stamp where all was undone by somebody else's.
    async fn together(
        &self,
        pool: &Pool,
        writes: &[&Write],
        locks: Locks,
        deadline: Instant,
    ) -> Result<(Vec<Option<Swapped>>, Option<Stamp>)> {
        let script = statements::swap(writes, locks)?;
        match pool.ask(deadline, &script).await? {
            None => Ok((writes.iter().map(|_| None).collect(), None)),
            Some(sets) => {
                let answer = statements::swapped(&sets, writes).map_err(failure::after_commit)?;
                Ok((answer.value, Some(answer.stamp)))
            }
        }
    }

    /// Swaps one record that somebody is in the way of. With others waiting for its answer it looks again now and then;
    /// otherwise it waits in line for the lock, on a connection for such.
    async fn alone(
        &self,
        write: &Write,
        in_company: bool,
        deadline: Instant,
    ) -> (Swapped, Option<Stamp>) {
        let wait = self.stuck.wait_for(&write.name, in_company);
        let until = deadline.min(Instant::now() + wait);
        let (pool, locks) = match in_company {
            true => (&self.pool, Locks::Skip),
            false => (&self.reserved, Locks::Wait),
        };
        let mut stamp = None;
        while Instant::now() < until {
            match self.together(pool, &[write], locks, deadline).await {
                Err(error) => return (Swapped::Failed(error), stamp),
                Ok((mut fates, told)) => {
                    stamp = told.or(stamp);
                    if let Some(swapped) = fates.pop().flatten() {
                        self.stuck.forget(&write.name);
                        return (swapped, stamp);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        let error = self
            .stuck
            .note(&write.name, "information_schema.innodb_trx");
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
        statements::load(&self.pool, Instant::now() + PATIENCE, names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + PATIENCE;
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
        let (fates, stamp) = self
            .together(&self.pool, &sorted, Locks::Skip, deadline)
            .await?;
        let in_company = writes.len() > 1;
        let done = sorted
            .iter()
            .zip(fates)
            .map(async |(write, fate)| match fate {
                Some(swapped) => (swapped, None),
                None => self.alone(write, in_company, deadline).await,
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
        statements::find(&self.pool, Instant::now() + PATIENCE, query).await
    }

    async fn init(&self) -> Result<()> {
        schema::init(&self.pool, Instant::now() + PATIENCE).await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        schema::check(&self.pool, Instant::now() + PATIENCE).await
    }
}
