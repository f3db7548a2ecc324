//! A running service, and a temporary folder for its database.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold::host::{Host as _, Machine};

/// A `leasehold serve` on a free port, which is killed with SIGKILL when this is dropped.
pub(crate) struct Service {
    process: Child,
    pub(crate) url: String,
}

impl Service {
    pub(crate) fn start(store: &Path) -> Self {
        Self::start_with(store, Vec::new())
    }

    /// Starts a service with these environment variables.
    pub(crate) fn start_with(store: &Path, environment: Vec<(&str, String)>) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("sqlite:{}", store.display()))
            .env("NO_COLOR", "1")
            .envs(environment)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let log = BufReader::new(process.stderr.take().expect("piped"));
        let url = log
            .lines()
            .map_while(std::result::Result::ok)
            .find_map(|line| {
                let start = line.find("http://")?;
                Some(line[start..].split_whitespace().next()?.to_owned())
            })
            .expect("the service logs its address");
        Self { process, url }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Sends SIGKILL.
        self.process.kill().expect("the service was running");
        self.process.wait().expect("the service ends");
    }
}

/// A temporary folder, which is deleted when this is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-{:032x}", Machine.random()));
        std::fs::create_dir(&path).expect("a temporary folder");
        Self(path)
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
