//! Creates the table, and checks the server's settings that make leases less safe.

use tokio::time::Instant;

use super::pool::{Pool, Script};
use super::{row, statements};
use crate::store::Check;
use crate::{Error, Result};

/// Names and states are bytes, because a collation would treat different ones as equal. The view shows them as text.
const DEFINITION: &str = "create table if not exists leasehold_records (
    kind varbinary(8) not null,
    name varbinary(512) not null,
    write_id binary(16) not null,
    fence bigint not null,
    held_until bigint not null,
    state varbinary(64),
    state_since bigint,
    holders mediumtext character set utf8mb4 collate utf8mb4_bin not null,
    last text character set utf8mb4 collate utf8mb4_bin,
    next text character set utf8mb4 collate utf8mb4_bin,
    put char(32) character set ascii,
    body mediumtext character set utf8mb4 collate utf8mb4_bin not null,
    primary key (kind, name),
    key leasehold_by_state (kind, state, state_since, name)
) engine = InnoDB row_format = dynamic;
create or replace sql security invoker view leasehold_leases as
select convert(kind using utf8mb4) as kind, convert(name using utf8mb4) as name, fence,
    json_unquote(json_extract(holders, '$[0].owner')) as owner, json_length(holders) as holders,
    if(held_until > 0, date_add('1970-01-01', interval held_until microsecond), null) as expires_at_utc,
    convert(state using utf8mb4) as state,
    date_add('1970-01-01', interval state_since microsecond) as state_since_utc, body
from leasehold_records; do 0";

/// Creates the table if it is missing, and checks that it is usable.
pub(super) async fn init(pool: &Pool, deadline: Instant) -> Result<()> {
    let script = Script {
        text: "select count(*) from information_schema.tables where table_schema = database() \
               and table_name = 'leasehold_records'"
            .into(),
        commit: None,
    };
    let sets = pool.query(deadline, &script).await?.unwrap_or_default();
    let found = sets.first().and_then(|rows| rows.first());
    let table_count: i64 = match found {
        Some(count) => row::value(count, 0)?,
        None => 0,
    };
    // A table that this user may not see looks like a missing one.
    if table_count == 0 {
        let script = Script {
            text: DEFINITION.into(),
            commit: Some(0),
        };
        pool.query(deadline, &script).await.map_err(|error| match error {
            Error::Denied(why) => Error::Denied(format!(
                "the table leasehold_records is missing for this user, who may not create it ({why}): either `grant \
                 create, create view on …` to this user, or ask an administrator to run `leasehold init` on this \
                 database and then `grant select, insert, update, delete on leasehold_records to …`"
            )),
            other => other,
        })?;
    }
    statements::load(pool, deadline, &[]).await.map(|_| ())
}

/// Checks the server's settings.
pub(super) async fn check(pool: &Pool, deadline: Instant) -> Result<Vec<Check>> {
    let script = Script {
        text: "select cast(@@global.innodb_flush_log_at_trx_commit as char), cast(@@global.log_bin as char), \
               cast(@@global.sync_binlog as char), (select count(*) from information_schema.global_variables \
               where variable_name = 'WSREP_ON' and variable_value = 'ON')"
            .into(),
        commit: None,
    };
    // MySQL has neither this table of variables nor such clusters.
    let plain = Script {
        text: script.text.replace(
            "(select count(*) from information_schema.global_variables where variable_name = 'WSREP_ON' \
             and variable_value = 'ON')",
            "0",
        ),
        commit: None,
    };
    let sets = match pool.query(deadline, &script).await {
        Ok(sets) => sets,
        Err(_) => pool.query(deadline, &plain).await?,
    };
    let sets = sets.unwrap_or_default();
    let row = sets.first().and_then(|rows| rows.first());
    let row = row.ok_or_else(|| Error::Corrupt("the database returned no row".into()))?;
    let (flush, binlog): (String, String) = (row::value(row, 0)?, row::value(row, 1)?);
    let (sync, cluster): (String, i64) = (row::value(row, 2)?, row::value(row, 3)?);
    let logged = matches!(binlog.as_str(), "1" | "ON");
    Ok(vec![
        check_flush(&flush),
        check_binlog(logged, &sync),
        check_cluster(cluster),
    ])
}

fn check_flush(value: &str) -> Check {
    match value {
        "1" | "3" => Check::green(format!("innodb_flush_log_at_trx_commit is {value}")),
        _ => Check::red(
            format!(
                "innodb_flush_log_at_trx_commit is {value}: a crash may lose the last second of acknowledged writes"
            ),
            "set global innodb_flush_log_at_trx_commit = 1; and the same in the server's configuration file",
        ),
    }
}

fn check_binlog(logged: bool, value: &str) -> Check {
    match (logged, value) {
        (true, "1") => Check::green("sync_binlog is 1"),
        (true, _) => Check::yellow(
            format!(
                "sync_binlog is {value}: after a crash of the machine, replicas may have writes that this server lost, or \
                 the other way round"
            ),
            "set global sync_binlog = 1; and the same in the server's configuration file",
        ),
        (false, _) => Check::green("the binary log is off"),
    }
}

fn check_cluster(count: i64) -> Check {
    match count {
        0 => Check::green("it is a single server"),
        _ => Check::yellow(
            "this is a Galera cluster: reads from another node than the last write's may be stale",
            "let all clients use one node at a time, or set global wsrep_sync_wait = 7;",
        ),
    }
}
