//! Recipes: how the server of each database is run.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Missing;
use crate::programs;
use crate::tls::Files;

/// The recipe for one server. Each is a file in `recipes/`.
pub(crate) trait Recipe: Send + Sync {
    /// Returns the server's name: the store URL's scheme, if that has one server only.
    fn name(&self) -> &'static str;

    /// Fails if something is not installed.
    fn installed(&self) -> Result<(), Missing>;

    /// Creates the data folder, once.
    fn prepare(&self, _node: &Node<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Returns the program and its arguments, for running in the foreground.
    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing>;

    /// Returns the signal for a graceful shutdown.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }

    /// Forms a cluster. Called after every node was started, until it succeeds.
    fn form(&self, _members: &[Member]) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether the server serves. An error counts as not ready.
    fn is_ready(&self, member: Member) -> io::Result<bool>;

    /// Returns the store URL of a server, or of a cluster with these ports.
    fn url(&self, ports: &[u16]) -> String;

    /// Returns the index of the leader, if there is one.
    fn leader(&self, _members: &[Member]) -> io::Result<Option<usize>> {
        Ok(Some(0))
    }
}

/// A server among the members of its cluster; most clusters have one member.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    /// The data folder.
    pub(crate) data: &'a Path,
    /// The index among the members.
    pub(crate) index: usize,
    /// All members.
    pub(crate) members: &'a [Member],
}

impl Node<'_> {
    /// Returns the port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.members[self.index].port
    }

    /// Returns the certificate files, which are beside the data, if the server uses TLS.
    pub(crate) fn tls(&self) -> Option<Files> {
        let folder = self.data.parent().unwrap_or(self.data);
        self.members[self.index].tls.then(|| Files::of(folder))
    }
}

/// The ports of one member.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// For clients.
    pub(crate) port: u16,
    /// For the other members.
    pub(crate) peer: u16,
    /// Whether clients must use TLS.
    pub(crate) tls: bool,
}

/// Builds a command line from anything that can be an argument.
macro_rules! command_line {
    ($($word:expr),* $(,)?) => {
        vec![$(std::ffi::OsString::from($word)),*]
    };
}
pub(crate) use command_line;

/// Returns the words to put before a command so that root runs it as the user who owns the data.
pub(crate) fn as_user(user: &str) -> Vec<OsString> {
    if programs::is_root() {
        command_line![
            "setpriv",
            format!("--reuid={user}"),
            format!("--regid={user}"),
            "--init-groups",
            "--"
        ]
    } else {
        Vec::new()
    }
}

/// Runs a command to completion. Its output is the error if it fails.
pub(crate) fn run(command: &[OsString], folder: &Path, input: &str) -> io::Result<()> {
    use std::io::Write as _;

    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .expect("the pipe was requested")
        .write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{}: {}\n{}{}",
        command[0].display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )))
}

/// Fills a data folder from a template that is created once per machine, because creating it takes a second or more.
pub(crate) fn from_template(
    data: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let template = programs::cache().join("templates").join(name);
    if !template.exists() {
        make(data)?;
        // Without a writable cache every start takes longer, but works.
        let _ = keep_template(data, &template);
        return Ok(());
    }
    copy(&template, data)
}

/// Saves a template. If other tests do the same, the first rename wins, and a partial template is never visible.
fn keep_template(data: &Path, template: &Path) -> io::Result<()> {
    let parent = template.parent().expect("the template has a parent folder");
    std::fs::create_dir_all(parent)?;
    let draft = tempfile::Builder::new().prefix(".").tempdir_in(parent)?;
    let inside: PathBuf = draft.path().join("data");
    copy(data, &inside)?;
    std::fs::rename(&inside, template)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let command = command_line!["cp", "-a", "--reflink=auto", "-T", from, to];
    run(&command, Path::new("/"), "")
}
