//! Where the servers' programs are.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Why there is no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Something that it needs is not on this machine.
    #[error("{what} is not installed: run `testbed/install {scheme}`")]
    Program {
        /// Which store it is for.
        scheme: &'static str,
        /// What is not there.
        what: String,
    },
    /// This build lacks a server that runs in process.
    #[error("this build of the testbed has no {0}: add `--features leasehold-testbed/{0}`")]
    Feature(&'static str),
    /// There is no such server.
    #[error("the testbed has no server for `{0}`")]
    Scheme(String),
}

/// A program on the `PATH`, or where Debian puts what only administrators run.
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

/// A file in the folder that `testbed/install` fills.
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

/// The folder that `testbed/install` fills.
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

/// Whether this process may become other users, and must where a server refuses to run as root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
