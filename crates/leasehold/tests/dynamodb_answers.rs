//! How the store interprets DynamoDB's answers: refusals, failures, foreign tables, and the time.
#![cfg(feature = "dynamodb")]

mod dynamodb_support;
mod records;
mod refusals;

use std::net::TcpListener;
use std::time::Duration;

use dynamodb_support::{Script, scripted, table};
use leasehold::core::{Name, Time};
use leasehold::store::{self, Level, Swapped};
use leasehold::{Error, Result};
use records::{create, load_one, record};
use refusals::{assert_denied, assert_unavailable, level, open_error};

/// 1_700_000_000 seconds after 1970.
const DATE: &str = "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n";

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

/// Returns the result of one write.
async fn write(script: Script) -> Result<Swapped> {
    let store = store::open(&scripted(DATE, script)).await?;
    let swapped = store.swap(vec![create(&name("a"), record(1, ""))]).await?;
    Ok(swapped.value.into_iter().next().expect("one answer"))
}

#[tokio::test]
async fn missing_rights_are_reported_with_the_fix() {
    let no_right: Script = |operation| {
        let body = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"User: arn:aws:iam::1:user/app is not authorized to perform: dynamodb:DescribeTable"}"#;
        (operation == "describetable").then_some((400, body))
    };
    assert_denied(
        &open_error(&scripted(DATE, no_right)).await,
        "dynamodb:DescribeTable",
    );

    let no_such_user: Script = |_| {
        Some((
            400,
            r#"{"__type":"com.amazon.coral.service#UnrecognizedClientException","message":"The security token included in the request is invalid."}"#,
        ))
    };
    assert_denied(
        &open_error(&scripted(DATE, no_such_user)).await,
        "credentials",
    );

    let may_not_create: Script = |operation| {
        Some(match operation {
            "describetable" => (
                400,
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"Requested resource not found"}"#,
            ),
            _ => (
                400,
                r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}"#,
            ),
        })
    };
    assert_denied(
        &open_error(&scripted(DATE, may_not_create)).await,
        "dynamodb:CreateTable",
    );
}

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    let at = |endpoint: &str| format!("dynamodb://leasehold?region=us-east-1&endpoint={endpoint}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    assert_unavailable(
        &open_error(&at(&format!("http://{address}"))).await,
        "`endpoint`",
    );
    // A server without TLS closes the connection. One that does not answer leads to the same error.
    assert_unavailable(
        &open_error(&at(&format!("https://{address}"))).await,
        "`endpoint`",
    );
    drop(silent);
    assert_unavailable(
        &open_error(&at(&format!("http://{address}"))).await,
        "cannot connect",
    );
    let plain = scripted(DATE, |_| None).replace("http://", "https://");
    assert_unavailable(&open_error(&plain).await, "http or https");
    let encrypted = format!("127.0.0.1:{}", leasehold_testbed::tls_only());
    assert_unavailable(
        &open_error(&at(&format!("http://{encrypted}"))).await,
        "http or https",
    );
    assert_denied(
        &open_error(&at(&format!("https://{encrypted}"))).await,
        "SSL_CERT_FILE",
    );
}

#[tokio::test]
async fn unsafe_table_is_refused() {
    let eventual: Script = |operation| {
        let table = table!(r#","Replicas":[{"RegionName":"eu-west-1"}]"#);
        (operation == "describetable").then_some((200, table))
    };
    assert_denied(
        &open_error(&scripted(DATE, eventual)).await,
        "eventual consistency",
    );
    let strong: Script = |operation| {
        let table =
            table!(r#","Replicas":[{"RegionName":"eu-west-1"}],"MultiRegionConsistency":"STRONG""#);
        (operation == "describetable").then_some((200, table))
    };
    store::open(&scripted(DATE, strong))
        .await
        .expect("strong is safe");

    let foreign: Script = |operation| {
        let table = r#"{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}}"#;
        (operation == "describetable").then_some((200, table))
    };
    assert_denied(
        &open_error(&scripted(DATE, foreign)).await,
        "another program",
    );
    let without_indexes: Script = |operation| {
        let table = r#"{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}}"#;
        (operation == "describetable").then_some((200, table))
    };
    assert_denied(
        &open_error(&scripted(DATE, without_indexes)).await,
        "by_name",
    );
}

#[tokio::test]
async fn write_is_unavailable_only_if_it_certainly_failed() {
    let throttled = write(|operation| {
        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow down"}"#;
        (operation == "putitem").then_some((400, body))
    });
    let swapped = throttled.await.expect("it answers");
    assert!(
        matches!(swapped, Swapped::Failed(Error::Unavailable(_))),
        "{swapped:?}"
    );
    let broken = write(|operation| {
        let body =
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"oops"}"#;
        (operation == "putitem").then_some((500, body))
    });
    let swapped = broken.await.expect("it answers");
    assert!(
        matches!(swapped, Swapped::Failed(Error::Indeterminate(_))),
        "{swapped:?}"
    );
    for invalid in [
        write(|operation| (operation == "putitem").then_some((200, "<html>"))).await,
        write(|operation| (operation == "putitem").then_some((404, "<html>"))).await,
    ] {
        assert!(
            matches!(invalid, Ok(Swapped::Failed(Error::Indeterminate(_)))),
            "{invalid:?}"
        );
    }
}

#[tokio::test]
async fn time_is_read_from_the_answers() {
    let store = store::open(&scripted(DATE, |_| None))
        .await
        .expect("a valid table");
    let time = Time::from_micros(1_700_000_000_000_000);
    let stamps = [
        store.load(&[]).await.expect("it answers").stamp,
        store.load(&[name("a")]).await.expect("it answers").stamp,
        store
            .swap(vec![create(&name("a"), record(1, ""))])
            .await
            .expect("it answers")
            .stamp,
        store.swap(Vec::new()).await.expect("it answers").stamp,
    ];
    for stamp in stamps {
        assert_eq!(
            (stamp.time, stamp.resolution),
            (time, Duration::from_secs(1))
        );
    }
    assert_denied(&open_error(&scripted("", |_| None)).await, "`Date`");
}

#[tokio::test]
async fn refusal_contains_the_time() {
    let store = store::open(&scripted(DATE, |operation| {
        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no"}"#;
        (operation == "putitem").then_some((400, body))
    }))
    .await
    .expect("a valid table");
    let answer = store.swap(vec![create(&name("a"), record(1, ""))]).await;
    let answer = answer.expect("it answers");
    assert_eq!(answer.value, [Swapped::Conflict(None)]);
    assert_eq!(answer.stamp.time, Time::from_micros(1_700_000_000_000_000));
}

#[tokio::test]
async fn corrupt_item_is_reported() {
    let store = store::open(&scripted(DATE, |operation| {
        let body = r#"{"Item":{"id":{"S":"lock:a"},"kind":{"S":"lock"},"name":{"S":"a"},"write":{"S":"short"}}}"#;
        (operation == "getitem").then_some((200, body))
    }))
    .await
    .expect("a valid table");
    let error = store.load(&[name("a")]).await.expect_err("it is corrupt");
    assert!(
        matches!(&error, Error::Corrupt(why) if why.contains("`write`") && why.contains("`a`")),
        "{error:?}"
    );
}

#[tokio::test]
async fn unprocessed_keys_are_requested_again() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let store = store::open(&scripted(DATE, |operation| {
        let unprocessed = r#"{"Responses":{},"UnprocessedKeys":{"leasehold":{"ConsistentRead":true,"Keys":[{"id":{"S":"lock:a"}}]}}}"#;
        let all = r#"{"Responses":{"leasehold":[{"id":{"S":"lock:a"},"kind":{"S":"lock"},"name":{"S":"a"},"write":{"S":"00000000000000000000000000000007"},"fence":{"N":"9"},"holders":{"S":"[]"},"body":{"S":"here"}}]},"UnprocessedKeys":{}}"#;
        (operation == "batchgetitem").then(|| match REQUESTS.fetch_add(1, Ordering::SeqCst) {
            0 => (200, unprocessed),
            _ => (200, all),
        })
    }))
    .await
    .expect("a valid table");
    let loaded = store
        .load(&[name("b"), name("a")])
        .await
        .expect("it answers");
    let [None, Some(found)] = &loaded.value[..] else {
        panic!("{loaded:?}");
    };
    assert_eq!(&*found.record.body, "here");
    assert_eq!(REQUESTS.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn checks_find_unsafe_settings() {
    let unsafe_table: Script = |operation| {
        Some(match operation {
            "describetable" => (
                200,
                table!(
                    r#","ProvisionedThroughput":{"ReadCapacityUnits":5,"WriteCapacityUnits":5},"DeletionProtectionEnabled":false"#
                ),
            ),
            "describetimetolive" => (
                200,
                r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"expires"}}"#,
            ),
            _ => return None,
        })
    };
    let store = store::open(&scripted(DATE, unsafe_table))
        .await
        .expect("it opens");
    let checks = store.check().await.expect("it answers");
    assert_eq!(level(&checks, "time to live"), Level::Red);
    assert_eq!(level(&checks, "provisioned capacity"), Level::Yellow);
    assert_eq!(level(&checks, "deletion protection"), Level::Yellow);
    assert_eq!(level(&checks, "one region"), Level::Green);
    assert_eq!(load_one(&*store, &name("a")).await, None);
}
