//! Configuring PostgreSQL for leases, and every configuration error.
#![cfg(feature = "postgres")]

mod postgres_support;
mod refusals;

use std::os::unix::fs::PermissionsExt as _;

use leasehold::store::{self, Level};
use leasehold_testbed::{Builder, Server};
use postgres_support::*;
use refusals::{assert_denied, level, open_error, unreachable_hosts_are_reported};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_create_the_table_once() {
    let fixture = Fixture::new().await;
    let opening = (0..8).map(|_| {
        let url = fixture.url.clone();
        tokio::spawn(async move { store::open(&url).await.map(drop) })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
}

/// Configures a server with these access rules.
fn with_rules(server: Builder, folder: &TempDir, rules: &str) -> Builder {
    let file = folder.path().join("hba.conf");
    std::fs::write(&file, rules).unwrap();
    // The server runs as another user than the test.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    server.arg("-c").arg(format!("hba_file={}", file.display()))
}

#[tokio::test]
async fn missing_rights_are_reported_with_the_fix() {
    let folder = TempDir::new().unwrap();
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let server = with_rules(Server::builder("postgres"), &folder, rules);
    let server = server.start().await.unwrap();
    let port = server.port();
    let admin = session(&server.url()).await;
    let roles = "create role app login password 's3cret'; create role poor login password 's3cret'";
    admin.batch_execute(roles).await.unwrap();
    let at = |user: &str, rest: &str| format!("postgres://{user}@127.0.0.1:{port}/{rest}");

    let wrong = open_error(&at("app:s3cret-not", "leasehold")).await;
    assert_denied(&wrong, "password");
    assert_denied(&open_error(&at("app", "leasehold")).await, "PGPASSWORD");
    assert_denied(
        &open_error(&at("unknown:s3cret", "leasehold")).await,
        "password",
    );
    assert_denied(
        &open_error(&at("app:s3cret", "elsewhere")).await,
        "database",
    );
    // PostgreSQL 15 denies creating tables in `public`.
    assert_denied(
        &open_error(&at("app:s3cret", "leasehold")).await,
        "leasehold init",
    );
    assert_denied(
        &open_error(&at("app:s3cret", "leasehold?schema=ops")).await,
        "leasehold init",
    );
    let read_only = "leasehold?options=-c%20default_transaction_read_only%3Don";
    assert_denied(&open_error(&at("postgres", read_only)).await, "primary");

    // The administrator's setup and grants are all that an application needs.
    store::open(&at("postgres", "leasehold")).await.unwrap();
    assert_denied(
        &open_error(&at("poor:s3cret", "leasehold")).await,
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
    assert_denied(&store.swap(vec![write]).await.unwrap_err(), "grant");
    admin
        .batch_execute("drop table leasehold_records cascade")
        .await
        .unwrap();
    assert_denied(&store.load(&[]).await.unwrap_err(), "leasehold init");
}

#[tokio::test]
async fn database_with_another_encoding_is_refused() {
    let fixture = Fixture::new().await;
    let database = format!("latin{:x}", std::process::id());
    let create =
        format!("create database {database} encoding 'LATIN1' locale 'C' template template0");
    fixture
        .session()
        .await
        .batch_execute(&create)
        .await
        .unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", fixture.port);
    assert_denied(&open_error(&url).await, "UTF8");
}

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    unreachable_hosts_are_reported(|address| format!("postgres://app:s3cret@{address}/leasehold"))
        .await;
}

#[tokio::test]
async fn tls_checks_follow_sslmode() {
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
    // The server's own certificate may be trusted directly, for the hosts that it names.
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
        assert_denied(
            &open_error(&at("postgres", "localhost", options)).await,
            "sslrootcert",
        );
    }
    let missing = at(
        "postgres",
        "localhost",
        "sslmode=verify-ca&sslrootcert=/nowhere",
    );
    assert_denied(&open_error(&missing).await, "/nowhere");
    let strict = at("app", "127.0.0.1", "sslmode=disable");
    assert_denied(&open_error(&strict).await, "sslmode=require");

    // A server without TLS.
    let plain = Fixture::new().await;
    let required = format!("{}&sslmode=require", plain.url);
    assert_denied(&open_error(&required).await, "sslmode");
}

#[tokio::test]
async fn standby_is_refused_even_by_an_open_store() {
    let server = Server::start("postgres").await.unwrap();
    let store = store::open(&server.url()).await.unwrap();
    server.stop().await;
    let signal = server.folder().join("data/standby.signal");
    std::fs::write(signal, "").unwrap();
    server.restart().await;
    assert_denied(&open_error(&server.url()).await, "primary");
    assert_denied(&store.load(&[]).await.unwrap_err(), "primary");
}

#[tokio::test]
async fn checks_find_settings_that_lose_writes() {
    let server = Server::builder("postgres")
        .arg("-c")
        .arg("fsync=off")
        .start()
        .await
        .unwrap();
    let options = "&options=-c%20synchronous_commit%3Doff";
    let fixture = Fixture::on(server.port());
    let store = fixture.open_with(options).await;
    fixture
        .sql(&format!(
            "drop index {}.leasehold_by_state",
            fixture.table.split_once('.').unwrap().0
        ))
        .await;
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "fsync"), Level::Red);
    assert_eq!(level(&checks, "synchronous_commit"), Level::Red);
    assert_eq!(level(&checks, "full_page_writes"), Level::Green);
    assert_eq!(level(&checks, "index"), Level::Yellow);
    let healthy = Fixture::new().await.open().await.check().await.unwrap();
    assert!(
        healthy.iter().all(|check| check.level == Level::Green),
        "{healthy:?}"
    );
}
