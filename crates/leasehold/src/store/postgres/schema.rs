//! The table, and whether it is as it must be.

use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::failure::{self, Doubt};
use super::listeners;
use super::pool::Pool;
use super::statements::Statements;
use crate::{Error, Result};

/// Where the table is, as SQL writes it.
#[derive(Clone)]
pub(super) struct Place {
    schema: Option<String>,
}

impl Place {
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

    /// The channel on which changes are told.
    pub(super) fn channel(&self) -> String {
        match &self.schema {
            // A channel's name is a short one.
            Some(schema) => format!("leasehold_{}", schema.chars().take(12).collect::<String>()),
            None => "leasehold".to_owned(),
        }
    }

    /// Makes the index that finds items by state. It holds no record without one.
    pub(super) fn index(&self) -> String {
        format!(
            "create index if not exists leasehold_by_state on {} (kind, state, state_since, name) where state is not null;",
            self.records()
        )
    }

    /// Makes everything that is not there yet, in one transaction. Two that do so at once take turns.
    ///
    /// Rows change often, so pages are half empty: a changed row stays on its page, and since no index holds what a
    /// renewal changes, no index is touched.
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

/// An identifier as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const LOOK: &str = "select to_regclass($1) is not null, \
    has_table_privilege(to_regclass($1), 'select') and has_table_privilege(to_regclass($1), 'insert') \
    and has_table_privilege(to_regclass($1), 'update') and has_table_privilege(to_regclass($1), 'delete'), \
    pg_is_in_recovery(), current_setting('server_encoding'), current_user::text, current_setting('server_version_num')::int4";

/// Makes the table if it is not there, and checks that it can be used.
pub(super) async fn init(
    pool: &Pool,
    place: &Place,
    statements: &Statements,
    deadline: Instant,
) -> Result<()> {
    if !look(pool, place, deadline).await? {
        create(pool, place, deadline).await?;
        look(pool, place, deadline).await?;
    }
    // Reads no record, but names every column.
    statements.load(pool, deadline, &[]).await.map(|_| ())
}

/// Whether the table is there; an error if this database will never do.
async fn look(pool: &Pool, place: &Place, deadline: Instant) -> Result<bool> {
    let records = place.records();
    let rows = pool
        .ask(deadline, Doubt::None, LOOK, &[(&records, Type::TEXT)])
        .await?
        .map_err(|error| failure::answered(&error, Doubt::None))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("PostgreSQL answered nothing".into()))?;
    let told = |column| failure::answered_oddly(column);
    let there: bool = row.try_get(0).map_err(told)?;
    let may: Option<bool> = row.try_get(1).map_err(told)?;
    let standby: bool = row.try_get(2).map_err(told)?;
    let encoding: &str = row.try_get(3).map_err(told)?;
    let user: &str = row.try_get(4).map_err(told)?;
    let version: i32 = row.try_get(5).map_err(told)?;
    if version < 120_000 {
        return Err(Error::Denied(
            "PostgreSQL 12 or newer is needed: upgrade the server".into(),
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
    if there && may != Some(true) {
        return Err(Error::Denied(format!(
            "PostgreSQL: a right is missing: run `grant select, insert, update, delete on {records} to {};`",
            quoted(user)
        )));
    }
    Ok(there)
}

async fn create(pool: &Pool, place: &Place, deadline: Instant) -> Result<()> {
    let lent = pool.link(deadline, deadline).await?;
    let created = lent.run(deadline, &place.definition()).await;
    lent.give_back(&created);
    created.map_err(|error| match error {
        Error::Denied(why) => Error::Denied(format!(
            "the table {} is not there, and this user may not create it ({why}). Either grant it that right (`grant \
             create on schema … to …`), or have an administrator run `leasehold init` on this database and then \
             `grant select, insert, update, delete on {} to …`",
            place.records(),
            place.records()
        )),
        other => other,
    })
}
