//! The options of a `mysql://` URL.

use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};
use percent_encoding::percent_decode_str;

use crate::{Error, Result, duration};

const KNOWN: &str = "connections, margin, socket, ssl-ca, ssl-mode";

/// The settings of every connection, whatever the server's defaults: statements see committed data, fail instead of
/// truncating text, and wait one second for a lock.
const SESSION: [&str; 3] = [
    "set names utf8mb4",
    "set session transaction isolation level read committed",
    "set session autocommit = 1, innodb_lock_wait_timeout = 1, group_concat_max_len = 1048576, \
     sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
];

/// The options of a URL.
pub(super) struct MysqlOptions {
    pub(super) server: Opts,
    pub(super) margin: Duration,
    pub(super) connections: usize,
}

impl MysqlOptions {
    /// Parses a URL. No error repeats any part of it that may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut margin, mut connections) = (Duration::from_millis(250), 8);
        let (mut mode, mut authority, mut socket) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| Error::invalid(format!("`{key}` in the store URL is not UTF-8")))?
                .into_owned();
            match key {
                "connections" => connections = count(&value)?,
                "margin" => margin = duration::parse(&value)?,
                "socket" => socket = Some(value),
                "ssl-ca" => authority = Some(value),
                "ssl-mode" => mode = Some(value.to_lowercase()),
                _ => {
                    return Err(Error::invalid(format!(
                        "`mysql:` has no option `{key}`: use {KNOWN}"
                    )));
                }
            }
        }
        let base = match base.strip_prefix("mariadb:") {
            Some(rest) => &format!("mysql:{rest}"),
            None => base,
        };
        let opts = Opts::from_url(base).map_err(|_| {
            Error::invalid("the store URL is not of the form `mysql://USER@HOST/DATABASE`")
        })?;
        if opts.db_name().is_none_or(str::is_empty) {
            return Err(Error::invalid(
                "the store URL has no database: use `mysql://USER@HOST/DATABASE`",
            ));
        }
        // The password need not be in the URL, which every user of the machine can see in the process list.
        let password = opts.pass().map(str::to_owned);
        let password = password.or_else(|| std::env::var("MYSQL_PWD").ok());
        let server = OptsBuilder::from_opts(opts)
            .pass(password)
            .prefer_socket(false)
            .socket(socket)
            .tcp_keepalive(Some(Duration::from_secs(15)))
            .setup(SESSION.to_vec())
            .ssl_opts(tls(mode.as_deref(), authority)?);
        Ok(Self {
            server: server.into(),
            margin,
            connections,
        })
    }

    /// Describes where the server is. Contains no secrets.
    pub(super) fn location(&self) -> String {
        match self.server.socket() {
            Some(socket) => socket.to_owned(),
            None => format!(
                "{}:{}",
                self.server.ip_or_hostname(),
                self.server.tcp_port()
            ),
        }
    }
}

/// Converts `ssl-mode`, which has the values of the servers' own clients.
fn tls(mode: Option<&str>, authority: Option<String>) -> Result<Option<SslOpts>> {
    let checks = match mode {
        None | Some("disabled") => return Ok(None),
        Some("required") => (true, true),
        Some("verify_ca") => (false, true),
        Some("verify_identity") => (false, false),
        _ => {
            return Err(Error::invalid(
                "`ssl-mode` in the store URL is one of disabled, required, verify_ca, verify_identity",
            ));
        }
    };
    // The driver uses the process's default provider, which is ambiguous if other stores are built in.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(path) = &authority {
        std::fs::File::open(path)
            .map_err(|error| Error::Denied(format!("`ssl-ca`: cannot read `{path}`: {error}")))?;
    }
    let roots = authority
        .into_iter()
        .map(|path| std::path::PathBuf::from(path).into());
    let options = SslOpts::default()
        .with_root_certs(roots.collect())
        .with_danger_accept_invalid_certs(checks.0)
        .with_danger_skip_domain_validation(checks.1);
    Ok(Some(options))
}

fn count(value: &str) -> Result<usize> {
    let count = value.parse().ok().filter(|count| (1..=100).contains(count));
    count.ok_or_else(|| Error::invalid("`connections` in the store URL is a number from 1 to 100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_url_is_refused_without_repeating_its_secret() {
        for (url, hint) in [
            ("mysql://a:s3cret@h/d?colour=red", "connections"),
            ("mysql://a:s3cret@h/d?margin=soon", "500ms"),
            ("mysql://a:s3cret@h/d?ssl-mode=s3cret", "verify_identity"),
            ("mysql://a:s3cret@h/d?connections=0", "1 to 100"),
            ("mysql://a:s3cret@h:port/d", "mysql://"),
            ("mysql://a:s3cret@h", "no database"),
        ] {
            let error = MysqlOptions::parse(url).err().expect(url);
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
            let message = error.to_string();
            assert!(message.contains(hint), "{url}: {message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
        let options = MysqlOptions::parse("mysql://a:s3cret@h:3307/d?margin=1s").unwrap();
        assert_eq!(options.location(), "h:3307");
        assert_eq!(options.margin, Duration::from_secs(1));
        let options = MysqlOptions::parse("mariadb://a@h:3307/d").unwrap();
        assert_eq!(options.location(), "h:3307");
    }
}
