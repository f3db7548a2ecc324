//! Fences that are checked in transactional batches of Cosmos DB.
#![cfg(feature = "cosmos")]

mod zombie;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;

use leasehold::Error;
use leasehold::fence::{self, Bearer};
use leasehold_testbed::Cosmos;
use serde_json::{Value, json};
use zombie::{Account, With, any_name, hold, take_over};

/// An account that has leases and balances in one container, and more balances in another one.
struct Shop {
    cosmos: Cosmos,
    url: String,
    /// Where the balance was last written: in the lease's partition for a check, elsewhere for a guard.
    written: Mutex<Place>,
}

/// A logical partition.
#[derive(Clone)]
struct Place {
    container: &'static str,
    property: &'static str,
    value: String,
}

impl Place {
    /// The partition of a lease, in the container of the leases.
    fn of_lease(bearer: Bearer<'_>) -> Self {
        Self {
            container: "leases",
            property: "lease",
            value: fence::cosmos::check(bearer).id().to_owned(),
        }
    }

    /// A partition that has no lease.
    fn elsewhere() -> Self {
        Self {
            container: "accounts",
            property: "tenant",
            value: "acme".into(),
        }
    }
}

impl Shop {
    /// Status and body of an answer. `headers` end with a line end each.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &Value) -> (u16, Value) {
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
        let (status, answer) = self.ask("POST", "/dbs/leasehold/colls", "", &container);
        assert_eq!(status, 201, "{answer}");
    }

    fn read(&self, place: &Place, id: &str) -> Option<Value> {
        let path = format!("/dbs/leasehold/colls/{}/docs/{id}", place.container);
        let key = format!("x-ms-documentdb-partitionkey: [\"{}\"]\r\n", place.value);
        match self.ask("GET", &path, &key, &Value::Null) {
            (200, item) => Some(item),
            (404, _) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the batch was committed; otherwise the condition of the operation with this index was not met.
    fn batch(&self, place: &Place, operations: &[Value], condition: usize) -> bool {
        let path = format!("/dbs/leasehold/colls/{}/docs", place.container);
        let headers = format!(
            "x-ms-documentdb-partitionkey: [\"{}\"]\r\nx-ms-cosmos-is-batch-request: True\r\n\
             x-ms-cosmos-batch-atomic: True\r\n",
            place.value
        );
        let (status, results) = self.ask("POST", &path, &headers, &json!(operations));
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

    fn balance_is(place: &Place, balance: i64) -> Value {
        let account = json!({ "id": "account", place.property: place.value, "balance": balance });
        json!({ "operationType": "Upsert", "resourceBody": account })
    }

    /// Returns the operation that checks the fence, made from the items that are stored now.
    fn condition(&self, place: &Place, bearer: Bearer<'_>, with: With) -> Result<Value, Error> {
        match with {
            With::Check => {
                let check = fence::cosmos::check(bearer);
                check.operation(self.read(place, check.id()))
            }
            With::Guard => {
                let guard = fence::cosmos::guard(bearer);
                let found = self.read(place, guard.id());
                guard.operation(found.unwrap_or(json!({ place.property: place.value })))
            }
            With::Nothing => unreachable!("it has no condition"),
        }
    }
}

impl Account for Shop {
    async fn open() -> Self {
        let cosmos = Cosmos::start().await;
        let shop = Self {
            url: cosmos.url(),
            cosmos,
            written: Mutex::new(Place::elsewhere()),
        };
        shop.create_container("leases", "/lease");
        shop.create_container("accounts", "/tenant");
        shop
    }

    fn leases(&self) -> &str {
        &self.url
    }

    async fn balance(&self) -> i64 {
        let place = self.written.lock().unwrap().clone();
        let account = self.read(&place, "account");
        account.map_or(100, |account| account["balance"].as_i64().unwrap())
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, with: With) -> bool {
        let place = match with {
            With::Guard => Place::elsewhere(),
            With::Check | With::Nothing => Place::of_lease(bearer),
        };
        let mut operations = Vec::new();
        if with != With::Nothing {
            match self.condition(&place, bearer, with) {
                Ok(operation) => operations.push(operation),
                Err(refusal) => {
                    assert_eq!(refusal, Error::Fenced);
                    return false;
                }
            }
        }
        operations.push(Self::balance_is(&place, balance));
        let committed = self.batch(&place, &operations, 0);
        *self.written.lock().unwrap() = place;
        committed
    }
}

#[tokio::test]
async fn a_zombie_is_refused() {
    zombie::a_zombie_is_refused::<Shop>().await;
}

#[tokio::test]
async fn unchecked_a_zombie_corrupts() {
    zombie::unchecked_a_zombie_corrupts::<Shop>().await;
}

#[tokio::test]
async fn only_holders_pass() {
    zombie::only_holders_pass::<Shop>().await;
}

/// The check, and the guard, find that the zombie may write. Then it is paused, the lease passes on, and the zombie
/// sends the batch that it had made. Whether that was committed.
async fn paused_before_the_batch(with: With, keep_condition: bool) -> bool {
    let shop = Shop::open().await;
    let name = any_name();
    let zombie = hold(shop.leases(), &name).await;
    assert!(shop.set(100, (&zombie).into(), with).await, "{with:?}");

    let place = shop.written.lock().unwrap().clone();
    let mut operation = shop.condition(&place, (&zombie).into(), with).unwrap();
    if !keep_condition {
        operation["ifMatch"].take();
    }
    let heir = take_over(shop.leases(), &name).await;
    if with == With::Guard {
        assert!(shop.set(150, (&heir).into(), with).await);
    }
    let late = [operation, Shop::balance_is(&place, 90)];
    shop.batch(&place, &late, 0)
}

#[tokio::test]
async fn a_batch_made_before_the_takeover_is_refused() {
    for with in [With::Check, With::Guard] {
        assert!(!paused_before_the_batch(with, true).await, "{with:?}");
    }
}

/// The control: it is the condition on the ETag that refuses it.
#[tokio::test]
async fn without_its_condition_a_late_batch_is_committed() {
    for with in [With::Check, With::Guard] {
        assert!(paused_before_the_batch(with, false).await, "{with:?}");
    }
}

/// A check replaces the lease's item by itself. The holder's renewals and writes still succeed.
#[tokio::test]
async fn a_check_leaves_the_lease_as_it_was() {
    let shop = Shop::open().await;
    let name = any_name();
    let lease = hold(shop.leases(), &name).await;
    let place = Place::of_lease((&lease).into());
    for step in ["one", "two"] {
        assert!(shop.set(100, (&lease).into(), With::Check).await);
        let before = shop.read(&place, &place.value).unwrap();
        lease.renew().await.unwrap();
        lease.update(step).await.unwrap();
        let after = shop.read(&place, &place.value).unwrap();
        assert_eq!(after["record"]["body"], step);
        assert_eq!(before["record"]["fence"], after["record"]["fence"]);
    }
    lease.release().await.unwrap();
    assert_eq!(&*hold(shop.leases(), &name).await.body(), "two");
}

/// Items of the user's, beside the leases, are not taken for leases.
#[tokio::test]
async fn items_beside_the_leases_are_not_listed() {
    let shop = Shop::open().await;
    let name = any_name();
    let lease = hold(shop.leases(), &name).await;
    assert!(shop.set(100, (&lease).into(), With::Check).await);
    let client = leasehold::connect(shop.leases()).await.unwrap();
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
