//! Setting PostgreSQL up for leases, and every way of having it set up wrongly.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::process::Command;
use std::time::Duration;

use leasehold::Error;
use leasehold::store::{self, Level};
use leasehold_testbed::Server;
use postgres_support::*;
use tempfile::TempDir;
use tokio::time::Instant;

fn denied(error: &Error, hint: &str) {
    assert!(
        matches!(error, Error::Denied(why) if why.contains(hint)),
        "{error:?} should say `{hint}`"
    );
}

fn unavailable(error: &Error, hint: &str) {
    assert!(
        matches!(error, Error::Unavailable(why) if why.contains(hint)),
        "{error:?} should say `{hint}`"
    );
}

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

/// A server that wants passwords of everybody but its administrator.
async fn strict_server(folder: &TempDir) -> Server {
    let rules = folder.path().join("hba.conf");
    let text = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&rules, text).unwrap();
    open_to_all(folder);
    let server = Server::builder("postgres")
        .arg("-c")
        .arg(format!("hba_file={}", rules.display()))
        .start();
    server.await.unwrap()
}

/// The server runs as another user than the test.
fn open_to_all(folder: &TempDir) {
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
}

#[tokio::test]
async fn who_is_not_let_in_is_told_what_to_do() {
    let folder = TempDir::new().unwrap();
    let server = strict_server(&folder).await;
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
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    let url = format!("postgres://app:s3cret@127.0.0.1:{port}/leasehold");
    // Accepts, and says nothing.
    let started = Instant::now();
    unavailable(&refused(&url).await, "127.0.0.1");
    assert!(started.elapsed() < Duration::from_secs(5));
    drop(nobody);
    unavailable(&refused(&url).await, "cannot be reached");
    let url = "postgres://app:s3cret@no-such-host.invalid/leasehold";
    unavailable(&refused(url).await, "no-such-host.invalid");
}

fn openssl(folder: &TempDir, name: &str) {
    let made = Command::new("openssl")
        .current_dir(folder.path())
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args([
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.crt"),
        ])
        .output()
        .expect("the tests need the `openssl` command");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

#[tokio::test]
async fn tls_is_as_strict_as_sslmode_says() {
    let folder = TempDir::new().unwrap();
    openssl(&folder, "server");
    openssl(&folder, "other");
    open_to_all(&folder);
    let key = folder.path().join("server.key");
    // The key must be its owner's alone, and the server runs as `postgres` where the test runs as root.
    let owner = Command::new("chown").arg("postgres").arg(&key).status();
    let _ = owner.expect("chown runs");
    let server = Server::builder("postgres")
        .arg("-c")
        .arg("ssl=on")
        .arg("-c")
        .arg(format!(
            "ssl_cert_file={}",
            folder.path().join("server.crt").display()
        ))
        .arg("-c")
        .arg(format!("ssl_key_file={}", key.display()))
        .start()
        .await
        .unwrap();
    let at = |host: &str, options: &str| {
        format!(
            "postgres://postgres:s3cret@{host}:{}/leasehold?{options}",
            server.port()
        )
    };
    let root = |name: &str| format!("sslrootcert={}/{name}.crt", folder.path().display());
    let (ours, other) = (root("server"), root("other"));
    let full = format!("sslmode=verify-full&{ours}");
    for (host, options) in [
        ("127.0.0.1", "sslmode=disable"),
        ("127.0.0.1", ""),
        ("127.0.0.1", "sslmode=require"),
        ("127.0.0.1", &format!("sslmode=verify-ca&{ours}")),
        ("localhost", &full),
    ] {
        let store = store::open(&at(host, options)).await;
        store.unwrap_or_else(|error| panic!("{options}: {error}"));
    }
    for (host, options) in [
        ("127.0.0.1", full.as_str()),
        ("localhost", &format!("sslmode=verify-full&{other}")),
        ("localhost", &format!("sslmode=verify-ca&{other}")),
        ("localhost", &format!("sslmode=require&{other}")),
        ("localhost", "sslmode=verify-full"),
    ] {
        denied(&refused(&at(host, options)).await, "sslmode");
    }
    let missing = refused(&at("localhost", "sslmode=verify-ca&sslrootcert=/nowhere")).await;
    denied(&missing, "/nowhere");

    // A server without TLS.
    let plain = Ground::new().await;
    let required = format!("{}&sslmode=require", plain.url);
    denied(&refused(&required).await, "sslmode");
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
    for (word, level) in [
        ("fsync", Level::Red),
        ("synchronous_commit", Level::Red),
        ("full_page_writes", Level::Green),
        ("index", Level::Yellow),
    ] {
        let check = checks.iter().find(|check| check.what.contains(word));
        assert_eq!(check.map(|check| check.level), Some(level), "{checks:?}");
    }
    let healthy = Ground::new().await.open().await.check().await.unwrap();
    assert!(
        healthy.iter().all(|check| check.level == Level::Green),
        "{healthy:?}"
    );
}
