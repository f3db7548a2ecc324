//! The processes of a group, read from `/proc`.

use std::fmt;
use std::io;

use nix::errno::Errno;
use nix::sys::signal::kill;
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
        let processes = std::fs::read_dir("/proc")?
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter_map(|stat| Self::parse(&stat));
        Ok(processes.filter(|process| process.group == group).collect())
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
