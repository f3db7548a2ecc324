//! Tells the service manager how the service is doing, in the datagrams of `sd_notify(3)`.
//!
//! Where `NOTIFY_SOCKET` is not set, nobody wants to know, and nothing is said. What cannot be said is logged: the service
//! matters more than the news of it.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// How long a manager that does not read may keep the service from its work.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who started this process, and wants to hear of it.
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    /// How long it waits for a sign of life before it takes the service for dead.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The one that the environment names, if any.
    pub(crate) fn from_environment() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.and_then(|name| {
            let socket = connect(&name);
            socket.inspect_err(not_told).ok()
        });
        Self {
            socket,
            watchdog: watchdog(|name| std::env::var(name).ok(), std::process::id()),
        }
    }

    /// Requests are answered from now on.
    pub(crate) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}"));
    }

    /// No more requests are taken.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=shutting down");
    }

    /// Gives signs of life for as long as it is polled, twice as often as they are waited for. A store that is away is no
    /// reason to stop them: another start would not bring it back.
    pub(crate) async fn keep_alive(&self) -> Infallible {
        let (Some(_), Some(watchdog)) = (&self.socket, self.watchdog) else {
            return pending().await;
        };
        let mut ticks = interval(watchdog / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, words: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(words.as_bytes())
        {
            not_told(&error);
        }
    }
}

fn not_told(error: &io::Error) {
    tracing::warn!(%error, "the service manager (NOTIFY_SOCKET) cannot be told");
}

/// A path, or with `@` a name of Linux' abstract ones.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// What `WATCHDOG_USEC` says, unless it is about another process.
fn watchdog(variable: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    let meant = variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(own));
    let micros: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (meant && micros > 1).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_kept_by_the_process_that_it_is_for() {
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
