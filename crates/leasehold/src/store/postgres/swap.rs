//! Writes: all together, and those that somebody is in the way of once more, alone.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Postgres;
use super::failure::{self, Doubt};
use super::listeners::Audience;
use super::pool::Lent;
use super::row::Batch;
use super::shape::Locks;
use super::statements::{self, Head};
use crate::Result;
use crate::store::{Answer, Swapped, Write, sql};

/// How long a write waits for one of the connections that wait for locks.
const WAIT_FOR_TURN: Duration = Duration::from_millis(250);
/// How often a batch is sent again that met another transaction.
const TRIES: usize = 5;

impl Postgres {
    /// Swaps these writes, at least one, and returns who is to be notified of them.
    pub(super) async fn swap_all(
        &self,
        writes: &[Write],
        deadline: Instant,
    ) -> Result<(Answer<Vec<Swapped>>, Audience)> {
        let mut order: Vec<_> = (0..writes.len()).collect();
        order.sort_by(|a, b| writes[*a].name.cmp(&writes[*b].name));
        let sorted: Vec<_> = order.iter().map(|index| &writes[*index]).collect();
        let (mut fates, head) = self.batch(&sorted, deadline).await?;

        let in_company = writes.len() > 1;
        let is_open = |(index, fate): (usize, &Option<_>)| fate.is_none().then_some(index);
        let open: Vec<_> = fates.iter().enumerate().filter_map(is_open).collect();
        // Mostly there are none, and what waits is large.
        let tried = join_all(open.iter().map(|index| {
            let write = sorted[*index];
            let wait = self.stuck.wait_for(&write.name, in_company);
            self.alone(write, wait, deadline)
        }))
        .await;
        let heads = || tried.iter().filter_map(|(_, head)| *head).chain(head);
        let stamp = heads().next().map(|head| head.stamp);
        let audience = heads().map(|head| head.audience).max();
        for (index, (swapped, _)) in open.into_iter().zip(tried) {
            fates[index] = Some(swapped);
        }
        let mut swapped: Vec<_> = order.into_iter().zip(fates).collect();
        swapped.sort_unstable_by_key(|(index, _)| *index);
        let swapped: Vec<_> = swapped.into_iter().filter_map(|(_, fate)| fate).collect();
        match stamp {
            Some(stamp) => {
                let value = swapped;
                Ok((Answer { value, stamp }, audience.unwrap_or_default()))
            }
            None => Err(sql::all_failed(swapped)),
        }
    }

    /// What became of writes that were sent together; and the head of the answer, if there is one.
    async fn batch(
        &self,
        writes: &[&Write],
        deadline: Instant,
    ) -> Result<(Vec<Option<Swapped>>, Option<Head>)> {
        let (fates, head) = self.together(writes, deadline).await?;
        if head.is_some() {
            return Ok((fates, head));
        }
        // Undone as a whole, because an insert met one of somebody's open transaction. Without inserts it will do.
        let others = writes
            .iter()
            .copied()
            .filter(|write| !statements::is_insert(write));
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return Ok((fates, None));
        }
        let (others, head) = self.together(&others, deadline).await?;
        let mut others = others.into_iter();
        let fates = writes
            .iter()
            .map(|write| match statements::is_insert(write) {
                true => None,
                false => others.next().flatten(),
            });
        Ok((fates.collect(), head))
    }

    /// Sends writes as one statement, in the order of names. Those that somebody is in the way of are not waited for.
    async fn together(
        &self,
        writes: &[&Write],
        deadline: Instant,
    ) -> Result<(Vec<Option<Swapped>>, Option<Head>)> {
        let statement = self.statements.swap(writes, Locks::Skip);
        let batch = Batch::new(writes)?;
        let patience = milliseconds(sql::WAIT_IN_COMPANY);
        let values = batch.values(&patience, self.statements.mark());
        for _ in 0..TRIES {
            let doubt = Doubt::MayHaveWritten;
            match self
                .pool
                .ask_often(deadline, doubt, statement, &values)
                .await?
            {
                Ok(rows) => {
                    let (fates, head) = statements::swapped(&rows, writes)?;
                    return Ok((fates, Some(head)));
                }
                Err(error) if failure::is_locked(&error) => break,
                Err(_) => {}
            }
        }
        Ok((writes.iter().map(|_| None).collect(), None))
    }

    /// Swaps one record that somebody is in the way of: waits for them, for so long, on a connection for such.
    async fn alone(
        &self,
        write: &Write,
        wait: Duration,
        deadline: Instant,
    ) -> (Swapped, Option<Head>) {
        let mut head = None;
        let waited = self.wait(write, wait, deadline, &mut head).await;
        let swapped = match waited {
            Ok(Some(swapped)) => {
                self.stuck.forget(&write.name);
                swapped
            }
            Ok(None) => {
                let see = "pg_stat_activity and pg_locks";
                Swapped::Failed(self.stuck.note(&write.name, see))
            }
            Err(error) => Swapped::Failed(error),
        };
        (swapped, head)
    }

    /// `None` if nothing was done, because the lock did not go away in time, or too many others wait for one.
    async fn wait(
        &self,
        write: &Write,
        wait: Duration,
        deadline: Instant,
        head: &mut Option<Head>,
    ) -> Result<Option<Swapped>> {
        if wait.is_zero() {
            return Ok(None);
        }
        // Where many rows are locked, few are waited for: there must be room for calls that need not wait.
        let now = Instant::now();
        let (turn, connected) = (now + wait.min(WAIT_FOR_TURN), deadline.min(now + wait));
        let Ok(lent) = self.reserved.link(turn, connected).await else {
            return Ok(None);
        };
        // Only from here on the row's lock is waited for: a server may take its time to accept a connection.
        let until = deadline.min(Instant::now() + wait);
        let waited = loop {
            match self.wait_once(&lent, write, until, deadline).await {
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
        lent.give_back(&waited);
        waited
    }

    /// Waits for the row's lock, writes, and right behind that looks at what is there now, in one round trip: the
    /// write sees the table as it was before it began to wait. `None` if the lock did not go away in time.
    async fn wait_once(
        &self,
        lent: &Lent<'_>,
        write: &Write,
        until: Instant,
        deadline: Instant,
    ) -> Result<Option<(Option<Swapped>, Head)>> {
        let writes = [write];
        let swap = self.statements.swap(&writes, Locks::Wait);
        let batch = Batch::new(&writes)?;
        let names = Batch::of_names(std::slice::from_ref(&write.name));
        let left = until.saturating_duration_since(Instant::now());
        let patience = milliseconds(left.max(Duration::from_millis(1)));
        let values = batch.values(&patience, self.statements.mark());
        let load = names.values(&patience, self.statements.mark());
        let (written, loaded) = tokio::join!(
            lent.ask(deadline, Doubt::MayHaveWritten, swap.text(), &values),
            lent.ask(
                deadline,
                Doubt::None,
                self.statements.loading().text(),
                &load
            ),
        );
        let rows = match written? {
            Ok(rows) => rows,
            Err(error) if failure::is_locked(&error) => return Ok(None),
            Err(_) => Vec::new(),
        };
        if !rows.is_empty() {
            let (fates, head) = statements::swapped(&rows, &writes)?;
            if let [Some(swapped @ (Swapped::Written { .. } | Swapped::Failed(_)))] = &fates[..] {
                return Ok(Some((Some(swapped.clone()), head)));
            }
        }
        let loaded = loaded?.map_err(|error| failure::answered(&error, Doubt::None))?;
        let Answer { mut value, stamp } = statements::loaded(&loaded, 1)?;
        // Nothing was written, so no process is to be notified.
        let audience = Audience::None;
        Ok(Some((
            sql::lost(write, value.remove(0)),
            Head { stamp, audience },
        )))
    }
}

fn milliseconds(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}
