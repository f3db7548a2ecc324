//! Setting MariaDB up for leases, and every way of having it set up wrongly.
#![cfg(feature = "mysql")]

mod mysql_support;
mod refusals;

use leasehold::store::{self, Level};
use leasehold_testbed::Server;
use mysql_support::*;
use refusals::{denied, level, nobody_is_there, refused};

#[tokio::test]
async fn who_is_not_let_in_is_told_what_to_do() {
    let ground = Ground::new().await;
    let database = &ground.database;
    let port = leasehold_testbed::shared("mysql").await.unwrap().port();
    let user = format!("u{}", &database[1..9]);
    ground
        .sql(&format!("create user {user}@'%' identified by 's3cret'"))
        .await;
    let at = |who: &str, rest: &str| format!("mysql://{who}@127.0.0.1:{port}/{rest}");
    let app = format!("{user}:s3cret");
    denied(
        &refused(&at(&format!("{user}:s3cret-not"), database)).await,
        "password",
    );
    denied(&refused(&at(&app, database)).await, "password");
    ground
        .sql(&format!("grant select on {database}.* to {user}@'%'"))
        .await;
    denied(&refused(&at(&app, database)).await, "leasehold init");
    denied(&refused(&at("root", "elsewhere")).await, "database");

    let admin = ground.open().await;
    let store = store::open(&at(&app, database)).await.unwrap();
    let write = create(&name("a"), record(1, ""));
    denied(&store.swap(vec![write.clone()]).await.unwrap_err(), "grant");
    ground
        .sql(&format!(
            "grant insert, update, delete on {database}.leasehold_records to {user}@'%'"
        ))
        .await;
    let store = store::open(&at(&app, database)).await.unwrap();
    assert_eq!(swap_one(&*store, write).await, WRITTEN);
    ground.sql("drop table leasehold_records").await;
    denied(&admin.load(&[]).await.unwrap_err(), "leasehold init");
}

#[tokio::test]
async fn who_cannot_be_reached_is_an_error_in_time() {
    nobody_is_there(|place| format!("mysql://a:s3cret@{place}/d")).await;
}

#[tokio::test]
async fn tls_is_as_strict_as_ssl_mode_says() {
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
        denied(&refused(&at("127.0.0.1", options)).await, "ssl-");
    }
    let missing = at("localhost", "ssl-mode=verify_ca&ssl-ca=/nowhere");
    denied(&refused(&missing).await, "/nowhere");
    let plain = Ground::new().await;
    let required = format!("{}?ssl-mode=required", plain.url);
    denied(&refused(&required).await, "ssl-mode");
}

#[tokio::test]
async fn a_replica_and_a_forgetful_server_are_found_out() {
    let server = Server::builder("mysql")
        .arg("--innodb-flush-log-at-trx-commit=2")
        .arg("--log-bin")
        .arg("--sync-binlog=0")
        .start()
        .await
        .unwrap();
    let ground = Ground::on(server.port(), server.port()).await;
    let store = ground.open().await;
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "innodb_flush_log_at_trx_commit"), Level::Red);
    assert_eq!(level(&checks, "sync_binlog"), Level::Yellow);
    ground.sql("set global read_only = 1").await;
    denied(&store.load(&[]).await.unwrap_err(), "primary");
    denied(&refused(&ground.url).await, "primary");
    let healthy = Ground::new().await.open().await.check().await.unwrap();
    assert!(
        healthy.iter().all(|check| check.level == Level::Green),
        "{healthy:?}"
    );
}
