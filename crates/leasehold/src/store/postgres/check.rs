//! Checks the server's settings that make leases less safe.

use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::failure::{self, Ambiguity};
use super::pool::Pool;
use super::schema::TableLocation;
use crate::store::Check;
use crate::{Error, Result};

const READ_SETTINGS: &str = "select current_setting('fsync'), current_setting('full_page_writes'), \
    current_setting('synchronous_commit'), (select count(*) from pg_stat_replication where sync_state = 'async'), \
    exists (select from pg_index where indrelid = to_regclass($1) and indpred is not null and indisvalid)";

/// Checks the server's settings and the table's index.
pub(super) async fn check(
    pool: &Pool,
    location: &TableLocation,
    deadline: Instant,
) -> Result<Vec<Check>> {
    let records = location.records();
    let rows = pool
        .query(
            deadline,
            Ambiguity::None,
            READ_SETTINGS,
            &[(&records, Type::TEXT)],
        )
        .await?
        .map_err(|error| failure::from_server(&error, Ambiguity::None))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("PostgreSQL returned no row".into()))?;
    let unexpected = failure::unexpected_column;
    let fsync: &str = row.try_get(0).map_err(unexpected)?;
    let full_pages: &str = row.try_get(1).map_err(unexpected)?;
    let commit: &str = row.try_get(2).map_err(unexpected)?;
    let followers: i64 = row.try_get(3).map_err(unexpected)?;
    let indexed: bool = row.try_get(4).map_err(unexpected)?;
    Ok(vec![
        durable("fsync", fsync),
        durable("full_page_writes", full_pages),
        commits(commit),
        replication(followers),
        index(indexed, location),
    ])
}

fn durable(setting: &str, value: &str) -> Check {
    match value {
        "off" => Check::red(
            format!(
                "{setting} is off: a crash of the machine may lose or damage acknowledged writes"
            ),
            format!("alter system set {setting} = on; select pg_reload_conf();"),
        ),
        _ => Check::green(format!("{setting} is {value}")),
    }
}

fn commits(value: &str) -> Check {
    match value {
        "off" => Check::red(
            "synchronous_commit is off: a crash of the server loses the last acknowledged writes",
            "alter role current_user set synchronous_commit = on;",
        ),
        _ => Check::green(format!("synchronous_commit is {value}")),
    }
}

fn replication(followers: i64) -> Check {
    match followers {
        0 => Check::green("there is no asynchronous standby"),
        _ => Check::yellow(
            format!(
                "{followers} standby servers replicate asynchronously: a failover to one may lose the last writes, and \
                 repeat a fence"
            ),
            "name a synchronous standby in synchronous_standby_names",
        ),
    }
}

fn index(exists: bool, location: &TableLocation) -> Check {
    if exists {
        Check::green("the index for work items exists")
    } else {
        Check::yellow(
            "the index for work items is missing: claims read the whole table",
            location.index(),
        )
    }
}
