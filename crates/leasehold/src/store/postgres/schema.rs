//! Creates the table and checks that it is usable.

use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::failure::{self, Ambiguity};
use super::listeners;
use super::pool::Pool;
use super::statements::Statements;
use crate::{Error, Result};

/// The location of the table, for use in SQL.
#[derive(Clone)]
pub(super) struct TableLocation {
    schema: Option<String>,
}

impl TableLocation {
    pub(super) fn new(schema: Option<String>) -> Self {
        Self { schema }
    }

    fn name(&self, name: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{name}", quoted(schema)),
            None => name.to_owned(),
        }
    }

    /// The table of records.
    pub(super) fn records(&self) -> String {
        self.name("leasehold_records")
    }

    /// The channel for change notifications.
    pub(super) fn channel(&self) -> String {
        match &self.schema {
            // The length of a channel's name is limited.
            Some(schema) => format!("leasehold_{}", schema.chars().take(12).collect::<String>()),
            None => "leasehold".to_owned(),
        }
    }

    /// Returns the statement that creates the index of items by state. It only contains records with a state.
    pub(super) fn index(&self) -> String {
        format!(
            "create index if not exists leasehold_by_state on {} (kind, state, state_since, name) where state is not null;",
            self.records()
        )
    }

    /// Returns the statements that create everything that is missing, in one transaction. Concurrent executions are
    /// serialized.
    ///
    /// Rows change often, so pages are kept half empty: a changed row stays on its page, and because no index
    /// contains what a renewal changes, no index is updated.
    fn definition(&self) -> String {
        let create_schema = match &self.schema {
            Some(schema) => format!("create schema if not exists {};", quoted(schema)),
            None => String::new(),
        };
        let (records, index) = (self.records(), self.index());
        let leases = self.name("leasehold_leases");
        let listener = listeners::KIND;
        format!(
            r#"select pg_advisory_xact_lock(7812734501);
{create_schema}
create table if not exists {records} (
    kind text collate "C" not null,
    name text collate "C" not null,
    write_id uuid not null,
    fence bigint not null,
    held_until bigint not null,
    state text collate "C",
    state_since bigint,
    holders json not null,
    last json,
    next json,
    put text,
    body text not null,
    body_bytes bytea,
    primary key (kind, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
{index}
create or replace view {leases} as
select kind, name, fence,
    (select string_agg(h ->> 'owner', ', ') from json_array_elements(shown) h) as owner,
    (select min(h ->> 'mode') from json_array_elements(shown) h) as mode,
    (select to_timestamp(min((h ->> 'acquired_at')::float8) / 1e6) from json_array_elements(shown) h) as acquired_at,
    case when held_until > 0 then to_timestamp(held_until / 1e6) end as expires_at,
    state, to_timestamp(state_since / 1e6) as state_since, body
from (select *, replace(holders::text, '\u0000', '\u2400')::json as shown from {records} where kind <> '{listener}') r;"#
        )
    }
}

/// Quotes an identifier for SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const INSPECT_TABLE: &str = "select to_regclass($1) is not null, \
    has_table_privilege(to_regclass($1), 'select') and has_table_privilege(to_regclass($1), 'insert') \
    and has_table_privilege(to_regclass($1), 'update') and has_table_privilege(to_regclass($1), 'delete'), \
    pg_is_in_recovery(), current_setting('server_encoding'), current_user::text, current_setting('server_version_num')::int4";

/// Creates the table if it is missing, and checks that it is usable.
pub(super) async fn init(
    pool: &Pool,
    location: &TableLocation,
    statements: &Statements,
    deadline: Instant,
) -> Result<()> {
    if !table_exists(pool, location, deadline).await? {
        create(pool, location, deadline).await?;
        table_exists(pool, location, deadline).await?;
    }
    // Reads no record, but uses every column.
    statements.load(pool, deadline, &[]).await.map(|_| ())
}

/// Returns whether the table exists. Fails if this database is unsuitable.
async fn table_exists(pool: &Pool, location: &TableLocation, deadline: Instant) -> Result<bool> {
    let records = location.records();
    let rows = pool
        .query(
            deadline,
            Ambiguity::None,
            INSPECT_TABLE,
            &[(&records, Type::TEXT)],
        )
        .await?
        .map_err(|error| failure::from_server(&error, Ambiguity::None))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("PostgreSQL answered nothing".into()))?;
    let unexpected = |column| failure::unexpected_column(column);
    let exists: bool = row.try_get(0).map_err(unexpected)?;
    let may: Option<bool> = row.try_get(1).map_err(unexpected)?;
    let standby: bool = row.try_get(2).map_err(unexpected)?;
    let encoding: &str = row.try_get(3).map_err(unexpected)?;
    let user: &str = row.try_get(4).map_err(unexpected)?;
    let version: i32 = row.try_get(5).map_err(unexpected)?;
    if version < 120_000 {
        return Err(Error::Denied(
            "PostgreSQL 12 or newer is required: upgrade the server".into(),
        ));
    }
    if standby {
        return Err(failure::standby());
    }
    if encoding != "UTF8" {
        return Err(Error::Denied(format!(
            "the database's encoding is {encoding}: use one that was created with encoding UTF8"
        )));
    }
    if exists && may != Some(true) {
        return Err(Error::Denied(format!(
            "PostgreSQL: a privilege on the table is missing: run `grant select, insert, update, delete on {records} to {};`",
            quoted(user)
        )));
    }
    Ok(exists)
}

async fn create(pool: &Pool, location: &TableLocation, deadline: Instant) -> Result<()> {
    let connection = pool.acquire(deadline, deadline).await?;
    let created = connection.run(deadline, &location.definition()).await;
    connection.release(&created);
    created.map_err(|error| match error {
        Error::Denied(why) => Error::Denied(format!(
            "the table {} is missing, and this user may not create it ({why}): either grant the right (`grant \
             create on schema … to …`), or ask an administrator to run `leasehold init` on this database and then \
             `grant select, insert, update, delete on {} to …`",
            location.records(),
            location.records()
        )),
        other => other,
    })
}
