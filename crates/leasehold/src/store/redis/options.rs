//! What a `redis://` or `rediss://` URL says.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, IntoConnectionInfo as _};

use crate::tls::Files;
use crate::{Error, Result, duration};

const KNOWN: &str = "`ca`, `cert`, `changes`, `key`, `margin`, `prefix`, `wait` and `wait_timeout`";

/// What a URL says.
pub(super) struct Options {
    pub(super) server: ConnectionInfo,
    /// What all keys begin with.
    pub(super) prefix: String,
    pub(super) margin: Duration,
    /// Whether to tell others of changes, and to be told.
    pub(super) changes: bool,
    /// How many replicas must have a write before it counts, and for how long to wait for them.
    pub(super) wait: Option<(usize, Duration)>,
    /// Where `rediss:` asks for TLS.
    pub(super) tls: Option<Files>,
}

impl Options {
    /// Reads a URL. No error repeats any part of it that may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let server = place.into_connection_info().map_err(|_| {
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
        let mut files = Files::default();
        let (mut replicas, mut within) = (0, Duration::from_secs(1));
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
                "wait_timeout" => within = duration::parse(&value)?,
                unknown => {
                    return Err(Error::invalid(format!(
                        "`redis:` has no option `{unknown}`: there are {KNOWN}"
                    )));
                }
            }
        }
        options.tls = used(files, place.starts_with("rediss:"))?;
        options.wait = (replicas > 0).then_some((replicas, within));
        Ok(options)
    }
}

/// The files, where there is TLS to use them for.
fn used(files: Files, has_tls: bool) -> Result<Option<Files>> {
    if !has_tls && files != Files::default() {
        return Err(Error::invalid(
            "`ca`, `cert` and `key` in the store URL go with `rediss://`",
        ));
    }
    if files.certificate.is_some() != files.key.is_some() {
        return Err(Error::invalid(
            "`cert` and `key` in the store URL go together",
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
    fn a_wrong_url_is_explained_without_its_secrets() {
        for (url, hint) in [
            ("redis://:s3cret@h:port", "form"),
            ("redis://:s3cret@h?colour=red", "`prefix`"),
            ("redis://:s3cret@h?changes=maybe", "on"),
            ("redis://:s3cret@h?wait=all", "number"),
            ("redis://:s3cret@h?ca=x", "rediss://"),
            ("rediss://:s3cret@h?cert=x", "together"),
        ] {
            let told = Options::parse(url).err().expect(url).to_string();
            assert!(told.contains(hint) && !told.contains("s3cret"), "{told}");
        }
        assert!(Options::parse("rediss://h").is_ok_and(|options| options.tls.is_some()));
    }
}
