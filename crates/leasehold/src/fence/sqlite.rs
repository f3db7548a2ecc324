//! SQLite, 3.35 or newer.
//!
//! The store has a separate file: attach it to the connection that writes your data.
//!
//! ```
//! # #[cfg(feature = "sqlite")] {
//! use leasehold::{Error, Lease, fence};
//! use rusqlite::{Connection, OptionalExtension as _};
//!
//! # fn example(db: &mut Connection, lease: &Lease) -> Result<(), Box<dyn std::error::Error>> {
//! db.execute("attach 'leases.db' as leases", [])?; // once
//!
//! let transaction = db.transaction()?;
//! transaction.execute("update account set balance = balance - 10", [])?;
//! let check = fence::sqlite::check(lease).in_schema("leases");
//! transaction
//!     .query_row(&check.sql(), check.values(), |row| row.get::<_, i64>(0))
//!     .optional()?
//!     .ok_or(Error::Fenced)?; // dropped, the transaction is rolled back
//! transaction.commit()?;
//! # Ok(()) }
//! # }
//! ```

use super::{Bearer, Statement};

/// Returns the check for leases in a file of the same connection: a statement that returns a row if this fence still
/// holds the lease. It locks the leases' file, so that no lease is granted before the transaction ends. Run it
/// **last**.
///
/// Name the attached file with [`in_schema`](Statement::in_schema).
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Statement {
    // It changes nothing, but only a write takes the lock, however the transaction was begun.
    let sql = r#"update {schema}records set fence = fence where kind = '{kind}' and name = ?1 and instr(holders, '{"fence":' || ?2 || ',') > 0 returning fence"#;
    Statement::new(sql, '"', lease.into())
}

/// Returns the guard for leases in another place: a statement that returns a row unless a higher fence was written
/// before. It blocks other transactions until this one ends. Run it **first**. For exclusive leases; it requires the
/// [`FENCES`] table.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Statement {
    let sql = "insert into {schema}leasehold_fences (kind, name, fence) values ('{kind}', ?1, ?2) on conflict (kind, name) do update set fence = excluded.fence where fence <= excluded.fence returning fence";
    Statement::new(sql, '"', lease.into())
}

/// Creates the table that [`guard`] writes to.
pub const FENCES: &str = "create table if not exists leasehold_fences (
    kind text not null,
    name text not null,
    fence integer not null,
    primary key (kind, name)
) strict";
