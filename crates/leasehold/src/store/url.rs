//! Rules for the URLs of all stores and services: redaction, secrets and percent-encoding.

use percent_encoding::percent_decode_str;

use crate::{Error, Result};

/// Refuses a URL that is ambiguous. No error repeats any part of it.
///
/// A `#` starts a fragment, which some drivers silently drop. An `@` in the options most likely belongs to a password
/// that contains a `?`.
pub(crate) fn check(url: &str) -> Result<()> {
    if is_plain_path(url) {
        return Ok(());
    }
    let options = url.split_once('?').map_or("", |(_, options)| options);
    if url.contains('#') {
        return Err(Error::invalid(
            "the store URL has a fragment: write `#` as `%23` in a user, a password or an option, and remove anything else \
             from `#` on",
        ));
    }
    if options.contains('@') {
        return Err(Error::invalid(
            "the store URL has an `@` after a `?`: in a user, a password or an option, write `?` as `%3F` and `@` as `%40`",
        ));
    }
    Ok(())
}

/// Returns the URL without parts that may be secret: user and password, and the values of its options.
///
/// ```
/// use leasehold::store::redacted;
///
/// assert_eq!(redacted("postgres://app:s3cret@db1/app?sslmode=require"), "postgres://…@db1/app?…");
/// assert_eq!(redacted("sqlite:leases.db"), "sqlite:leases.db");
/// ```
pub fn redacted(url: &str) -> String {
    if is_plain_path(url) {
        return match url.split_once('?') {
            Some((path, _)) => format!("{path}?…"),
            None => url.to_owned(),
        };
    }
    let (scheme, rest) = url.split_at(url.find(':').map_or(0, |colon| colon + 1));
    // A malformed password may contain any character, so everything up to the last `@` is treated as one.
    let (user, place) = match rest.rsplit_once('@') {
        Some((_, place)) => ("//…@", place),
        None => ("", rest),
    };
    let (place, options) = match place.find(['?', '#']) {
        Some(end) => (&place[..end], "?…"),
        None => (place, ""),
    };
    format!("{scheme}{user}{place}{options}")
}

/// Returns whether the URL has a password, or an option with a secret value.
///
/// ```
/// use leasehold::store::has_secret;
///
/// assert!(has_secret("postgres://app:s3cret@db1/app"));
/// assert!(!has_secret("postgres://app@db1/app"));
/// ```
pub fn has_secret(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once(':').filter(|_| !is_plain_path(url)) else {
        return false;
    };
    let has_password = rest
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'));
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    let mut options = options.split('&').map(|pair| pair.split('=').next());
    has_password || options.any(|option| option.is_some_and(|option| is_secret(scheme, option)))
}

/// Returns the path of the key file that the URL names for TLS.
///
/// ```
/// use leasehold::store::key_file;
///
/// assert_eq!(key_file("https://db1?cert=c.pem&key=%2Fk.pem").as_deref(), Some("/k.pem"));
/// ```
pub fn key_file(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once(':').filter(|_| !is_plain_path(url))?;
    let mut options = rest.split_once('?')?.1.split('&');
    let path = options.find_map(|pair| {
        let (option, path) = pair.split_once('=')?;
        let is_key = match scheme {
            "mongodb" | "mongodb+srv" => option.eq_ignore_ascii_case("tlsCertificateKeyFile"),
            _ => option == "key" && !is_secret(scheme, option),
        };
        is_key.then_some(path)
    })?;
    Some(percent_decode_str(path).decode_utf8().ok()?.into_owned())
}

/// Returns whether the value of this option is a secret. For other schemes, `key` is the path of a file.
fn is_secret(scheme: &str, option: &str) -> bool {
    match scheme {
        "azblob" => matches!(option, "key" | "sas"),
        "cosmos" => option == "key",
        "mongodb" | "mongodb+srv" => option.eq_ignore_ascii_case("authMechanismProperties"),
        _ => false,
    }
}

/// Returns whether the whole URL is a path, which may contain any character. With a host it is invalid, and may
/// contain a secret.
fn is_plain_path(url: &str) -> bool {
    url.strip_prefix("sqlite:")
        .is_some_and(|path| !path.starts_with("//") || path.starts_with("///"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_url_has_no_secret() {
        for (url, shown) in [
            ("http://db1:12345/below", "http://db1:12345/below"),
            ("http://app:s3cret@db1", "http://…@db1"),
            ("http://app:/?#s3cret@db1?s3cret", "http://…@db1?…"),
            ("http://db1?token=s3cret", "http://db1?…"),
            ("http://db1#s3cret", "http://db1?…"),
            ("sqlite://app:s3cret@db1/x", "sqlite://…@db1/x"),
            ("sqlite:/home/me@work/#1.db", "sqlite:/home/me@work/#1.db"),
            ("sqlite:leases.db?key=s3cret", "sqlite:leases.db?…"),
            ("app:s3cret@db1", "app://…@db1"),
            ("s3cret@db1", "//…@db1"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(redacted(url), shown, "{url}");
        }
    }

    #[test]
    fn passwords_and_keys_are_secrets() {
        for url in [
            "postgres://app:s3cret@db1/app",
            "redis://:s3cret@db1",
            "mongodb://app:p?w@db1/app",
            "azblob://account/leases?margin=2s&key=s3cret",
            "azblob://account/leases?sas=s3cret",
            "cosmos://account/a/b?key=s3cret",
            "mongodb://db1/app?AUTHMECHANISMPROPERTIES=AWS_SESSION_TOKEN:s3cret",
        ] {
            assert!(has_secret(url), "{url}");
        }
        for url in [
            "memory:",
            "sqlite:/home/me:you@work/leases.db",
            "postgres://app@db1:5432/app?sslmode=require",
            "https://db1:12345?ca=ca.pem&cert=c.pem&key=k.pem",
            "dynamodb://leases?region=eu-west-1",
            "azblob://account/leases?auth=entra",
        ] {
            assert!(!has_secret(url), "{url}");
        }
    }

    #[test]
    fn ambiguous_url_is_refused_without_repeating_it() {
        for (url, hint) in [
            ("redis://db1/0#s3cret", "%23"),
            ("postgres://app:s3#cret@db1/app", "%23"),
            ("https://db1?ca=ca.pem#s3cret", "%23"),
            ("postgres://app:s3?cret@db1/app", "%3F"),
            ("postgres://app:s3@?cret@db1/app", "%3F"),
        ] {
            let error = check(url).unwrap_err().to_string();
            assert!(error.contains(hint), "{url}: {error}");
            assert!(!error.contains("s3"), "{url}: {error}");
        }
        assert!(check("sqlite:a#b@c").is_ok());
    }
}
