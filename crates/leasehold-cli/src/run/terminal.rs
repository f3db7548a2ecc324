//! Job control: the command is in a process group of its own, so the terminal must be handed to it, or it could not
//! read from it.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal of this process, if it has one.
pub(crate) struct Terminal {
    device: Option<File>,
}

impl Terminal {
    /// No terminal: the command runs in the background.
    pub(crate) fn none() -> Self {
        Self { device: None }
    }

    pub(super) fn open() -> Self {
        Self {
            device: File::options().read(true).write(true).open("/dev/tty").ok(),
        }
    }

    /// Hands the terminal to a group, if this process has it: a job in the background leaves it alone. Whether it did.
    pub(super) fn hand_to(&self, group: Pid) -> bool {
        self.pass(getpgrp(), group)
    }

    /// Takes the terminal back from a group that has it.
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
        // Whoever does this from the background is stopped by SIGTTOU, unless it blocks that.
        let mut ttou = SigSet::empty();
        ttou.add(Signal::SIGTTOU);
        let Ok(before) = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let passed = tcsetpgrp(device, to);
        let _ = before.thread_set_mask();
        passed.is_ok()
    }

    /// After the command was stopped (Ctrl-Z): gives the terminal back and stops as well, with the rest of this job, so
    /// that the shell goes on; continued, does the reverse. The lease is not renewed in between: if it takes too long,
    /// the watchdog ends the command. Without a terminal there is no shell to go on: the lease is simply kept.
    pub(super) fn stop_along_with(&self, group: Pid) {
        if self.device.is_none() {
            return;
        }
        self.take_from(group);
        // This is the main thread, which the kernel gives signals to first, so it stops right here; where no shell
        // waits for this job, the signal does nothing, and the command goes on at once.
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
        self.hand_to(group);
        let _ = killpg(group, Signal::SIGCONT);
    }
}
