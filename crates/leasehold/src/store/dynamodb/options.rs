//! The options of a `dynamodb://` URL.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::{Error, Result, duration};

const KNOWN: &str = "`endpoint`, `margin`, `poll`, `profile` and `region`";

/// The options of a URL.
#[derive(Debug)]
pub(super) struct DynamoDbOptions {
    pub(super) table: String,
    pub(super) region: Option<String>,
    /// The endpoint, unless it is Amazon's.
    pub(super) endpoint: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) margin: Duration,
    pub(super) poll: Duration,
}

impl DynamoDbOptions {
    /// Parses a URL.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let form = || {
            Error::invalid(
                "the store URL is not of the form `dynamodb://TABLE?region=REGION`: credentials come from the environment",
            )
        };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let table = base.strip_prefix("dynamodb://").ok_or_else(form)?;
        let table = table.strip_suffix('/').unwrap_or(table);
        if !is_table_name(table) {
            return Err(form());
        }
        let mut options = Self {
            table: table.to_owned(),
            region: None,
            endpoint: None,
            profile: None,
            margin: Duration::from_secs(2),
            poll: Duration::from_millis(250),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| Error::invalid(format!("`{key}` in the store URL is not UTF-8")))?
                .into_owned();
            let given = Some(value.clone()).filter(|value| !value.is_empty());
            match key {
                "endpoint" => options.endpoint = given.map(endpoint).transpose()?,
                "margin" => options.margin = duration::parse(&value)?,
                "poll" => options.poll = duration::parse(&value)?.max(Duration::from_millis(20)),
                "profile" => options.profile = given,
                "region" => options.region = given,
                unknown => {
                    return Err(Error::invalid(format!(
                        "`dynamodb:` has no option `{unknown}`: use {KNOWN}"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// Returns whether the endpoint is an emulator on this machine, which accepts any credentials.
    pub(super) fn is_local(&self) -> bool {
        let host = self
            .endpoint
            .as_deref()
            .and_then(|endpoint| endpoint.split_once("://"));
        host.is_some_and(|(_, host)| {
            ["127.0.0.1", "localhost", "[::1]"].iter().any(|local| {
                host.strip_prefix(local)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
            })
        })
    }
}

/// Returns whether Amazon allows this name.
fn is_table_name(name: &str) -> bool {
    (3..=255).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn endpoint(url: String) -> Result<String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains('@') => Ok(url),
        _ => Err(Error::invalid(
            "`endpoint` in the store URL is `http://HOST:PORT` or `https://HOST:PORT`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_the_url() {
        let options = DynamoDbOptions::parse("dynamodb://leases?region=eu-west-1").unwrap();
        assert_eq!(
            (&*options.table, options.region.as_deref()),
            ("leases", Some("eu-west-1"))
        );
        assert_eq!(options.margin, Duration::from_secs(2));
        let url = "dynamodb://a.b_c-d/?endpoint=http%3A%2F%2F127.0.0.1:8000&margin=3s&poll=1s";
        let options = DynamoDbOptions::parse(url).unwrap();
        assert_eq!(options.table, "a.b_c-d");
        assert_eq!(options.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(
            (options.margin, options.poll),
            (Duration::from_secs(3), Duration::from_secs(1))
        );
    }

    #[test]
    fn invalid_url_is_refused_with_a_hint() {
        for (url, hint) in [
            ("dynamodb:leases", "dynamodb://TABLE"),
            ("dynamodb://", "dynamodb://TABLE"),
            ("dynamodb://key:secret@leases", "environment"),
            ("dynamodb://leases?regoin=x", "`region`"),
            ("dynamodb://leases?endpoint=127.0.0.1:8000", "http://HOST"),
            (
                "dynamodb://leases?endpoint=http://key:secret@h",
                "http://HOST",
            ),
        ] {
            let error = DynamoDbOptions::parse(url).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn only_loopback_is_local() {
        for (endpoint, local) in [
            ("http://127.0.0.1:8000", true),
            ("http://localhost", true),
            ("http://[::1]:8000/", true),
            ("https://127.0.0.1:8000", true),
            ("http://127.0.0.1.example.com", false),
            ("http://localstack:4566", false),
        ] {
            let options =
                DynamoDbOptions::parse(&format!("dynamodb://leases?endpoint={endpoint}")).unwrap();
            assert_eq!(options.is_local(), local, "{endpoint}");
        }
    }
}
