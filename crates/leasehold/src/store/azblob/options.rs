//! The options of an `azblob://` URL.

use std::time::Duration;

use azure_core::credentials::Secret;
use azure_core::http::Url;
use percent_encoding::percent_decode_str;

use crate::{Error, Result, duration};

const KNOWN: &str = "`auth`, `endpoint`, `key`, `margin`, `poll`, `sas` and `timeout`";

/// The credentials.
#[derive(Debug)]
pub(super) enum Credential {
    /// A key of the account.
    Key(Secret),
    /// A shared access signature, which is added to every URL.
    Sas(Secret),
    /// This process's identity in Entra ID: a service principal, a workload, or a machine.
    Entra,
    /// The login of `az` or `azd`.
    Cli,
}

/// The options of a URL.
#[derive(Debug)]
pub(super) struct AzBlobOptions {
    pub(super) account: String,
    pub(super) container: String,
    /// The blob endpoint of the account: `https://ACCOUNT.blob.core.windows.net`, or another one.
    pub(super) endpoint: Url,
    pub(super) credential: Credential,
    pub(super) margin: Duration,
    pub(super) poll: Duration,
    /// How long a call may take.
    pub(super) timeout: Duration,
}

impl AzBlobOptions {
    /// Parses a URL, and reads missing credentials from the environment. No error repeats a secret.
    pub(super) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let form = || {
            Error::invalid(
                "the store URL is not of the form `azblob://ACCOUNT/CONTAINER`, each of at least 3 lowercase letters and digits",
            )
        };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let base = base.strip_prefix("azblob://").ok_or_else(form)?;
        let (account, container) = base.split_once('/').ok_or_else(form)?;
        let container = container.strip_suffix('/').unwrap_or(container);
        if !is_account(account) || !is_container(container) {
            return Err(form());
        }
        let mut endpoint = format!("https://{account}.blob.core.windows.net");
        let (mut auth, mut key, mut sas) = (None, None, None);
        let (mut margin, mut poll) = (Duration::from_secs(2), Duration::from_millis(250));
        // Less than the engine's own limit.
        let mut timeout = Duration::from_secs(4);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| Error::invalid(format!("`{option}` in the store URL is not UTF-8")))?
                .into_owned();
            match option {
                "auth" => auth = Some(value),
                "endpoint" => endpoint = value,
                "key" => key = Some(value),
                "margin" => margin = duration::parse(&value)?,
                "poll" => poll = duration::parse(&value)?.max(Duration::from_millis(20)),
                "sas" => sas = Some(value),
                "timeout" => timeout = duration::parse(&value)?.max(Duration::from_millis(100)),
                unknown => {
                    return Err(Error::invalid(format!(
                        "`azblob:` has no option `{unknown}`: use {KNOWN}"
                    )));
                }
            }
        }
        if auth.is_none() && key.is_none() && sas.is_none() {
            key = environment("AZURE_STORAGE_KEY").filter(|key| !key.is_empty());
            sas = environment("AZURE_STORAGE_SAS_TOKEN").filter(|sas| !sas.is_empty());
            // The precedence is that of Azure's own tools.
            sas = sas.filter(|_| key.is_none());
        }
        let endpoint = parse_endpoint(&endpoint)?;
        let credential = credential(auth.as_deref(), key, sas, &endpoint)?;
        Ok(Self {
            account: account.to_owned(),
            container: container.to_owned(),
            endpoint,
            credential,
            margin,
            poll,
            timeout,
        })
    }
}

fn credential(
    auth: Option<&str>,
    key: Option<String>,
    sas: Option<String>,
    endpoint: &Url,
) -> Result<Credential> {
    match (auth, key, sas) {
        (None, Some(key), None) => match azure_core::base64::decode(&key) {
            Ok(bytes) if !bytes.is_empty() => Ok(Credential::Key(key.into())),
            _ => Err(Error::invalid(
                "the key of the storage account is not base64: copy it from Azure unchanged",
            )),
        },
        (None, None, Some(sas)) => {
            let sas = sas.trim_start_matches('?');
            match sas.contains("sig=") && !sas.contains(char::is_whitespace) {
                true => Ok(Credential::Sas(sas.to_owned().into())),
                false => Err(Error::invalid(
                    "the shared access signature is not of the form `sv=…&sig=…`: in a store URL, percent-encode it as a \
                     whole",
                )),
            }
        }
        (Some("entra" | "cli"), None, None) if endpoint.scheme() != "https" => Err(Error::invalid(
            "`auth=entra` and `auth=cli` require an `https` endpoint",
        )),
        (Some("entra"), None, None) => Ok(Credential::Entra),
        (Some("cli"), None, None) => Ok(Credential::Cli),
        (None, None, None) => Err(Error::invalid(
            "no credentials: set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or add `?auth=entra` (a service principal, \
             workload or machine) or `?auth=cli` (`az login`) to the store URL",
        )),
        (Some("entra" | "cli"), ..) | (None, ..) => Err(Error::invalid(
            "`auth`, `key` and `sas` in the store URL exclude each other: use only one",
        )),
        (Some(_), ..) => Err(Error::invalid(
            "`auth` in the store URL is `entra` or `cli`",
        )),
    }
}

/// Returns whether Azure allows this name.
fn is_account(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (3..=24).contains(&name.len()) && name.bytes().all(legal)
}

fn is_container(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (3..=63).contains(&name.len())
        && name.bytes().all(legal)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

fn parse_endpoint(text: &str) -> Result<Url> {
    let url = Url::parse(text.trim_end_matches('/')).ok();
    let is_plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    url.filter(is_plain).ok_or_else(|| {
        Error::invalid(
            "`endpoint` in the store URL is `https://HOST`, or `http://HOST:PORT/ACCOUNT` for Azurite",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<AzBlobOptions> {
        AzBlobOptions::parse(url, |_| None)
    }

    #[test]
    fn options_and_credentials_are_read_from_the_url() {
        let options = parse("azblob://acme/leases?key=c2VjcmV0").unwrap();
        assert_eq!((&*options.account, &*options.container), ("acme", "leases"));
        assert_eq!(
            options.endpoint.as_str(),
            "https://acme.blob.core.windows.net/"
        );
        assert!(matches!(options.credential, Credential::Key(_)));
        assert_eq!(options.margin, Duration::from_secs(2));
        let url = "azblob://acme/leases/?endpoint=http%3A%2F%2F127.0.0.1:10000/acme&sas=%3Fsv%3D1%26sig%3Dx&margin=3s&poll=1s";
        let options = parse(url).unwrap();
        assert_eq!(options.endpoint.as_str(), "http://127.0.0.1:10000/acme");
        assert!(
            matches!(&options.credential, Credential::Sas(sas) if sas.secret() == "sv=1&sig=x")
        );
        assert_eq!(
            (options.margin, options.poll),
            (Duration::from_secs(3), Duration::from_secs(1))
        );
        let options = parse("azblob://acme/leases?auth=entra").unwrap();
        assert!(matches!(options.credential, Credential::Entra));
    }

    #[test]
    fn credentials_of_the_environment_are_the_default() {
        let set = |name: &str| (name == "AZURE_STORAGE_SAS_TOKEN").then(|| "sig=x".to_owned());
        let options = AzBlobOptions::parse("azblob://acme/leases", set).unwrap();
        assert!(matches!(options.credential, Credential::Sas(_)));
        let options = AzBlobOptions::parse("azblob://acme/leases?key=c2VjcmV0", set).unwrap();
        assert!(matches!(options.credential, Credential::Key(_)));
    }

    #[test]
    fn invalid_url_is_refused_with_a_hint() {
        for (url, hint) in [
            ("azblob:acme/leases", "azblob://ACCOUNT/CONTAINER"),
            ("azblob://acme", "azblob://ACCOUNT/CONTAINER"),
            ("azblob://Acme/leases", "azblob://ACCOUNT/CONTAINER"),
            ("azblob://acme/a/b", "azblob://ACCOUNT/CONTAINER"),
            (
                "azblob://acme:secret@x/leases",
                "azblob://ACCOUNT/CONTAINER",
            ),
            ("azblob://acme/leases", "AZURE_STORAGE_KEY"),
            ("azblob://acme/leases?key=secret!", "base64"),
            ("azblob://acme/leases?sas=secret", "sig="),
            ("azblob://acme/leases?key=c2VjcmV0&auth=cli", "only one"),
            ("azblob://acme/leases?auth=magic", "`entra` or `cli`"),
            ("azblob://acme/leases?kee=secret", "`key`"),
            ("azblob://acme/leases?endpoint=127.0.0.1:1", "https://HOST"),
            (
                "azblob://acme/leases?endpoint=http://a:secret@h",
                "https://HOST",
            ),
            ("azblob://acme/leases?endpoint=http://h&auth=cli", "`https`"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
        let options = parse("azblob://acme/leases?key=c2VjcmV0").unwrap();
        assert!(!format!("{options:?}").contains("c2VjcmV0"));
    }
}
