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

/// Where the leases are on the same server: returns a row if this fence still holds the lease, and locks the lease's
/// row, so that nobody else is granted it before the transaction ends, whatever its isolation. Run it **last**.
///
/// Use [`in_schema`](Statement::in_schema) where they are in another database of the server. It needs the rights
/// `select` and `update` on `leasehold_records`.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Statement {
    // Shared, as several transactions of one holder, or of several shared holders, need not wait for each other.
    let sql = r#"select fence from {schema}leasehold_records where kind = '{kind}' and name = ? and instr(holders, concat('{"fence":', ?, ',')) > 0 lock in share mode"#;
    Statement::new(sql, '`', lease.into())
}

/// Where the leases are elsewhere: of these two, run in this order, the second returns a row unless a higher fence was
/// here. They keep others out until the transaction ends. Run them **first**. For exclusive leases; they need the
/// [`FENCES`] table.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> [Statement; 2] {
    // By how many rows the first one changed nobody could tell "as high as before" from "lower".
    let raise = "insert into {schema}leasehold_fences (kind, name, fence) values ('{kind}', ?, ?) on duplicate key update fence = greatest(fence, values(fence))";
    let look = "select fence from {schema}leasehold_fences where kind = '{kind}' and name = ? and fence = ? for update";
    let bearer = lease.into();
    [raise, look].map(|sql| Statement::new(sql, '`', bearer))
}

/// Makes the table that [`guard`] writes to.
pub const FENCES: &str = "create table if not exists leasehold_fences (
    kind varbinary(8) not null,
    name varbinary(512) not null,
    fence bigint not null,
    primary key (kind, name)
) engine = InnoDB";
