//! Fence checks in PostgreSQL transactions.
#![cfg(feature = "postgres")]

mod postgres_support;
mod zombie;

use std::time::Duration;

use leasehold::fence::{self, Bearer, Statement};
use postgres_support::Fixture;
use tokio_postgres::Transaction;
use zombie::{Account, Protection, acquire, take_over, unique_name};

/// A schema of a single test, with the leases and an account.
struct Database {
    fixture: Fixture,
    schema: String,
}

impl Database {
    async fn session(&self) -> tokio_postgres::Client {
        let session = self.fixture.session().await;
        let path = format!("set search_path to {}", self.schema);
        session.batch_execute(&path).await.unwrap();
        session
    }
}

async fn passes(transaction: &Transaction<'_>, statement: Statement) -> bool {
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
        [&statement.name(), &statement.fence()];
    let row = transaction.query_opt(&statement.sql(), &values).await;
    row.unwrap().is_some()
}

impl Account for Database {
    async fn open() -> Self {
        let fixture = Fixture::new().await;
        fixture.open().await;
        let (schema, _) = fixture.table.split_once('.').unwrap();
        let schema = schema.to_owned();
        let database = Self { fixture, schema };
        let session = database.session().await;
        let account = "create table account (balance bigint, fence bigint); insert into account values (100, 0)";
        session.batch_execute(account).await.unwrap();
        session
            .batch_execute(fence::postgres::FENCES)
            .await
            .unwrap();
        database
    }

    fn leases(&self) -> &str {
        &self.fixture.url
    }

    async fn balance(&self) -> i64 {
        let session = self.session().await;
        let row = session.query_one("select balance from account", &[]).await;
        row.unwrap().get(0)
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        // The search path need not contain the leases.
        let mut session = self.fixture.session().await;
        let transaction = session.transaction().await.unwrap();
        let guard = fence::postgres::guard(bearer).in_schema(&self.schema);
        if protection == Protection::Guard && !passes(&transaction, guard).await {
            return false;
        }
        let update = format!("update {}.account set balance = $1", self.schema);
        transaction.execute(&update, &[&balance]).await.unwrap();
        let check = fence::postgres::check(bearer).in_schema(&self.schema);
        if protection == Protection::Check && !passes(&transaction, check).await {
            return false;
        }
        transaction.commit().await.unwrap();
        true
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<Database>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<Database>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<Database>().await;
}

#[tokio::test]
async fn expired_holder_is_refused_once_replaced() {
    let ttl = Duration::from_millis(1_200);
    zombie::expired_holder_is_refused_once_replaced::<Database>(ttl).await;
}

#[tokio::test]
async fn takeover_waits_for_the_commit() {
    let (database, name) = (Database::open().await, unique_name());
    let lease = acquire(database.leases(), &name).await;
    let mut session = database.session().await;
    let transaction = session.transaction().await.unwrap();
    transaction
        .execute("update account set balance = 60", &[])
        .await
        .unwrap();
    assert!(passes(&transaction, fence::postgres::check(&lease)).await);

    let url = database.leases().to_owned();
    let successor = tokio::spawn(async move { take_over(&url, &name).await });
    let waiting = "select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock'";
    while database.fixture.sql(waiting).await != "t" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!successor.is_finished());
    transaction.commit().await.unwrap();
    assert!(successor.await.unwrap().fence() > lease.fence());
    assert_eq!(database.balance().await, 60);
}

/// For tables with a fence column: the write itself is the check.
#[tokio::test]
async fn fence_column_refuses_lower_fences() {
    let (database, name) = (Database::open().await, unique_name());
    let zombie = acquire(database.leases(), &name).await;
    let successor = take_over(database.leases(), &name).await;
    let session = database.session().await;
    let write = "update account set balance = $1, fence = $2 where fence <= $2";
    for (lease, balance, rows) in [
        (&zombie, 110_i64, 1),
        (&successor, 150, 1),
        (&successor, 160, 1),
        (&zombie, 90, 0),
    ] {
        let fence = lease.fence().get().cast_signed();
        let written = session.execute(write, &[&balance, &fence]).await.unwrap();
        assert_eq!(written, rows, "{balance}");
    }
    assert_eq!(database.balance().await, 160);
}
