//! Converts a record to a row and back.

use std::borrow::Cow;

use leasehold_core::Name;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::failure;
use super::pool::Value;
use crate::store::sql::Columns;
use crate::store::{Stored, Write, WriteId};
use crate::{Error, Result};

/// The columns that [`stored`] reads, in order.
pub(super) const COLUMNS: [&str; 12] = [
    "kind",
    "name",
    "write_id",
    "fence",
    "state",
    "state_since",
    "holders::text",
    "last::text",
    "next::text",
    "put",
    "body",
    "body_bytes",
];

/// A write id as PostgreSQL's `uuid`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uuid(pub(super) WriteId);

impl ToSql for Uuid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'r> FromSql<'r> for Uuid {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(WriteId(u128::from_be_bytes(raw.try_into()?))))
    }

    accepts!(UUID);
}

/// Reads the record in the columns starting at `from`; `None` if there is none.
pub(super) fn stored(row: &Row, from: usize) -> Result<Option<(Name, Stored)>> {
    match row.try_get(from).map_err(failure::unexpected_column)? {
        None => Ok(None),
        Some(kind) => read(row, from, kind)
            .map_err(failure::unexpected_column)?
            .map(Some),
    }
}

fn read(
    row: &Row,
    from: usize,
    kind: &str,
) -> Result<Result<(Name, Stored)>, tokio_postgres::Error> {
    let name = row.try_get(from + 1)?;
    let Uuid(write) = row.try_get(from + 2)?;
    let columns = Columns {
        fence: row.try_get(from + 3)?,
        held_until: 0,
        state: row.try_get(from + 4)?,
        state_since: row.try_get(from + 5)?,
        holders: row.try_get(from + 6)?,
        last: row.try_get(from + 7)?,
        next: row.try_get(from + 8)?,
        put: row.try_get(from + 9)?,
        body: String::new(),
    };
    let body = match row.try_get::<_, Option<&[u8]>>(from + 11)? {
        None => Ok(row.try_get::<_, &str>(from + 10)?),
        Some(bytes) => str::from_utf8(bytes),
    };
    Ok(match body {
        Ok(body) => Columns {
            body: body.to_owned(),
            ..columns
        }
        .stored(kind, name, write),
        Err(error) => Err(Error::Corrupt(format!(
            "the record `{kind}` `{name}` is corrupt: {error}"
        ))),
    })
}

/// Returns [`COLUMNS`] of the row `r`.
pub(super) fn columns() -> String {
    COLUMNS.map(|column| format!("r.{column}")).join(", ")
}

/// The values of [`Batch::values`], in order, as rows.
///
/// An array of nulls only is sent as a null, which leaves its column null as well. One array is hidden from the
/// planner in a subquery: otherwise the planner would find a custom plan for a short batch that is cheaper than the
/// generic plan, and plan again each time.
pub(super) const INPUT: &str = "(select unnest($1::text[]) as kind, unnest($2::text[]) as name, \
     unnest($3::uuid[]) as expect, unnest($4::uuid[]) as write_id, unnest($5::int8[]) as fence, \
     unnest($6::int8[]) as held_until, unnest($7::text[]) as state, unnest($8::int8[]) as state_since, \
     unnest($9::json[]) as holders, unnest($10::json[]) as last, unnest($11::json[]) as next, \
     unnest($12::text[]) as put, unnest($13::text[]) as body, unnest($14::bytea[]) as body_bytes, \
     unnest((select $15::int8[])) as n) i";

/// A text that is JSON.
#[derive(Debug)]
struct Json(String);

impl ToSql for Json {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(JSON);
    to_sql_checked!();
}

/// A null of any type.
#[derive(Debug)]
struct Null;

impl ToSql for Null {
    fn to_sql(
        &self,
        _: &Type,
        _: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(IsNull::Yes)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Returns a column's values as an array, or a null if all are null.
fn array<T: ToSql + Sync>(values: &Vec<Option<T>>) -> &(dyn ToSql + Sync) {
    match values.iter().any(Option::is_some) {
        true => values,
        false => &Null,
    }
}

/// Writes as one array per column.
#[derive(Default)]
pub(super) struct Batch<'w> {
    kind: Vec<&'static str>,
    name: Vec<&'w str>,
    expect: Vec<Option<Uuid>>,
    write_id: Vec<Option<Uuid>>,
    fence: Vec<Option<i64>>,
    held_until: Vec<Option<i64>>,
    state: Vec<Option<String>>,
    state_since: Vec<Option<i64>>,
    holders: Vec<Option<Json>>,
    last: Vec<Option<Json>>,
    next: Vec<Option<Json>>,
    put: Vec<Option<String>>,
    body: Vec<Option<Cow<'w, str>>>,
    body_bytes: Vec<Option<&'w [u8]>>,
    /// The numbers of the writes, from one.
    n: Vec<i64>,
}

impl<'w> Batch<'w> {
    pub(super) fn new(writes: &[&'w Write]) -> Result<Self> {
        let mut batch = Self::default();
        for write in writes {
            batch.push(write)?;
        }
        Ok(batch)
    }

    /// Creates a batch of names only, for loading.
    pub(super) fn of_names(names: &'w [Name]) -> Self {
        Self {
            kind: names.iter().map(|name| name.kind().as_str()).collect(),
            name: names.iter().map(Name::as_str).collect(),
            n: (1..=names.len() as i64).collect(),
            ..Self::default()
        }
    }

    fn push(&mut self, write: &'w Write) -> Result<()> {
        let version = write.expect.as_ref().map(|version| Uuid(version.write));
        let put = write.put.as_ref();
        let columns = put.map(|(_, record)| Columns::of(record)).transpose()?;
        let moved = write.body_changed || write.expect.is_none();
        let body = put.filter(|_| moved).map(|(_, record)| &*record.body);
        self.kind.push(write.name.kind().as_str());
        self.name.push(write.name.as_str());
        self.expect.push(version);
        self.write_id.push(put.map(|(id, _)| Uuid(*id)));
        self.fence
            .push(columns.as_ref().map(|columns| columns.fence));
        self.held_until
            .push(columns.as_ref().map(|columns| columns.held_until));
        self.state_since
            .push(columns.as_ref().and_then(|columns| columns.state_since));
        // PostgreSQL's text cannot contain NUL: such a body is stored as bytes, and additionally as readable text.
        self.body_bytes
            .push(body.filter(|body| body.contains('\0')).map(str::as_bytes));
        self.body.push(body.map(as_text));
        let (state, holders, last, next, put) = match columns {
            None => Default::default(),
            Some(columns) => (
                columns.state,
                Some(Json(columns.holders)),
                columns.last.map(Json),
                columns.next.map(Json),
                columns.put,
            ),
        };
        self.state.push(state);
        self.holders.push(holders);
        self.last.push(last);
        self.next.push(next);
        self.put.push(put);
        self.n.push(self.n.len() as i64 + 1);
        Ok(())
    }

    /// Returns the values for [`INPUT`], the lock timeout, and the mark of the sender.
    pub(super) fn values<'v>(
        &'v self,
        lock_timeout: &'v String,
        mark: &'v String,
    ) -> Vec<Value<'v>> {
        vec![
            (&self.kind, Type::TEXT_ARRAY),
            (&self.name, Type::TEXT_ARRAY),
            (array(&self.expect), Type::UUID_ARRAY),
            (array(&self.write_id), Type::UUID_ARRAY),
            (array(&self.fence), Type::INT8_ARRAY),
            (array(&self.held_until), Type::INT8_ARRAY),
            (array(&self.state), Type::TEXT_ARRAY),
            (array(&self.state_since), Type::INT8_ARRAY),
            (array(&self.holders), Type::JSON_ARRAY),
            (array(&self.last), Type::JSON_ARRAY),
            (array(&self.next), Type::JSON_ARRAY),
            (array(&self.put), Type::TEXT_ARRAY),
            (array(&self.body), Type::TEXT_ARRAY),
            (array(&self.body_bytes), Type::BYTEA_ARRAY),
            (&self.n, Type::INT8_ARRAY),
            (lock_timeout, Type::TEXT),
            (mark, Type::TEXT),
        ]
    }
}

/// Returns a body as valid PostgreSQL text.
fn as_text(body: &str) -> Cow<'_, str> {
    if body.contains('\0') {
        body.replace('\0', "\u{2400}").into()
    } else {
        body.into()
    }
}
