//! Locates the servers' programs.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Why a server is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// A program or file is not installed.
    #[error("{what} is not installed: run `testbed/install {scheme}`")]
    Program {
        /// The store that it is for.
        scheme: &'static str,
        /// The missing program or file.
        what: String,
    },
    /// This build lacks a server that runs in process.
    #[error(
        "this build of the testbed does not include {0}: add `--features leasehold-testbed/{0}`"
    )]
    Feature(&'static str),
    /// The server is unknown.
    #[error("the testbed has no server for `{0}`")]
    Scheme(String),
}

/// Finds a program on the `PATH`, or in the folders for administrators' programs.
pub(crate) fn on_path(scheme: &'static str, name: &str) -> Result<PathBuf, Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| Missing::Program {
            scheme,
            what: name.to_owned(),
        })
}

/// Finds a file in the folder that `testbed/install` fills.
pub(crate) fn in_cache(scheme: &'static str, path: &str) -> Result<PathBuf, Missing> {
    let found = cache().join(path);
    if found.exists() {
        Ok(found)
    } else {
        Err(Missing::Program {
            scheme,
            what: path.to_owned(),
        })
    }
}

/// Returns the folder that `testbed/install` fills.
pub(crate) fn cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable("LEASEHOLD_TESTBED") {
        return folder.into();
    }
    let caches = variable("XDG_CACHE_HOME").map_or_else(
        || Path::new(&variable("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache"),
        PathBuf::from,
    );
    caches.join("leasehold-testbed")
}

/// Returns whether this process is root: it can change to other users, and must for servers that refuse to run as
/// root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
