//! Notifies the service manager of the state of the service, with the datagrams of `sd_notify(3)`.
//!
//! Without `NOTIFY_SOCKET`, nothing is sent. A failure to notify is logged and does not affect the service.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// How long a manager that does not read its socket may block the service.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager that started this process.
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    /// How long the manager waits for a keep-alive before it considers the service dead.
    watchdog: Option<Duration>,
}

impl Manager {
    /// Connects to the manager that the environment names, if any.
    pub(crate) fn from_environment() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.and_then(|name| {
            let socket = connect(&name);
            socket.inspect_err(log_failure).ok()
        });
        Self {
            socket,
            watchdog: watchdog(|name| std::env::var(name).ok(), std::process::id()),
        }
    }

    /// Notifies the manager that the service is ready.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Notifies the manager that the service is stopping.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=shutting down");
    }

    /// Sends keep-alives for as long as it is polled, at twice the expected rate. They continue while the store is
    /// unavailable, because a restart would not bring it back.
    pub(crate) async fn keep_alive(&self) -> Infallible {
        let (Some(_), Some(watchdog)) = (&self.socket, self.watchdog) else {
            return pending().await;
        };
        let mut ticks = interval(watchdog / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            log_failure(&error);
        }
    }
}

fn log_failure(error: &io::Error) {
    tracing::warn!(%error, "cannot notify the service manager (NOTIFY_SOCKET)");
}

/// Connects to a socket at a path or, with a leading `@`, at an abstract name of Linux.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// Returns the interval of `WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process.
fn watchdog(variable: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    let is_for_us = variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(own));
    let micros: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (is_for_us && micros > 1).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_interval_applies_only_to_the_named_process() {
        for (pid, micros, expected) in [
            (None, Some("30000000"), Some(Duration::from_secs(30))),
            (Some("7"), Some("500"), Some(Duration::from_micros(500))),
            (Some("8"), Some("500"), None),
            (Some("x"), Some("500"), None),
            (None, Some("0"), None),
            (None, Some("soon"), None),
            (Some("7"), None, None),
        ] {
            let variable = |name: &str| {
                let value = if name == "WATCHDOG_PID" { pid } else { micros };
                value.map(str::to_owned)
            };
            assert_eq!(watchdog(variable, 7), expected, "{pid:?} {micros:?}");
        }
    }
}
