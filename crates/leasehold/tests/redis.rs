//! What the conformance suite cannot know of Redis: how it is reached, what it refuses, what it shows to people.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::store::{self, Level};
use leasehold::{Error, Result};
use leasehold_testbed::Server;

async fn refusal(url: &str) -> Error {
    match store::open(url).await {
        Err(error) => error,
        Ok(_) => panic!("opened"),
    }
}

async fn take(url: &str, name: &str) -> Result<()> {
    let client = leasehold::connect(url).await?;
    let lease = client.lease(name).acquire().await?;
    lease.update("step 3").await?;
    std::mem::forget(lease);
    Ok(())
}

async fn ask<T: redis::FromRedisValue>(server: &Server, command: &str) -> T {
    let client = redis::Client::open(server.url()).expect("a good URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("it is there");
    let mut words = command.split(' ');
    let mut asked = redis::cmd(words.next().expect("a command"));
    for word in words {
        asked.arg(word);
    }
    asked.query_async(&mut connection).await.expect("an answer")
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
        record["owner"].contains(&std::process::id().to_string()),
        "{record:?}"
    );
    assert!(record["expires"].starts_with("20"), "{record:?}");
    let ttl: i64 = redis::cmd("TTL")
        .arg("leasehold:lock:nightly report")
        .query_async(&mut connection)
        .await
        .expect("a ttl");
    assert_eq!(ttl, -1, "records have no ttl");
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_said_without_its_secrets() {
    let unknown = refusal("redis://:secret@127.0.0.1:1?colour=red").await;
    assert!(
        matches!(&unknown, Error::Invalid(why) if why.to_string().contains("`prefix`")),
        "{unknown}"
    );
    let nobody = refusal("redis://:secret@127.0.0.1:1").await;
    assert!(matches!(nobody, Error::Unavailable(_)), "{nobody}");
    let server = Server::builder("redis")
        .arg("--requirepass")
        .arg("right")
        .start()
        .await
        .expect("installed");
    for wrong in ["", ":secret@"] {
        let url = server
            .url()
            .replace("redis://", &format!("redis://{wrong}"));
        let denied = refusal(&url).await;
        assert!(matches!(denied, Error::Denied(_)), "{denied}");
        assert!(!denied.to_string().contains("secret"), "{denied}");
    }
    take(&server.url().replace("redis://", "redis://:right@"), "job")
        .await
        .expect("granted");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = Server::start("redis").await.expect("installed");
    let replica = Server::builder("redis")
        .arg("--replicaof")
        .arg(format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .expect("installed");
    let denied = refusal(&replica.url()).await;
    assert!(
        matches!(&denied, Error::Denied(why) if why.contains("primary")),
        "{denied}"
    );
}

#[tokio::test]
async fn a_write_can_wait_for_replicas() {
    let primary = Server::start("redis").await.expect("installed");
    let url = format!("{}?wait=1&wait_timeout=200ms", primary.url());
    let lonely = leasehold::connect(&url).await.err();
    assert!(matches!(lonely, Some(Error::Unavailable(_))), "{lonely:?}");
    let replica = Server::builder("redis")
        .arg("--replicaof")
        .arg(format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .expect("installed");
    while !ask::<String>(&primary, "INFO replication")
        .await
        .contains("state=online")
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let client = leasehold::connect(&url).await.expect("connects");
    let lease = client.lease("job").acquire().await.expect("granted");
    replica.kill().await;
    let unsure = lease.update("step 3").await;
    assert!(matches!(unsure, Err(Error::Indeterminate(_))), "{unsure:?}");
}

#[tokio::test]
async fn the_doctor_sees_what_is_unsafe() {
    let server = Server::start("redis").await.expect("installed");
    let store = store::open(&server.url()).await.expect("opens");
    let levels = async || -> Vec<Level> {
        store
            .check()
            .await
            .expect("an answer")
            .iter()
            .map(|check| check.level)
            .collect()
    };
    assert!(
        levels().await.iter().all(|level| *level == Level::Green),
        "{:?}",
        store.check().await
    );
    ask::<()>(&server, "CONFIG SET maxmemory-policy allkeys-lru").await;
    assert!(levels().await.contains(&Level::Red));
    ask::<()>(&server, "CONFIG SET maxmemory-policy noeviction").await;
    ask::<()>(&server, "CONFIG SET appendfsync everysec").await;
    assert!(levels().await.contains(&Level::Yellow));
    ask::<()>(&server, "CONFIG SET appendonly no").await;
    assert!(levels().await.contains(&Level::Red));
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
