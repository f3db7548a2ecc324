//! The watchdog's own process. It is told what to watch through its standard input and answers on its standard output,
//! a line at a time.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::host::{Host as _, Machine};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{Pid, close, read, setsid};

use super::{ENDED, PROCESS_NAME, READY, WATCH, WATCHING, grace};

/// How often to look whether a group that was told to end has ended. Soon enough that its number cannot have gone
/// round to somebody else.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the watchdog of a lease with this ttl, in microseconds.
pub(crate) fn main(ttl: &str) -> ExitCode {
    let watching = ttl
        .parse()
        .map_err(io::Error::other)
        .and_then(|ttl| settle().map(|()| watch(grace(Duration::from_micros(ttl)))));
    match watching {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Leaves everything behind that could end the watchdog early or that it could keep open: the terminal's session,
/// signals, the working folder and every file but its two pipes.
fn settle() -> io::Result<()> {
    SigSet::all().thread_block()?;
    setsid()?;
    std::env::set_current_dir("/")?;
    nix::sys::prctl::set_name(PROCESS_NAME)?;
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The one that listed the folder is closed already.
        let _ = close(descriptor);
    }
    say(READY)
}

fn say(word: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{word}")?;
    output.flush()
}

/// What the watchdog has been told.
#[derive(Default)]
struct Watch {
    group: Option<Pid>,
    deadline: BootTime,
}

impl Watch {
    /// Takes in one line. Whether it means anything.
    fn told(&mut self, line: &str) -> bool {
        let numbers = line.strip_prefix(WATCH).and_then(|rest| {
            let (group, deadline) = rest.strip_prefix(' ')?.split_once(' ')?;
            Some((group.parse().ok()?, deadline.parse().ok()?))
        });
        // Zero and one would mean this process's own group, and everybody's.
        let Some((group @ 2.., deadline)) = numbers else {
            return false;
        };
        self.group = Some(Pid::from_raw(group));
        self.deadline = BootTime::from_micros(deadline);
        true
    }
}

/// Watches until the group has to be ended, and ends it.
fn watch(grace: Duration) {
    let mut input = Input::default();
    let mut watch = Watch::default();
    let mut more = true;
    while more && (watch.group.is_none() || Machine.boot_time() < watch.deadline - grace) {
        let alarm = watch.group.map(|_| watch.deadline - grace);
        more = input.wait(alarm, &mut watch);
    }
    let Some(group) = watch.group else {
        return;
    };
    // Whoever reads this may be gone.
    let _ = say(ENDED);
    let _ = killpg(group, Signal::SIGTERM);
    // What is stopped cannot end by itself.
    let _ = killpg(group, Signal::SIGCONT);
    // Some of the grace is kept for the kernel to take the group down.
    let kill_at = (watch.deadline - grace / 4).min(Machine.boot_time() + grace);
    while Machine.boot_time() < kill_at && killpg(group, None) != Err(Errno::ESRCH) {
        std::thread::sleep(LOOK.min(kill_at.since(Machine.boot_time())));
    }
    let _ = killpg(group, Signal::SIGKILL);
}

/// Standard input, a line at a time.
#[derive(Default)]
struct Input {
    unread: Vec<u8>,
}

impl Input {
    /// Waits for the alarm or for something to read, and tells it. Whether there may be more; an input that fails is
    /// taken for one that has ended.
    fn wait(&mut self, alarm: Option<BootTime>, watch: &mut Watch) -> bool {
        match self.wait_once(alarm, watch) {
            Ok(more) => more,
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn wait_once(&mut self, alarm: Option<BootTime>, watch: &mut Watch) -> io::Result<bool> {
        let stdin = io::stdin();
        // A timer of the boot clock, because a timeout of `poll` stands still while the machine is suspended.
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        if let Some(alarm) = alarm {
            // Zero would mean never.
            let left = alarm
                .since(Machine.boot_time())
                .max(Duration::from_nanos(1));
            let left = Expiration::OneShot(TimeSpec::from_duration(left));
            timer.set(left, TimerSetTimeFlags::empty())?;
        }
        let mut sources = [
            PollFd::new(std::os::fd::AsFd::as_fd(&stdin), PollFlags::POLLIN),
            PollFd::new(std::os::fd::AsFd::as_fd(&timer), PollFlags::POLLIN),
        ];
        poll(&mut sources, PollTimeout::NONE)?;
        if sources[0].any() != Some(true) {
            return Ok(true);
        }
        let mut chunk = [0; 512];
        let length = read(&stdin, &mut chunk)?;
        self.unread.extend_from_slice(&chunk[..length]);
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            if watch.told(&String::from_utf8_lossy(&line[..end])) {
                // Whoever reads this may be gone: the end of the input will tell.
                let _ = say(WATCHING);
            }
        }
        Ok(length > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_the_group_and_the_deadline() {
        let mut watch = Watch::default();
        assert!(watch.told("watch 42 1000"));
        for nonsense in [
            "",
            "watch",
            "watch 42",
            "watch 43 x",
            "watch 1 1",
            "watch -7 1",
        ] {
            assert!(!watch.told(nonsense), "{nonsense}");
        }
        assert_eq!(watch.group, Some(Pid::from_raw(42)));
        assert_eq!(watch.deadline, BootTime::from_micros(1000));
    }
}
