//! The shell that runs one server. It outlives this process just long enough to clean up.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("keep.sh");

/// Starts and ends one server. When it is dropped, or when this process ends in any way, the server ends with all its
/// children, and its folder is removed.
pub(crate) struct Keeper {
    shell: Child,
    /// `None` only during the drop: closing it ends the shell.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    /// Creates a keeper for this folder. It does not start the server yet.
    pub(crate) fn of(folder: &Path, stop_signal: &str, command: &[OsString]) -> io::Result<Self> {
        // In its own session: a Ctrl-C in the terminal ends the test, and only thereby the server.
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
        let answers = BufReader::new(shell.stdout.take().expect("the pipe was requested"));
        Ok(Self {
            shell,
            commands,
            answers,
        })
    }

    /// Starts the server, which may not be ready yet.
    pub(crate) fn start(&mut self) {
        self.send_command("start");
    }

    /// Kills all processes of the server at once with `kill -9`.
    pub(crate) fn crash(&mut self) {
        self.send_command("crash");
    }

    /// Stops the server, and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        self.send_command("stop");
    }

    /// Freezes all processes of the server.
    pub(crate) fn pause(&mut self) {
        self.send_command("pause");
    }

    /// Resumes all processes of the server.
    pub(crate) fn resume(&mut self) {
        self.send_command("resume");
    }

    /// Returns whether the server is running.
    pub(crate) fn is_up(&mut self) -> bool {
        self.send_command("look") == "up"
    }

    fn send_command(&mut self, command: &str) -> String {
        let mut answer = String::new();
        let shell = self
            .commands
            .as_mut()
            .expect("the pipe is open until the drop");
        writeln!(shell, "{command}")
            .and_then(|()| self.answers.read_line(&mut answer))
            .expect("the keeper's shell is running");
        answer.trim_end().to_owned()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.shell.wait();
    }
}
