//! Which route a path and a method name.

use hyper::Method;
use leasehold::core::{Fence, Name};
use leasehold::wire::{Problem, Trouble};
use leasehold::{Error, Result};

use crate::query::{Query, decode};

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Take a lease.
    Acquire(Name),
    /// Go on holding.
    Heartbeat(Name, Fence),
    /// Write the body.
    Update(Name, Fence),
    /// Let go, by fence.
    Release(Name, Fence),
    /// Let go, by nonce.
    ReleaseByNonce(Name),
    /// Look at one name.
    Show(Name),
    /// Look at many.
    List,
    /// End somebody's lease.
    Break(Name),
    /// Renew many.
    Heartbeats,
    /// Whether the process lives.
    Health,
    /// Whether the store answers.
    Ready,
}

/// Why a request is not performed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The request is wrong.
    Error(Error),
    /// No such path, method, or too large a body: not an error of leases.
    Problem(Box<Problem>),
    /// This path takes other methods: these.
    Method(&'static str),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<leasehold::core::Invalid> for Refused {
    fn from(invalid: leasehold::core::Invalid) -> Self {
        Self::Error(invalid.into())
    }
}

impl Refused {
    pub(crate) fn new(trouble: Trouble, detail: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::Problem(Box::new(Problem::new(trouble, detail)))
    }
}

/// What the path points at, whatever the method.
enum Target<'a> {
    Locks,
    Lock(&'a str),
    Fence(&'a str, &'a str),
    Heartbeat(&'a str, &'a str),
    Break(&'a str),
    Heartbeats,
    Health,
    Ready,
}

const WRITE: &str = "POST, PUT";
const READ: &str = "GET, HEAD";

impl Route {
    /// The route of a request. `?name=` stands for the path segment, for names that URL parsers mangle.
    pub(crate) fn find(method: &Method, path: &str, query: &Query<'_>) -> Result<Self, Refused> {
        let target = target(path, query.has("name")).ok_or_else(|| {
            Refused::new(
                Trouble::NotFound,
                "there is no such route; a `/` inside a name is written `%2F`",
            )
        })?;
        let name = |raw| lock_name(raw, query);
        let write = matches!(*method, Method::POST | Method::PUT);
        let read = matches!(*method, Method::GET | Method::HEAD);
        let delete = *method == Method::DELETE;
        let route = match target {
            Target::Locks if read => Self::List,
            Target::Locks if write => {
                return Err(Error::invalid("the name is missing: give `/locks/{name}`").into());
            }
            Target::Locks => return Err(Refused::Method(READ)),
            Target::Lock(raw) if write => Self::Acquire(name(raw)?),
            Target::Lock(raw) if read => Self::Show(name(raw)?),
            Target::Lock(raw) if delete => Self::ReleaseByNonce(name(raw)?),
            Target::Lock(_) => return Err(Refused::Method("GET, HEAD, POST, PUT, DELETE")),
            Target::Fence(raw, number) if write => Self::Update(name(raw)?, fence(number)?),
            Target::Fence(raw, number) if delete => Self::Release(name(raw)?, fence(number)?),
            Target::Fence(..) => return Err(Refused::Method("POST, PUT, DELETE")),
            Target::Heartbeat(raw, number) if write => Self::Heartbeat(name(raw)?, fence(number)?),
            Target::Break(raw) if write => Self::Break(name(raw)?),
            Target::Heartbeats if write => Self::Heartbeats,
            Target::Heartbeat(..) | Target::Break(_) | Target::Heartbeats => {
                return Err(Refused::Method(WRITE));
            }
            Target::Health if read => Self::Health,
            Target::Ready if read => Self::Ready,
            Target::Health | Target::Ready => return Err(Refused::Method(READ)),
        };
        Ok(route)
    }
}

fn target(path: &str, named: bool) -> Option<Target<'_>> {
    let rest = match path {
        "/healthz" => return Some(Target::Health),
        "/readyz" => return Some(Target::Ready),
        "/heartbeats" => return Some(Target::Heartbeats),
        "/locks" => None,
        other => Some(other.strip_prefix("/locks/")?),
    };
    // With `?name=`, the segment of the name is missing and everything else moves up.
    let mut parts = rest.into_iter().flat_map(|rest| rest.split('/'));
    let name = if named { Some("") } else { parts.next() };
    let rest = [parts.next(), parts.next(), parts.next()];
    match (name, rest) {
        (None, [None, ..]) => Some(Target::Locks),
        (Some(name), [None, ..]) => Some(Target::Lock(name)),
        (Some(name), [Some("break"), None, _]) => Some(Target::Break(name)),
        (Some(name), [Some(fence), None, _]) => Some(Target::Fence(name, fence)),
        (Some(name), [Some(fence), Some("heartbeat"), None]) => {
            Some(Target::Heartbeat(name, fence))
        }
        _ => None,
    }
}

fn lock_name(raw: &str, query: &Query<'_>) -> Result<Name> {
    let name = match query.get("name") {
        Some(name) => Name::lock(name)?,
        None => Name::lock(decode("name", raw)?)?,
    };
    Ok(name)
}

/// A fence as it is written in a URL.
pub(crate) fn fence(text: &str) -> Result<Fence> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| text.parse().ok().and_then(Fence::new))
        .flatten()
        .ok_or_else(|| {
            Error::invalid(format!(
                "the fence is not a whole number from 0 to {}; a `/` inside a name is written `%2F`",
                Fence::MAX
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(method: Method, path: &str, query: &str) -> Result<Route, Refused> {
        Route::find(&method, path, &Query::parse(Some(query)).unwrap())
    }

    fn name(text: &str) -> Name {
        Name::lock(text).unwrap()
    }

    #[test]
    fn paths_and_names_lead_to_routes() {
        let fence = Fence::new(13).unwrap();
        for (method, path, query, route) in [
            (Method::POST, "/locks/a", "", Route::Acquire(name("a"))),
            (Method::PUT, "/locks/a%2Fb", "", Route::Acquire(name("a/b"))),
            (
                Method::POST,
                "/locks",
                "name=..",
                Route::Acquire(name("..")),
            ),
            (Method::GET, "/locks", "name=..", Route::Show(name(".."))),
            (Method::GET, "/locks", "", Route::List),
            (
                Method::POST,
                "/locks/a/13",
                "",
                Route::Update(name("a"), fence),
            ),
            (
                Method::PUT,
                "/locks/13",
                "name=a",
                Route::Update(name("a"), fence),
            ),
            (Method::POST, "/locks/13", "", Route::Acquire(name("13"))),
            (
                Method::DELETE,
                "/locks/a/13",
                "",
                Route::Release(name("a"), fence),
            ),
            (
                Method::DELETE,
                "/locks/13",
                "name=a",
                Route::Release(name("a"), fence),
            ),
            (
                Method::DELETE,
                "/locks/a",
                "",
                Route::ReleaseByNonce(name("a")),
            ),
            (
                Method::POST,
                "/locks/a/13/heartbeat",
                "",
                Route::Heartbeat(name("a"), fence),
            ),
            (
                Method::PUT,
                "/locks/13/heartbeat",
                "name=a",
                Route::Heartbeat(name("a"), fence),
            ),
            (Method::POST, "/locks/a/break", "", Route::Break(name("a"))),
            (
                Method::POST,
                "/locks/break",
                "name=a",
                Route::Break(name("a")),
            ),
            (
                Method::POST,
                "/locks/break",
                "",
                Route::Acquire(name("break")),
            ),
            (Method::HEAD, "/healthz", "", Route::Health),
        ] {
            assert_eq!(
                find(method.clone(), path, query),
                Ok(route),
                "{method} {path}?{query}"
            );
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for path in [
            "/",
            "/lock",
            "/locks/a/1/heart",
            "/locks/a/1/heartbeat/x",
            "/locks/a/b/c/d",
        ] {
            let refused = find(Method::POST, path, "").unwrap_err();
            assert!(
                matches!(&refused, Refused::Problem(p) if p.status == 404),
                "{path}"
            );
        }
        for path in [
            "/locks/a/x",
            "/locks/a/",
            "/locks/a/+1",
            "/locks/a/-1",
            "/locks/a/1.5",
            "/locks/a/9007199254740992",
            "/locks/",
            "/locks/%00",
            "/locks/%ff",
            "/locks",
        ] {
            let refused = find(Method::POST, path, "").unwrap_err();
            assert!(
                matches!(refused, Refused::Error(Error::Invalid(_))),
                "{path}: {refused:?}"
            );
        }
        for (path, allow) in [
            ("/locks/a/1", "POST, PUT, DELETE"),
            ("/locks/a/break", WRITE),
            ("/heartbeats", WRITE),
        ] {
            assert_eq!(
                find(Method::GET, path, ""),
                Err(Refused::Method(allow)),
                "{path}"
            );
        }
        assert_eq!(
            find(Method::POST, "/readyz", ""),
            Err(Refused::Method(READ))
        );
    }
}
