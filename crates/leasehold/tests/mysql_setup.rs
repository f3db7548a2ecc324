//! Configuring MariaDB for leases, and every configuration error.
#![cfg(feature = "mysql")]

mod mysql_support;
mod refusals;

use leasehold::store::{self, Level};
use leasehold_testbed::Server;
use mysql_support::*;
use refusals::{assert_denied, level, open_error, unreachable_hosts_are_reported};

#[tokio::test]
async fn missing_rights_are_reported_with_the_fix() {
    let fixture = Fixture::new().await;
    let database = &fixture.database;
    let port = leasehold_testbed::shared("mysql").await.unwrap().port();
    let user = format!("u{}", &database[1..9]);
    fixture
        .sql(&format!("create user {user}@'%' identified by 's3cret'"))
        .await;
    let at = |user: &str, rest: &str| format!("mysql://{user}@127.0.0.1:{port}/{rest}");
    let app = format!("{user}:s3cret");
    assert_denied(
        &open_error(&at(&format!("{user}:s3cret-not"), database)).await,
        "password",
    );
    assert_denied(&open_error(&at(&app, database)).await, "password");
    fixture
        .sql(&format!("grant select on {database}.* to {user}@'%'"))
        .await;
    assert_denied(&open_error(&at(&app, database)).await, "leasehold init");
    assert_denied(&open_error(&at("root", "elsewhere")).await, "database");

    let admin = fixture.open().await;
    let store = store::open(&at(&app, database)).await.unwrap();
    let write = create(&name("a"), record(1, ""));
    assert_denied(&store.swap(vec![write.clone()]).await.unwrap_err(), "grant");
    fixture
        .sql(&format!(
            "grant insert, update, delete on {database}.leasehold_records to {user}@'%'"
        ))
        .await;
    let store = store::open(&at(&app, database)).await.unwrap();
    assert_eq!(swap_one(&*store, write).await, WRITTEN);
    fixture.sql("drop table leasehold_records").await;
    assert_denied(&admin.load(&[]).await.unwrap_err(), "leasehold init");
}

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    unreachable_hosts_are_reported(|address| format!("mysql://a:s3cret@{address}/d")).await;
}

#[tokio::test]
async fn tls_checks_follow_ssl_mode() {
    let server = Server::builder("mysql").tls().start().await.unwrap();
    let at = |host: &str, options: &str| {
        let port = server.port();
        format!("mysql://root@{host}:{port}/leasehold?{options}")
    };
    let ours = format!("ssl-ca={}", server.folder().join("ca.pem").display());
    for options in [
        "ssl-mode=required",
        &format!("ssl-mode=verify_ca&{ours}"),
        &format!("ssl-mode=verify_identity&{ours}"),
    ] {
        let store = store::open(&at("localhost", options)).await;
        store.unwrap_or_else(|error| panic!("{options}: {error}"));
    }
    for options in [
        "",
        "ssl-mode=disabled",
        "ssl-mode=verify_ca",
        "ssl-mode=verify_identity",
    ] {
        assert_denied(&open_error(&at("127.0.0.1", options)).await, "ssl-");
    }
    let missing = at("localhost", "ssl-mode=verify_ca&ssl-ca=/nowhere");
    assert_denied(&open_error(&missing).await, "/nowhere");
    let plain = Fixture::new().await;
    let required = format!("{}?ssl-mode=required", plain.url);
    assert_denied(&open_error(&required).await, "ssl-mode");
}

#[tokio::test]
async fn replicas_and_settings_that_lose_writes_are_found() {
    let server = Server::builder("mysql")
        .arg("--innodb-flush-log-at-trx-commit=2")
        .arg("--log-bin")
        .arg("--sync-binlog=0")
        .start()
        .await
        .unwrap();
    let fixture = Fixture::on(server.port(), server.port()).await;
    let store = fixture.open().await;
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "innodb_flush_log_at_trx_commit"), Level::Red);
    assert_eq!(level(&checks, "sync_binlog"), Level::Yellow);
    fixture.sql("set global read_only = 1").await;
    assert_denied(&store.load(&[]).await.unwrap_err(), "primary");
    assert_denied(&open_error(&fixture.url).await, "primary");
    let healthy = Fixture::new().await.open().await.check().await.unwrap();
    assert!(
        healthy.iter().all(|check| check.level == Level::Green),
        "{healthy:?}"
    );
}
