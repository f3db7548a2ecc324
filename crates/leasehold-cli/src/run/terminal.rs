//! Job control: the command runs in a process group of its own, which must be the foreground group of the terminal to
//! read from it.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal of this process, if it has one.
pub(crate) struct Terminal {
    device: Option<File>,
}

impl Terminal {
    /// Returns no terminal: the command runs in the background.
    pub(crate) fn none() -> Self {
        Self { device: None }
    }

    pub(super) fn open() -> Self {
        Self {
            device: File::options().read(true).write(true).open("/dev/tty").ok(),
        }
    }

    /// Makes a group the foreground group if this process is in the foreground. Returns whether it did.
    pub(super) fn give_to(&self, group: Pid) -> bool {
        self.pass(getpgrp(), group)
    }

    /// Makes the group of this process the foreground group again if `group` is.
    pub(super) fn take_from(&self, group: Pid) {
        self.pass(group, getpgrp());
    }

    fn pass(&self, from: Pid, to: Pid) -> bool {
        let Some(device) = &self.device else {
            return false;
        };
        if tcgetpgrp(device) != Ok(from) {
            return false;
        }
        // A background process that calls `tcsetpgrp` is stopped by SIGTTOU unless it blocks the signal.
        let mut ttou = SigSet::empty();
        ttou.add(Signal::SIGTTOU);
        let Ok(before) = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let passed = tcsetpgrp(device, to);
        let _ = before.thread_set_mask();
        passed.is_ok()
    }

    /// Stops this job after its command was stopped (Ctrl-Z), so that the shell gets the terminal, and continues the command
    /// when the shell continues the job. The lease is not renewed meanwhile: if that takes too long, the watchdog ends the
    /// command. Without a terminal this process does not stop, and the lease is renewed.
    pub(super) fn stop_with(&self, group: Pid) {
        if self.device.is_none() {
            return;
        }
        self.take_from(group);
        // The kernel delivers signals to the main thread first, which is this one, so it stops here. If no shell waits for
        // this job, the signal has no effect, and the command continues at once.
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
        self.give_to(group);
        let _ = killpg(group, Signal::SIGCONT);
    }
}
