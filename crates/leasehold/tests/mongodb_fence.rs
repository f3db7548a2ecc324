//! Fence checks in MongoDB transactions.
#![cfg(feature = "mongodb")]

mod zombie;

use std::time::Duration;

use leasehold::fence::{self, Bearer};
use leasehold::host::{Host as _, Machine};
use mongodb::bson::{Document, doc};
use mongodb::{Client, ClientSession, Collection, Database};
use zombie::{Account, Protection, acquire, take_over, unique_name};

/// The collections of a single test: for leases, for accounts, and for fences.
struct Collections {
    database: Database,
    name: String,
    url: String,
}

impl Collections {
    fn collection(&self, what: &str) -> Collection<Document> {
        self.database.collection(&format!("{}{what}", self.name))
    }

    async fn begin(&self) -> ClientSession {
        let mut session = self.database.client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        session
    }

    async fn write(&self, balance: i64, session: &mut ClientSession) {
        let accounts = self.collection("accounts");
        let write = accounts.update_one(doc! {}, doc! { "$set": { "balance": balance } });
        write.session(session).await.unwrap();
    }

    async fn check(&self, bearer: Bearer<'_>, session: &mut ClientSession) -> bool {
        let check = fence::mongodb::check(bearer);
        let leases = self.collection("");
        let checked = leases
            .update_one(check.filter, check.update)
            .session(session);
        checked.await.unwrap().matched_count == 1
    }

    async fn guard(&self, bearer: Bearer<'_>, session: &mut ClientSession) -> bool {
        let guard = fence::mongodb::guard(bearer);
        let fences = self.collection("fences");
        let guarded = fences
            .update_one(guard.filter, guard.update)
            .upsert(true)
            .session(session);
        match guarded.await {
            Ok(_) => true,
            Err(error) => {
                assert!(error.to_string().contains("E11000"), "{error}");
                false
            }
        }
    }
}

impl Account for Collections {
    async fn open() -> Self {
        let server = leasehold_testbed::shared("mongodb").await.unwrap();
        let name = format!("t{:016x}", Machine.random() as u64);
        let url = format!("mongodb://127.0.0.1:{}/leasehold", server.port());
        let client = Client::with_uri_str(&url).await.unwrap();
        let set = Self {
            database: client.database("leasehold"),
            url: format!("{url}?collection={name}"),
            name,
        };
        let accounts = set.collection("accounts");
        accounts
            .insert_one(doc! { "balance": 100_i64 })
            .await
            .unwrap();
        let fences = format!("{}fences", set.name);
        set.database.create_collection(fences).await.unwrap();
        set
    }

    fn leases(&self) -> &str {
        &self.url
    }

    async fn balance(&self) -> i64 {
        let account = self.collection("accounts").find_one(doc! {}).await.unwrap();
        account.unwrap().get_i64("balance").unwrap()
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let mut session = self.begin().await;
        if protection == Protection::Guard && !self.guard(bearer, &mut session).await {
            return false;
        }
        self.write(balance, &mut session).await;
        if protection == Protection::Check && !self.check(bearer, &mut session).await {
            session.abort_transaction().await.unwrap();
            return false;
        }
        session.commit_transaction().await.unwrap();
        true
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<Collections>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<Collections>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<Collections>().await;
}

#[tokio::test]
async fn takeover_waits_for_the_commit() {
    let (set, name) = (Collections::open().await, unique_name());
    let lease = acquire(&set.url, &name).await;
    let mut session = set.begin().await;
    set.write(60, &mut session).await;
    assert!(set.check((&lease).into(), &mut session).await);

    let url = set.url.clone();
    let successor = tokio::spawn(async move { take_over(&url, &name).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!successor.is_finished());
    session.commit_transaction().await.unwrap();
    assert!(successor.await.unwrap().fence() > lease.fence());
    assert_eq!(set.balance().await, 60);
}
