//! Signals that end a wait, or are forwarded to a command.

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::exit::Failure;

/// The signals that people and supervisors send to control a program. Other signals are not forwarded.
const FORWARDED: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// How many unread signals are queued; beyond that, the oldest are dropped.
const QUEUE_LENGTH: usize = 16;

/// The signals that this process catches, or that it forwards to one command.
pub(crate) struct Signals {
    received: broadcast::Receiver<Signal>,
}

impl Signals {
    /// Starts catching signals. Those that are ignored (`nohup`, a background job) stay ignored, here and in the command.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let ignored = ignored();
        let (sender, received) = broadcast::channel(QUEUE_LENGTH);
        for number in FORWARDED {
            if ignored & (1 << (number as u64 - 1)) != 0 {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(number as i32))
                .map_err(|error| Failure::system("cannot catch signals", error))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(number).is_ok() {}
            });
        }
        Ok(Self { received })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            match self.received.recv().await {
                Ok(signal) => return signal,
                Err(RecvError::Lagged(_)) => {}
                // All signals are ignored.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Waits for the next signal that ends a program by default.
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
    fn from(received: broadcast::Receiver<Signal>) -> Self {
        Self { received }
    }
}

/// Returns the mask of the signals that this process ignores.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
