//! Setting PostgreSQL up for leases, and every way of having it set up wrongly.
#![cfg(feature = "postgres")]

mod postgres_support;
mod refusals;

use std::os::unix::fs::PermissionsExt as _;

use leasehold::store::{self, Level};
use leasehold_testbed::{Builder, Server};
use postgres_support::*;
use refusals::{denied, level, nobody_is_there, refused};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_can_set_it_up_at_once() {
    let ground = Ground::new().await;
    let opening = (0..8).map(|_| {
        let url = ground.url.clone();
        tokio::spawn(async move { store::open(&url).await.map(drop) })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
}

/// A server that lets in whom these rules say.
fn with_rules(server: Builder, folder: &TempDir, rules: &str) -> Builder {
    let file = folder.path().join("hba.conf");
    std::fs::write(&file, rules).unwrap();
    // It runs as another user than the test.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    server.arg("-c").arg(format!("hba_file={}", file.display()))
}

#[tokio::test]
async fn who_is_not_let_in_is_told_what_to_do() {
    let folder = TempDir::new().unwrap();
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let server = with_rules(Server::builder("postgres"), &folder, rules);
    let server = server.start().await.unwrap();
    let port = server.port();
    let admin = session(&server.url()).await;
    let roles = "create role app login password 's3cret'; create role poor login password 's3cret'";
    admin.batch_execute(roles).await.unwrap();
    let at = |user: &str, rest: &str| format!("postgres://{user}@127.0.0.1:{port}/{rest}");

    let wrong = refused(&at("app:s3cret-not", "leasehold")).await;
    denied(&wrong, "password");
    denied(&refused(&at("app", "leasehold")).await, "PGPASSWORD");
    denied(
        &refused(&at("nobody:s3cret", "leasehold")).await,
        "password",
    );
    denied(&refused(&at("app:s3cret", "elsewhere")).await, "database");
    // PostgreSQL 15 lets nobody create tables in `public`.
    denied(
        &refused(&at("app:s3cret", "leasehold")).await,
        "leasehold init",
    );
    denied(
        &refused(&at("app:s3cret", "leasehold?schema=ops")).await,
        "leasehold init",
    );
    let read_only = "leasehold?options=-c%20default_transaction_read_only%3Don";
    denied(&refused(&at("postgres", read_only)).await, "primary");

    // What the administrator sets up, and grants, is all that an application needs.
    store::open(&at("postgres", "leasehold")).await.unwrap();
    denied(
        &refused(&at("poor:s3cret", "leasehold")).await,
        "grant select, insert",
    );
    let grant = "grant select, insert, update, delete on leasehold_records to app";
    admin.batch_execute(grant).await.unwrap();
    let store = store::open(&at("app:s3cret", "leasehold")).await.unwrap();
    swap_one(&*store, create(&name("a"), record(1, ""))).await;
    let revoke = "revoke update on leasehold_records from app";
    admin.batch_execute(revoke).await.unwrap();
    let current = load_one(&*store, &name("a")).await.unwrap();
    let write = replace(&name("a"), &current, record(2, ""));
    denied(&store.swap(vec![write]).await.unwrap_err(), "grant");
    admin
        .batch_execute("drop table leasehold_records cascade")
        .await
        .unwrap();
    denied(&store.load(&[]).await.unwrap_err(), "leasehold init");
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_name_is_refused() {
    let ground = Ground::new().await;
    let database = format!("latin{:x}", std::process::id());
    let create =
        format!("create database {database} encoding 'LATIN1' locale 'C' template template0");
    ground.session().await.batch_execute(&create).await.unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", ground.port);
    denied(&refused(&url).await, "UTF8");
}

#[tokio::test]
async fn who_cannot_be_reached_is_an_error_in_time() {
    nobody_is_there(|place| format!("postgres://app:s3cret@{place}/leasehold")).await;
}

#[tokio::test]
async fn tls_is_as_strict_as_sslmode_says() {
    let folder = TempDir::new().unwrap();
    let rules = "host all postgres 127.0.0.1/32 trust\nhostssl all all 127.0.0.1/32 trust\n";
    let server = with_rules(Server::builder("postgres").tls(), &folder, rules);
    let server = server.start().await.unwrap();
    let at = |user: &str, host: &str, options: &str| {
        let port = server.port();
        format!("postgresql://{user}:s3cret@{host}:{port}/leasehold?{options}")
    };
    let pem = |name: &str| {
        let file = server.folder().join(name);
        format!("sslrootcert={}", file.display())
    };
    // The server's own certificate may be trusted as it is, and then for the hosts that it names.
    let (authority, own) = (pem("ca.pem"), pem("cert.pem"));
    for options in [
        "",
        "sslmode=require",
        &format!("sslmode=verify-ca&{authority}"),
        &format!("sslmode=verify-full&{authority}"),
        &format!("sslmode=verify-full&{own}"),
    ] {
        let store = store::open(&at("postgres", "localhost", options)).await;
        store.unwrap_or_else(|error| panic!("{options}: {error}"));
    }
    for options in ["sslmode=verify-ca", "sslmode=verify-full"] {
        denied(
            &refused(&at("postgres", "localhost", options)).await,
            "sslrootcert",
        );
    }
    let missing = at(
        "postgres",
        "localhost",
        "sslmode=verify-ca&sslrootcert=/nowhere",
    );
    denied(&refused(&missing).await, "/nowhere");
    let strict = at("app", "127.0.0.1", "sslmode=disable");
    denied(&refused(&strict).await, "sslmode=require");

    // A server without TLS.
    let plain = Ground::new().await;
    let required = format!("{}&sslmode=require", plain.url);
    denied(&refused(&required).await, "sslmode");
}

#[tokio::test]
async fn a_standby_is_refused_also_by_who_was_there_before() {
    let server = Server::start("postgres").await.unwrap();
    let store = store::open(&server.url()).await.unwrap();
    server.stop().await;
    let signal = server.folder().join("data/standby.signal");
    std::fs::write(signal, "").unwrap();
    server.restart().await;
    denied(&refused(&server.url()).await, "primary");
    denied(&store.load(&[]).await.unwrap_err(), "primary");
}

#[tokio::test]
async fn a_checkup_finds_what_makes_leases_forgetful() {
    let server = Server::builder("postgres")
        .arg("-c")
        .arg("fsync=off")
        .start()
        .await
        .unwrap();
    let options = "&options=-c%20synchronous_commit%3Doff";
    let ground = Ground::on(server.port());
    let store = ground.open_with(options).await;
    ground
        .sql(&format!(
            "drop index {}.leasehold_by_state",
            ground.table.split_once('.').unwrap().0
        ))
        .await;
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "fsync"), Level::Red);
    assert_eq!(level(&checks, "synchronous_commit"), Level::Red);
    assert_eq!(level(&checks, "full_page_writes"), Level::Green);
    assert_eq!(level(&checks, "index"), Level::Yellow);
    let healthy = Ground::new().await.open().await.check().await.unwrap();
    assert!(
        healthy.iter().all(|check| check.level == Level::Green),
        "{healthy:?}"
    );
}
