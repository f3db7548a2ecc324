//! Parses the head of a plain request in place. Nearly all requests are plain.
//!
//! All others, even if valid, are left to hyper: another version of HTTP, a chunked body, `Expect`, dozens of headers,
//! targets with unusual characters. So this parser is strict and never guesses.

use std::ops::Range;
use std::sync::LazyLock;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

use crate::host::Host;

/// The headers of a request if the service reads none of them.
pub(crate) static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

/// The first character of a fragment. A valid request target has none.
pub(crate) const FRAGMENT: char = '#';

/// The maximum number of headers of a plain request.
const MAX_HEADERS: usize = 24;

/// The head of a plain request.
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    path: Range<usize>,
    query: Option<Range<usize>>,
    host: Option<Range<usize>>,
    /// All headers, if the service may read one of them.
    headers: Option<Box<HeaderMap>>,
    /// Whether the connection stays open after the answer.
    pub(crate) keep_alive: bool,
    /// The length of the head.
    head: usize,
    /// The length of the body, which has at most nine digits.
    body: usize,
}

/// The beginning of the received bytes.
pub(crate) enum Parsed {
    /// An incomplete head.
    Partial,
    /// The head of a plain request.
    Plain(RequestHead),
    /// Anything else, valid or not.
    Other,
}

impl RequestHead {
    pub(crate) fn parse(bytes: &[u8]) -> Parsed {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(head)) => {
                let target = request.path.unwrap_or_default();
                if target.contains(FRAGMENT) {
                    return Parsed::Plain(Self::with_fragment(bytes, target, head));
                }
                match Self::of(bytes, &request, head) {
                    Some(head) => Parsed::Plain(head),
                    None => Parsed::Other,
                }
            }
            Ok(httparse::Status::Partial) => Parsed::Partial,
            Err(_) => Parsed::Other,
        }
    }

    /// Returns a request that the service refuses because of the fragment in its path, and that ends the connection. hyper
    /// would drop the fragment.
    fn with_fragment(bytes: &[u8], target: &str, head: usize) -> Self {
        Self {
            method: Method::GET,
            path: range_in(bytes, target.as_bytes()),
            query: None,
            host: None,
            headers: None,
            keep_alive: false,
            head,
            body: 0,
        }
    }

    fn of(bytes: &[u8], request: &httparse::Request<'_, '_>, head: usize) -> Option<Self> {
        let method = match request.method? {
            "GET" => Method::GET,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "DELETE" => Method::DELETE,
            _ => return None,
        };
        let target = request.path?;
        if request.version != Some(1) || !target.starts_with('/') {
            return None;
        }
        // After the method and a space, and perhaps some empty lines.
        let Range { start, end } = range_in(bytes, target.as_bytes());
        let mark = split(target)?;
        let mut parsed = Self {
            method,
            path: start..mark.map_or(end, |mark| start + mark),
            query: mark.map(|mark| start + mark + 1..end),
            host: None,
            headers: None,
            keep_alive: true,
            head,
            body: 0,
        };
        parsed.apply(bytes, request.headers)?;
        Some(parsed)
    }

    /// Applies the headers. Returns `None` if one of them requires hyper.
    fn apply(&mut self, bytes: &[u8], headers: &[httparse::Header<'_>]) -> Option<()> {
        let (mut length, mut any_read) = (None, false);
        for header in headers {
            match HeaderKind::of(header.name) {
                HeaderKind::Ignored => {}
                HeaderKind::Host if self.host.is_some() => return None,
                HeaderKind::Host => self.host = Some(range_in(bytes, header.value)),
                HeaderKind::ContentLength if length.is_some() => return None,
                HeaderKind::ContentLength => length = Some(number(header.value)?),
                HeaderKind::Connection if header.value.eq_ignore_ascii_case(b"keep-alive") => {}
                HeaderKind::Connection if header.value.eq_ignore_ascii_case(b"close") => {
                    self.keep_alive = false;
                }
                HeaderKind::Connection | HeaderKind::Unsupported => return None,
                HeaderKind::Other => any_read = true,
            }
        }
        self.body = length.unwrap_or(0);
        if any_read {
            let kept = self.headers.insert(Box::default());
            for header in headers {
                kept.append(
                    HeaderName::from_bytes(header.name.as_bytes()).ok()?,
                    HeaderValue::from_bytes(header.value).ok()?,
                );
            }
        }
        Some(())
    }

    /// Returns the headers that the service may read.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.headers.as_deref().unwrap_or(&NO_HEADERS)
    }

    /// Returns the length of the head.
    pub(crate) fn head_length(&self) -> usize {
        self.head
    }

    /// Returns the length of the whole request.
    pub(crate) fn length(&self) -> usize {
        self.head + self.body
    }

    pub(crate) fn path<'b>(&self, bytes: &'b [u8]) -> &'b str {
        text(&bytes[self.path.clone()])
    }

    pub(crate) fn query<'b>(&self, bytes: &'b [u8]) -> Option<&'b str> {
        Some(text(&bytes[self.query.clone()?]))
    }

    pub(crate) fn host<'b>(&self, bytes: &'b [u8]) -> Host<'b> {
        match &self.host {
            Some(host) => Host::Named(&bytes[host.clone()]),
            None => Host::Missing,
        }
    }

    pub(crate) fn body<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.head..self.length()]
    }
}

/// The effect of a header on parsing.
enum HeaderKind {
    /// Not read by the service.
    Ignored,
    Host,
    ContentLength,
    Connection,
    /// Requires hyper.
    Unsupported,
    /// May be read by the service.
    Other,
}

impl HeaderKind {
    fn of(name: &str) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is("host") => Self::Host,
            6 if is("accept") => Self::Ignored,
            6 if is("expect") => Self::Unsupported,
            7 if is("upgrade") => Self::Unsupported,
            10 if is("user-agent") => Self::Ignored,
            10 if is("connection") => Self::Connection,
            12 if is("content-type") => Self::Ignored,
            14 if is("content-length") => Self::ContentLength,
            15 if is("accept-encoding") || is("accept-language") => Self::Ignored,
            17 if is("transfer-encoding") => Self::Unsupported,
            _ => Self::Other,
        }
    }
}

/// Returns where the query of a target begins, if it has one. `None` if the target has a character that requires hyper.
fn split(target: &str) -> Option<Option<usize>> {
    // A fold without early exit is faster, because nearly all targets are plain.
    let is_plain = !target
        .bytes()
        .fold(false, |any, byte| any | UNUSUAL[usize::from(byte)]);
    is_plain.then(|| target.bytes().position(|byte| byte == b'?'))
}

/// The characters that should be escaped in a target.
const UNUSUAL: [bool; 256] = {
    let (mut unusual, mut byte) = ([false; 256], 0);
    while byte < 256 {
        unusual[byte] = !matches!(byte as u8, b'!'..=b'~')
            || matches!(
                byte as u8,
                b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
            );
        byte += 1;
    }
    unusual
};

/// Returns the range of `part`, which must be a slice of `bytes`.
fn range_in(bytes: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + part.len()
}

/// Parses a length of at most nine digits.
fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        let value = digit.wrapping_sub(b'0');
        (value < 10).then(|| 10 * number + usize::from(value))
    })
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("checked byte by byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> RequestHead {
        match RequestHead::parse(text.as_bytes()) {
            Parsed::Plain(head) => head,
            Parsed::Partial => panic!("partial: {text:?}"),
            Parsed::Other => panic!("not plain: {text:?}"),
        }
    }

    #[test]
    fn plain_requests_are_parsed_in_place() {
        let text = "\r\nPUT /locks/a%2Fb?nonce=n?&x= HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET";
        let bytes = text.as_bytes();
        let request = plain(text);
        assert_eq!(request.method, Method::PUT);
        assert_eq!(request.path(bytes), "/locks/a%2Fb");
        assert_eq!(request.host(bytes), Host::Named(b"x"));
        assert_eq!(request.query(bytes), Some("nonce=n?&x="));
        assert_eq!(request.body(bytes), b"body");
        assert_eq!(request.length(), text.len() - 3);
        assert!(request.keep_alive && request.headers().is_empty());
        let text = "DELETE /locks/a/13 HTTP/1.1\r\nconnection: Close\r\n\r\n";
        let request = plain(text);
        assert_eq!(request.query(text.as_bytes()), None);
        assert_eq!(request.host(text.as_bytes()), Host::Missing);
        assert_eq!(request.length(), text.len());
        assert!(!request.keep_alive);
    }

    #[test]
    fn all_headers_are_kept_if_the_service_may_read_one() {
        let request = plain(
            "POST / HTTP/1.1\r\nHost: db1\r\nAccept: */*\r\nOrigin: http://a\r\nOrigin: http://b\r\n\r\n",
        );
        assert_eq!(request.headers()["host"], "db1");
        assert_eq!(request.headers().get_all("origin").iter().count(), 2);
        assert_eq!(request.headers().len(), 4);
    }

    #[test]
    fn fragments_stay_in_the_path_and_end_the_connection() {
        for text in [
            "GET /locks/a?x=1#b HTTP/1.1\r\nHost: x\r\n\r\n",
            "PUT /locks/a?x=1#b HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let request = plain(text);
            assert_eq!(request.path(text.as_bytes()), "/locks/a?x=1#b");
            assert!(!request.keep_alive);
        }
    }

    #[test]
    fn incomplete_head_is_partial() {
        let text = "GET /locks HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..text.len() {
            let parsed = RequestHead::parse(&text.as_bytes()[..end]);
            assert!(matches!(parsed, Parsed::Partial), "{:?}", &text[..end]);
        }
    }

    #[test]
    fn unusual_requests_are_left_to_hyper() {
        for head in [
            "GET / HTTP/1.0\r\n\r\n",
            "HEAD / HTTP/1.1\r\n\r\n",
            "BREW / HTTP/1.1\r\n\r\n",
            "GET * HTTP/1.1\r\n\r\n",
            "GET http://db1/ HTTP/1.1\r\n\r\n",
            "GET /\" HTTP/1.1\r\n\r\n",
            "GET /é HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nConnection: keep-alive, upgrade\r\n\r\n",
            "GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n",
            "PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "PUT / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
            "PUT / HTTP/1.1\r\nContent-Length:\r\n\r\nx",
            "PUT / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\nx",
            "PUT / HTTP/1.1\r\nContent-Length: 10000000000\r\n\r\nx",
            "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
            "hello\r\n\r\n",
        ] {
            let other = matches!(RequestHead::parse(head.as_bytes()), Parsed::Other);
            assert!(other, "{head:?}");
        }
        let many = "X-Header: x\r\n".repeat(MAX_HEADERS + 1);
        let many = format!("GET / HTTP/1.1\r\n{many}\r\n");
        assert!(matches!(RequestHead::parse(many.as_bytes()), Parsed::Other));
    }
}
