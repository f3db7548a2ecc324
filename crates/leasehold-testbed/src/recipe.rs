//! How a server is run: what differs from one database to the next.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Missing;
use crate::programs;
use crate::tls::Files;

/// One database's way of running. Each is one file in `recipes/`.
pub(crate) trait Recipe: Send + Sync {
    /// What it is started by: the store URL's scheme, where that has one server only.
    fn name(&self) -> &'static str;

    /// What is not installed, if anything.
    fn installed(&self) -> Result<(), Missing>;

    /// Makes the data folder, once.
    fn prepare(&self, _node: &Node<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The program and its arguments, for a run in the foreground.
    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing>;

    /// The signal that makes it end in good order.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }

    /// Called once after every node of a new cluster was started, until it succeeds.
    fn form(&self, _members: &[Member]) -> io::Result<()> {
        Ok(())
    }

    /// Whether it serves by now. An error is a no.
    fn is_ready(&self, member: Member) -> io::Result<bool>;

    /// The store URL of a server, or of a cluster with these ports.
    fn url(&self, ports: &[u16]) -> String;

    /// Which member leads, once one does.
    fn leader(&self, _members: &[Member]) -> io::Result<Option<usize>> {
        Ok(Some(0))
    }
}

/// A server among the members of its cluster; most clusters have one member.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    /// Where its data goes.
    pub(crate) data: &'a Path,
    /// Which of the members it is.
    pub(crate) index: usize,
    /// All of them.
    pub(crate) members: &'a [Member],
}

impl Node<'_> {
    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.members[self.index].port
    }

    /// Where its certificates are, if it is to use TLS: beside its data.
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
    /// Whether clients have to use TLS.
    pub(crate) tls: bool,
}

/// A command line, from anything that can be an argument.
macro_rules! command_line {
    ($($word:expr),* $(,)?) => {
        vec![$(std::ffi::OsString::from($word)),*]
    };
}
pub(crate) use command_line;

/// What to put before a command so that it runs as a user who owns the data, where root may not run it.
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

/// Runs a command to its end. What it wrote is the error if it fails.
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
        .expect("it is piped")
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

/// Fills a data folder from a template that is made once per machine: making it anew takes a second or more.
pub(crate) fn from_template(
    data: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let template = programs::cache().join("templates").join(name);
    if !template.exists() {
        make(data)?;
        // Without a cache that can be written every start takes longer, and that is all.
        let _ = keep_template(data, &template);
        return Ok(());
    }
    copy(&template, data)
}

/// Other tests may be doing the same; the first to rename wins, and a half-made template is never seen.
fn keep_template(data: &Path, template: &Path) -> io::Result<()> {
    let parent = template.parent().expect("it was joined");
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
