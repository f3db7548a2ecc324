//! What the examples share: each is a small fleet, so each starts copies of itself, ends some of them rudely, and
//! looks at what they left in a journal.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// An example's own error: whatever it was, the example ends with it.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Where an example takes place.
#[derive(clap::Args, Clone, Debug)]
pub struct Stage {
    /// The store: `sqlite:PATH`, `cosmos://…`, or any other; a new SQLite file unless given
    #[arg(long, env = "LEASEHOLD_STORE", value_name = "URL")]
    store: Option<String>,
    /// Plays this worker of the fleet (the example starts its own)
    #[arg(long, hide = true)]
    worker: Option<usize>,
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

impl Stage {
    /// Which worker of the fleet this process is; `None`: it is the one that starts them.
    pub fn worker(&self) -> Option<usize> {
        self.worker
    }

    /// The store's URL.
    pub fn store(&self) -> String {
        match (&self.store, &self.folder) {
            (Some(url), _) => url.clone(),
            (None, Some(folder)) => format!("sqlite:{}", folder.join("leases.db").display()),
            (None, None) => "memory:".to_owned(),
        }
    }

    /// Returns the ttl to use: the one that was asked for, otherwise two seconds, or more where the store's margin asks for it.
    pub async fn ttl(&self, asked: Option<Duration>) -> Result<Duration> {
        // Enough for every store: only the service knows which store it has.
        const ANYWHERE: Duration = Duration::from_secs(10);
        let least = match (asked, self.store()) {
            (Some(asked), _) => return Ok(asked),
            (None, url) if url.starts_with("http") => ANYWHERE,
            // Four margins are required; one more is time to work in.
            (None, url) => leasehold::store::open(&url).await?.facts().margin * 5,
        };
        Ok(least.max(Duration::from_secs(2)))
    }

    /// How the names of this run begin, so that runs on one store keep out of each other's way.
    pub fn prefix(&self) -> String {
        let folder = self.folder.as_deref().and_then(Path::file_name);
        format!("{}/", folder.unwrap_or_default().to_string_lossy())
    }

    /// The journal that the whole fleet appends to.
    pub fn journal(&self) -> Journal {
        let folder = self.folder.as_deref().unwrap_or(Path::new("."));
        Journal(folder.join("journal"))
    }

    /// The same stage, in this folder.
    pub fn within(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }
}

/// Lines that several processes append to one file, each line whole.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// Appends a line.
    pub fn append(&self, line: &str) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }

    /// All lines so far, in order, each as its words.
    pub fn read(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().map(words).collect()
    }

    /// Waits until it looks like this.
    pub async fn wait_until(&self, looks: impl Fn(&[Vec<String>]) -> bool) -> Result<()> {
        let started = Instant::now();
        while !looks(&self.read()) {
            if started.elapsed() > Duration::from_secs(120) {
                return Err(format!("the fleet got no further: {:?}", self.read()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// A copy of this program, as this worker, with the arguments that this process was given.
pub fn copy(stage: &Stage, number: usize) -> Result<Command> {
    let folder = stage.folder.as_deref().ok_or("a fleet needs a folder")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    command.args(["--worker", &number.to_string()]);
    command.arg("--folder").arg(folder);
    Ok(command)
}

/// A fleet: copies of this program, each a process of its own. Whatever is left of it ends with this.
pub struct Fleet {
    workers: Vec<Option<Child>>,
}

impl Fleet {
    /// Starts so many workers on a stage, with the arguments that this process was given.
    pub fn start(stage: &Stage, size: usize) -> Result<Self> {
        Self::start_with(stage, size, |_, _| ())
    }

    /// The same, with something special about each.
    pub fn start_with(
        stage: &Stage,
        size: usize,
        special: impl Fn(usize, &mut Command),
    ) -> Result<Self> {
        let start = |number| {
            let mut command = copy(stage, number)?;
            special(number, &mut command);
            Ok(Some(command.spawn()?))
        };
        let workers = (0..size).map(start).collect::<Result<_>>()?;
        Ok(Self { workers })
    }

    /// Starts a worker again that was killed.
    pub fn revive(&mut self, stage: &Stage, number: usize) -> Result<()> {
        self.workers[number] = Some(copy(stage, number)?.spawn()?);
        Ok(())
    }

    /// Ends a worker as a crash would: `kill -9`.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        if let Some(mut worker) = self.workers[number].take() {
            worker.kill()?;
            worker.wait()?;
        }
        Ok(())
    }

    /// Stops a worker in its tracks, as a long pause of its machine would.
    pub fn pause(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub fn resume(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGCONT)
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let worker = self.workers[number].as_ref().ok_or("it is dead")?;
        Ok(kill(Pid::from_raw(i32::try_from(worker.id())?), signal)?)
    }

    /// Waits until every worker that is left has ended well.
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

/// A broken promise: what the example would not have you see.
pub fn broken<T>(promise: impl std::fmt::Display) -> Result<T> {
    Err(format!("broken promise: {promise}").into())
}
