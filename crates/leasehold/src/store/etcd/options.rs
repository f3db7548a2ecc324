//! The options of an `etcd://` URL.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::tls::TlsFiles;
use crate::{Error, Result, duration};

const KNOWN: [&str; 7] = ["ca", "cert", "changes", "key", "margin", "prefix", "tls"];

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

/// The options of a URL.
pub(super) struct EtcdOptions {
    pub(super) endpoints: Vec<Endpoint>,
    /// User and password.
    pub(super) user: Option<(String, String)>,
    /// The prefix of all keys.
    pub(super) prefix: String,
    pub(super) margin: Duration,
    /// Whether to watch for changes.
    pub(super) changes: bool,
    pub(super) tls: bool,
    pub(super) files: TlsFiles,
}

impl EtcdOptions {
    /// Parses a URL. No error repeats any part of it that may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let base = base.strip_prefix("etcd://").ok_or_else(malformed)?;
        let (user, hosts) = match base.rsplit_once('@') {
            None => (None, base),
            Some((user, hosts)) => (Some(parse_user(user)?), hosts),
        };
        let hosts = hosts.trim_end_matches('/');
        let endpoints = hosts.split(',').map(parse_endpoint);
        let mut options = Self {
            endpoints: endpoints.collect::<Option<_>>().ok_or_else(malformed)?,
            user,
            prefix: "leasehold/".into(),
            margin: Duration::from_secs(2),
            changes: true,
            tls: false,
            files: TlsFiles::default(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(key, decoded(raw)?)?;
        }
        let files = &options.files;
        if !options.tls && *files != TlsFiles::default() {
            return Err(Error::invalid(
                "`ca`, `cert` and `key` in the store URL require `tls=on`",
            ));
        }
        if files.certificate.is_some() != files.key.is_some() {
            return Err(Error::invalid(
                "`cert` and `key` in the store URL must be used together",
            ));
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: String) -> Result<()> {
        match key {
            "ca" => self.files.authorities = Some(value),
            "cert" => self.files.certificate = Some(value),
            "changes" => self.changes = on_or_off(key, &value)?,
            "key" => self.files.key = Some(value),
            "margin" => self.margin = duration::parse(&value)?,
            "prefix" => self.prefix = value,
            "tls" => self.tls = on_or_off(key, &value)?,
            _ => {
                return Err(Error::invalid(format!(
                    "`etcd:` has no option `{key}`: use {}",
                    KNOWN.join(", ")
                )));
            }
        }
        Ok(())
    }
}

fn parse_user(user: &str) -> Result<(String, String)> {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    Ok((decoded(user)?, decoded(password)?))
}

fn parse_endpoint(text: &str) -> Option<Endpoint> {
    let is_bare = text.ends_with(']') || !text.contains(':');
    let (host, port) = match is_bare {
        true => (text, 2379),
        false => {
            let (host, port) = text.rsplit_once(':')?;
            (host, port.parse().ok()?)
        }
    };
    let host = host.trim_matches(['[', ']']);
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    (!host.is_empty() && host.chars().all(is_host)).then(|| Endpoint {
        host: host.to_owned(),
        port,
    })
}

fn decoded(raw: &str) -> Result<String> {
    let text = percent_decode_str(raw).decode_utf8();
    text.map(Into::into)
        .map_err(|_| Error::invalid("a part of the store URL is not UTF-8"))
}

fn malformed() -> Error {
    Error::invalid("the store URL is not of the form `etcd://[USER:PASSWORD@]HOST[:PORT],…`")
}

fn on_or_off(key: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(format!(
            "`{key}` in the store URL is `on` or `off`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_the_url() {
        let url =
            "etcd://ada:s%40cret@a,b:1,[::1]:2?prefix=x/&changes=off&margin=3s&tls=on&ca=ca.pem";
        let options = EtcdOptions::parse(url).expect("a good URL");
        let places: Vec<_> = options
            .endpoints
            .iter()
            .map(|endpoint| (endpoint.host.as_str(), endpoint.port))
            .collect();
        assert_eq!(places, [("a", 2379), ("b", 1), ("::1", 2)]);
        assert_eq!(options.user, Some(("ada".into(), "s@cret".into())));
        assert_eq!((&*options.prefix, options.changes), ("x/", false));
        assert_eq!(options.margin, Duration::from_secs(3));
    }

    #[test]
    fn invalid_url_is_refused_without_repeating_its_secret() {
        for (url, hint) in [
            ("etcd://", "form"),
            ("etcd://a:port", "form"),
            ("etcd://ada:s/ecret@a:x", "form"),
            ("etcd://a?banana=1", "prefix"),
            ("etcd://a?changes=maybe", "on"),
            ("etcd://a?ca=x", "tls=on"),
            ("etcd://a?tls=on&cert=x", "together"),
        ] {
            let message = EtcdOptions::parse(url).err().expect(url).to_string();
            assert!(
                message.contains(hint) && !message.contains("ecret"),
                "{message}"
            );
        }
    }
}
