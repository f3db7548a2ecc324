//! Valkey, whose `WAIT` counts only the connection's own writes, like that of Redis since 7.2.
#![cfg(feature = "redis")]

mod records;
mod redis_support;
#[path = "redis_support/replicas.rs"]
mod replicas;

use std::time::Duration;

use leasehold_testbed::Server;

#[tokio::test]
async fn unreplicated_write_is_never_confirmed() {
    replicas::unreplicated_write_is_never_confirmed("valkey").await;
}

#[tokio::test]
async fn lease_is_acquired_updated_and_released() {
    let server = Server::start("valkey").await.expect("installed");
    let client = leasehold::connect(&server.url()).await.expect("connects");
    let lease = client.lease("job").ttl(Duration::from_secs(30));
    let lease = lease.acquire().await.expect("granted");
    lease.update("step 3").await.expect("written");
    assert!(lease.release().await.expect("released"));
}
