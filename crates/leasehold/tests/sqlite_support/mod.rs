//! Shared by the tests of the SQLite store.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::core::Text;
use leasehold::host::{Host as _, Machine};
use leasehold::store::Swapped;
use leasehold::store::sqlite::Sqlite;

mod machine;
#[path = "../records/mod.rs"]
mod records;
pub(crate) use machine::*;
pub(crate) use records::*;

/// A temporary folder, deleted when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-{:032x}", Machine.random()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn open(path: impl AsRef<Path>) -> Arc<Sqlite> {
    Arc::new(Sqlite::open(path).await.unwrap())
}

/// Runs the `sqlite3` command.
pub(crate) fn sqlite3(path: &Path, sql: &str) -> String {
    let output = std::process::Command::new("sqlite3")
        .args(["-cmd", ".timeout 5000"])
        .arg(path)
        .arg(sql)
        .output()
        .expect("the tests need the `sqlite3` command");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the tag of a written version: its row id.
#[track_caller]
pub(crate) fn row_of(swapped: &Swapped) -> Option<Text> {
    match swapped {
        Swapped::Written { tag } => tag.clone(),
        other => panic!("it was not written: {other:?}"),
    }
}
