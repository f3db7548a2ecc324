//! What a `cosmos://` URL says.

use std::time::Duration;

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use hyper::Uri;
use percent_encoding::percent_decode_str;

use crate::{Error, Result, duration};

const KNOWN: &str = "`auth`, `endpoint`, `key`, `margin` and `poll`";
/// Where the key is looked for that is not in the URL.
const KEY_VARIABLE: &str = "AZURE_COSMOS_KEY";

/// Who asks.
#[derive(Debug)]
pub(super) enum Who {
    /// Whoever has the account's key.
    Key(Secret),
    /// What Microsoft Entra ID knows this program as: by the environment, or this machine's managed identity.
    Entra,
    /// Whoever has run `az login` here.
    Cli,
}

/// What a URL says. Its `Debug` shows no secret.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) database: String,
    pub(super) container: String,
    /// Scheme, host and port.
    pub(super) endpoint: Uri,
    pub(super) who: Who,
    pub(super) margin: Duration,
    pub(super) poll: Duration,
}

impl Options {
    /// Reads a URL. No error repeats what may be secret.
    pub(super) fn parse(url: &str) -> Result<Self> {
        Self::parse_with(url, std::env::var(KEY_VARIABLE).ok())
    }

    fn parse_with(url: &str, key_of_environment: Option<String>) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let place = place.strip_prefix("cosmos://").ok_or_else(malformed)?;
        let parts: Vec<_> = place.split('/').collect();
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
            who: Who::Entra,
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
                        "`cosmos:` has no option `{unknown}`: there are {KNOWN}"
                    )));
                }
            }
        }
        options.who = who(auth.as_deref(), key, key_of_environment)?;
        if options.is_plain() && !matches!(options.who, Who::Key(_)) {
            return Err(Error::invalid(
                "`auth=entra` and `auth=cli` need an `https` endpoint: a token must not be read on the way",
            ));
        }
        Ok(options)
    }

    /// Whether nothing is encrypted on the way: an emulator.
    pub(super) fn is_plain(&self) -> bool {
        self.endpoint.scheme_str() == Some("http")
    }
}

fn who(auth: Option<&str>, key: Option<String>, of_environment: Option<String>) -> Result<Who> {
    match (auth, key) {
        (None | Some("key"), key) => {
            let key = key.or(of_environment).filter(|key| !key.is_empty());
            let key = Secret::new(key.ok_or_else(|| {
                Error::invalid(format!(
                    "no key for Cosmos DB: set {KEY_VARIABLE}, add `?key=KEY` to the store URL, or `?auth=entra` to use \
                     Microsoft Entra ID"
                ))
            })?);
            match hmac_sha256("", &key) {
                Ok(_) => Ok(Who::Key(key)),
                Err(_) => Err(Error::invalid(
                    "the key for Cosmos DB is not base64: take the account's primary or secondary key as it is",
                )),
            }
        }
        (Some("entra"), None) => Ok(Who::Entra),
        (Some("cli"), None) => Ok(Who::Cli),
        (Some("entra" | "cli"), Some(_)) => Err(Error::invalid(
            "`key` in the store URL does not go with `auth=entra` or `auth=cli`",
        )),
        _ => Err(Error::invalid(
            "`auth` in the store URL is `key`, `entra` or `cli`",
        )),
    }
}

fn malformed() -> Error {
    Error::invalid("the store URL is not of the form `cosmos://ACCOUNT/DATABASE/CONTAINER?…`")
}

/// What Azure allows.
fn is_account(name: &str) -> bool {
    (3..=50).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The id of a database or a container.
fn id(raw: &str) -> Result<String> {
    let id = decoded(raw)?;
    let is_good = !id.is_empty() && id.len() <= 255 && !id.contains(['/', '\\', '?', '#']);
    is_good.then_some(id).ok_or_else(malformed)
}

fn endpoint(url: &str) -> Result<Uri> {
    let wrong = || {
        Error::invalid("`endpoint` in the store URL is `http://HOST:PORT` or `https://HOST:PORT`")
    };
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    match is_web && !authority.contains('@') && matches!(uri.path(), "" | "/") {
        true => Ok(uri),
        false => Err(wrong()),
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
    fn urls_name_a_container_and_who_asks() {
        let url = "cosmos://app-1/shop/leases%20of%20ours?key=c2VjcmV0/+==";
        let options = Options::parse_with(url, None).err();
        assert!(options.is_some(), "a key that is not base64");
        let url = "cosmos://app-1/shop/leases%20of%20ours?key=c2VjcmV0&margin=3s&poll=1s";
        let options = Options::parse_with(url, None).unwrap();
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
    fn the_key_may_come_from_the_environment() {
        let of_environment = || Some("c2VjcmV0".to_owned());
        let key = Options::parse_with("cosmos://app/d/c", of_environment()).unwrap();
        assert!(matches!(key.who, Who::Key(_)));
        // Whoever asks for another way gets it, whatever the environment has.
        for (auth, is_entra) in [("entra", true), ("cli", false)] {
            let url = format!("cosmos://app/d/c?auth={auth}");
            let options = Options::parse_with(&url, of_environment()).unwrap();
            assert_eq!(matches!(options.who, Who::Entra), is_entra);
            assert!(!matches!(options.who, Who::Key(_)));
        }
    }

    #[test]
    fn wrong_urls_say_what_to_write_instead() {
        for (url, hint) in [
            ("cosmos:app/d/c", "cosmos://ACCOUNT"),
            ("cosmos://app/d", "CONTAINER"),
            ("cosmos://app/d/c/x", "CONTAINER"),
            ("cosmos://app//c", "DATABASE"),
            ("cosmos://key:c2VjcmV0@app/d/c", "ACCOUNT"),
            ("cosmos://app/d/c", "AZURE_COSMOS_KEY"),
            ("cosmos://app/d/c?key=c2VjcmV0!", "base64"),
            ("cosmos://app/d/c?key=c2VjcmV0&auth=entra", "not go with"),
            ("cosmos://app/d/c?key=c2VjcmV0&auth=magic", "`entra`"),
            ("cosmos://app/d/c?auth=entra&endpoint=http://h", "https"),
            ("cosmos://app/d/c?kye=c2VjcmV0", "`key`"),
            (
                "cosmos://app/d/c?key=c2VjcmV0&endpoint=127.0.0.1:1",
                "http://HOST",
            ),
            ("cosmos://app/d/c?endpoint=http://c2VjcmV0@h", "http://HOST"),
        ] {
            let error = Options::parse_with(url, None).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
            assert!(!error.to_string().contains("c2VjcmV0"), "{url}: {error}");
        }
    }
}
