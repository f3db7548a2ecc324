//! The Leasehold service, as a separate process.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Result, fail};

/// A running service, which is killed when this is dropped.
pub(crate) struct Service {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Starts a service on a store, and waits until it listens.
    pub(crate) fn start(store: &str) -> Result<Self> {
        let mut process = Command::new(program()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--store", store])
            .env("NO_COLOR", "1")
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(process.stderr.take().expect("piped")).lines();
        while let Some(line) = log.next().transpose()? {
            if let Some((_, address)) = line.split_once("http://") {
                let address = address.trim().parse()?;
                // Keeps reading the log, so that the service does not block on a full pipe.
                std::thread::spawn(move || log.for_each(drop));
                return Ok(Self { process, address });
            }
        }
        fail("the service did not start")
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of the `leasehold` program, which is built into the same folder as this one.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.parent().unwrap_or(Path::new(".")).join("leasehold");
    if !program.exists() {
        return fail(
            "cannot find `leasehold` in the folder of this program: run `bench/compare`, which builds both",
        );
    }
    Ok(program)
}

/// Returns the processor time that a process has used, in seconds.
pub(crate) fn processor_time(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program name, in parentheses, may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse().unwrap_or(0))
        .sum();
    // Linux reports it in hundredths of a second.
    Ok(ticks as f64 / 100.0)
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024.0)
        .ok_or_else(|| "cannot read the resident memory of the process".into())
}
