//! Shared by the tests of the PostgreSQL store.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::Result;
use leasehold::core::{Acquire, Fence, Hash, HolderRef, Mode, Name, Operation, Outcome, Release};
use leasehold::engine::{Engine, WaitLimit};
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store};

#[path = "../records/mod.rs"]
mod records;
pub(crate) use records::*;

/// A schema of a single test, on the server that the tests of this process share.
pub(crate) struct Fixture {
    /// The store URL.
    pub(crate) url: String,
    /// The table, as SQL writes it.
    pub(crate) table: String,
    pub(crate) port: u16,
    admin: String,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let server = leasehold_testbed::shared("postgres").await.unwrap();
        Self::on(server.port())
    }

    /// Creates a schema on another server, or through a proxy on this port.
    pub(crate) fn on(port: u16) -> Self {
        let schema = format!("t{:016x}", Machine.random() as u64);
        let admin = format!("postgres://postgres@127.0.0.1:{port}/leasehold");
        Self {
            url: format!("{admin}?schema={schema}"),
            table: format!("{schema}.leasehold_records"),
            port,
            admin,
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        self.open_with("").await
    }

    /// Opens the store with more options.
    pub(crate) async fn open_with(&self, options: &str) -> Arc<dyn Store> {
        store::open(&format!("{}{options}", self.url))
            .await
            .unwrap()
    }

    /// Opens a session like a user of the database.
    pub(crate) async fn session(&self) -> tokio_postgres::Client {
        session(&self.admin).await
    }

    /// Runs SQL, in which `$T` is the table, and returns the first column of the first row as text.
    pub(crate) async fn sql(&self, sql: &str) -> String {
        let sql = sql.replace("$T", &self.table);
        let messages = self.session().await.simple_query(&sql).await.unwrap();
        let first = messages.into_iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        first.unwrap_or_default()
    }
}

pub(crate) async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn name(text: &str) -> Name {
    Name::lock(text).unwrap()
}

pub(crate) async fn acquire(
    engine: &Engine,
    name: &Name,
    nonce: &str,
    wait: Duration,
) -> Result<Outcome> {
    let acquire = Operation::Acquire(Acquire {
        nonce: Hash::of(&[nonce.as_bytes()]),
        owner: nonce.into(),
        principal: None,
        ttl: Duration::from_secs(30),
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    });
    let limit = WaitLimit { wait, within: None };
    let reply = engine.perform(name, acquire, limit).await?;
    Ok(reply.take().0)
}

/// Returns the fence of a lease that must be granted.
pub(crate) async fn grant(engine: &Engine, name: &Name, nonce: &str, wait: Duration) -> Fence {
    match acquire(engine, name, nonce, wait).await {
        Ok(Outcome::Granted(grant)) => grant.fence,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn release(engine: &Engine, name: &Name, fence: Fence) -> Result<Outcome> {
    let release = Operation::Release(Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    });
    let reply = engine.perform(name, release, WaitLimit::NONE).await?;
    Ok(reply.take().0)
}
