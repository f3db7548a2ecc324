//! Load, swap and find, each in one statement: one round trip, one transaction, and no session state.
//!
//! A statement sees a snapshot of the table as of its start, which is when its answers are true:
//!
//! - A record with another version than the expected one, or no record, is a conflict, whether or not the row has
//!   been locked since.
//! - Rows with the expected version are locked in the order of names; rows that another transaction has locked are
//!   skipped. PostgreSQL checks the newest version of a row before locking it, so a row that has changed since the
//!   start is not locked.
//! - Locked rows are written. Missing rows are inserted, unless another transaction inserts them first.
//! - The rest, rows that another transaction has locked or changed in the meantime, is
//!   [retried](super::Postgres::swap_single) one by one.

use std::time::{Duration, SystemTime};

use leasehold_core::{Name, Stamp, Time};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::failure::{self, Ambiguity};
use super::listeners::Audience;
use super::pool::{Pool, Value};
use super::prepared::Sql;
use super::row::{self, Batch, INPUT};
use super::schema::TableLocation;
use super::shape::{Locks, Shape};
use crate::host::{Host as _, Machine};
use crate::store::{Answer, Page, Query, Stored, Swapped, Write, sql};
use crate::{Error, Result};

/// The statements for one table.
pub(super) struct Statements {
    load: Sql,
    by_name: String,
    by_state: String,
    swaps: Vec<Sql>,
    mark: String,
}

impl Statements {
    pub(super) fn new(location: &TableLocation) -> Self {
        let table = location.records();
        let columns = row::columns();
        let mark = format!("{:016x}", Machine.random() as u64);
        let head = "select h.*, r.n, ";
        let moment = "from (select clock_timestamp(), pg_is_in_recovery()) h left join ";
        let range = "kind = $1 and name >= $2 and ($3::text is null or name < $3) and held_until between $4 and $5";
        Self {
            load: Sql::new(
                &format!(
                    "{head}{columns}, '{mark}' as mark {moment} (select i.n, r.* from {INPUT} cross join lateral \
                     (select * from {table} r where r.kind = i.kind and r.name = i.name limit 1) r \
                     where $17 = '{mark}') r on true"
                ),
                &mark,
            ),
            by_name: format!(
                "{head}{columns} {moment} (select 0::int8 as n, * from {table} where {range} and name > $7 \
                 order by name limit $6) r on true order by r.name"
            ),
            by_state: format!(
                "{head}{columns} {moment} (select 0::int8 as n, * from {table} where {range} and state = $9 \
                 and (state_since, name) > ($8, $7) order by state_since, name limit $6) r on true \
                 order by r.state_since, r.name"
            ),
            swaps: Shape::all()
                .map(|shape| Sql::new(&shape.statement(&table, &mark), &mark))
                .collect(),
            mark,
        }
    }

    /// Loads the records under these names, as of one point in time.
    pub(super) async fn load(
        &self,
        pool: &Pool,
        deadline: Instant,
        names: &[Name],
    ) -> Result<Answer<Vec<Option<Stored>>>> {
        let (batch, lock_timeout) = (Batch::of_names(names), String::new());
        let rows = pool
            .query_prepared(
                deadline,
                Ambiguity::None,
                &self.load,
                &batch.values(&lock_timeout, &self.mark),
            )
            .await?
            .map_err(|error| failure::from_server(&error, Ambiguity::None))?;
        loaded(&rows, names.len())
    }

    /// Returns the statement whose answer [`loaded`] reads.
    pub(super) fn load_statement(&self) -> &Sql {
        &self.load
    }

    /// Finds a page of records. Names are compared bytewise: the columns have the collation `C`.
    pub(super) async fn find(
        &self,
        pool: &Pool,
        deadline: Instant,
        query: &Query,
    ) -> Result<Answer<Page>> {
        let search = sql::Search::new(query)?;
        let (kind, state) = (query.kind.as_str(), query.state.as_deref());
        let mut values: Vec<Value<'_>> = vec![
            (&kind, Type::TEXT),
            (&search.from, Type::TEXT),
            (&search.to, Type::TEXT),
            (&search.held.0, Type::INT8),
            (&search.held.1, Type::INT8),
            (&search.limit, Type::INT8),
            (&search.after, Type::TEXT),
        ];
        let statement = if state.is_some() {
            values.push((&search.since, Type::INT8));
            values.push((&state, Type::TEXT));
            &self.by_state
        } else {
            &self.by_name
        };
        let rows = pool
            .query(deadline, Ambiguity::None, statement, &values)
            .await?
            .map_err(|error| failure::from_server(&error, Ambiguity::None))?;
        let mut records = Vec::new();
        for row in &rows {
            records.extend(row::stored(row, 3)?);
        }
        Ok(Answer {
            value: sql::page(records, query),
            stamp: stamp(&rows)?,
        })
    }

    /// Returns the statement that swaps these writes, whose answer [`swapped`] reads. Its last parameter is the
    /// [mark](Self::mark).
    pub(super) fn swap(&self, writes: &[&Write], locks: Locks) -> &Sql {
        &self.swaps[Shape::of(writes, locks).number()]
    }

    /// The mark that distinguishes this process's statements from those of others.
    pub(super) fn mark(&self) -> &String {
        &self.mark
    }
}

/// Returns whether this write creates a record.
pub(super) fn is_insert(write: &Write) -> bool {
    write.put.is_some() && write.expect.is_none()
}

/// Reads the answer to [`Statements::load`].
pub(super) fn loaded(rows: &[Row], count: usize) -> Result<Answer<Vec<Option<Stored>>>> {
    let stamp = stamp(rows)?;
    let mut value = vec![None; count];
    for row in rows {
        if let Some((_, stored)) = row::stored(row, 3)? {
            *slot(&mut value, row, 2)? = Some(stored);
        }
    }
    Ok(Answer { value, stamp })
}

/// The part of a swap's answer that concerns all of its writes.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) stamp: Stamp,
    pub(super) audience: Audience,
}

/// Reads the answer to [`Statements::swap`]; `None` for a record that another transaction is writing.
pub(super) fn swapped(rows: &[Row], writes: &[&Write]) -> Result<(Vec<Option<Swapped>>, Head)> {
    let stamp = stamp(rows)?;
    let audience = match rows.first() {
        Some(row) => Audience::of(row.try_get(4).map_err(failure::unexpected_column)?),
        None => Audience::None,
    };
    let mut writes = writes.to_vec();
    let mut outcomes: Vec<_> = writes.iter().map(|_| None).collect();
    let written: Vec<i64> = match rows.first() {
        Some(row) => row.try_get(2).map_err(failure::unexpected_column)?,
        None => Vec::new(),
    };
    for n in written {
        *number(&mut outcomes, Some(n))? = Some(Swapped::Written { tag: None });
    }
    for row in rows {
        let Some(n) = row
            .try_get::<_, Option<i64>>(5)
            .map_err(failure::unexpected_column)?
        else {
            continue;
        };
        let write = *number(&mut writes, Some(n))?;
        *number(&mut outcomes, Some(n))? = match row::stored(row, 6) {
            Ok(current) => sql::unwritten_result(write, current.map(|(_, stored)| stored)),
            Err(corrupt) => Some(Swapped::Failed(corrupt)),
        };
    }
    Ok((outcomes, Head { stamp, audience }))
}

fn slot<'v, T>(values: &'v mut [T], row: &Row, column: usize) -> Result<&'v mut T> {
    number(
        values,
        row.try_get(column).map_err(failure::unexpected_column)?,
    )
}

/// Returns the value with this number, counted from one.
fn number<T>(values: &mut [T], n: Option<i64>) -> Result<&mut T> {
    n.and_then(|n| values.get_mut(usize::try_from(n).ok()?.checked_sub(1)?))
        .ok_or_else(|| Error::Corrupt("PostgreSQL returned an unexpected row".into()))
}

/// Reads the server's time. Fails if the server is a standby.
fn stamp(rows: &[Row]) -> Result<Stamp> {
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("PostgreSQL returned no row".into()))?;
    if row.try_get(1).map_err(failure::unexpected_column)? {
        return Err(failure::standby());
    }
    let time: SystemTime = row.try_get(0).map_err(failure::unexpected_column)?;
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Stamp {
        time: Time::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
        resolution: Duration::from_micros(1),
    })
}
