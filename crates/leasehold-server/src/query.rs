//! Strict parsing of percent-encoded text and query strings: invalid input is refused, never guessed.

use std::borrow::Cow;
use std::time::Duration;

use leasehold::wire::MAX_WAIT;
use leasehold::{Error, Result, duration};
use memchr::{memchr, memchr2};

/// Decodes a path segment. A `%` without two hexadecimal digits is refused, so that different segments never decode to the
/// same text by mistake.
pub(crate) fn decode<'a>(what: &str, raw: &'a str) -> Result<Cow<'a, str>> {
    if memchr(b'%', raw.as_bytes()).is_some() {
        decode_bytes(what, raw, false).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(raw))
    }
}

fn decode_bytes(what: &str, raw: &str, plus_is_space: bool) -> Result<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next())
                .zip(hex(rest.next()))
                .map(|(high, low)| high << 4 | low)
                .ok_or_else(|| {
                    Error::invalid(format!(
                        "the {what} is not percent-encoded: write `%` as `%25`"
                    ))
                })?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::invalid(format!(
            "the {what} is not UTF-8: percent-encode it as UTF-8"
        ))
    })
}

fn hex(digit: Option<u8>) -> Option<u8> {
    char::from(digit?)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// The parameters of a request. Only `name` may be repeated.
#[derive(Debug, Default)]
pub(crate) struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    /// Parses a query string in the encoding of HTML forms: `+` is a space.
    pub(crate) fn parse(raw: Option<&'a str>) -> Result<Self> {
        let mut query = Self::default();
        let mut rest = raw.unwrap_or_default();
        while !rest.is_empty() {
            let (part, after) = split(rest, b'&');
            rest = after;
            if part.is_empty() {
                continue;
            }
            let (key, value) = split(part, b'=');
            let (key, value) = (decode_value("query", key)?, decode_value(key, value)?);
            if query.has(&key) && key != "name" {
                return Err(Error::invalid(format!(
                    "the parameter `{key}` is repeated: give it once"
                )));
            }
            query.pairs.push((key, value));
        }
        Ok(query)
    }

    /// Refuses every other parameter than these.
    pub(crate) fn allow_only(&self, names: &[&str]) -> Result<()> {
        match self.pairs.iter().find(|(key, _)| !names.contains(&&**key)) {
            None => Ok(()),
            Some((key, _)) if names.is_empty() => Err(Error::invalid(format!(
                "the parameter `{key}` is unknown here: omit it"
            ))),
            Some((key, _)) => Err(Error::invalid(format!(
                "the parameter `{key}` is unknown here: use `{}`",
                names.join("`, `")
            ))),
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| &**value)
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        let pairs = self.pairs.iter();
        pairs.filter_map(move |(name, value)| (name == key).then_some(&**value))
    }

    /// Parses a parameter with `read`.
    pub(crate) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T>,
    ) -> Result<Option<T>> {
        self.get(key).map(read).transpose()
    }

    /// Parses a duration parameter, such as `30s`.
    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>> {
        self.read(key, |text| Ok(duration::parse(text)?))
    }

    /// Parses the parameter `limit`, at most `max`.
    pub(crate) fn limit(&self, max: usize) -> Result<Option<usize>> {
        self.read("limit", |text| match text.parse() {
            Ok(limit) if (1..=max).contains(&limit) => Ok(limit),
            _ => Err(Error::invalid(format!(
                "the limit is invalid: give a whole number from 1 to {max}"
            ))),
        })
    }

    /// Parses the parameter `wait`, at most [`MAX_WAIT`].
    pub(crate) fn wait(&self) -> Result<Duration> {
        let wait = self.duration("wait")?.unwrap_or_default();
        if wait > MAX_WAIT {
            return Err(Error::invalid(
                "the wait is over 24 hours: give `24h` or less",
            ));
        }
        Ok(wait)
    }

    /// Parses a parameter that is `true` or `false`.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, |value| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Error::invalid(format!(
                "the parameter `{key}` is invalid: give `true` or `false`"
            ))),
        })
    }
}

/// Splits a text at the first occurrence of a byte.
pub(crate) fn split(text: &str, at: u8) -> (&str, &str) {
    match memchr(at, text.as_bytes()) {
        Some(position) => (&text[..position], &text[position + 1..]),
        None => (text, ""),
    }
}

fn decode_value<'a>(what: &str, raw: &'a str) -> Result<Cow<'a, str>> {
    if memchr2(b'%', b'+', raw.as_bytes()).is_some() {
        decode_bytes(what, raw, true).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_strictly() {
        assert_eq!(decode("name", "a%2Fb%2fc").unwrap(), "a/b/c");
        assert_eq!(decode("name", "%23?%25+").unwrap(), "#?%+");
        assert_eq!(decode("name", "..").unwrap(), "..");
        for bad in ["%", "%2", "%zz", "100%", "%+1a", "%ff", "%c3"] {
            assert!(decode("name", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let query = Query::parse(Some("nonce=a+b%2B&wait=&now")).unwrap();
        assert_eq!(query.get("nonce"), Some("a b+"));
        assert_eq!(query.get("wait"), Some(""));
        assert_eq!(query.get("now"), Some(""));
        assert_eq!(query.get("ttl"), None);
        assert!(query.allow_only(&["now", "nonce", "wait"]).is_ok());
        let unknown = query.allow_only(&["nonce", "now"]).unwrap_err().to_string();
        assert!(unknown.contains("`wait`"), "{unknown}");
        assert!(Query::parse(Some("nonce=a&nonce=a")).is_err());
        assert!(Query::parse(Some("nonce=a&%6eonce=b")).is_err());
        let query = Query::parse(Some("name=a&x=1&name=b&name=a")).unwrap();
        assert!(query.all("name").eq(["a", "b", "a"]));
    }
}
