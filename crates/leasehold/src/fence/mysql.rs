//! MariaDB 10.6 or newer, or MySQL 8.
//!
//! ```no_run
//! use leasehold::{Error, Lease, fence};
//! use mysql_async::prelude::Queryable as _;
//!
//! # async fn example(db: &mut mysql_async::Conn, lease: &Lease) -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = db.start_transaction(Default::default()).await?;
//! transaction.query_drop("update account set balance = balance - 10").await?;
//! let check = fence::mysql::check(lease);
//! let passed: Option<i64> = transaction.exec_first(check.sql(), check.values()).await?;
//! passed.ok_or(Error::Fenced)?; // dropped, the transaction is rolled back
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use super::{Bearer, Statement};

/// Returns the check for leases on the same server: a statement that returns a row if this fence still holds the
/// lease. It locks the lease's row, so that the lease is not granted again before the transaction ends, at any
/// isolation level. Run it **last**.
///
/// Use [`in_schema`](Statement::in_schema) if the leases are in another database of the server. It requires the
/// rights `select` and `update` on `leasehold_records`.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Statement {
    // A shared lock, so that transactions of one holder, or of several shared holders, do not block each other.
    let sql = r#"select fence from {schema}leasehold_records where kind = '{kind}' and name = ? and instr(holders, concat('{"fence":', ?, ',')) > 0 lock in share mode"#;
    Statement::new(sql, '`', lease.into())
}

/// Returns the guard for leases in another place: two statements to run in this order, the second of which returns a
/// row unless a higher fence was written before. They block other transactions until this one ends. Run them
/// **first**. For exclusive leases; they require the [`FENCES`] table.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> [Statement; 2] {
    // The number of rows changed by the first statement does not distinguish "as high as before" from "lower".
    let raise = "insert into {schema}leasehold_fences (kind, name, fence) values ('{kind}', ?, ?) on duplicate key update fence = greatest(fence, values(fence))";
    let read = "select fence from {schema}leasehold_fences where kind = '{kind}' and name = ? and fence = ? for update";
    let bearer = lease.into();
    [raise, read].map(|sql| Statement::new(sql, '`', bearer))
}

/// Creates the table that [`guard`] writes to.
pub const FENCES: &str = "create table if not exists leasehold_fences (
    kind varbinary(8) not null,
    name varbinary(512) not null,
    fence bigint not null,
    primary key (kind, name)
) engine = InnoDB";
