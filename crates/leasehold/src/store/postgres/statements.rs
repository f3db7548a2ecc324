//! Load, swap and find, each one statement: one round trip, one transaction, and no need of a session.
//!
//! A statement sees the table as of one moment, its start, and that moment is where each answer is true:
//!
//! - A version other than the expected one, or no record, was really there then: a conflict, whoever has locked the
//!   row since.
//! - A row with the expected version is locked, skipping those that somebody else has locked, in the order of names.
//!   PostgreSQL looks at the newest version of a row before it locks it, so a row that has changed since the start is
//!   not among the locked ones.
//! - What was locked is written. What is not there is inserted, unless somebody was faster.
//! - What remains (locked or changed by somebody in this very moment) is [tried again](super::Postgres::alone) alone.

use std::time::{Duration, SystemTime};

use leasehold_core::{Name, Stamp, Time};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::failure::{self, Doubt};
use super::listeners::Audience;
use super::pool::{Pool, Value};
use super::prepared::Sql;
use super::row::{self, Batch, INPUT};
use super::schema::Place;
use super::shape::{Locks, Shape};
use crate::host::{Host as _, Machine};
use crate::store::{Answer, Page, Query, Stored, Swapped, Write, sql};
use crate::{Error, Result};

/// The statements, for one table.
pub(super) struct Statements {
    load: Sql,
    by_name: String,
    by_state: String,
    swaps: Vec<Sql>,
    mark: String,
}

impl Statements {
    pub(super) fn new(place: &Place) -> Self {
        let table = place.records();
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

    /// The records under these names, all as of one moment.
    pub(super) async fn load(
        &self,
        pool: &Pool,
        deadline: Instant,
        names: &[Name],
    ) -> Result<Answer<Vec<Option<Stored>>>> {
        let (batch, patience) = (Batch::of_names(names), String::new());
        let rows = pool
            .ask_often(
                deadline,
                Doubt::None,
                &self.load,
                &batch.values(&patience, &self.mark),
            )
            .await?
            .map_err(|error| failure::answered(&error, Doubt::None))?;
        loaded(&rows, names.len())
    }

    /// The statement that [`loaded`] reads.
    pub(super) fn loading(&self) -> &Sql {
        &self.load
    }

    /// A page of records. Names are compared byte by byte: the columns are of the collation `C`.
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
            .ask(deadline, Doubt::None, statement, &values)
            .await?
            .map_err(|error| failure::answered(&error, Doubt::None))?;
        let mut records = Vec::new();
        for row in &rows {
            records.extend(row::stored(row, 3)?);
        }
        Ok(Answer {
            value: sql::page(records, query),
            stamp: stamp(&rows)?,
        })
    }

    /// The statement that swaps these writes, which [`swapped`] reads. Its last value is the [mark](Self::mark).
    pub(super) fn swap(&self, writes: &[&Write], locks: Locks) -> &Sql {
        &self.swaps[Shape::of(writes, locks).number()]
    }

    /// What tells this store's statements from those of others.
    pub(super) fn mark(&self) -> &String {
        &self.mark
    }
}

/// Whether this write creates a record.
pub(super) fn is_insert(write: &Write) -> bool {
    write.put.is_some() && write.expect.is_none()
}

/// The answer to [`Statements::load`].
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

/// The answer to [`Statements::swap`]; `None` where another transaction is at that record in this moment.
pub(super) fn swapped(rows: &[Row], writes: &[&Write]) -> Result<(Vec<Option<Swapped>>, Head)> {
    let stamp = stamp(rows)?;
    let audience = match rows.first() {
        Some(row) => Audience::of(row.try_get(4).map_err(failure::answered_oddly)?),
        None => Audience::None,
    };
    let mut writes = writes.to_vec();
    let mut fates: Vec<_> = writes.iter().map(|_| None).collect();
    let written: Vec<i64> = match rows.first() {
        Some(row) => row.try_get(2).map_err(failure::answered_oddly)?,
        None => Vec::new(),
    };
    for n in written {
        *number(&mut fates, Some(n))? = Some(Swapped::Written { tag: None });
    }
    for row in rows {
        let Some(n) = row
            .try_get::<_, Option<i64>>(5)
            .map_err(failure::answered_oddly)?
        else {
            continue;
        };
        let write = *number(&mut writes, Some(n))?;
        *number(&mut fates, Some(n))? = match row::stored(row, 6) {
            Ok(current) => sql::lost(write, current.map(|(_, stored)| stored)),
            Err(corrupt) => Some(Swapped::Failed(corrupt)),
        };
    }
    Ok((fates, Head { stamp, audience }))
}

fn slot<'v, T>(values: &'v mut [T], row: &Row, column: usize) -> Result<&'v mut T> {
    number(
        values,
        row.try_get(column).map_err(failure::answered_oddly)?,
    )
}

/// The value with this number, counted from one.
fn number<T>(values: &mut [T], n: Option<i64>) -> Result<&mut T> {
    n.and_then(|n| values.get_mut(usize::try_from(n).ok()?.checked_sub(1)?))
        .ok_or_else(|| Error::Corrupt("PostgreSQL answered what was not asked".into()))
}

/// The server's time; an error if it only follows another one.
fn stamp(rows: &[Row]) -> Result<Stamp> {
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("PostgreSQL answered nothing".into()))?;
    if row.try_get(1).map_err(failure::answered_oddly)? {
        return Err(failure::standby());
    }
    let time: SystemTime = row.try_get(0).map_err(failure::answered_oddly)?;
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Stamp {
        time: Time::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
        resolution: Duration::from_micros(1),
    })
}
