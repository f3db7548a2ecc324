//! What of the server's settings makes leases less safe than they look.

use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::failure::{self, Doubt};
use super::pool::Pool;
use super::schema::Place;
use crate::store::Check;
use crate::{Error, Result};

const LOOK: &str = "select current_setting('fsync'), current_setting('full_page_writes'), \
    current_setting('synchronous_commit'), (select count(*) from pg_stat_replication where sync_state = 'async'), \
    exists (select from pg_index where indrelid = to_regclass($1) and indpred is not null and indisvalid)";

/// Looks at the server's settings and the table's index.
pub(super) async fn check(pool: &Pool, place: &Place, deadline: Instant) -> Result<Vec<Check>> {
    let records = place.records();
    let rows = pool
        .ask(deadline, Doubt::None, LOOK, &[(&records, Type::TEXT)])
        .await?
        .map_err(|error| failure::answered(&error, Doubt::None))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("PostgreSQL answered nothing".into()))?;
    let told = failure::answered_oddly;
    let fsync: &str = row.try_get(0).map_err(told)?;
    let full_pages: &str = row.try_get(1).map_err(told)?;
    let commit: &str = row.try_get(2).map_err(told)?;
    let followers: i64 = row.try_get(3).map_err(told)?;
    let indexed: bool = row.try_get(4).map_err(told)?;
    Ok(vec![
        durable("fsync", fsync),
        durable("full_page_writes", full_pages),
        commits(commit),
        replication(followers),
        index(indexed, place),
    ])
}

fn durable(setting: &str, value: &str) -> Check {
    match value {
        "off" => Check::red(
            format!(
                "{setting} is off: a crash of the machine may lose or damage what was acknowledged"
            ),
            format!("alter system set {setting} = on; select pg_reload_conf();"),
        ),
        _ => Check::green(format!("{setting} is {value}")),
    }
}

fn commits(value: &str) -> Check {
    match value {
        "off" => Check::red(
            "synchronous_commit is off: a crash of the server forgets the last moments that were acknowledged",
            "alter role current_user set synchronous_commit = on;",
        ),
        _ => Check::green(format!("synchronous_commit is {value}")),
    }
}

fn replication(followers: i64) -> Check {
    match followers {
        0 => Check::green("no standby follows asynchronously"),
        _ => Check::yellow(
            format!(
                "{followers} standby servers follow asynchronously: a failover to one may forget the last moments, and \
                 repeat a fence"
            ),
            "name a synchronous standby in synchronous_standby_names",
        ),
    }
}

fn index(there: bool, place: &Place) -> Check {
    if there {
        Check::green("the index for work items is there")
    } else {
        Check::yellow(
            "the index for work items is missing: claims read the whole table",
            place.index(),
        )
    }
}
