//! The processes of a group, found among the descendants of this process.
//!
//! This process adopts orphaned descendants, so none is out of sight, and looking for them costs the same on a machine with
//! thousands of other processes. Being their parent, it also has to reap them.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::kill;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// A process that has not ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    id: Pid,
    name: String,
    group: Pid,
}

impl Process {
    /// Returns all processes of a group that have not ended.
    pub(super) fn of_group(group: Pid) -> io::Result<Vec<Self>> {
        let processes = descendants().or_else(|_| all_processes())?;
        let processes = processes.into_iter().filter_map(Self::of_id);
        Ok(processes.filter(|process| process.group == group).collect())
    }

    /// Returns the process of this id; `None` if it has ended.
    fn of_id(id: Pid) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Parses a `/proc/PID/stat`; `None` if the process has ended.
    fn parse(stat: &str) -> Option<Self> {
        // The name is in parentheses and may contain any characters.
        let (id, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let group = fields.nth(1)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self {
            id: Pid::from_raw(id.parse().ok()?),
            name: name.to_owned(),
            group: Pid::from_raw(group),
        })
    }

    /// Returns whether this process may not signal it, because it runs as another user, as after `sudo`.
    pub(super) fn is_out_of_reach(&self) -> bool {
        kill(self.id, None) == Err(Errno::EPERM)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.id, self.name)
    }
}

/// Makes this process the parent of its orphaned descendants.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// The child processes that their handles reap.
static HANDLED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn handled() -> MutexGuard<'static, Vec<Pid>> {
    HANDLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process that its handle reaps.
pub(super) fn spawn_handled<C>(
    spawn: impl FnOnce() -> io::Result<C>,
    id: impl FnOnce(&C) -> Option<u32>,
) -> io::Result<C> {
    // Locked while it starts, so that it is not taken for an orphan if it ends at once.
    let mut handled = handled();
    let child = spawn()?;
    let id = id(&child).and_then(|id| i32::try_from(id).ok());
    handled.extend(id.map(Pid::from_raw));
    Ok(child)
}

/// Forgets a process whose handle is dropped. If the handle has not reaped it, [`reap_orphans`] does.
pub(super) fn forget_handled(id: Pid) {
    handled().retain(|handled| *handled != id);
}

/// Reaps adopted processes that have ended.
pub(super) fn reap_orphans() {
    let handled = handled();
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    // Looks first. The handle of a process that it finds reaps that process soon, and later calls reap the rest.
    while let Ok(status) = waitid(Id::All, flags | WaitPidFlag::WNOWAIT) {
        match status.pid() {
            Some(orphan) if !handled.contains(&orphan) => {
                let _ = waitid(Id::Pid(orphan), flags);
            }
            _ => break,
        }
    }
}

/// Returns the descendants of this process. Fails on kernels that do not list the children of a process.
fn descendants() -> io::Result<Vec<Pid>> {
    let mut found = children_of(Pid::this())?;
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        // Fails if the process has ended. Its children are children of this process by now.
        found.extend(children_of(parent).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

fn children_of(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{parent}/task"))? {
        let ids = std::fs::read_to_string(thread?.path().join("children"))?;
        let ids = ids
            .split_ascii_whitespace()
            .filter_map(|id| id.parse().ok());
        children.extend(ids.map(Pid::from_raw));
    }
    Ok(children)
}

/// Returns all processes of the machine.
fn all_processes() -> io::Result<Vec<Pid>> {
    let entries = std::fs::read_dir("/proc")?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.map(Pid::from_raw).collect())
}

/// Returns the processes as a list for a message.
pub(super) fn list(processes: &[Process]) -> String {
    let names: Vec<_> = processes.iter().map(Process::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_parsed_for_any_program_name() {
        let running = Process::parse("17 (a) Z 9 (b) R 1 42 17 0 -1").unwrap();
        assert_eq!(running.group, Pid::from_raw(42));
        assert_eq!(running.to_string(), "process 17 (a) Z 9 (b)");
        assert_eq!(Process::parse("17 (sh) Z 1 42 17 0 -1"), None);
        assert_eq!(Process::parse(""), None);
    }
}
