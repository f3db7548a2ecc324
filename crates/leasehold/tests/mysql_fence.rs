//! Fence checks in MariaDB transactions.
#![cfg(feature = "mysql")]

mod zombie;

use std::time::Duration;

use leasehold::fence::{self, Bearer, Statement};
use leasehold::host::{Host as _, Machine};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use zombie::{Account, Protection, acquire, take_over, unique_name};

/// A database for the leases, and another one for the account.
struct Databases {
    admin: String,
    leases: String,
    database: String,
}

impl Databases {
    /// Opens a session on the account's database.
    async fn session(&self) -> Conn {
        let mut session = Conn::from_url(&self.admin).await.unwrap();
        let usage = format!("use {}_account", self.database);
        session.query_drop(usage).await.unwrap();
        session
    }
}

async fn passes(transaction: &mut impl Queryable, statement: &Statement) -> bool {
    let row: Option<i64> = transaction
        .exec_first(statement.sql(), statement.values())
        .await
        .unwrap();
    row.is_some()
}

impl Account for Databases {
    async fn open() -> Self {
        let port = leasehold_testbed::shared("mysql").await.unwrap().port();
        let database = format!("t{:016x}", Machine.random() as u64);
        let databases = Self {
            admin: format!("mysql://root@127.0.0.1:{port}/leasehold?prefer_socket=false"),
            leases: format!("mysql://root@127.0.0.1:{port}/{database}"),
            database,
        };
        let mut session = Conn::from_url(&databases.admin).await.unwrap();
        for name in [
            databases.database.clone(),
            format!("{}_account", databases.database),
        ] {
            let create = format!("create database {name}");
            session.query_drop(create).await.unwrap();
        }
        leasehold::store::open(&databases.leases).await.unwrap();
        let mut session = databases.session().await;
        for statement in [
            "create table account (balance bigint) engine = InnoDB",
            "insert into account values (100)",
            fence::mysql::FENCES,
        ] {
            session.query_drop(statement).await.unwrap();
        }
        databases
    }

    fn leases(&self) -> &str {
        &self.leases
    }

    async fn balance(&self) -> i64 {
        let mut session = self.session().await;
        let balance = session.query_first("select balance from account").await;
        balance.unwrap().unwrap()
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let mut session = self.session().await;
        let mut transaction = session.start_transaction(TxOpts::default()).await.unwrap();
        if protection == Protection::Guard {
            let [raise, read] = fence::mysql::guard(bearer);
            let raised = transaction.exec_drop(raise.sql(), raise.values()).await;
            raised.unwrap();
            if !passes(&mut transaction, &read).await {
                return false;
            }
        }
        let update = transaction.exec_drop("update account set balance = ?", (balance,));
        update.await.unwrap();
        let check = fence::mysql::check(bearer).in_schema(&self.database);
        if protection == Protection::Check && !passes(&mut transaction, &check).await {
            return false;
        }
        transaction.commit().await.unwrap();
        true
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<Databases>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<Databases>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<Databases>().await;
}

#[tokio::test]
async fn expired_holder_is_refused_once_replaced() {
    let ttl = Duration::from_millis(1_200);
    zombie::expired_holder_is_refused_once_replaced::<Databases>(ttl).await;
}

#[tokio::test]
async fn takeover_waits_for_the_commit() {
    let (databases, name) = (Databases::open().await, unique_name());
    let lease = acquire(&databases.leases, &name).await;
    let mut session = databases.session().await;
    let mut transaction = session.start_transaction(TxOpts::default()).await.unwrap();
    let update = transaction.query_drop("update account set balance = 60");
    update.await.unwrap();
    let check = fence::mysql::check(&lease).in_schema(&databases.database);
    assert!(passes(&mut transaction, &check).await);

    let url = databases.leases.clone();
    let successor = tokio::spawn(async move { take_over(&url, &name).await });
    let waiting =
        "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
    let mut watch = databases.session().await;
    while watch.query_first::<i64, _>(waiting).await.unwrap() == Some(0) {
        // InnoDB does not refresh this view if it is read more often.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(!successor.is_finished());
    transaction.commit().await.unwrap();
    assert!(successor.await.unwrap().fence() > lease.fence());
    assert_eq!(databases.balance().await, 60);
}
