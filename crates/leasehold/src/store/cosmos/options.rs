//! The options of a `cosmos://` URL.

use std::time::Duration;

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use hyper::Uri;
use percent_encoding::percent_decode_str;

use crate::{Error, Result, duration};

const KNOWN: &str = "`auth`, `endpoint`, `key`, `margin` and `poll`";
/// The environment variable with the key, unless the URL has one.
const KEY_VARIABLE: &str = "AZURE_COSMOS_KEY";

/// The credentials.
#[derive(Debug)]
pub(super) enum Credential {
    /// The account's key.
    Key(Secret),
    /// This process's identity in Microsoft Entra ID: from the environment, or the machine's managed identity.
    Entra,
    /// The login of `az`.
    Cli,
}

/// The options of a URL. `Debug` prints no secret.
#[derive(Debug)]
pub(super) struct CosmosOptions {
    pub(super) database: String,
    pub(super) container: String,
    /// Scheme, host and port.
    pub(super) endpoint: Uri,
    pub(super) credential: Credential,
    pub(super) margin: Duration,
    pub(super) poll: Duration,
}

impl CosmosOptions {
    /// Parses a URL. No error repeats what may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        Self::parse_with(url, std::env::var(KEY_VARIABLE).ok())
    }

    fn parse_with(url: &str, key_from_environment: Option<String>) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let base = base.strip_prefix("cosmos://").ok_or_else(malformed)?;
        let parts: Vec<_> = base.split('/').collect();
        let [account, database, container] = parts[..] else {
            return Err(malformed());
        };
        if !is_account(account) {
            return Err(malformed());
        }
        let mut options = Self {
            database: id(database)?,
            container: id(container)?,
            endpoint: endpoint(&format!("https://{account}.documents.azure.com"))?,
            credential: Credential::Entra,
            margin: Duration::from_secs(2),
            poll: Duration::from_millis(250),
        };
        let (mut key, mut auth) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(raw)?;
            match option {
                "auth" => auth = Some(value),
                "endpoint" => options.endpoint = endpoint(&value)?,
                "key" => key = Some(value),
                "margin" => options.margin = duration::parse(&value)?,
                "poll" => options.poll = duration::parse(&value)?.max(Duration::from_millis(20)),
                unknown => {
                    return Err(Error::invalid(format!(
                        "`cosmos:` has no option `{unknown}`: use {KNOWN}"
                    )));
                }
            }
        }
        options.credential = credential(auth.as_deref(), key, key_from_environment)?;
        if options.is_plain() && !matches!(options.credential, Credential::Key(_)) {
            return Err(Error::invalid(
                "`auth=entra` and `auth=cli` require an `https` endpoint, because tokens must be encrypted in transit",
            ));
        }
        Ok(options)
    }

    /// Returns whether connections are unencrypted, as with an emulator.
    pub(super) fn is_plain(&self) -> bool {
        self.endpoint.scheme_str() == Some("http")
    }
}

fn credential(
    auth: Option<&str>,
    key: Option<String>,
    from_environment: Option<String>,
) -> Result<Credential> {
    match (auth, key) {
        (None | Some("key"), key) => {
            let key = key.or(from_environment).filter(|key| !key.is_empty());
            let key = Secret::new(key.ok_or_else(|| {
                Error::invalid(format!(
                    "no key for Cosmos DB: set {KEY_VARIABLE}, add `?key=KEY` to the store URL, or `?auth=entra` to use \
                     Microsoft Entra ID"
                ))
            })?);
            match hmac_sha256("", &key) {
                Ok(_) => Ok(Credential::Key(key)),
                Err(_) => Err(Error::invalid(
                    "the key for Cosmos DB is not base64: copy the account's primary or secondary key unchanged",
                )),
            }
        }
        (Some("entra"), None) => Ok(Credential::Entra),
        (Some("cli"), None) => Ok(Credential::Cli),
        (Some("entra" | "cli"), Some(_)) => Err(Error::invalid(
            "`key` in the store URL cannot be used with `auth=entra` or `auth=cli`",
        )),
        _ => Err(Error::invalid(
            "`auth` in the store URL is `key`, `entra` or `cli`",
        )),
    }
}

fn malformed() -> Error {
    Error::invalid("the store URL is not of the form `cosmos://ACCOUNT/DATABASE/CONTAINER?…`")
}

/// Returns whether Azure allows this name.
fn is_account(name: &str) -> bool {
    (3..=50).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Parses the id of a database or a container.
fn id(raw: &str) -> Result<String> {
    let id = decoded(raw)?;
    let is_good = !id.is_empty() && id.len() <= 255 && !id.contains(['/', '\\', '?', '#']);
    is_good.then_some(id).ok_or_else(malformed)
}

fn endpoint(url: &str) -> Result<Uri> {
    let invalid = || {
        Error::invalid("`endpoint` in the store URL is `http://HOST:PORT` or `https://HOST:PORT`")
    };
    let uri: Uri = url.parse().map_err(|_| invalid())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    match is_web && !authority.contains('@') && matches!(uri.path(), "" | "/") {
        true => Ok(uri),
        false => Err(invalid()),
    }
}

fn decoded(raw: &str) -> Result<String> {
    let text = percent_decode_str(raw).decode_utf8();
    text.map(Into::into)
        .map_err(|_| Error::invalid("a part of the store URL is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_credentials_are_read_from_the_url() {
        let url = "cosmos://app-1/shop/leases%20of%20ours?key=c2VjcmV0/+==";
        let options = CosmosOptions::parse_with(url, None).err();
        assert!(options.is_some(), "a key that is not base64");
        let url = "cosmos://app-1/shop/leases%20of%20ours?key=c2VjcmV0&margin=3s&poll=1s";
        let options = CosmosOptions::parse_with(url, None).unwrap();
        assert_eq!(
            (&*options.database, &*options.container),
            ("shop", "leases of ours")
        );
        assert_eq!(
            options.endpoint.to_string(),
            "https://app-1.documents.azure.com/"
        );
        assert_eq!(
            (options.margin, options.poll),
            (Duration::from_secs(3), Duration::from_secs(1))
        );
        assert!(!format!("{options:?}").contains("c2VjcmV0"));
    }

    #[test]
    fn key_of_the_environment_is_the_default() {
        let from_environment = || Some("c2VjcmV0".to_owned());
        let key = CosmosOptions::parse_with("cosmos://app/d/c", from_environment()).unwrap();
        assert!(matches!(key.credential, Credential::Key(_)));
        // An explicit `auth` overrides the environment.
        for (auth, is_entra) in [("entra", true), ("cli", false)] {
            let url = format!("cosmos://app/d/c?auth={auth}");
            let options = CosmosOptions::parse_with(&url, from_environment()).unwrap();
            assert_eq!(matches!(options.credential, Credential::Entra), is_entra);
            assert!(!matches!(options.credential, Credential::Key(_)));
        }
    }

    #[test]
    fn invalid_url_is_refused_with_a_hint() {
        for (url, hint) in [
            ("cosmos:app/d/c", "cosmos://ACCOUNT"),
            ("cosmos://app/d", "CONTAINER"),
            ("cosmos://app/d/c/x", "CONTAINER"),
            ("cosmos://app//c", "DATABASE"),
            ("cosmos://key:c2VjcmV0@app/d/c", "ACCOUNT"),
            ("cosmos://app/d/c", "AZURE_COSMOS_KEY"),
            ("cosmos://app/d/c?key=c2VjcmV0!", "base64"),
            (
                "cosmos://app/d/c?key=c2VjcmV0&auth=entra",
                "cannot be used with",
            ),
            ("cosmos://app/d/c?key=c2VjcmV0&auth=magic", "`entra`"),
            ("cosmos://app/d/c?auth=entra&endpoint=http://h", "https"),
            ("cosmos://app/d/c?kye=c2VjcmV0", "`key`"),
            (
                "cosmos://app/d/c?key=c2VjcmV0&endpoint=127.0.0.1:1",
                "http://HOST",
            ),
            ("cosmos://app/d/c?endpoint=http://c2VjcmV0@h", "http://HOST"),
        ] {
            let error = CosmosOptions::parse_with(url, None).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
            assert!(!error.to_string().contains("c2VjcmV0"), "{url}: {error}");
        }
    }
}
