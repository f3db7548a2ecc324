//! The host names for which the service accepts requests.
//!
//! Another site can make its own name resolve to this machine's loopback address (DNS rebinding). The browser then treats both
//! as one site, so neither `Origin` nor `Sec-Fetch-Site` shows the difference, but `Host` does.

use std::net::{IpAddr, SocketAddr};

use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Version, header};
use leasehold::wire::ProblemType;

use crate::Config;
use crate::rejection::Rejection;

/// The host that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    Named(&'a [u8]),
    Missing,
    Repeated,
    /// Missing from an HTTP/1.0 request, where it is optional.
    NotRequired,
}

impl<'a> Host<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Self {
        match Self::header(&parts.headers) {
            // A target that names a host overrides the header, which must be valid all the same.
            Self::Named(header) => Self::Named(match parts.uri.authority() {
                Some(authority) if parse(header).is_some() => authority.as_str().as_bytes(),
                _ => header,
            }),
            Self::Missing if parts.version < Version::HTTP_11 => Self::NotRequired,
            invalid => invalid,
        }
    }

    /// Returns whether it names the machine that the client runs on.
    pub(crate) fn is_loopback(self) -> bool {
        let Self::Named(host) = self else {
            return false;
        };
        parse(host).is_some_and(|authority| is_allowed(authority.host(), &[]))
    }

    fn header(headers: &'a HeaderMap) -> Self {
        let mut all = headers.get_all(header::HOST).iter();
        match (all.next(), all.next()) {
            (None, _) => Self::Missing,
            (Some(host), None) => Self::Named(host.as_bytes()),
            (Some(_), Some(_)) => Self::Repeated,
        }
    }
}

/// The hosts that requests may name.
#[derive(Clone, Debug)]
pub(crate) enum AllowedHosts {
    Any,
    /// Loopback's names and addresses, and these.
    Loopback(Vec<String>),
}

impl AllowedHosts {
    /// Returns the hosts that the configuration allows. By default, only a service on loopback without access control checks
    /// hosts, because its address is its only protection.
    pub(crate) fn new(config: &Config, address: Option<SocketAddr>) -> Self {
        let is_loopback = address.is_some_and(|address| address.ip().is_loopback());
        let is_open_on_loopback = is_loopback && config.access.is_none();
        let names = &config.allowed_hosts;
        if names.iter().any(|name| name == "*") || (names.is_empty() && !is_open_on_loopback) {
            return Self::Any;
        }
        Self::Loopback(names.clone())
    }

    /// Refuses a request that does not name exactly one valid and allowed host.
    pub(crate) fn check(&self, host: Host<'_>) -> Result<(), Rejection> {
        let invalid = |why: &'static str| Err(Rejection::new(ProblemType::BadRequest, why));
        let host = match host {
            Host::Named(host) => host,
            Host::NotRequired => return Ok(()),
            Host::Missing => return invalid("the `Host` header is missing: send it once"),
            Host::Repeated => {
                return invalid("the `Host` header is repeated: send it once");
            }
        };
        let Some(authority) = parse(host) else {
            return invalid("the `Host` header is invalid: give it as `name` or `name:port`");
        };
        match self {
            Self::Any => Ok(()),
            Self::Loopback(names) if is_allowed(authority.host(), names) => Ok(()),
            Self::Loopback(_) => Err(Rejection::new(
                ProblemType::Denied,
                format!(
                    "requests for the host `{}` are refused: use `localhost`, or start the service with `--allow-host {0}`",
                    authority.host()
                ),
            )),
        }
    }
}

fn parse(host: &[u8]) -> Option<Authority> {
    let authority = Authority::try_from(host).ok()?;
    let is_plain = !authority.as_str().contains('@') && !authority.host().is_empty();
    is_plain.then_some(authority)
}

fn is_allowed(host: &str, names: &[String]) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let address: Option<IpAddr> = literal.unwrap_or(host).parse().ok();
    let is_loopback = match address {
        Some(address) => address.to_canonical().is_loopback(),
        // Resolvers map this name and its subdomains to loopback (RFC 6761).
        None => {
            let label = host.rsplit('.').next().unwrap_or(host);
            label.eq_ignore_ascii_case("localhost")
        }
    };
    is_loopback || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(hosts: &AllowedHosts, host: Host<'_>) -> u16 {
        let checked = hosts.check(host);
        checked.map_or_else(|refused| refused.problem_type().status(), |()| 200)
    }

    #[test]
    fn only_loopback_and_allowed_names_are_accepted() {
        let hosts = AllowedHosts::Loopback(vec!["leases.internal".into()]);
        for allowed in [
            "localhost",
            "LocalHost:12345",
            "localhost.:80",
            "app.localhost",
            "127.0.0.1:12345",
            "127.8.9.1",
            "[::1]:12345",
            "[::ffff:127.0.0.1]",
            "leases.internal:443",
            "LEASES.internal",
        ] {
            assert_eq!(
                status(&hosts, Host::Named(allowed.as_bytes())),
                200,
                "{allowed}"
            );
        }
        for refused in [
            "evil.example",
            "evil.example:12345",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0:12345",
            "[::2]",
            "sub.leases.internal",
        ] {
            assert_eq!(
                status(&hosts, Host::Named(refused.as_bytes())),
                403,
                "{refused}"
            );
            assert_eq!(
                status(&AllowedHosts::Any, Host::Named(refused.as_bytes())),
                200
            );
        }
    }

    #[test]
    fn request_must_name_one_valid_host() {
        for hosts in [AllowedHosts::Any, AllowedHosts::Loopback(Vec::new())] {
            for invalid in [
                "",
                " ",
                ":80",
                "a b",
                "a/b",
                "user@localhost",
                "[::1",
                "a:b:c",
                "a,b/",
            ] {
                assert_eq!(
                    status(&hosts, Host::Named(invalid.as_bytes())),
                    400,
                    "{invalid:?}"
                );
            }
            assert_eq!(status(&hosts, Host::Named(b"\xff")), 400);
            assert_eq!(status(&hosts, Host::Missing), 400);
            assert_eq!(status(&hosts, Host::Repeated), 400);
            assert_eq!(status(&hosts, Host::NotRequired), 200);
        }
    }

    #[test]
    fn only_a_service_on_loopback_without_access_control_checks_hosts_by_default() {
        let address = |text: &str| Some(text.parse().unwrap());
        let mut config = Config::default();
        let is_any = |config: &Config, address| {
            matches!(AllowedHosts::new(config, address), AllowedHosts::Any)
        };
        assert!(!is_any(&config, address("127.0.0.1:12345")));
        assert!(!is_any(&config, address("[::1]:12345")));
        assert!(is_any(&config, address("0.0.0.0:12345")));
        config.allowed_hosts = vec!["db1".into()];
        assert!(!is_any(&config, address("0.0.0.0:12345")));
        config.allowed_hosts = vec!["*".into()];
        assert!(is_any(&config, address("127.0.0.1:12345")));
    }
}
