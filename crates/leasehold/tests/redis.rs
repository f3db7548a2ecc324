//! What the conformance suite cannot know of Redis: what it shows to people, what replicas have, what a restart forgets.
#![cfg(feature = "redis")]

mod records;
mod redis_support;

use leasehold::core::Name;
use leasehold::store::Swapped;
use leasehold::{Error, Result};
use leasehold_testbed::Server;
use records::{create, record, swap_one};
use redis_support::ask;

async fn take(url: &str, name: &str) -> Result<()> {
    let client = leasehold::connect(url).await?;
    let lease = client.lease(name).acquire().await?;
    lease.update("step 3").await?;
    std::mem::forget(lease);
    Ok(())
}

#[tokio::test]
async fn people_can_read_what_is_stored() {
    let server = Server::start("redis").await.expect("installed");
    take(&server.url(), "nightly report")
        .await
        .expect("granted");
    let client = redis::Client::open(server.url()).expect("a good URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("it is there");
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
async fn a_write_can_wait_for_replicas() {
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
    // The replica acknowledges once it has loaded the first copy, which takes as long as the machine is busy.
    let client = loop {
        match leasehold::connect(&url("3s")).await {
            Ok(client) => break client,
            Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    };
    let lease = client.lease("job").acquire().await.expect("granted");
    replica.kill().await;
    let unsure = lease.update("step 3").await;
    assert!(matches!(unsure, Err(Error::Indeterminate(_))), "{unsure:?}");
}

#[tokio::test]
async fn write_counts_although_its_hint_may_not_be_published() {
    let server = Server::start("redis").await.expect("installed");
    let user = "app on >s3cret ~leasehold:* resetchannels +@all";
    ask::<()>(&server, &format!("ACL SETUSER {user}")).await;
    let client = redis::Client::open(server.url()).expect("a good URL");
    let mut subscriber = client.get_async_pubsub().await.expect("it is there");
    let channel = "leasehold:changes";
    subscriber.subscribe(channel).await.expect("subscribed");

    let url = format!("redis://app:s3cret@127.0.0.1:{}", server.port());
    let store = leasehold::store::open(&url).await.expect("opens");
    let name = Name::lock("job").expect("a good name");
    let written = swap_one(&*store, create(&name, record(1, ""))).await;
    assert!(matches!(written, Swapped::Written { .. }), "{written:?}");
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_gets_them_again() {
    let server = Server::start("redis").await.expect("installed");
    let client = leasehold::connect(&server.url()).await.expect("connects");
    let lease = client.lease("job").acquire().await.expect("granted");
    ask::<()>(&server, "SCRIPT FLUSH").await;
    lease.update("step 3").await.expect("written");
    server.kill().await;
    server.restart().await;
    lease.update("step 4").await.expect("written");
    assert!(lease.release().await.expect("released"));
}
