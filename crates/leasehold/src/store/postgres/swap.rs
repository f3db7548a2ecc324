//! Swaps a batch at once, and then one by one the writes that met a locked row.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Postgres;
use super::failure::{self, Ambiguity};
use super::listeners::Audience;
use super::pool::PooledConnection;
use super::row::Batch;
use super::shape::Locks;
use super::statements::{self, Head};
use crate::Result;
use crate::store::{Answer, Swapped, Write, sql};

/// How long a write waits for one of the connections reserved for lock waits.
const RESERVED_CONNECTION_WAIT: Duration = Duration::from_millis(250);
/// How often a batch that failed because of another transaction is sent.
const TRIES: usize = 5;

impl Postgres {
    /// Swaps these writes, at least one. Returns their results and the audience to notify.
    pub(super) async fn swap_all(
        &self,
        writes: &[Write],
        deadline: Instant,
    ) -> Result<(Answer<Vec<Swapped>>, Audience)> {
        let mut order: Vec<_> = (0..writes.len()).collect();
        order.sort_by(|a, b| writes[*a].name.cmp(&writes[*b].name));
        let sorted: Vec<_> = order.iter().map(|index| &writes[*index]).collect();
        let (mut outcomes, head) = self.swap_batch(&sorted, deadline).await?;

        let is_batched = writes.len() > 1;
        let is_pending = |(index, outcome): (usize, &Option<_>)| outcome.is_none().then_some(index);
        let pending: Vec<_> = outcomes.iter().enumerate().filter_map(is_pending).collect();
        // Usually there are none. The futures are large.
        let retried = join_all(pending.iter().map(|index| {
            let write = sorted[*index];
            let wait = self.locked_rows.lock_wait(&write.name, is_batched);
            self.swap_single(write, wait, deadline)
        }))
        .await;
        let heads = || retried.iter().filter_map(|(_, head)| *head).chain(head);
        let stamp = heads().next().map(|head| head.stamp);
        let audience = heads().map(|head| head.audience).max();
        for (index, (swapped, _)) in pending.into_iter().zip(retried) {
            outcomes[index] = Some(swapped);
        }
        let mut swapped: Vec<_> = order.into_iter().zip(outcomes).collect();
        swapped.sort_unstable_by_key(|(index, _)| *index);
        let swapped: Vec<_> = swapped
            .into_iter()
            .filter_map(|(_, outcome)| outcome)
            .collect();
        match stamp {
            Some(stamp) => {
                let value = swapped;
                Ok((Answer { value, stamp }, audience.unwrap_or_default()))
            }
            None => Err(sql::all_failed(swapped)),
        }
    }

    /// Swaps writes in one statement. Returns their outcomes, and the head of the answer if there was one.
    async fn swap_batch(
        &self,
        writes: &[&Write],
        deadline: Instant,
    ) -> Result<(Vec<Option<Swapped>>, Option<Head>)> {
        let (outcomes, head) = self.send_batch(writes, deadline).await?;
        if head.is_some() {
            return Ok((outcomes, head));
        }
        // The statement was rolled back because an insert met one of an open transaction. It can succeed without
        // inserts.
        let others = writes
            .iter()
            .copied()
            .filter(|write| !statements::is_insert(write));
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return Ok((outcomes, None));
        }
        let (others, head) = self.send_batch(&others, deadline).await?;
        let mut others = others.into_iter();
        let outcomes = writes
            .iter()
            .map(|write| match statements::is_insert(write) {
                true => None,
                false => others.next().flatten(),
            });
        Ok((outcomes.collect(), head))
    }

    /// Sends writes as one statement, in the order of names. Skips locked rows.
    async fn send_batch(
        &self,
        writes: &[&Write],
        deadline: Instant,
    ) -> Result<(Vec<Option<Swapped>>, Option<Head>)> {
        let statement = self.statements.swap(writes, Locks::Skip);
        let batch = Batch::new(writes)?;
        let lock_timeout = milliseconds(sql::BATCH_LOCK_WAIT);
        let values = batch.values(&lock_timeout, self.statements.mark());
        for _ in 0..TRIES {
            let ambiguity = Ambiguity::MayHaveWritten;
            match self
                .pool
                .query_prepared(deadline, ambiguity, statement, &values)
                .await?
            {
                Ok(rows) => {
                    let (outcomes, head) = statements::swapped(&rows, writes)?;
                    return Ok((outcomes, Some(head)));
                }
                Err(error) if failure::is_locked(&error) => break,
                Err(_) => {}
            }
        }
        Ok((writes.iter().map(|_| None).collect(), None))
    }

    /// Swaps one record that another transaction has locked, waiting for it on a reserved connection.
    async fn swap_single(
        &self,
        write: &Write,
        wait: Duration,
        deadline: Instant,
    ) -> (Swapped, Option<Head>) {
        let mut head = None;
        let waited = self.wait_for_lock(write, wait, deadline, &mut head).await;
        let swapped = match waited {
            Ok(Some(swapped)) => {
                self.locked_rows.forget(&write.name);
                swapped
            }
            Ok(None) => {
                let see = "pg_stat_activity and pg_locks";
                Swapped::Failed(self.locked_rows.record_locked(&write.name, see))
            }
            Err(error) => Swapped::Failed(error),
        };
        (swapped, head)
    }

    /// Returns `None` if nothing was done because the lock was not released in time, or too many writes wait for
    /// locks.
    async fn wait_for_lock(
        &self,
        write: &Write,
        wait: Duration,
        deadline: Instant,
        head: &mut Option<Head>,
    ) -> Result<Option<Swapped>> {
        if wait.is_zero() {
            return Ok(None);
        }
        // If many rows are locked, few writes wait at a time, to leave room for the others.
        let now = Instant::now();
        let (turn, connected) = (
            now + wait.min(RESERVED_CONNECTION_WAIT),
            deadline.min(now + wait),
        );
        let Ok(connection) = self.reserved.acquire(turn, connected).await else {
            return Ok(None);
        };
        // The wait for the lock starts here, because connecting may take a while.
        let until = deadline.min(Instant::now() + wait);
        let waited = loop {
            match self
                .try_locked_write(&connection, write, until, deadline)
                .await
            {
                Ok(Some((swapped, answered))) => {
                    *head = Some(answered);
                    if swapped.is_some() || Instant::now() >= until {
                        break Ok(swapped);
                    }
                }
                Ok(None) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        connection.release(&waited);
        waited
    }

    /// Waits for the lock, writes, and then loads the current record, in one round trip: the write itself sees the
    /// table as of before the wait. Returns `None` if the lock was not released in time.
    async fn try_locked_write(
        &self,
        connection: &PooledConnection<'_>,
        write: &Write,
        until: Instant,
        deadline: Instant,
    ) -> Result<Option<(Option<Swapped>, Head)>> {
        let writes = [write];
        let swap = self.statements.swap(&writes, Locks::Wait);
        let batch = Batch::new(&writes)?;
        let names = Batch::of_names(std::slice::from_ref(&write.name));
        let left = until.saturating_duration_since(Instant::now());
        let lock_timeout = milliseconds(left.max(Duration::from_millis(1)));
        let values = batch.values(&lock_timeout, self.statements.mark());
        let load = names.values(&lock_timeout, self.statements.mark());
        let (written, loaded) = tokio::join!(
            connection.query(deadline, Ambiguity::MayHaveWritten, swap.text(), &values),
            connection.query(
                deadline,
                Ambiguity::None,
                self.statements.load_statement().text(),
                &load
            ),
        );
        let rows = match written? {
            Ok(rows) => rows,
            Err(error) if failure::is_locked(&error) => return Ok(None),
            Err(_) => Vec::new(),
        };
        if !rows.is_empty() {
            let (outcomes, head) = statements::swapped(&rows, &writes)?;
            if let [Some(swapped @ (Swapped::Written { .. } | Swapped::Failed(_)))] = &outcomes[..]
            {
                return Ok(Some((Some(swapped.clone()), head)));
            }
        }
        let loaded = loaded?.map_err(|error| failure::from_server(&error, Ambiguity::None))?;
        let Answer { mut value, stamp } = statements::loaded(&loaded, 1)?;
        // Nothing was written, so there is no audience.
        let audience = Audience::None;
        Ok(Some((
            sql::unwritten_result(write, value.remove(0)),
            Head { stamp, audience },
        )))
    }
}

fn milliseconds(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}
