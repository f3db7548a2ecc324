//! The options of a `postgres://` URL.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::TlsMode;
use crate::{Error, Result, duration};

/// The options of this store, including `sslmode`, which has more values than the driver supports.
const OWN: [&str; 6] = [
    "changes",
    "connections",
    "margin",
    "schema",
    "sslmode",
    "sslrootcert",
];

/// The options of the driver.
const DRIVER: [&str; 15] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "port",
    "target_session_attrs",
    "user",
];

/// The options of a URL.
pub(super) struct PostgresOptions {
    pub(super) server: Config,
    pub(super) trust: TlsMode,
    /// The schema of the table; otherwise the search path applies.
    pub(super) schema: Option<String>,
    pub(super) margin: Duration,
    /// Whether to notify other processes of changes, and to listen.
    pub(super) changes: bool,
    pub(super) connections: usize,
}

impl PostgresOptions {
    /// Parses a URL. No error repeats any part of it that may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut driver = String::new();
        let mut options = Self {
            server: Config::new(),
            trust: TlsMode::Prefer,
            schema: None,
            margin: Duration::from_millis(250),
            changes: true,
            connections: 8,
        };
        let (mut mode, mut roots) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| Error::invalid(format!("`{key}` in the store URL is not UTF-8")))?
                .into_owned();
            match key {
                "changes" => options.changes = on_or_off(&value)?,
                "connections" => options.connections = count(&value)?,
                "margin" => options.margin = duration::parse(&value)?,
                "schema" => options.schema = Some(value),
                "sslmode" => mode = Some(value),
                "sslrootcert" => roots = Some(value),
                known if DRIVER.contains(&known) => {
                    driver.push(if driver.is_empty() { '?' } else { '&' });
                    driver.push_str(pair);
                }
                _ => return Err(unknown(key)),
            }
        }
        options.server = format!("{base}{driver}").parse().map_err(|error| {
            Error::invalid(format!(
                "the store URL is not of the form `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE` ({}); percent-encode special \
                 characters, also in a password",
                message(&error)
            ))
        })?;
        options.trust = TlsMode::parse(mode.as_deref(), roots)?;
        options.set_defaults();
        Ok(options)
    }

    /// Sets defaults for what a URL usually leaves out.
    fn set_defaults(&mut self) {
        let server = &mut self.server;
        if server.get_hosts().is_empty() {
            server.host("localhost");
        }
        if server.get_application_name().is_none() {
            server.application_name("leasehold");
        }
        // The password need not be in the URL, which every user of the machine can see in the process list.
        if let (None, Ok(password)) = (server.get_password(), std::env::var("PGPASSWORD")) {
            server.password(password);
        }
        server.ssl_mode(match self.trust {
            TlsMode::Plain => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        });
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(Duration::from_secs(2));
        }
        // Lets the kernel detect a server that has vanished, in addition to our own timeouts.
        server.keepalives_idle(Duration::from_secs(15));
        if server.get_tcp_user_timeout().is_none() {
            server.tcp_user_timeout(Duration::from_secs(10));
        }
    }

    /// Describes where the server is. Contains no secrets.
    pub(super) fn location(&self) -> String {
        let ports = self.server.get_ports();
        let hosts = self.server.get_hosts().iter().enumerate().map(|(n, host)| {
            let port = ports.get(n).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                Host::Unix(folder) => format!("{} (port {port})", folder.display()),
            }
        });
        hosts.collect::<Vec<_>>().join(", ")
    }
}

fn on_or_off(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(
            "`changes` in the store URL is `on` or `off`",
        )),
    }
}

fn count(value: &str) -> Result<usize> {
    let count = value.parse().ok().filter(|count| (1..=100).contains(count));
    count.ok_or_else(|| Error::invalid("`connections` in the store URL is a number from 1 to 100"))
}

/// Describes a driver error with its reason. The driver names the invalid part of a URL, but does not repeat it.
fn message(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(reason) => format!("{error}: {reason}"),
        None => error.to_string(),
    }
}

fn unknown(key: &str) -> Error {
    let mut known = [&OWN[..], &DRIVER[..]].concat();
    known.sort_unstable();
    Error::invalid(format!(
        "`postgres:` has no option `{key}`: use {}",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_the_url() {
        let options = PostgresOptions::parse(
            "postgres://app:s3cret@db.example:6432/leases?schema=ops&margin=1s&changes=off&sslmode=require&connections=3",
        )
        .unwrap();
        assert_eq!(options.location(), "db.example:6432");
        assert_eq!(options.server.get_dbname(), Some("leases"));
        assert_eq!(options.schema.as_deref(), Some("ops"));
        assert_eq!(options.margin, Duration::from_secs(1));
        assert_eq!((options.changes, options.connections), (false, 3));
        assert_eq!(options.server.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn invalid_url_is_refused_without_repeating_its_secret() {
        for (url, hint) in [
            ("postgres://a:s3cret@h/d?colour=red", "connections"),
            ("postgres://a:s3cret@h/d?changes=maybe", "on"),
            ("postgres://a:s3cret@h/d?margin=soon", "500ms"),
            ("postgres://a:s3cret@h/d?sslmode=s3cret", "verify-full"),
            ("postgres://a:s3cret@h/d?connections=0", "1 to 100"),
            ("postgres://a:s3cret@h:port/d", "HOST[:PORT]"),
        ] {
            let error = PostgresOptions::parse(url).err().expect(url);
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
            let message = error.to_string();
            assert!(message.contains(hint), "{url}: {message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}
