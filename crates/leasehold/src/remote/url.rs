//! The URL of a service, and the targets of its routes.

use std::fmt;

use hyper::Uri;
use hyper::header::HeaderValue;
use leasehold_core::{Kind, Name};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::store::redacted;
use crate::store::url::check;
use crate::tls::TlsFiles;
use crate::{Error, Result};

/// Characters that require no encoding anywhere in a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Characters that require no encoding in the value of a parameter.
const PARAMETER_VALUE: &AsciiSet = &UNRESERVED.remove(b'/').remove(b':').remove(b'@');

/// The parsed URL of a service.
#[derive(Clone, Debug)]
pub(super) struct ServiceUrl {
    text: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The `Host` header.
    pub(super) authority: HeaderValue,
    /// The path before `/locks`, if a proxy serves the service below a path.
    base: String,
    /// The TLS files of an `https://` URL.
    pub(super) tls: Option<TlsFiles>,
}

impl ServiceUrl {
    pub(super) fn parse(text: &str) -> Result<Self> {
        check(text)?;
        let shown = redacted(text);
        let invalid =
            |why: &str| Error::invalid(format!("`{shown}` is not a service's URL: {why}"));
        let (text, options) = text.split_once('?').unwrap_or((text, ""));
        let secure = text.starts_with("https://");
        let rest = text
            .strip_prefix("https://")
            .or(text.strip_prefix("http://"));
        let rest = rest.ok_or_else(|| invalid("it does not start with `http://` or `https://`"))?;
        if rest.contains('@') {
            return Err(invalid(
                "it cannot name a user: give `http://HOST:PORT`, and a token by itself",
            ));
        }
        let tls = match (secure, options) {
            (true, options) => Some(parse_tls_options(options)?),
            (false, "") => None,
            (false, _) => return Err(invalid("only `https://` has options")),
        };
        let uri: Uri = text
            .parse()
            .map_err(|error: hyper::http::uri::InvalidUri| invalid(&error.to_string()))?;
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        let host = authority.host();
        if host.is_empty() {
            return Err(invalid("it has no host"));
        }
        let port = match authority.as_str()[host.len()..].strip_prefix(':') {
            None if secure => 443,
            None => 80,
            Some(port) => port
                .parse()
                .map_err(|_| invalid("its port is not a number up to 65535"))?,
        };
        Ok(Self {
            text: text.trim_end_matches('/').to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            authority: HeaderValue::from_str(authority.as_str())
                .map_err(|_| invalid("its host is not ASCII"))?,
            base: uri.path().trim_end_matches('/').to_owned(),
            tls,
        })
    }

    /// Returns the target of a route without a name.
    pub(super) fn route(&self, path: &str) -> Target {
        Target {
            text: format!("{}{path}", self.base),
            base: self.base.len(),
            has_parameters: false,
        }
    }

    /// Returns the target of a route of a lock or a gate. `suffix` follows the name.
    pub(super) fn lease(&self, name: &Name, suffix: &str) -> Target {
        let collection = match name.kind() {
            Kind::Lock => "/locks",
            Kind::Gate => "/gates",
        };
        self.name_target(collection, name, suffix)
    }

    /// Returns the target of the route of a work item.
    pub(super) fn item(&self, name: &Name) -> Target {
        self.name_target("/items", name, "")
    }

    fn name_target(&self, collection: &str, name: &Name, suffix: &str) -> Target {
        let name = name.as_str();
        // Proxies may normalise these in a path, encoded or not.
        if name.contains(['/', '\\']) || name == "." || name == ".." {
            return self
                .route(&format!("{collection}{suffix}"))
                .with("name", name);
        }
        let encoded = utf8_percent_encode(name, UNRESERVED);
        self.route(&format!("{collection}/{encoded}{suffix}"))
    }
}

/// Parses the options of an `https://` URL.
fn parse_tls_options(options: &str) -> Result<TlsFiles> {
    let mut files = TlsFiles::default();
    for pair in options.split('&').filter(|pair| !pair.is_empty()) {
        let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
        let path = percent_decode_str(raw).decode_utf8();
        let path = path.map_err(|_| {
            Error::invalid("an option of the service's URL is not UTF-8: percent-encode it")
        })?;
        let file = match key {
            "ca" => &mut files.authorities,
            "cert" => &mut files.certificate,
            "key" => &mut files.key,
            // The option is not repeated in the message: it may be a token.
            _ => {
                return Err(Error::invalid(
                    "the service's URL has an unknown option: the options are `ca`, `cert` and `key`",
                ));
            }
        };
        *file = Some(path.into_owned());
    }
    if files.certificate.is_some() != files.key.is_some() {
        return Err(Error::invalid(
            "the service's URL has only one of `cert` and `key`: give both",
        ));
    }
    Ok(files)
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A path with parameters.
#[derive(Clone, Debug)]
pub(super) struct Target {
    text: String,
    /// The length of the base path of a proxy.
    base: usize,
    has_parameters: bool,
}

impl Target {
    /// Adds a parameter.
    pub(super) fn with(mut self, key: &str, value: &str) -> Self {
        self.text.push(if self.has_parameters { '&' } else { '?' });
        self.has_parameters = true;
        self.text.push_str(key);
        self.text.push('=');
        self.text
            .extend(utf8_percent_encode(value, PARAMETER_VALUE));
        self
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }

    /// Returns the target as the service sees it, without the base path of a proxy.
    pub(super) fn without_base(&self) -> &str {
        &self.text[self.base..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = ServiceUrl::parse("http://localhost:12345/").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("localhost", 12345));
        assert_eq!(url.to_string(), "http://localhost:12345");
        assert_eq!(url.route("/locks").into_string(), "/locks");
        let url = ServiceUrl::parse("http://[::1]/below/here").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", 80));
        assert_eq!(url.route("/locks").without_base(), "/locks");
        assert_eq!(url.route("/locks").into_string(), "/below/here/locks");
        let url = ServiceUrl::parse("https://db1?ca=%2Fca.pem&cert=c&key=k").unwrap();
        let files = url.tls.clone().unwrap();
        assert_eq!((url.port, url.to_string().as_str()), (443, "https://db1"));
        assert_eq!(files.authorities.as_deref(), Some("/ca.pem"));
        for bad in ["https://a?x=1", "https://a?cert=c"] {
            assert!(ServiceUrl::parse(bad).is_err(), "{bad}");
        }
        for bad in [
            "http://",
            "http://:80",
            "localhost:80",
            "http://a:b",
            "http://a:99999",
            "http://user:secret@a",
            "http://a?b",
            "http://a b",
        ] {
            let error = ServiceUrl::parse(bad).unwrap_err().to_string();
            assert!(error.contains("is not a service's URL"), "{bad}: {error}");
        }
    }

    #[test]
    fn errors_contain_no_passwords_or_tokens() {
        for bad in [
            "http://user:s3cret@a",
            "http://user:s3/cret@a",
            "http://s3cret@a:99999",
            "http://a?token=s3cret",
            "http://a#s3cret",
            "https://user:s3?cret@a",
            "https://a?s3cret",
            "https://a?ca=ca.pem#s3cret",
            "httpd://user:s3cret@a",
        ] {
            let error = ServiceUrl::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("s3"), "{bad}: {error}");
        }
    }

    #[test]
    fn names_are_encoded_and_never_split() {
        let url = ServiceUrl::parse("http://a").unwrap();
        for (name, target) in [
            ("job", "/locks/job/1?x=%26"),
            ("#?% é", "/locks/%23%3F%25%20%C3%A9/1?x=%26"),
            ("a/b", "/locks/1?name=a/b&x=%26"),
            ("..", "/locks/1?name=..&x=%26"),
        ] {
            let name = Name::lock(name).unwrap();
            let lease = url.lease(&name, "/1").with("x", "&");
            assert_eq!(lease.into_string(), target);
        }
        let gate = Name::gate("a b").unwrap();
        assert_eq!(url.lease(&gate, "/1").into_string(), "/gates/a%20b/1");
        let item = Name::lock("a/b").unwrap();
        assert_eq!(url.item(&item).into_string(), "/items?name=a/b");
    }
}
