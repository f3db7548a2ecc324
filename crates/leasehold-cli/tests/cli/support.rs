//! Isolated home folders, and processes that end with the test.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// How long any single wait may take before the test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The home folder of a user, with a default store of its own.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Returns a command that runs in this home; `$LEASEHOLD` is the program under test.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        // Tests in the background may ignore signals, which children would inherit.
        let mut command = Command::new("env");
        command
            .arg("--default-signal")
            .arg(program)
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env("LEASEHOLD", LEASEHOLD)
            .env("LEASEHOLD_SYSTEM_STORE", "")
            .env_remove("LEASEHOLD_STORE")
            .env_remove("LEASEHOLD_TOKEN")
            .env_remove("LEASEHOLD_ACCESS")
            .env_remove("LEASEHOLD_CONFIG")
            .env_remove("LEASEHOLD_LISTEN")
            .env_remove("NOTIFY_SOCKET")
            .env_remove("RUST_LOG")
            // In the background of the terminal that the tests may run on, so that no command takes it over.
            .process_group(0)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.program(LEASEHOLD);
        command.args(arguments);
        command
    }

    /// Runs `leasehold` with these arguments until it ends.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        Ran::from(self.command(arguments).output().unwrap())
    }

    /// Starts `leasehold` with these arguments.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Running {
        Running::start(&mut self.command(arguments))
    }

    /// Starts a `leasehold run` of a shell script, and waits until the script prints `ready`.
    pub(crate) fn hold(&self, arguments: &[&str], script: &str) -> Running {
        let rest = ["--", "sh", "-c", script];
        let mut running = self.start(["run"].iter().chain(arguments).chain(&rest));
        running.expect("ready");
        running
    }

    /// Returns the answer of `show --json` for a name.
    pub(crate) fn show(&self, name: &str) -> Value {
        let ran = self.run(["show", "--json", "--", name]);
        // The exit code is 1 for a name without a record.
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.show(name)["held"].as_bool().unwrap()
    }
}

/// The result of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let ran = self.ok();
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// Asserts the exit code, and that standard error contains these words.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(
            self.stderr.contains(words),
            "{words:?} is missing: {self:?}"
        );
        self
    }
}

/// A running program, which is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for a line with these words on standard output or standard error.
    #[track_caller]
    pub(crate) fn expect(&mut self, words: &str) -> String {
        let give_up = Instant::now() + TIMEOUT;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => self.seen.push(line),
                Err(error) => panic!("no {words:?} ({error}), but {:?}", self.seen),
            }
        }
    }

    /// Returns the next line, if one is printed in this time.
    pub(crate) fn next_line(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Returns the lines that preceded the expected ones.
    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }

    pub(crate) fn write(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end; returns the exit status and all lines that no `expect` consumed.
    #[track_caller]
    pub(crate) fn wait(mut self) -> (ExitStatus, Vec<String>) {
        self.close_input();
        let status = eventually("the end of the program", || self.child.try_wait().unwrap());
        self.seen.extend(self.lines.try_iter());
        (status, std::mem::take(&mut self.seen))
    }

    /// Waits for its end with this exit code; returns all lines that no `expect` consumed.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Vec<String> {
        let (status, lines) = self.wait();
        assert_eq!(status.code(), Some(code), "{status:?} {lines:?}");
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `poll` returns a value, for conditions without an event to wait for.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < give_up, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the fields of `/proc/PID/stat` after the program name; `None` if the process has ended.
pub(crate) fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().map(str::to_owned).collect();
    (!matches!(&*fields[0], "Z" | "X")).then_some(fields)
}

/// Returns what `pgrep` matches: the process name and, with `-f`, the command line.
pub(crate) fn name_and_command_line(pid: Pid) -> (String, String) {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    (read("comm").trim().to_owned(), read("cmdline"))
}

/// Returns the running children of a process.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent.to_string()))
        .collect()
}

/// Returns the watchdog of a `leasehold run`.
pub(crate) fn watchdog_of(run: Pid) -> Pid {
    let is_watchdog = |pid: &Pid| name_and_command_line(*pid).1.contains("__watchdog");
    let found = children_of(run).into_iter().find(is_watchdog);
    found.expect("a running `leasehold run` has a watchdog")
}
