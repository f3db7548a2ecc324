//! The rows of processes that listen for changes.
//!
//! They are stored among the records, under a kind that no query for records uses, so that they require no table,
//! migration or privilege of their own.

use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::failure::Ambiguity;
use super::pool::{Pool, Value};
use super::schema::TableLocation;

/// The kind of these rows.
pub(super) const KIND: &str = "listener";
/// The body of a row whose process watches all names.
const WATCHES: &str = "watches";
/// The server's time in microseconds, as the column `held_until` has it.
const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1e6)::int8";
/// How long a row is valid, in microseconds: it survives one missed renewal.
const ROW_LIFETIME: i64 = 60_000_000;

/// Which other processes listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Audience {
    #[default]
    None,
    /// Only processes that wait for names to become free.
    Waiters,
    /// At least one process that is notified of every write.
    Watchers,
}

impl Audience {
    /// Converts the result of [`audience_expression`].
    pub(super) fn of(number: i32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Waiters,
            _ => Self::Watchers,
        }
    }
}

/// Returns an expression for the [`Audience`] of the process with this mark. It takes one index lookup.
pub(super) fn audience_expression(table: &str, mark: &str) -> String {
    format!(
        "(select coalesce(max(case l.body when '{WATCHES}' then 2 else 1 end), 0) from {table} l \
         where l.kind = '{KIND}' and l.name <> '{mark}' and l.held_until > {NOW})"
    )
}

/// The row of this process.
pub(super) struct Listeners {
    register: String,
    unregister: String,
    mark: String,
}

impl Listeners {
    pub(super) fn new(location: &TableLocation, mark: &str) -> Self {
        let table = location.records();
        // Neither waits for the disk, because a lost row is soon written again.
        let soon = "set_config('synchronous_commit', 'off', true) = 'off'";
        Self {
            register: format!(
                "with lapsed as (delete from {table} where kind = '{KIND}' and name <> $1 and held_until < {NOW}) \
                 insert into {table} (kind, name, write_id, fence, held_until, holders, body) \
                 select '{KIND}', $1, '00000000-0000-0000-0000-000000000000', 0, {NOW} + {ROW_LIFETIME}, '[]', $2 where {soon} \
                 on conflict (kind, name) do update set held_until = excluded.held_until, body = excluded.body"
            ),
            unregister: format!(
                "delete from {table} where kind = '{KIND}' and name = $1 and {soon}"
            ),
            mark: mark.to_owned(),
        }
    }

    /// Writes or renews the row.
    pub(super) async fn register(&self, pool: &Pool, deadline: Instant, watches_all: bool) {
        let body = if watches_all { WATCHES } else { "" };
        let values: [Value<'_>; 2] = [(&self.mark, Type::TEXT), (&body, Type::TEXT)];
        let registered = pool.query(deadline, Ambiguity::None, &self.register, &values);
        if let Err(error) = registered.await {
            tracing::debug!(%error, "cannot register a listener: other processes do not notify it");
        }
    }

    /// Deletes the row.
    pub(super) async fn unregister(&self, pool: &Pool, deadline: Instant) {
        let values: [Value<'_>; 1] = [(&self.mark, Type::TEXT)];
        let unregistered = pool.query(deadline, Ambiguity::None, &self.unregister, &values);
        if let Err(error) = unregistered.await {
            tracing::debug!(%error, "cannot delete a listener's row: it will expire");
        }
    }
}
