//! The options of a `redis://` or `rediss://` URL.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, IntoConnectionInfo as _};

use crate::tls::TlsFiles;
use crate::{Error, Result, duration};

const KNOWN: &str = "`ca`, `cert`, `changes`, `key`, `margin`, `prefix`, `wait` and `wait_timeout`";

/// The options of a URL.
pub(super) struct RedisOptions {
    pub(super) server: ConnectionInfo,
    /// The prefix of all keys.
    pub(super) prefix: String,
    pub(super) margin: Duration,
    /// Whether to publish changes and to subscribe to them.
    pub(super) changes: bool,
    /// How many replicas must have a write, and how long to wait for them.
    pub(super) wait: Option<(usize, Duration)>,
    /// The TLS files, for `rediss:` only.
    pub(super) tls: Option<TlsFiles>,
}

impl RedisOptions {
    /// Parses a URL. No error repeats any part of it that may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let server = base.into_connection_info().map_err(|_| {
            Error::invalid(
                "the store URL is not of the form `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://` for TLS",
            )
        })?;
        let mut options = Self {
            server,
            prefix: "leasehold".into(),
            margin: Duration::from_millis(250),
            changes: true,
            wait: None,
            tls: None,
        };
        let mut files = TlsFiles::default();
        let (mut replicas, mut timeout) = (0, Duration::from_secs(1));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| Error::invalid(format!("`{key}` in the store URL is not UTF-8")))?;
            match key {
                "ca" => files.authorities = Some(value.into_owned()),
                "cert" => files.certificate = Some(value.into_owned()),
                "changes" => options.changes = on_or_off(&value)?,
                "key" => files.key = Some(value.into_owned()),
                "margin" => options.margin = duration::parse(&value)?,
                "prefix" => options.prefix = value.into_owned(),
                "wait" => replicas = count(&value)?,
                "wait_timeout" => timeout = duration::parse(&value)?,
                unknown => {
                    return Err(Error::invalid(format!(
                        "`redis:` has no option `{unknown}`: use {KNOWN}"
                    )));
                }
            }
        }
        options.tls = validated(files, base.starts_with("rediss:"))?;
        options.wait = (replicas > 0).then_some((replicas, timeout));
        Ok(options)
    }
}

/// Returns the files if TLS is on; refuses them otherwise.
fn validated(files: TlsFiles, has_tls: bool) -> Result<Option<TlsFiles>> {
    if !has_tls && files != TlsFiles::default() {
        return Err(Error::invalid(
            "`ca`, `cert` and `key` in the store URL require `rediss://`",
        ));
    }
    if files.certificate.is_some() != files.key.is_some() {
        return Err(Error::invalid(
            "`cert` and `key` in the store URL must be used together",
        ));
    }
    Ok(has_tls.then_some(files))
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
    value
        .parse()
        .map_err(|_| Error::invalid("`wait` in the store URL is a number of replicas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_url_is_refused_without_repeating_its_secret() {
        for (url, hint) in [
            ("redis://:s3cret@h:port", "form"),
            ("redis://:s3cret@h?colour=red", "`prefix`"),
            ("redis://:s3cret@h?changes=maybe", "on"),
            ("redis://:s3cret@h?wait=all", "number"),
            ("redis://:s3cret@h?ca=x", "rediss://"),
            ("rediss://:s3cret@h?cert=x", "together"),
        ] {
            let message = RedisOptions::parse(url).err().expect(url).to_string();
            assert!(
                message.contains(hint) && !message.contains("s3cret"),
                "{message}"
            );
        }
        assert!(RedisOptions::parse("rediss://h").is_ok_and(|options| options.tls.is_some()));
    }
}
