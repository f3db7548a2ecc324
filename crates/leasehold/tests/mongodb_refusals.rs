//! Configuration errors of MongoDB, and their messages.
#![cfg(feature = "mongodb")]

mod refusals;

use std::os::unix::fs::PermissionsExt as _;

use leasehold::store;
use leasehold_testbed::Server;
use mongodb::Client;
use mongodb::bson::doc;
use refusals::{assert_denied, assert_unavailable, open_error, unreachable_hosts_are_reported};
use tempfile::TempDir;

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    unreachable_hosts_are_reported(|address| format!("mongodb://ada:s3cret@{address}/app")).await;
    let nowhere = open_error("mongodb+srv://ada:s3cret@no-such-host.invalid/app").await;
    assert_unavailable(&nowhere, "SRV records");
    let server = leasehold_testbed::shared("mongodb").await.unwrap();
    let other = format!("mongodb://127.0.0.1:{}/app?replicaSet=other", server.port());
    assert_unavailable(&open_error(&other).await, "`replicaSet`");
}

/// Starts a server with authentication. The first user can be created while there are none.
async fn strict_server(folder: &TempDir) -> Server {
    let key = folder.path().join("key");
    std::fs::write(&key, "bGVhc2Vob2xk").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::builder("mongodb").arg("--keyFile").arg(&key);
    server.start().await.unwrap()
}

#[tokio::test]
async fn missing_rights_are_reported_with_the_fix() {
    let folder = TempDir::new().unwrap();
    let server = strict_server(&folder).await;
    let port = server.port();
    let root = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    let root = Client::with_uri_str(root).await.unwrap().database("admin");
    let create = |name: &str, role: &str| {
        let role = doc! { "role": role, "db": if role == "root" { "admin" } else { "leasehold" } };
        doc! { "createUser": name, "pwd": "s3cret", "roles": [role] }
    };
    root.run_command(create("root", "root")).await.unwrap();
    let admin = format!("mongodb://root:s3cret@127.0.0.1:{port}/?directConnection=true");
    let admin = Client::with_uri_str(admin).await.unwrap().database("admin");
    for (name, role) in [("app", "readWrite"), ("poor", "read")] {
        admin.run_command(create(name, role)).await.unwrap();
    }

    let at = |user: &str, rest: &str| format!("mongodb://{user}127.0.0.1:{port}/{rest}");
    let here = "leasehold?authSource=admin";
    assert_denied(&open_error(&at("", "leasehold")).await, "user");
    assert_denied(&open_error(&at("app:s3cret-not@", here)).await, "password");
    assert_denied(&open_error(&at("unknown:s3cret@", here)).await, "password");
    assert_denied(
        &open_error(&at("app:s3cret@", "leasehold")).await,
        "`authSource`",
    );
    assert_denied(
        &open_error(&at("poor:s3cret@", here)).await,
        "leasehold init",
    );
    let elsewhere = at("app:s3cret@", "elsewhere?authSource=admin");
    assert_denied(&open_error(&elsewhere).await, "`readWrite`");

    // The documented role suffices.
    let client = leasehold::connect(&at("app:s3cret@", here)).await.unwrap();
    let lease = client.lease("job").acquire().await.unwrap();
    assert!(lease.release().await.unwrap());
    // After the setup, the right to read suffices for opening the store.
    store::open(&at("poor:s3cret@", here)).await.unwrap();
}

#[tokio::test]
async fn tls_requires_a_trusted_certificate() {
    let server = Server::builder("mongodb").tls().start().await.unwrap();
    let (port, folder) = (server.port(), server.folder().display());
    let at = |options: &str| format!("mongodb://localhost:{port}/leasehold?{options}");
    let trusted = format!("directConnection=true&tls=true&tlsCAFile={folder}/ca.pem");
    store::open(&at(&trusted)).await.unwrap();
    assert_denied(&open_error(&at("tls=true")).await, "`tlsCAFile`");
    assert_denied(
        &open_error(&at("tls=true&tlsCAFile=/nowhere")).await,
        "`tlsCAFile`",
    );
    assert_unavailable(&open_error(&at("")).await, "`tls`");

    let plain = leasehold_testbed::shared("mongodb").await.unwrap();
    let mismatch = format!("mongodb://127.0.0.1:{}/leasehold?tls=true", plain.port());
    let mismatch = open_error(&mismatch).await.to_string();
    assert!(mismatch.contains("`tls`"), "{mismatch}");
}
