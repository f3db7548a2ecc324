//! Fence checks in SQLite transactions.
#![cfg(feature = "sqlite")]

mod sqlite_support;
mod zombie;

use std::time::Duration;

use leasehold::fence::{self, Bearer, Statement};
use rusqlite::{Connection, OptionalExtension as _, Transaction};
use sqlite_support::Folder;
use zombie::{Account, Protection, acquire, take_over, unique_name};

/// An account in a separate file, to which the file of the leases is attached.
struct File {
    folder: Folder,
    leases: String,
}

impl File {
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.folder.join("account.db")).unwrap();
        let attach = format!(
            "attach '{}' as leases",
            self.folder.join("leases.db").display()
        );
        connection.execute_batch(&attach).unwrap();
        connection
    }
}

fn passes(transaction: &Transaction<'_>, statement: &Statement) -> bool {
    let row = transaction.query_row(&statement.sql(), statement.values(), |row| {
        row.get::<_, i64>(0)
    });
    row.optional().unwrap().is_some()
}

impl Account for File {
    async fn open() -> Self {
        let folder = Folder::new();
        let leases = format!("sqlite:{}", folder.join("leases.db").display());
        leasehold::store::open(&leases).await.unwrap();
        let file = Self { folder, leases };
        let account = "create table account (balance); insert into account values (100);";
        let connection = file.connect();
        connection.execute_batch(account).unwrap();
        connection.execute_batch(fence::sqlite::FENCES).unwrap();
        file
    }

    fn leases(&self) -> &str {
        &self.leases
    }

    async fn balance(&self) -> i64 {
        let select = "select balance from account";
        self.connect()
            .query_row(select, [], |row| row.get(0))
            .unwrap()
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let mut connection = self.connect();
        let transaction = connection.transaction().unwrap();
        if protection == Protection::Guard && !passes(&transaction, &fence::sqlite::guard(bearer)) {
            return false;
        }
        transaction
            .execute("update account set balance = ?1", [balance])
            .unwrap();
        let check = fence::sqlite::check(bearer).in_schema("leases");
        if protection == Protection::Check && !passes(&transaction, &check) {
            return false;
        }
        transaction.commit().unwrap();
        true
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<File>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<File>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<File>().await;
}

#[tokio::test]
async fn expired_holder_is_refused_once_replaced() {
    let ttl = Duration::from_millis(50);
    zombie::expired_holder_is_refused_once_replaced::<File>(ttl).await;
}

#[tokio::test]
async fn takeover_waits_for_the_commit() {
    let (file, name) = (File::open().await, unique_name());
    let lease = acquire(&file.leases, &name).await;
    let mut connection = file.connect();
    let transaction = connection.transaction().unwrap();
    transaction
        .execute("update account set balance = 60", [])
        .unwrap();
    assert!(passes(
        &transaction,
        &fence::sqlite::check(&lease).in_schema("leases")
    ));

    let url = file.leases.clone();
    let successor = tokio::spawn(async move { take_over(&url, &name).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!successor.is_finished());
    transaction.commit().unwrap();
    assert!(successor.await.unwrap().fence() > lease.fence());
    assert_eq!(file.balance().await, 60);
}
