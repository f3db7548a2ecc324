//! The signals that end a wait, or are handed on to a command.

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::exit::Failure;

/// What people and supervisors send to a program to make it do something. The rest is the command's own affair.
const FORWARDED: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// How many signals may wait until somebody looks; of more than that, the oldest are forgotten.
const WAITING: usize = 16;

/// The signals that this process gets from now on, instead of ending by them; or some that it hands on.
pub(crate) struct Signals {
    arrived: broadcast::Receiver<Signal>,
}

impl Signals {
    /// Starts to catch them; those that are ignored (`nohup`, a shell's background job) stay so, here and in the command.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let ignored = ignored();
        let (sender, arrived) = broadcast::channel(WAITING);
        for number in FORWARDED {
            if ignored & (1 << (number as u64 - 1)) != 0 {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(number as i32))
                .map_err(|error| Failure::system("no signals can be caught", error))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(number).is_ok() {}
            });
        }
        Ok(Self { arrived })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            match self.arrived.recv().await {
                Ok(signal) => return signal,
                Err(RecvError::Lagged(_)) => {}
                // All of them are ignored.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// The next one by which a program ends unless it says otherwise.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal != Signal::SIGWINCH {
                return signal;
            }
        }
    }
}

impl From<broadcast::Receiver<Signal>> for Signals {
    fn from(arrived: broadcast::Receiver<Signal>) -> Self {
        Self { arrived }
    }
}

/// The mask of the signals that this process ignores.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
