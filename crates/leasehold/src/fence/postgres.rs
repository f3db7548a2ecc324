//! PostgreSQL, 12 or newer.
//!
//! ```no_run
//! use leasehold::{Error, Lease, fence};
//!
//! # async fn example(db: &mut tokio_postgres::Client, lease: &Lease) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = db.transaction().await?;
//! transaction.execute("update account set balance = balance - 10", &[]).await?;
//! let check = fence::postgres::check(lease);
//! transaction
//!     .query_opt(&check.sql(), &[&check.name(), &check.fence()])
//!     .await?
//!     .ok_or(Error::Fenced)?; // dropped, the transaction is rolled back
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use super::{Bearer, Statement};

/// Returns the check for leases in the same database: a statement that returns a row if this fence still holds the
/// lease. It locks the lease's row, so that the lease is not granted again before the transaction ends. Run it
/// **last**.
///
/// Use [`in_schema`](Statement::in_schema) if the store's URL has `?schema=`. It requires the rights `select` and
/// `update` on `leasehold_records`. Under `repeatable read` and `serializable`, a renewal during the transaction is a
/// serialization failure: retry it, as with any other.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Statement {
    // A shared lock, so that transactions of one holder, or of several shared holders, do not block each other.
    let sql = r#"select fence from {schema}leasehold_records where kind = '{kind}' and name = $1 and strpos(holders::text, '{"fence":' || $2::bigint || ',') > 0 for share"#;
    Statement::new(sql, '"', lease.into())
}

/// Returns the guard for leases in another place: a statement that returns a row unless a higher fence was written
/// before. It blocks other transactions until this one ends. Run it **first**. For exclusive leases; it requires the
/// [`FENCES`] table.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Statement {
    let sql = "insert into {schema}leasehold_fences as f (kind, name, fence) values ('{kind}', $1, $2) on conflict (kind, name) do update set fence = excluded.fence where f.fence <= excluded.fence returning fence";
    Statement::new(sql, '"', lease.into())
}

/// Creates the table that [`guard`] writes to.
pub const FENCES: &str = r#"create table if not exists leasehold_fences (
    kind text collate "C" not null,
    name text collate "C" not null,
    fence bigint not null,
    primary key (kind, name)
)"#;
