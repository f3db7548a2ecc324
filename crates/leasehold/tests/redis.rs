//! Tests of Redis beyond the conformance suite: the readable form, replicas, and restarts.
#![cfg(feature = "redis")]

mod records;
mod redis_support;

use leasehold::core::Name;
use leasehold::store::Swapped;
use leasehold::{Error, Result};
use leasehold_testbed::Server;
use records::{create, record, swap_one};
use redis_support::run_command;

async fn acquire_and_update(url: &str, name: &str) -> Result<()> {
    let client = leasehold::connect(url).await?;
    let lease = client.lease(name).acquire().await?;
    lease.update("step 3").await?;
    std::mem::forget(lease);
    Ok(())
}

#[tokio::test]
async fn stored_records_are_readable() {
    let server = Server::start("redis").await.expect("installed");
    acquire_and_update(&server.url(), "nightly report")
        .await
        .expect("granted");
    let client = redis::Client::open(server.url()).expect("a valid URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("connects");
    let record: std::collections::BTreeMap<String, String> = redis::cmd("HGETALL")
        .arg("leasehold:lock:nightly report")
        .query_async(&mut connection)
        .await
        .expect("a hash");
    assert_eq!(record["body"], "step 3");
    assert!(
        record["record"].contains(&std::process::id().to_string()),
        "{record:?}"
    );
    let ttl: i64 = redis::cmd("TTL")
        .arg("leasehold:lock:nightly report")
        .query_async(&mut connection)
        .await
        .expect("a ttl");
    assert_eq!(ttl, -1, "records have no ttl");
}

#[tokio::test]
async fn write_can_wait_for_replicas() {
    let primary = Server::start("redis").await.expect("installed");
    let url = |timeout| format!("{}?wait=1&wait_timeout={timeout}", primary.url());
    let alone = leasehold::connect(&url("200ms")).await.err();
    assert!(matches!(alone, Some(Error::Unavailable(_))), "{alone:?}");
    let replica = Server::builder("redis")
        .arg("--replicaof")
        .arg(format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .expect("installed");
    // The replica acknowledges once it has loaded the first copy, which takes longer on a busy machine.
    let client = loop {
        match leasehold::connect(&url("3s")).await {
            Ok(client) => break client,
            Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    };
    let lease = client.lease("job").acquire().await.expect("granted");
    replica.kill().await;
    let unreplicated = lease.update("step 3").await;
    assert!(
        matches!(unreplicated, Err(Error::Indeterminate(_))),
        "{unreplicated:?}"
    );
}

#[tokio::test]
async fn write_succeeds_without_the_right_to_publish() {
    let server = Server::start("redis").await.expect("installed");
    let user = "app on >s3cret ~leasehold:* resetchannels +@all";
    run_command::<()>(&server, &format!("ACL SETUSER {user}")).await;
    let client = redis::Client::open(server.url()).expect("a valid URL");
    let mut subscriber = client.get_async_pubsub().await.expect("connects");
    let channel = "leasehold:changes";
    subscriber.subscribe(channel).await.expect("subscribed");

    let url = format!("redis://app:s3cret@127.0.0.1:{}", server.port());
    let store = leasehold::store::open(&url).await.expect("opens");
    let name = Name::lock("job").expect("a valid name");
    let written = swap_one(&*store, create(&name, record(1, ""))).await;
    assert!(matches!(written, Swapped::Written { .. }), "{written:?}");
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again() {
    let server = Server::start("redis").await.expect("installed");
    let client = leasehold::connect(&server.url()).await.expect("connects");
    let lease = client.lease("job").acquire().await.expect("granted");
    run_command::<()>(&server, "SCRIPT FLUSH").await;
    lease.update("step 3").await.expect("written");
    server.kill().await;
    server.restart().await;
    lease.update("step 4").await.expect("written");
    assert!(lease.release().await.expect("released"));
}
