//! Protection against cross-site request forgery: pages of other sites cannot change anything through a browser.

use hyper::HeaderMap;
use hyper::Method;
use hyper::header::{HOST, HeaderName, ORIGIN};
use leasehold::wire::ProblemType;

use crate::rejection::Rejection;

/// The header in which a browser says whether a request comes from the same site.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a change that a page of another site requests. Browsers send these headers, and pages cannot forge them. Other
/// programs do not send them.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Rejection> {
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let is_same_site = match (headers.get(&SITE), headers.get(ORIGIN)) {
        (None, None) => true,
        (Some(site), _) => site == "same-origin" || site == "none",
        (None, Some(origin)) => {
            let origin = origin.as_bytes();
            let host = headers.get(HOST).map(|host| host.as_bytes());
            let scheme = origin.windows(3).position(|three| three == b"://");
            let authority = scheme.map(|at| &origin[at + 3..]);
            authority
                .zip(host)
                .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
        }
    };
    if is_same_site {
        return Ok(());
    }
    Err(Rejection::new(
        ProblemType::Denied,
        "the request comes from a page of another site: send it from a page of the service, or without a browser",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_pages_and_programs_may_change_anything() {
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
        for (lines, is_allowed) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("host", "db1:12345".parse().unwrap());
            for (name, value) in lines {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(
                check(&Method::POST, &headers).is_ok(),
                is_allowed,
                "{lines:?}"
            );
            assert!(check(&Method::GET, &headers).is_ok());
        }
    }
}
