//! Shared by the tests of the MySQL store.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

use std::sync::Arc;

use leasehold::core::Name;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

#[path = "../records/mod.rs"]
mod records;
pub(crate) use records::*;

/// A database of a single test.
pub(crate) struct Fixture {
    pub(crate) url: String,
    admin: String,
    pub(crate) database: String,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let server = leasehold_testbed::shared("mysql").await.unwrap();
        Self::on(server.port(), server.port()).await
    }

    /// Creates a database on this server, with a store URL that uses another port.
    pub(crate) async fn on(server: u16, port: u16) -> Self {
        let database = format!("t{:016x}", Machine.random() as u64);
        let admin = format!("mysql://root@127.0.0.1:{server}/leasehold?prefer_socket=false");
        let fixture = Self {
            url: format!("mysql://root@127.0.0.1:{port}/{database}"),
            admin,
            database,
        };
        let create = format!("create database {}", fixture.database);
        fixture.session().await.query_drop(create).await.unwrap();
        fixture
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        store::open(&self.url).await.unwrap()
    }

    /// Opens a session like a user of the database.
    pub(crate) async fn session(&self) -> Conn {
        Conn::from_url(&self.admin).await.unwrap()
    }

    /// Runs SQL, and returns the first column of the first row.
    pub(crate) async fn sql(&self, sql: &str) -> Option<String> {
        let mut session = self.session().await;
        let usage = format!("use {}", self.database);
        session.query_drop(usage).await.unwrap();
        session.query_first(sql).await.unwrap()
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::lock(text).unwrap()
}
