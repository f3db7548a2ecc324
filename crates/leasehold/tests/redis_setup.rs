//! Configuration errors of Redis, and their messages.
#![cfg(feature = "redis")]

mod redis_support;
mod refusals;

use leasehold::store::{self, Level};
use leasehold_testbed::Server;
use redis_support::run_command;
use refusals::{
    assert_denied, assert_unavailable, level, open_error, unreachable_hosts_are_reported,
};

#[tokio::test]
async fn missing_rights_are_reported_with_the_fix() {
    let server = Server::start("redis").await.unwrap();
    let at = |user: &str, rest: &str| format!("redis://{user}127.0.0.1:{}{rest}", server.port());
    assert_denied(&open_error(&at("", "/99")).await, "another database");
    for user in [
        "poor on >s3cret ~* +@connection",
        "app on >s3cret ~leasehold:* &leasehold:* +@hash +@sortedset +@scripting +@pubsub +@connection +del +time +info +wait",
    ] {
        run_command::<()>(&server, &format!("ACL SETUSER {user}")).await;
    }
    assert_denied(&open_error(&at("poor:s3cret@", "")).await, "ACL SETUSER");
    assert_denied(
        &open_error(&at("app:s3cret-not@", "")).await,
        "user or password",
    );
    assert_denied(
        &open_error(&at("unknown:s3cret@", "")).await,
        "user or password",
    );
    // The documented rights suffice.
    let client = leasehold::connect(&at("app:s3cret@", "")).await.unwrap();
    let lease = client.lease("job").acquire().await.unwrap();
    lease.update("step 3").await.unwrap();
    assert!(lease.release().await.unwrap());
    run_command::<()>(&server, "CONFIG SET requirepass s3cret").await;
    assert_denied(&open_error(&at("", "")).await, "user or password");
    assert_denied(
        &open_error(&at(":s3cret-not@", "")).await,
        "user or password",
    );
    store::open(&at(":s3cret@", "")).await.unwrap();
}

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    unreachable_hosts_are_reported(|address| format!("redis://:s3cret@{address}")).await;
    unreachable_hosts_are_reported(|address| format!("rediss://:s3cret@{address}")).await;
}

#[tokio::test]
async fn tls_requires_a_trusted_certificate() {
    let server = Server::builder("redis").tls().start().await.unwrap();
    let (port, folder) = (server.port(), server.folder().display());
    let at = |scheme: &str, options: &str| format!("{scheme}://:s3cret@localhost:{port}{options}");
    let trusted = format!("rediss://localhost:{port}?ca={folder}/ca.pem");
    for options in ["", &format!("&cert={folder}/cert.pem&key={folder}/key.pem")] {
        let client = leasehold::connect(&format!("{trusted}{options}"))
            .await
            .unwrap();
        let lease = client.lease("job").acquire().await.unwrap();
        assert!(lease.release().await.unwrap());
    }
    assert_denied(&open_error(&at("rediss", "")).await, "`ca`");
    assert_denied(&open_error(&at("rediss", "?ca=/nowhere")).await, "/nowhere");
    assert_unavailable(&open_error(&at("redis", "")).await, "`rediss://`");

    // A server without TLS, which may wait for more input.
    let plain = Server::start("redis").await.unwrap();
    let url = format!("rediss://:s3cret@localhost:{}", plain.port());
    let mismatch = open_error(&url).await.to_string();
    assert!(mismatch.contains("`redis://`"), "{mismatch}");
}

#[tokio::test]
async fn self_signed_certificate_is_trusted_if_named() {
    let server = Server::builder("redis")
        .self_signed()
        .start()
        .await
        .unwrap();
    let other = Server::builder("redis").tls().start().await.unwrap();
    let ca = |server: &Server| server.folder().join("ca.pem").display().to_string();
    let at = |ca: &str| format!("rediss://localhost:{}?ca={ca}", server.port());
    let client = leasehold::connect(&at(&ca(&server))).await.unwrap();
    let lease = client.lease("job").acquire().await.unwrap();
    assert!(lease.release().await.unwrap());
    assert_denied(&open_error(&at(&ca(&other))).await, "`ca`");
}

#[tokio::test]
async fn replica_is_refused() {
    let primary = Server::start("redis").await.unwrap();
    let replica = Server::builder("redis")
        .arg("--replicaof")
        .arg(format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .unwrap();
    assert_denied(&open_error(&replica.url()).await, "primary");
}

#[tokio::test]
async fn checks_find_unsafe_settings() {
    let server = Server::start("redis").await.unwrap();
    let store = store::open(&server.url()).await.unwrap();
    let checks = store.check().await.unwrap();
    let is_green = checks.iter().all(|check| check.level == Level::Green);
    assert!(is_green, "{checks:?}");
    for (setting, word, expected) in [
        ("maxmemory-policy allkeys-lru", "evicted", Level::Red),
        ("maxmemory-policy volatile-lru", "evicted", Level::Green),
        ("appendfsync everysec", "crash", Level::Yellow),
        ("appendonly no", "persisted", Level::Red),
    ] {
        run_command::<()>(&server, &format!("CONFIG SET {setting}")).await;
        let checks = store.check().await.unwrap();
        assert_eq!(level(&checks, word), expected, "{setting}");
    }
    let _replica = Server::builder("redis")
        .arg("--replicaof")
        .arg(format!("127.0.0.1 {}", server.port()))
        .start()
        .await
        .unwrap();
    while !run_command::<String>(&server, "INFO replication")
        .await
        .contains("state=online")
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "asynchronously"), Level::Yellow);
}
