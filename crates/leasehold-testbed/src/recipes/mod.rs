//! One file per database.

use std::sync::Arc;

use crate::Missing;
use crate::recipe::Recipe;

mod azblob;
mod dynamodb;
mod etcd;
mod mongodb;
mod mysql;
mod pgbouncer;
mod postgres;
mod redis;

pub(crate) use pgbouncer::Pgbouncer;

/// The available servers: the schemes of store URLs; `dynoxide`, an alternative for `dynamodb`; `etcd-debian`, an
/// `etcd` that survives kills; and `valkey`, an alternative for `redis`.
pub const SERVERS: [&str; 10] = [
    "azblob",
    "dynamodb",
    "dynoxide",
    "etcd",
    "etcd-debian",
    "mongodb",
    "mysql",
    "postgres",
    "redis",
    "valkey",
];

/// Returns the recipe for one of [`SERVERS`].
pub(crate) fn of(name: &str) -> Result<Arc<dyn Recipe>, Missing> {
    Ok(match name {
        "azblob" => Arc::new(azblob::Azblob),
        "dynamodb" => Arc::new(dynamodb::DynamodbLocal),
        "dynoxide" => Arc::new(dynamodb::Dynoxide),
        "etcd" => Arc::new(etcd::Etcd::Pinned),
        "etcd-debian" => Arc::new(etcd::Etcd::Debian),
        "mongodb" => Arc::new(mongodb::Mongodb),
        "mysql" => Arc::new(mysql::Mysql),
        "postgres" => Arc::new(postgres::Postgres),
        "redis" => Arc::new(redis::Redis::Debian),
        "valkey" => Arc::new(redis::Redis::Valkey),
        _ => return Err(Missing::Scheme(name.to_owned())),
    })
}
