//! Keeps pages of other sites from acting through a browser that can reach the service.

use hyper::HeaderMap;
use hyper::Method;
use hyper::header::{HOST, HeaderName, ORIGIN};
use leasehold::wire::Trouble;

use crate::refused::Refused;

/// Where a browser says whether a page of the same site asks.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a change that a page of another site has asked for. Browsers say where a request comes from, and no page can
/// make them lie; programs that are no browsers say nothing.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Refused> {
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let own = match (headers.get(&SITE), headers.get(ORIGIN)) {
        (None, None) => true,
        (Some(site), _) => site == "same-origin" || site == "none",
        (None, Some(origin)) => {
            let origin = origin.as_bytes();
            let host = headers.get(HOST).map(|host| host.as_bytes());
            let scheme = origin.windows(3).position(|three| three == b"://");
            let place = scheme.map(|at| &origin[at + 3..]);
            place
                .zip(host)
                .is_some_and(|(place, host)| place.eq_ignore_ascii_case(host))
        }
    };
    if own {
        return Ok(());
    }
    Err(Refused::new(
        Trouble::Denied,
        "a page of another site has asked for this: it is not done",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_pages_and_programs_may_change_anything() {
        let cases: [(&[(&str, &str)], bool); 9] = [
            (&[], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "http://db1:12345"),
                ],
                false,
            ),
            (&[("origin", "https://DB1:12345")], true),
            (&[("origin", "http://db1")], false),
            (&[("origin", "http://evil.example")], false),
            (&[("origin", "null")], false),
        ];
        for (lines, own) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("host", "db1:12345".parse().unwrap());
            for (name, value) in lines {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(check(&Method::POST, &headers).is_ok(), own, "{lines:?}");
            assert!(check(&Method::GET, &headers).is_ok());
        }
    }
}
