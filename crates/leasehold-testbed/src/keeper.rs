//! The shell that keeps one server: it outlives this process just long enough to clean up.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("keep.sh");

/// Starts and ends one server. When it is dropped, or when this process ends in whatever way, the server ends with
/// all its children, and its folder is removed.
pub(crate) struct Keeper {
    shell: Child,
    /// `None` only while it is being dropped: closing it is what ends the shell.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    /// Keeps this folder from now on. Nothing is started yet.
    pub(crate) fn of(folder: &Path, stop_signal: &str, command: &[OsString]) -> io::Result<Self> {
        // A session of its own: a Ctrl-C at the terminal ends the test, and only thereby the server.
        let mut shell = Command::new("setsid")
            .args(["bash", "-c", SCRIPT, "keep.sh"])
            .arg(folder)
            .arg(stop_signal)
            .args(command)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let commands = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("it is piped"));
        Ok(Self {
            shell,
            commands,
            answers,
        })
    }

    /// Starts the server. It may not be ready yet.
    pub(crate) fn start(&mut self) {
        self.ask("start");
    }

    /// Ends it with `kill -9`, all its processes at once.
    pub(crate) fn crash(&mut self) {
        self.ask("crash");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.ask("stop");
    }

    /// Freezes all its processes.
    pub(crate) fn pause(&mut self) {
        self.ask("pause");
    }

    /// Lets them go on.
    pub(crate) fn resume(&mut self) {
        self.ask("resume");
    }

    /// Whether it runs.
    pub(crate) fn is_up(&mut self) -> bool {
        self.ask("look") == "up"
    }

    fn ask(&mut self, command: &str) -> String {
        let mut answer = String::new();
        let shell = self.commands.as_mut().expect("open until the drop");
        writeln!(shell, "{command}")
            .and_then(|()| self.answers.read_line(&mut answer))
            .expect("the shell that keeps a server is there");
        answer.trim_end().to_owned()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.shell.wait();
    }
}
