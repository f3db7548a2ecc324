//! Files that are accepted or refused as a store, and the messages of refusals.

#![cfg(feature = "sqlite")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use leasehold::Error;
use leasehold::core::{Kind, Name};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{self, Level, Query, Store as _};
use rusqlite::Connection;

mod sqlite_support;
use sqlite_support::*;

/// Opens a file that must be refused as a configuration error, and returns the message.
async fn expect_denied(path: impl AsRef<Path>) -> String {
    match Sqlite::open(path).await {
        Err(Error::Denied(message)) => message,
        Err(other) => panic!("not a configuration error: {other:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[track_caller]
fn assert_contains(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{word}` is missing: {message}");
    }
}

#[tokio::test]
async fn url_opens_a_file() {
    let folder = Folder::new();
    let path = folder.join("with space & é.db");
    let name = Name::lock("x").unwrap();
    for url in [
        format!("sqlite:{}", path.display()),
        format!("sqlite://{}", path.display()),
    ] {
        let store = store::open(&url).await.unwrap();
        swap_one(&*store, create(&name, record(1, "kept"))).await;
        assert_eq!(
            &*load_one(&*store, &name).await.unwrap().record.body,
            "kept"
        );
    }
    assert!(path.exists());
}

#[tokio::test]
async fn new_file_is_readable_for_its_owner_only() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let store = open(&path).await;
    swap_one(&*store, create(&Name::lock("x").unwrap(), record(1, ""))).await;
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 3, "the file, its log and the log's index");
    for file in files {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.path());
    }
}

#[tokio::test]
async fn commits_are_durable() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let store = open(&path).await;
    assert_eq!(sqlite3(&path, "pragma journal_mode").trim(), "wal");
    let checks = store.check().await.unwrap();
    assert_eq!(checks[0].level, Level::Green, "{checks:?}");
    assert!(checks[0].what.contains("synchronous=FULL"), "{checks:?}");
}

#[tokio::test]
async fn empty_file_becomes_a_store() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    std::fs::write(&path, "").unwrap();
    open(&path).await;
}

#[tokio::test]
async fn new_file_can_be_opened_concurrently() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let openings: Vec<_> = (0..8)
        .map(|i| {
            let path = path.clone();
            tokio::spawn(async move {
                let store = open(&path).await;
                let name = Name::lock(format!("{i}")).unwrap();
                swap_one(&*store, create(&name, record(1, ""))).await
            })
        })
        .collect();
    for opening in openings {
        let swapped = opening.await.unwrap();
        row_of(&swapped);
    }
    assert_eq!(sqlite3(&path, "select count(*) from leases").trim(), "8");
    assert_eq!(sqlite3(&path, "pragma integrity_check").trim(), "ok");
}

#[tokio::test]
async fn file_that_is_no_database_is_refused_and_unchanged() {
    let folder = Folder::new();
    for content in ["hello".to_owned(), "<html>".repeat(4096)] {
        let path = folder.join("notes.txt");
        std::fs::write(&path, &content).unwrap();
        assert_contains(
            &expect_denied(&path).await,
            &["notes.txt", "not a SQLite database"],
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn database_of_another_program_is_refused_and_unchanged() {
    let folder = Folder::new();
    let path = folder.join("app.db");
    for setup in [
        "create table users (id integer primary key)",
        "pragma application_id = 42",
        "pragma user_version = 1",
    ] {
        let _ = std::fs::remove_file(&path);
        Connection::open(&path)
            .unwrap()
            .execute_batch(setup)
            .unwrap();
        let before = std::fs::read(&path).unwrap();
        assert_contains(&expect_denied(&path).await, &["app.db", "another program"]);
        assert_eq!(std::fs::read(&path).unwrap(), before, "{setup}");
    }
}

#[tokio::test]
async fn file_of_a_newer_version_is_refused_and_unchanged() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let name = Name::lock("x").unwrap();
    swap_one(&*open(&path).await, create(&name, record(1, "kept"))).await;
    sqlite3(&path, "pragma user_version = 3");
    assert_contains(
        &expect_denied(&path).await,
        &["newer Leasehold", "version 3", "upgrade"],
    );
    sqlite3(&path, "pragma user_version = 2");
    let store = open(&path).await;
    assert_eq!(
        &*load_one(&*store, &name).await.unwrap().record.body,
        "kept"
    );
}

#[tokio::test]
async fn unusable_paths_are_refused_with_a_hint() {
    let folder = Folder::new();
    assert_contains(
        &expect_denied(folder.path()).await,
        &["is a folder", "path of a file"],
    );
    let missing = folder.join("no/such/leases.db");
    assert_contains(
        &expect_denied(missing).await,
        &["does not exist", "mkdir -p"],
    );
    let file = folder.join("file");
    std::fs::write(&file, "").unwrap();
    expect_denied(file.join("leases.db")).await;
    assert_contains(&expect_denied("/dev/null").await, &["not a regular file"]);
    // Not even the superuser can create files here.
    assert_contains(
        &expect_denied("/proc/leases.db").await,
        &["/proc/leases.db", "writable"],
    );
}

#[tokio::test]
async fn deleted_or_replaced_file_is_neither_read_nor_written() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let name = Name::lock("x").unwrap();
    let orphan = open(&path).await;
    for file in ["leases.db", "leases.db-wal", "leases.db-shm"] {
        std::fs::remove_file(folder.join(file)).unwrap();
    }
    let gone = orphan.swap(vec![create(&name, record(1, ""))]).await;
    assert!(matches!(gone, Err(Error::Denied(_))), "{gone:?}");
    let gone = orphan.load(std::slice::from_ref(&name)).await;
    assert!(matches!(gone, Err(Error::Denied(_))), "{gone:?}");

    let fresh = open(&path).await;
    let replaced = orphan.swap(vec![create(&name, record(1, ""))]).await;
    assert!(matches!(replaced, Err(Error::Denied(_))), "{replaced:?}");
    let replaced = orphan.find(&Query::all(Kind::Lock)).await.map(drop);
    assert!(matches!(replaced, Err(Error::Denied(_))), "{replaced:?}");
    let swapped = swap_one(&*fresh, create(&name, record(1, ""))).await;
    row_of(&swapped);
}

#[tokio::test]
async fn damaged_file_is_reported_as_corrupt() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let name = Name::lock("x").unwrap();
    {
        let store = open(&path).await;
        swap_one(&*store, create(&name, record(1, ""))).await;
    }
    sqlite3(&path, "pragma wal_checkpoint(truncate)");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1024..].fill(0xAA);
    // In another file, because threads of the first store may still be closing theirs.
    let damaged = folder.join("damaged.db");
    std::fs::write(&damaged, bytes).unwrap();
    let error = match Sqlite::open(&damaged).await {
        Err(error) => error,
        Ok(store) => store.load(&[name]).await.unwrap_err(),
    };
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}
