//! Fence checks in transactional batches of Cosmos DB.
#![cfg(feature = "cosmos")]

mod zombie;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;

use leasehold::Error;
use leasehold::fence::{self, Bearer};
use leasehold_testbed::Cosmos;
use serde_json::{Value, json};
use zombie::{Account, Protection, acquire, take_over, unique_name};

/// A database with leases and balances in one container, and balances in another one.
struct CosmosAccount {
    cosmos: Cosmos,
    url: String,
    /// The partition of the last written balance: the lease's for a check, another one for a guard.
    written: Mutex<Partition>,
}

/// A logical partition.
#[derive(Clone)]
struct Partition {
    container: &'static str,
    property: &'static str,
    value: String,
}

impl Partition {
    /// Returns the partition of a lease, in the container of the leases.
    fn of_lease(bearer: Bearer<'_>) -> Self {
        Self {
            container: "leases",
            property: "lease",
            value: fence::cosmos::check(bearer).id().to_owned(),
        }
    }

    /// Returns a partition without a lease.
    fn elsewhere() -> Self {
        Self {
            container: "accounts",
            property: "tenant",
            value: "acme".into(),
        }
    }
}

impl CosmosAccount {
    /// Returns status and body of an answer. Each header must end with a line break.
    fn send_request(&self, method: &str, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.cosmos.port())).unwrap();
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: emulator\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (
            status.expect("a status"),
            serde_json::from_str(body).unwrap_or_default(),
        )
    }

    fn create_container(&self, name: &str, key: &str) {
        let container = json!({
            "id": name,
            "partitionKey": { "paths": [key], "kind": "Hash", "version": 2 },
        });
        let (status, answer) = self.send_request("POST", "/dbs/leasehold/colls", "", &container);
        assert_eq!(status, 201, "{answer}");
    }

    fn read(&self, partition: &Partition, id: &str) -> Option<Value> {
        let path = format!("/dbs/leasehold/colls/{}/docs/{id}", partition.container);
        let key = format!(
            "x-ms-documentdb-partitionkey: [\"{}\"]\r\n",
            partition.value
        );
        match self.send_request("GET", &path, &key, &Value::Null) {
            (200, item) => Some(item),
            (404, _) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether the batch was committed; otherwise checks that the condition of this operation failed.
    fn batch(&self, partition: &Partition, operations: &[Value], condition: usize) -> bool {
        let path = format!("/dbs/leasehold/colls/{}/docs", partition.container);
        let headers = format!(
            "x-ms-documentdb-partitionkey: [\"{}\"]\r\nx-ms-cosmos-is-batch-request: True\r\n\
             x-ms-cosmos-batch-atomic: True\r\n",
            partition.value
        );
        let (status, results) = self.send_request("POST", &path, &headers, &json!(operations));
        if status == 200 {
            return true;
        }
        assert_eq!(status, 207, "{results}");
        let codes: Vec<_> = results.as_array().unwrap().iter().collect();
        for (index, result) in codes.into_iter().enumerate() {
            let expected = if index == condition { 412 } else { 424 };
            assert_eq!(result["statusCode"], expected, "{results}");
        }
        false
    }

    fn balance_is(partition: &Partition, balance: i64) -> Value {
        let account =
            json!({ "id": "account", partition.property: partition.value, "balance": balance });
        json!({ "operationType": "Upsert", "resourceBody": account })
    }

    /// Returns the operation that checks the fence, built from the current items.
    fn condition(
        &self,
        partition: &Partition,
        bearer: Bearer<'_>,
        protection: Protection,
    ) -> Result<Value, Error> {
        match protection {
            Protection::Check => {
                let check = fence::cosmos::check(bearer);
                check.operation(self.read(partition, check.id()))
            }
            Protection::Guard => {
                let guard = fence::cosmos::guard(bearer);
                let found = self.read(partition, guard.id());
                guard.operation(found.unwrap_or(json!({ partition.property: partition.value })))
            }
            Protection::None => unreachable!("it has no condition"),
        }
    }
}

impl Account for CosmosAccount {
    async fn open() -> Self {
        let cosmos = Cosmos::start().await;
        let account = Self {
            url: cosmos.url(),
            cosmos,
            written: Mutex::new(Partition::elsewhere()),
        };
        account.create_container("leases", "/lease");
        account.create_container("accounts", "/tenant");
        account
    }

    fn leases(&self) -> &str {
        &self.url
    }

    async fn balance(&self) -> i64 {
        let partition = self.written.lock().unwrap().clone();
        let account = self.read(&partition, "account");
        account.map_or(100, |account| account["balance"].as_i64().unwrap())
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let partition = match protection {
            Protection::Guard => Partition::elsewhere(),
            Protection::Check | Protection::None => Partition::of_lease(bearer),
        };
        let mut operations = Vec::new();
        if protection != Protection::None {
            match self.condition(&partition, bearer, protection) {
                Ok(operation) => operations.push(operation),
                Err(refusal) => {
                    assert_eq!(refusal, Error::Fenced);
                    return false;
                }
            }
        }
        operations.push(Self::balance_is(&partition, balance));
        let committed = self.batch(&partition, &operations, 0);
        *self.written.lock().unwrap() = partition;
        committed
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<CosmosAccount>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<CosmosAccount>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<CosmosAccount>().await;
}

/// Lets a zombie build a batch while it holds the lease, and send it after a takeover. Returns whether the late batch was
/// committed.
async fn commit_after_takeover(protection: Protection, keep_condition: bool) -> bool {
    let account = CosmosAccount::open().await;
    let name = unique_name();
    let zombie = acquire(account.leases(), &name).await;
    assert!(
        account.set(100, (&zombie).into(), protection).await,
        "{protection:?}"
    );

    let partition = account.written.lock().unwrap().clone();
    let mut operation = account
        .condition(&partition, (&zombie).into(), protection)
        .unwrap();
    if !keep_condition {
        operation["ifMatch"].take();
    }
    let successor = take_over(account.leases(), &name).await;
    if protection == Protection::Guard {
        assert!(account.set(150, (&successor).into(), protection).await);
    }
    let late = [operation, CosmosAccount::balance_is(&partition, 90)];
    account.batch(&partition, &late, 0)
}

#[tokio::test]
async fn batch_built_before_the_takeover_is_refused() {
    for protection in [Protection::Check, Protection::Guard] {
        assert!(
            !commit_after_takeover(protection, true).await,
            "{protection:?}"
        );
    }
}

/// The control: without the condition on the ETag, the late batch is committed.
#[tokio::test]
async fn late_batch_without_its_condition_is_committed() {
    for protection in [Protection::Check, Protection::Guard] {
        assert!(
            commit_after_takeover(protection, false).await,
            "{protection:?}"
        );
    }
}

/// A check replaces the lease's item by itself. The holder's renewals and writes still succeed.
#[tokio::test]
async fn check_does_not_change_the_lease() {
    let account = CosmosAccount::open().await;
    let name = unique_name();
    let lease = acquire(account.leases(), &name).await;
    let partition = Partition::of_lease((&lease).into());
    for step in ["one", "two"] {
        assert!(account.set(100, (&lease).into(), Protection::Check).await);
        let before = account.read(&partition, &partition.value).unwrap();
        lease.renew().await.unwrap();
        lease.update(step).await.unwrap();
        let after = account.read(&partition, &partition.value).unwrap();
        assert_eq!(after["record"]["body"], step);
        assert_eq!(before["record"]["fence"], after["record"]["fence"]);
    }
    lease.release().await.unwrap();
    assert_eq!(&*acquire(account.leases(), &name).await.body(), "two");
}

/// User items in the container are not treated as leases.
#[tokio::test]
async fn items_beside_the_leases_are_not_listed() {
    let account = CosmosAccount::open().await;
    let name = unique_name();
    let lease = acquire(account.leases(), &name).await;
    assert!(account.set(100, (&lease).into(), Protection::Check).await);
    let client = leasehold::connect(account.leases()).await.unwrap();
    let listing = client.leases().list(Default::default()).await.unwrap();
    let names: Vec<_> = listing.leases.iter().map(|(name, _)| name).collect();
    assert_eq!(names, [lease.name()]);
}

#[test]
fn unexpected_item_is_an_error() {
    let (one, other) = (
        leasehold::core::Name::lock("one").unwrap(),
        leasehold::core::Name::lock("other").unwrap(),
    );
    let fence = leasehold::core::Fence::new(7).unwrap();
    let check = fence::cosmos::check((&one, fence));
    assert_eq!(check.operation(None), Err(Error::Fenced));
    let record = json!({
        "fence": 7, "holders": [], "last": null, "next": null, "body": "", "state": null, "put": null,
    });
    for item in [
        json!({}),
        json!("text"),
        json!({ "id": fence::cosmos::check((&other, fence)).id(), "record": record }),
    ] {
        let operation = check.operation(Some(item));
        assert!(matches!(operation, Err(Error::Corrupt(_))), "{operation:?}");
    }
    let guard = fence::cosmos::guard((&one, fence));
    for item in [
        json!([]),
        json!({ "_etag": "1" }),
        json!({ "_etag": "1", "fence": -1 }),
        json!({ "_etag": 1, "fence": 7 }),
    ] {
        let operation = guard.operation(item);
        assert!(matches!(operation, Err(Error::Corrupt(_))), "{operation:?}");
    }
    let higher = guard.operation(json!({ "_etag": "1", "fence": 8 }));
    assert_eq!(higher, Err(Error::Fenced));
}
