//! Configuration errors of containers, concurrent setup, and access rights.
#![cfg(feature = "azblob")]

mod azblob_support;
mod records;
mod refusals;

use azblob_support::{container_url, names, sas, sas_option, with_credential};
use leasehold::core::{Kind, Name};
use leasehold::store::{self, Level, Query, Swapped};
use records::{create, load_one, record, replace, swap_one};
use refusals::{assert_denied, open_error, unreachable_hosts_are_reported};

/// A valid key, but of another account.
const WRONG_KEY: &str = "s3cretkey000";

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_create_the_container_once() {
    let (url, _) = container_url("many").await;
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { store::open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.expect("no panic").expect("it opens");
    }
    let store = store::open(&url).await.expect("it opens");
    store.init().await.expect("it is idempotent");
    let checks = store.check().await.expect("it answers");
    assert!(checks.len() >= 4, "{checks:?}");
    assert!(
        checks.iter().all(|check| check.level < Level::Red),
        "{checks:?}"
    );
}

#[tokio::test]
async fn wrong_key_or_signature_is_reported() {
    let (url, _) = container_url("guarded").await;
    assert_denied(
        &open_error(&with_credential(&url, &format!("key={WRONG_KEY}"))).await,
        "key",
    );
    let forged = sas_option(&format!(
        "sv=2020-12-06&sr=c&sp=r&se=2099-01-01&sig={WRONG_KEY}"
    ));
    assert_denied(
        &open_error(&with_credential(&url, &forged)).await,
        "signature",
    );
}

#[tokio::test]
async fn signature_suffices_and_missing_rights_are_reported() {
    let (url, _) = container_url("signed").await;
    let signed = |rights| with_credential(&url, &sas_option(&sas(&url, "signed", rights)));
    // The signature is for a container, and cannot create one.
    assert_denied(
        &open_error(&signed("racwdl")).await,
        "az storage container create",
    );
    store::open(&url).await.expect("a key may make it");
    let store = store::open(&signed("racwdl")).await.expect("it opens");
    swap_one(&*store, create(&name("a"), record(1, "x"))).await;
    assert_eq!(names(&*store, &Query::all(Kind::Lock)).await, ["a"]);
    let current = load_one(&*store, &name("a"))
        .await
        .expect("the record exists");

    let reader = store::open(&signed("rl")).await.expect("it opens");
    let swapped = swap_one(&*reader, replace(&name("a"), &current, record(2, ""))).await;
    match swapped {
        Swapped::Failed(error) => assert_denied(&error, "racwdl"),
        other => panic!("{other:?}"),
    }
    assert_eq!(load_one(&*store, &name("a")).await, Some(current));
    assert_denied(&open_error(&signed("l")).await, "racwdl");
    let blind = store::open(&signed("r")).await.expect("it opens");
    let found = blind.find(&Query::all(Kind::Lock)).await;
    assert_denied(&found.expect_err("it may not list"), "racwdl");
    assert_denied(&blind.check().await.expect_err("nor here"), "racwdl");
}

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    unreachable_hosts_are_reported(|address| {
        format!("azblob://acme/leases?endpoint=http://{address}/acme&key={WRONG_KEY}")
    })
    .await;
}
