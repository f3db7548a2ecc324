//! Shared parts of the examples. Each example is a fleet of workers: it starts copies of itself as separate processes, kills
//! some of them, and checks the journal that they wrote.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The result of an example, which ends with any error.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The store and the folder of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct Setup {
    /// Store to use: `sqlite:PATH`, `cosmos://…` or any other [default: a new SQLite file]
    #[arg(long, env = "LEASEHOLD_STORE", value_name = "URL")]
    store: Option<String>,
    /// Run as this worker of the fleet (the example starts its workers itself)
    #[arg(long, hide = true)]
    worker: Option<usize>,
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

impl Setup {
    /// Returns the number of this worker; `None` in the process that starts the workers.
    pub fn worker(&self) -> Option<usize> {
        self.worker
    }

    /// Returns the URL of the store.
    pub fn store(&self) -> String {
        match (&self.store, &self.folder) {
            (Some(url), _) => url.clone(),
            (None, Some(folder)) => format!("sqlite:{}", folder.join("leases.db").display()),
            (None, None) => "memory:".to_owned(),
        }
    }

    /// Returns the ttl to use: the given one, or else two seconds, or more if the clock margin of the store requires it.
    pub async fn ttl(&self, given: Option<Duration>) -> Result<Duration> {
        // Enough for every store, because only the service knows its store.
        const THROUGH_A_SERVICE: Duration = Duration::from_secs(10);
        let min = match (given, self.store()) {
            (Some(given), _) => return Ok(given),
            (None, url) if url.starts_with("http") => THROUGH_A_SERVICE,
            // Four margins are required; one more is left for the work.
            (None, url) => leasehold::store::open(&url).await?.facts().margin * 5,
        };
        Ok(min.max(Duration::from_secs(2)))
    }

    /// Returns the prefix of all names of this run, so that runs on the same store do not interfere.
    pub fn prefix(&self) -> String {
        let folder = self.folder.as_deref().and_then(Path::file_name);
        format!("{}/", folder.unwrap_or_default().to_string_lossy())
    }

    /// Returns the journal that all workers append to.
    pub fn journal(&self) -> Journal {
        let folder = self.folder.as_deref().unwrap_or(Path::new("."));
        Journal(folder.join("journal"))
    }

    /// Returns the setup with this folder.
    pub fn with_folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }
}

/// A file that several processes append lines to; lines are never torn.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// Appends a line.
    pub fn append(&self, line: &str) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Returns all lines so far, in order, each split into words.
    pub fn read(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().map(words).collect()
    }

    /// Waits until the lines satisfy a condition.
    pub async fn wait_until(&self, condition: impl Fn(&[Vec<String>]) -> bool) -> Result<()> {
        let started = Instant::now();
        while !condition(&self.read()) {
            if started.elapsed() > Duration::from_secs(120) {
                return Err(format!("timed out waiting for the fleet: {:?}", self.read()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// Returns a command that runs this program as a worker, with the arguments of this process.
pub fn worker_command(setup: &Setup, number: usize) -> Result<Command> {
    let folder = setup.folder.as_deref().ok_or("a fleet requires a folder")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    command.args(["--worker", &number.to_string()]);
    command.arg("--folder").arg(folder);
    Ok(command)
}

/// The workers: copies of this program in separate processes, which are killed when this is dropped.
pub struct Fleet {
    workers: Vec<Option<Child>>,
}

impl Fleet {
    /// Starts this number of workers, with the arguments of this process.
    pub fn start(setup: &Setup, size: usize) -> Result<Self> {
        Self::start_with(setup, size, |_, _| ())
    }

    /// Starts workers whose commands `customize` may change.
    pub fn start_with(
        setup: &Setup,
        size: usize,
        customize: impl Fn(usize, &mut Command),
    ) -> Result<Self> {
        let start = |number| {
            let mut command = worker_command(setup, number)?;
            customize(number, &mut command);
            Ok(Some(command.spawn()?))
        };
        let workers = (0..size).map(start).collect::<Result<_>>()?;
        Ok(Self { workers })
    }

    /// Restarts a worker that was killed.
    pub fn restart(&mut self, setup: &Setup, number: usize) -> Result<()> {
        self.workers[number] = Some(worker_command(setup, number)?.spawn()?);
        Ok(())
    }

    /// Kills a worker with SIGKILL, like a crash.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        if let Some(mut worker) = self.workers[number].take() {
            worker.kill()?;
            worker.wait()?;
        }
        Ok(())
    }

    /// Stops a worker with SIGSTOP, like a long pause of its machine.
    pub fn pause(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGSTOP)
    }

    /// Continues a paused worker.
    pub fn resume(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGCONT)
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let worker = self.workers[number]
            .as_ref()
            .ok_or("cannot signal the worker: it was killed")?;
        Ok(kill(Pid::from_raw(i32::try_from(worker.id())?), signal)?)
    }

    /// Waits until all running workers have ended; fails if one of them failed.
    pub async fn finish(mut self) -> Result<()> {
        for worker in self.workers.iter_mut().flatten() {
            let status = loop {
                match worker.try_wait()? {
                    Some(status) => break status,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            };
            if !status.success() {
                return Err(format!("a worker failed: {status}").into());
            }
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// Returns the error that a guarantee was violated.
pub fn violated<T>(guarantee: impl std::fmt::Display) -> Result<T> {
    Err(format!("violated guarantee: {guarantee}").into())
}
