//! How the store interprets Cosmos DB's answers: refusals, failures, foreign accounts, and the time.
#![cfg(feature = "cosmos")]

mod cosmos_support;
mod records;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cosmos_support::{Script, scripted};
use leasehold::core::{Kind, Name, Time};
use leasehold::store::{self, Query, Swapped};
use leasehold::{Error, Result};
use records::{create, load_one, record};

/// 1_700_000_000 seconds after 1970.
const DATE: &str = "date: Tue, 14 Nov 2023 22:13:20 GMT\r\n";
const QUERY: &str = "x-ms-documentdb-isquery: true";

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

async fn assert_open_denied(script: Script, hint: &str) {
    let error = match store::open(&scripted(DATE, script)).await {
        Err(error) => error,
        Ok(_) => panic!("opened instead of reporting: {hint}"),
    };
    assert!(
        matches!(&error, Error::Denied(why) if why.contains(hint) && !why.contains("c2VjcmV0")),
        "{error:?} should contain `{hint}`"
    );
}

/// Returns the result of one write.
async fn write(script: Script) -> Result<Swapped> {
    let store = store::open(&scripted(DATE, script)).await?;
    let swapped = store.swap(vec![create(&name("a"), record(1, ""))]).await?;
    Ok(swapped.value.into_iter().next().expect("one answer"))
}

#[tokio::test]
async fn missing_rights_are_reported_with_the_fix() {
    let wrong_key: Script = |_, _| {
        let body = r#"{"code":"Unauthorized","message":"The input authorization token can't serve the request.\r\nActivityId: 1"}"#;
        Some((401, "", body))
    };
    assert_open_denied(wrong_key, "AZURE_COSMOS_KEY").await;
    let firewall: Script = |_, _| {
        let body = r#"{"code":"Forbidden","message":"Request originated from IP 1.2.3.4 through public internet."}"#;
        Some((403, "", body))
    };
    assert_open_denied(firewall, "firewall").await;
    // Entra ID identities may use a container, but not create one.
    let may_not_create: Script = |request, _| match request {
        "get /dbs/d/colls/c" => Some((404, "x-ms-substatus: 1003\r\n", "{}")),
        "post /dbs/d/colls" => Some((403, "x-ms-substatus: 5300\r\n", "{}")),
        _ => None,
    };
    assert_open_denied(may_not_create, "az cosmosdb sql container create").await;
    let deleted: Script = |request, _| match request {
        "post /dbs/d/colls/c/docs" => Some((404, "x-ms-substatus: 1003\r\n", "{}")),
        _ => None,
    };
    let swapped = write(deleted).await.expect("it answers");
    assert!(
        matches!(&swapped, Swapped::Failed(Error::Denied(why)) if why.contains("leasehold init")),
        "{swapped:?}"
    );
}

#[tokio::test]
async fn unsafe_account_or_container_is_refused() {
    let several: Script = |request, _| {
        (request == "get /").then_some((200, "", r#"{"enableMultipleWriteLocations":true}"#))
    };
    assert_open_denied(several, "several write regions").await;
    let foreign: Script = |request, _| {
        let container = r#"{"partitionKey":{"paths":["/tenant"]}}"#;
        (request == "get /dbs/d/colls/c").then_some((200, "", container))
    };
    assert_open_denied(foreign, "another program").await;
    let no_index: Script = |request, _| {
        let container =
            r#"{"partitionKey":{"paths":["/id"]},"indexingPolicy":{"indexingMode":"none"}}"#;
        (request == "get /dbs/d/colls/c").then_some((200, "", container))
    };
    assert_open_denied(no_index, "indexing policy").await;
}

#[tokio::test]
async fn write_is_unavailable_only_if_it_certainly_failed() {
    let busy = write(|request, _| {
        (request == "post /dbs/d/colls/c/docs").then_some((
            429,
            "x-ms-retry-after-ms: 60000\r\n",
            "{}",
        ))
    });
    let swapped = busy.await.expect("it answers");
    assert!(
        matches!(swapped, Swapped::Failed(Error::Unavailable(_))),
        "{swapped:?}"
    );
    let broken =
        write(|request, _| (request == "post /dbs/d/colls/c/docs").then_some((503, "", "{}")));
    let swapped = broken.await.expect("it answers");
    assert!(
        matches!(swapped, Swapped::Failed(Error::Indeterminate(_))),
        "{swapped:?}"
    );
}

#[tokio::test]
async fn throttled_request_is_retried() {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let swapped = write(|request, _| {
        let is_first =
            request == "post /dbs/d/colls/c/docs" && REQUESTS.fetch_add(1, Ordering::SeqCst) < 2;
        is_first.then_some((429, "x-ms-retry-after-ms: 5\r\n", "{}"))
    });
    let tag = Some("\"1\"".into());
    assert_eq!(swapped.await.expect("it answers"), Swapped::Written { tag });
    assert_eq!(REQUESTS.load(Ordering::SeqCst), 3);
}

/// With the usual consistency level of an account, a plain read may be stale.
#[tokio::test]
async fn every_read_requests_the_last_committed_version() {
    let strict: Script = |request, headers| {
        let is_read = request.starts_with("get /dbs/d/colls/c/docs/") || headers.contains(QUERY);
        let requests_it =
            headers.contains("x-ms-cosmos-read-consistency-strategy: latestcommitted");
        (is_read && !requests_it).then_some((400, "", "{}"))
    };
    let store = store::open(&scripted(DATE, strict))
        .await
        .expect("it opens");
    assert_eq!(load_one(&*store, &name("a")).await, None);
    let page = store.find(&Query::all(Kind::Lock)).await;
    assert!(page.expect("it finds").value.records.is_empty());
}

#[tokio::test]
async fn split_partitions_are_listed_again() {
    static SPLIT: AtomicUsize = AtomicUsize::new(0);
    let splitting: Script = |request, headers| {
        let is_split = SPLIT.load(Ordering::SeqCst) > 0;
        let is_old = headers.contains("partitionkeyrangeid: 0");
        match request {
            "get /dbs/d/colls/c/pkranges" if is_split => {
                Some((200, "", r#"{"PartitionKeyRanges":[{"id":"1"},{"id":"2"}]}"#))
            }
            "post /dbs/d/colls/c/docs" if is_split && is_old => {
                Some((410, "x-ms-substatus: 1002\r\n", "{}"))
            }
            _ => None,
        }
    };
    let store = store::open(&scripted(DATE, splitting))
        .await
        .expect("it opens");
    let query = Query::all(Kind::Lock);
    store.find(&query).await.expect("before");
    SPLIT.store(1, Ordering::SeqCst);
    let page = store.find(&query).await.expect("after").value;
    assert!(page.records.is_empty() && page.cursor.is_none());
}

#[tokio::test]
async fn time_is_read_from_the_answers() {
    let store = store::open(&scripted(DATE, |_, _| None))
        .await
        .expect("it opens");
    let stamps = [
        store.load(&[]).await.expect("an answer").stamp,
        store.load(&[name("a")]).await.expect("an answer").stamp,
        store
            .swap(vec![create(&name("a"), record(1, ""))])
            .await
            .expect("an answer")
            .stamp,
        store
            .find(&Query::all(Kind::Lock))
            .await
            .expect("an answer")
            .stamp,
    ];
    for stamp in stamps {
        assert_eq!(stamp.time, Time::from_micros(1_700_000_000_000_000));
        assert_eq!(stamp.resolution, Duration::from_secs(1));
    }
    let Err(error) = store::open(&scripted("", |_, _| None)).await else {
        panic!("it opens without a time");
    };
    assert!(
        matches!(&error, Error::Denied(why) if why.contains("Date")),
        "{error:?}"
    );
}
