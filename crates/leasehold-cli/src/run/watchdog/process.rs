//! The process of the watchdog. It reads commands from standard input and answers on standard output, one per line.

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

use crate::exit;

use super::{ENDED, PROCESS_NAME, READY, WATCH, WATCHING, grace};

/// How often to poll for the end of the group: often enough that the kernel cannot have reused its id in between.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs the watchdog. The arguments are the ttl of the lease in microseconds, and the signal that asks the command to end.
pub(crate) fn main(arguments: &[&str]) -> ExitCode {
    let &[ttl, signal] = arguments else {
        return ExitCode::from(exit::USAGE);
    };
    let (Ok(ttl), Ok(signal)) = (ttl.parse(), signal.parse()) else {
        return ExitCode::from(exit::USAGE);
    };
    match detach().map(|()| watch(grace(Duration::from_micros(ttl)), signal)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Detaches from everything that could end the watchdog early or that it would keep open: the session of the terminal,
/// signals, the working folder, and every file but its two pipes.
fn detach() -> io::Result<()> {
    SigSet::all().thread_block()?;
    setsid()?;
    std::env::set_current_dir("/")?;
    nix::sys::prctl::set_name(PROCESS_NAME)?;
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // Fails for the descriptor that listed the folder, which is closed already.
        let _ = close(descriptor);
    }
    answer(READY)
}

fn answer(word: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{word}")?;
    output.flush()
}

/// The group to watch and its deadline.
#[derive(Default)]
struct Watch {
    group: Option<Pid>,
    deadline: BootTime,
}

impl Watch {
    /// Applies a line. Returns whether it is valid.
    fn update(&mut self, line: &str) -> bool {
        let numbers = line.strip_prefix(WATCH).and_then(|rest| {
            let (group, deadline) = rest.strip_prefix(' ')?.split_once(' ')?;
            Some((group.parse().ok()?, deadline.parse().ok()?))
        });
        // `killpg` would signal the group of this process for 0, and every process for 1.
        let Some((group @ 2.., deadline)) = numbers else {
            return false;
        };
        self.group = Some(Pid::from_raw(group));
        self.deadline = BootTime::from_micros(deadline);
        true
    }
}

/// Watches until the group has to be ended, and ends it.
fn watch(grace: Duration, signal: Signal) {
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
    // Fails if `leasehold run` is dead.
    let _ = answer(ENDED);
    let _ = killpg(group, signal);
    // A stopped process does not handle a signal until it continues.
    let _ = killpg(group, Signal::SIGCONT);
    // A quarter of the grace period is left for the kernel to end the group.
    let kill_at = (watch.deadline - grace / 4).min(Machine.boot_time() + grace);
    while Machine.boot_time() < kill_at && killpg(group, None) != Err(Errno::ESRCH) {
        std::thread::sleep(POLL_INTERVAL.min(kill_at.since(Machine.boot_time())));
    }
    let _ = killpg(group, Signal::SIGKILL);
}

/// Standard input, read by lines.
#[derive(Default)]
struct Input {
    unread: Vec<u8>,
}

impl Input {
    /// Waits for the alarm or for input, which is applied. Returns whether more input may come; after an error, none does.
    fn wait(&mut self, alarm: Option<BootTime>, watch: &mut Watch) -> bool {
        match self.wait_once(alarm, watch) {
            Ok(more) => more,
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn wait_once(&mut self, alarm: Option<BootTime>, watch: &mut Watch) -> io::Result<bool> {
        let stdin = io::stdin();
        // A timer of the boot clock, because a timeout of `poll` does not advance while the machine is suspended.
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        if let Some(alarm) = alarm {
            // Zero would disarm the timer.
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
            if watch.update(&String::from_utf8_lossy(&line[..end])) {
                // Fails if `leasehold run` is dead, which the end of the input shows.
                let _ = answer(WATCHING);
            }
        }
        Ok(length > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_lines_change_the_group_and_the_deadline() {
        let mut watch = Watch::default();
        assert!(watch.update("watch 42 1000"));
        for invalid in [
            "",
            "watch",
            "watch 42",
            "watch 43 x",
            "watch 1 1",
            "watch -7 1",
        ] {
            assert!(!watch.update(invalid), "{invalid}");
        }
        assert_eq!(watch.group, Some(Pid::from_raw(42)));
        assert_eq!(watch.deadline, BootTime::from_micros(1000));
    }
}
