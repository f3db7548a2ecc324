//! What an ordinary request says: the kind that nearly all are, read where it lies.
//!
//! Everything else, however legal, is somebody else's: another version of HTTP, a body in chunks, one that is only sent
//! when it is welcome, headers by the dozen, targets with characters that need a second look. So nothing here has to be
//! lenient, and what is not understood is never guessed.

use std::ops::Range;
use std::sync::LazyLock;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

use crate::host::Host;

/// What a request has of which nobody asks for a header.
pub(crate) static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

/// What a fragment begins with. No request target has one.
pub(crate) const FRAGMENT: char = '#';

/// The most headers of an ordinary request.
const HEADERS: usize = 24;

/// An ordinary request's head.
pub(crate) struct Ordinary {
    pub(crate) method: Method,
    path: Range<usize>,
    query: Option<Range<usize>>,
    host: Option<Range<usize>>,
    /// All of them, if there is one that may matter.
    headers: Option<Box<HeaderMap>>,
    /// Whether the connection is of use afterwards.
    pub(crate) goes_on: bool,
    /// Bytes of its head.
    head: usize,
    /// Bytes of its body: at most nine digits' worth.
    body: usize,
}

/// What the first bytes of a connection, or those after a request, are.
pub(crate) enum Read {
    /// Not all of a head.
    Part,
    /// An ordinary one's.
    Ordinary(Ordinary),
    /// Something else.
    Other,
}

impl Ordinary {
    pub(crate) fn read(bytes: &[u8]) -> Read {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(head)) => {
                let target = request.path.unwrap_or_default();
                if target.contains(FRAGMENT) {
                    return Read::Ordinary(Self::with_fragment(bytes, target, head));
                }
                match Self::of(bytes, &request, head) {
                    Some(ordinary) => Read::Ordinary(ordinary),
                    None => Read::Other,
                }
            }
            Ok(httparse::Status::Partial) => Read::Part,
            Err(_) => Read::Other,
        }
    }

    /// A request of whatever kind that the service refuses by its path, the last one of its connection: hyper would drop
    /// the fragment.
    fn with_fragment(bytes: &[u8], target: &str, head: usize) -> Self {
        Self {
            method: Method::GET,
            path: range_in(bytes, target.as_bytes()),
            query: None,
            host: None,
            headers: None,
            goes_on: false,
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
        // Where it lies: after the method and a space, and perhaps some empty lines.
        let Range { start, end } = range_in(bytes, target.as_bytes());
        let mark = split(target)?;
        let mut ordinary = Self {
            method,
            path: start..mark.map_or(end, |mark| start + mark),
            query: mark.map(|mark| start + mark + 1..end),
            host: None,
            headers: None,
            goes_on: true,
            head,
            body: 0,
        };
        ordinary.take_in(bytes, request.headers)?;
        Some(ordinary)
    }

    /// Takes in what the headers say; `None` if they make it something else.
    fn take_in(&mut self, bytes: &[u8], headers: &[httparse::Header<'_>]) -> Option<()> {
        let (mut length, mut telling) = (None, false);
        for header in headers {
            match Says::of(header.name) {
                Says::Nothing => {}
                Says::Host if self.host.is_some() => return None,
                Says::Host => self.host = Some(range_in(bytes, header.value)),
                Says::Length if length.is_some() => return None,
                Says::Length => length = Some(number(header.value)?),
                Says::GoingOn if header.value.eq_ignore_ascii_case(b"keep-alive") => {}
                Says::GoingOn if header.value.eq_ignore_ascii_case(b"close") => {
                    self.goes_on = false;
                }
                Says::GoingOn | Says::Otherwise => return None,
                Says::Something => telling = true,
            }
        }
        self.body = length.unwrap_or(0);
        // Nobody asks for the others unless there is one of these.
        if telling {
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

    /// Those that anybody asks for.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.headers.as_deref().unwrap_or(&NO_HEADERS)
    }

    /// How many bytes its head has.
    pub(crate) fn head_length(&self) -> usize {
        self.head
    }

    /// How many bytes it has in all.
    pub(crate) fn length(&self) -> usize {
        self.head + self.body
    }

    /// Whether it has this path.
    pub(crate) fn is_for(&self, path: &str, bytes: &[u8]) -> bool {
        bytes[self.path.clone()] == *path.as_bytes()
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

/// What a header is about.
enum Says {
    /// Nothing that anybody here asks for by itself.
    Nothing,
    /// Which host the request is meant for.
    Host,
    /// How long the body is.
    Length,
    /// Whether there will be another request.
    GoingOn,
    /// That this is no ordinary request.
    Otherwise,
    /// Something that may matter.
    Something,
}

impl Says {
    fn of(name: &str) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is("host") => Self::Host,
            6 if is("accept") => Self::Nothing,
            6 if is("expect") => Self::Otherwise,
            7 if is("upgrade") => Self::Otherwise,
            10 if is("user-agent") => Self::Nothing,
            10 if is("connection") => Self::GoingOn,
            12 if is("content-type") => Self::Nothing,
            14 if is("content-length") => Self::Length,
            15 if is("accept-encoding") || is("accept-language") => Self::Nothing,
            17 if is("transfer-encoding") => Self::Otherwise,
            _ => Self::Something,
        }
    }
}

/// Where the query of a target begins. `None` if it has a character that is no part of one as it is: then let those have
/// a look who know them all.
fn split(target: &str) -> Option<Option<usize>> {
    // Without leaving early: nearly none is odd.
    let plain = !target
        .bytes()
        .fold(false, |any, byte| any | ODD[usize::from(byte)]);
    plain.then(|| target.bytes().position(|byte| byte == b'?'))
}

/// The characters that are no part of a target as they are.
const ODD: [bool; 256] = {
    let (mut odd, mut byte) = ([false; 256], 0);
    while byte < 256 {
        odd[byte] = !matches!(byte as u8, b'!'..=b'~')
            || matches!(
                byte as u8,
                b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
            );
        byte += 1;
    }
    odd
};

/// The place of `part` in `bytes`, of which it is a piece.
fn range_in(bytes: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + part.len()
}

/// A length: digits and nothing else.
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
    str::from_utf8(bytes).expect("looked at byte by byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinary(text: &str) -> Ordinary {
        match Ordinary::read(text.as_bytes()) {
            Read::Ordinary(ordinary) => ordinary,
            Read::Part => panic!("a part: {text:?}"),
            Read::Other => panic!("something else: {text:?}"),
        }
    }

    #[test]
    fn an_ordinary_request_is_read_where_it_lies() {
        let text = "\r\nPUT /locks/a%2Fb?nonce=n?&x= HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET";
        let bytes = text.as_bytes();
        let request = ordinary(text);
        assert_eq!(request.method, Method::PUT);
        assert_eq!(request.path(bytes), "/locks/a%2Fb");
        assert_eq!(request.host(bytes), Host::Named(b"x"));
        assert_eq!(request.query(bytes), Some("nonce=n?&x="));
        assert_eq!(request.body(bytes), b"body");
        assert_eq!(request.length(), text.len() - 3);
        assert!(request.goes_on && request.headers().is_empty());
        let text = "DELETE /locks/a/13 HTTP/1.1\r\nconnection: Close\r\n\r\n";
        let request = ordinary(text);
        assert_eq!(request.query(text.as_bytes()), None);
        assert_eq!(request.host(text.as_bytes()), Host::Missing);
        assert_eq!(request.length(), text.len());
        assert!(!request.goes_on);
    }

    #[test]
    fn what_may_matter_brings_all_headers_along() {
        let request = ordinary(
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
            let request = ordinary(text);
            assert_eq!(request.path(text.as_bytes()), "/locks/a?x=1#b");
            assert!(!request.goes_on);
        }
    }

    #[test]
    fn a_head_that_is_not_whole_is_a_part_of_one() {
        let text = "GET /locks HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..text.len() {
            let read = Ordinary::read(&text.as_bytes()[..end]);
            assert!(matches!(read, Read::Part), "{:?}", &text[..end]);
        }
    }

    #[test]
    fn whatever_needs_a_second_look_is_something_else() {
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
            let other = matches!(Ordinary::read(head.as_bytes()), Read::Other);
            assert!(other, "{head:?}");
        }
        let many = "X-Header: x\r\n".repeat(HEADERS + 1);
        let many = format!("GET / HTTP/1.1\r\n{many}\r\n");
        assert!(matches!(Ordinary::read(many.as_bytes()), Read::Other));
    }
}
