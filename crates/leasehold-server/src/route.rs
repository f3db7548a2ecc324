//! Maps a method and a path to a route.

use hyper::Method;
use leasehold::core::{Fence, Kind, Name};
use leasehold::{Error, Result};

use crate::dashboard::{self, Asset};
use crate::events;
use crate::openapi::Part;
use crate::query::{Query, decode, split};
use crate::rejection::Rejection;

/// What a request is for. A [`Name`] is either a lock's or a gate's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Acquire a lease.
    Acquire(Name),
    /// Acquire all of several leases, or none. If there are no names, the request's body has them.
    AcquireAll(Vec<Name>),
    /// Renew a lease.
    Heartbeat(Name, Fence),
    /// Renew many leases.
    Heartbeats,
    /// Answer a batch of requests.
    Requests,
    /// Write the body of a held lease.
    Update(Name, Fence),
    /// Release a lease, or reopen a gate, by fence.
    Release(Name, Fence),
    /// Release a lease, or reopen a gate, by nonce.
    ReleaseByNonce(Name),
    /// End a holder's lease.
    Break(Name),
    /// Show one name.
    Show(Name),
    /// List names.
    List(Kind),
    /// Show the past holders of a name.
    History(Name),
    /// Pass a gate.
    Pass(Name),
    /// Create or replace a work item.
    Put(Name),
    /// Empty a work item.
    Remove(Name),
    /// Lease the next items of a state.
    Claim,
    /// Subscribe to events.
    Events,
    /// Metrics for Prometheus.
    Metrics,
    /// The load now and in the last hour.
    Totals,
    /// A file of the dashboard.
    Dashboard(&'static Asset),
    /// The OpenAPI description.
    OpenApi,
    /// A file of the page that shows the OpenAPI description.
    Docs(Part),
    /// Open a session for a token, in a cookie.
    LogIn,
    /// End the session.
    LogOut,
    /// Show the caller's principal and scopes.
    WhoAmI,
    /// Check that the process is alive.
    Health,
    /// Check that a change can be made.
    Ready,
}

/// What an HTTP method does.
#[derive(Clone, Copy)]
enum Verb {
    Read,
    Write,
    Delete,
    Other,
}

impl From<&Method> for Verb {
    fn from(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Self::Read,
            Method::POST | Method::PUT => Self::Write,
            Method::DELETE => Self::Delete,
            _ => Self::Other,
        }
    }
}

const READ: &str = "GET, HEAD";
const WRITE: &str = "POST, PUT";
const DELETE: &str = "DELETE";
const WRITE_DELETE: &str = "POST, PUT, DELETE";
const READ_WRITE: &str = "GET, HEAD, POST, PUT";
const ALL: &str = "GET, HEAD, POST, PUT, DELETE";

type RouteResult = Result<Route, Rejection>;
/// The routes of a collection, by method, name and rest of the path.
type Collection = fn(Verb, &Names<'_>, &[&str]) -> RouteResult;

impl Route {
    /// Returns its name, or the first of several, if it has any.
    pub(crate) fn name(&self) -> Option<&Name> {
        match self {
            Self::Acquire(name)
            | Self::Heartbeat(name, _)
            | Self::Update(name, _)
            | Self::Release(name, _)
            | Self::ReleaseByNonce(name)
            | Self::Break(name)
            | Self::Show(name)
            | Self::History(name)
            | Self::Pass(name)
            | Self::Put(name)
            | Self::Remove(name) => Some(name),
            Self::AcquireAll(names) => names.first(),
            _ => None,
        }
    }

    /// Returns whether it is about exactly one name.
    pub(crate) fn has_single_name(&self) -> bool {
        self.name().is_some() && !matches!(self, Self::AcquireAll(_))
    }

    /// Finds the route of a request. `?name=` replaces the path segment, for names that URL parsers change.
    pub(crate) fn find(method: &Method, path: &str, query: &Query<'_>) -> RouteResult {
        let verb = Verb::from(method);
        let mut segments = Segments(path.strip_prefix('/'));
        let (collection, kind): (Collection, _) = match segments.next() {
            Some("locks") => (locks, Kind::Lock),
            Some("items") => (items, Kind::Lock),
            Some("gates") => (gates, Kind::Gate),
            _ => return service(verb, path),
        };
        // With `?name=`, the path has no segment for the name.
        let segment = if query.has("name") {
            None
        } else {
            segments.next()
        };
        let names = Names {
            kind,
            segment,
            query,
        };
        // One more than the longest route has.
        let mut rest = [""; 3];
        let mut count = 0;
        for (slot, segment) in rest.iter_mut().zip(segments) {
            *slot = segment;
            count += 1;
        }
        collection(verb, &names, &rest[..count])
    }
}

/// The segments of a path.
struct Segments<'a>(Option<&'a str>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let (segment, after) = split(rest, b'/');
        self.0 = (segment.len() < rest.len()).then_some(after);
        Some(segment)
    }
}

fn locks(verb: Verb, names: &Names<'_>, rest: &[&str]) -> RouteResult {
    match (names.count(), rest, verb) {
        (0, [], Verb::Read) => Ok(Route::List(names.kind)),
        (0, [], Verb::Write) => Ok(Route::AcquireAll(Vec::new())),
        (0, [], _) => Err(Rejection::Method(READ_WRITE)),
        (1, [], Verb::Write) => Ok(Route::Acquire(names.one()?)),
        (_, [], Verb::Write) => Ok(Route::AcquireAll(names.all()?)),
        (_, [], Verb::Read) => Ok(Route::Show(names.one()?)),
        (_, [], Verb::Delete) => Ok(Route::ReleaseByNonce(names.one()?)),
        (_, [], _) => Err(Rejection::Method(ALL)),
        (_, ["break"], Verb::Write) => Ok(Route::Break(names.one()?)),
        (_, ["break"], _) => Err(Rejection::Method(WRITE)),
        (_, ["history"], Verb::Read) => Ok(Route::History(names.one()?)),
        (_, ["history"], _) => Err(Rejection::Method(READ)),
        (_, [number], Verb::Write) => Ok(Route::Update(names.one()?, fence(number)?)),
        (_, [number], Verb::Delete) => Ok(Route::Release(names.one()?, fence(number)?)),
        (_, [_], _) => Err(Rejection::Method(WRITE_DELETE)),
        (_, [number, "heartbeat"], Verb::Write) => {
            Ok(Route::Heartbeat(names.one()?, fence(number)?))
        }
        (_, [_, "heartbeat"], _) => Err(Rejection::Method(WRITE)),
        _ => Err(Rejection::no_such_route()),
    }
}

fn gates(verb: Verb, names: &Names<'_>, rest: &[&str]) -> RouteResult {
    match (names.count(), rest, verb) {
        (0, [], Verb::Read) => Ok(Route::List(names.kind)),
        (_, [], Verb::Write) => Ok(Route::Pass(names.one()?)),
        (_, [], Verb::Read) => Ok(Route::Show(names.one()?)),
        (_, [], Verb::Delete) => Ok(Route::ReleaseByNonce(names.one()?)),
        (_, [], _) => Err(Rejection::Method(ALL)),
        (_, ["break"], Verb::Write) => Ok(Route::Break(names.one()?)),
        (_, ["break"], _) => Err(Rejection::Method(WRITE)),
        (_, ["history"], Verb::Read) => Ok(Route::History(names.one()?)),
        (_, ["history"], _) => Err(Rejection::Method(READ)),
        (_, [number], Verb::Delete) => Ok(Route::Release(names.one()?, fence(number)?)),
        (_, [_], _) => Err(Rejection::Method(DELETE)),
        _ => Err(Rejection::no_such_route()),
    }
}

fn items(verb: Verb, names: &Names<'_>, rest: &[&str]) -> RouteResult {
    match (rest, verb) {
        ([], Verb::Write) => Ok(Route::Put(names.one()?)),
        ([], Verb::Delete) => Ok(Route::Remove(names.one()?)),
        ([], _) => Err(Rejection::Method(WRITE_DELETE)),
        _ => Err(Rejection::no_such_route()),
    }
}

/// The routes without names.
fn service(verb: Verb, path: &str) -> RouteResult {
    match (path, verb) {
        ("/claims", Verb::Write) => Ok(Route::Claim),
        ("/heartbeats", Verb::Write) => Ok(Route::Heartbeats),
        ("/requests", Verb::Write) => Ok(Route::Requests),
        ("/claims" | "/heartbeats" | "/requests", _) => Err(Rejection::Method(WRITE)),
        ("/login", Verb::Write) => Ok(Route::LogIn),
        ("/logout", Verb::Write) => Ok(Route::LogOut),
        ("/login" | "/logout", _) => Err(Rejection::Method(WRITE)),
        ("/whoami", Verb::Read) => Ok(Route::WhoAmI),
        ("/healthz", Verb::Read) => Ok(Route::Health),
        ("/readyz", Verb::Read) => Ok(Route::Ready),
        (events::PATH, Verb::Read) => Ok(Route::Events),
        ("/metrics", Verb::Read) => Ok(Route::Metrics),
        ("/totals", Verb::Read) => Ok(Route::Totals),
        ("/openapi.json", Verb::Read) => Ok(Route::OpenApi),
        ("/docs", Verb::Read) => Ok(Route::Docs(Part::Page)),
        ("/docs/page.js", Verb::Read) => Ok(Route::Docs(Part::Script)),
        ("/docs/page.css", Verb::Read) => Ok(Route::Docs(Part::Style)),
        (
            "/healthz"
            | "/readyz"
            | events::PATH
            | "/metrics"
            | "/totals"
            | "/whoami"
            | "/openapi.json"
            | "/docs"
            | "/docs/page.js"
            | "/docs/page.css",
            _,
        ) => Err(Rejection::Method(READ)),
        _ => match (dashboard::find(path), verb) {
            (Some(asset), Verb::Read) => Ok(Route::Dashboard(asset)),
            (Some(_), _) => Err(Rejection::Method(READ)),
            (None, _) => Err(Rejection::no_such_route()),
        },
    }
}

/// The names of a request, from the path or the query.
struct Names<'a> {
    kind: Kind,
    segment: Option<&'a str>,
    query: &'a Query<'a>,
}

impl Names<'_> {
    fn count(&self) -> usize {
        self.segment.iter().count() + self.query.all("name").count()
    }

    fn all(&self) -> Result<Vec<Name>> {
        let names = self.query.all("name");
        names.map(|name| Ok(Name::new(self.kind, name)?)).collect()
    }

    fn one(&self) -> Result<Name> {
        let mut names = self.query.all("name");
        let name = match (self.segment, names.next(), names.next()) {
            (Some(raw), _, _) => decode("name", raw)?,
            (None, Some(name), None) => name.into(),
            (None, Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "several names are given, but this route takes one: give `name` once",
                ));
            }
            (None, None, _) => {
                return Err(Error::invalid(
                    "the name is missing: give it in the path, or as `name=`",
                ));
            }
        };
        Ok(Name::new(self.kind, &name)?)
    }
}

/// Parses a fence in a URL.
pub(crate) fn fence(text: &str) -> Result<Fence> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| text.parse().ok().and_then(Fence::new))
        .flatten()
        .ok_or_else(|| {
            Error::invalid(format!(
                "the fence is not a whole number from 0 to {}: give the fence of the grant, and write `/` inside a name as `%2F`",
                Fence::MAX
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the route of `METHOD PATH?QUERY`.
    fn find(line: &str) -> RouteResult {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = Query::parse(Some(query)).unwrap();
        Route::find(&method.parse().unwrap(), path, &query)
    }

    fn lock(text: &str) -> Name {
        Name::lock(text).unwrap()
    }

    fn gate(text: &str) -> Name {
        Name::gate(text).unwrap()
    }

    #[test]
    fn methods_and_paths_map_to_routes() {
        let fence = Fence::new(13).unwrap();
        let both = vec![lock("b"), lock("a/")];
        for (line, route) in [
            ("POST /locks/a", Route::Acquire(lock("a"))),
            ("PUT /locks/a%2Fb", Route::Acquire(lock("a/b"))),
            ("POST /locks?name=..", Route::Acquire(lock(".."))),
            ("POST /locks/13", Route::Acquire(lock("13"))),
            ("POST /locks/break", Route::Acquire(lock("break"))),
            ("POST /locks?name=b&name=a/", Route::AcquireAll(both)),
            ("POST /locks", Route::AcquireAll(vec![])),
            ("GET /locks?name=..", Route::Show(lock(".."))),
            ("GET /locks", Route::List(Kind::Lock)),
            ("POST /locks/a/13", Route::Update(lock("a"), fence)),
            ("PUT /locks/13?name=a", Route::Update(lock("a"), fence)),
            ("DELETE /locks/a/13", Route::Release(lock("a"), fence)),
            ("DELETE /locks/13?name=a", Route::Release(lock("a"), fence)),
            ("DELETE /locks/a", Route::ReleaseByNonce(lock("a"))),
            (
                "POST /locks/a/13/heartbeat",
                Route::Heartbeat(lock("a"), fence),
            ),
            (
                "PUT /locks/13/heartbeat?name=a",
                Route::Heartbeat(lock("a"), fence),
            ),
            ("POST /locks/a/break", Route::Break(lock("a"))),
            ("POST /locks/break?name=a", Route::Break(lock("a"))),
            ("PUT /items/a%2Fb", Route::Put(lock("a/b"))),
            ("DELETE /items?name=..", Route::Remove(lock(".."))),
            ("POST /gates/a", Route::Pass(gate("a"))),
            ("POST /gates?name=..", Route::Pass(gate(".."))),
            ("DELETE /gates/a/13", Route::Release(gate("a"), fence)),
            ("DELETE /gates/13?name=a", Route::Release(gate("a"), fence)),
            ("DELETE /gates/a", Route::ReleaseByNonce(gate("a"))),
            ("POST /gates/a/break", Route::Break(gate("a"))),
            ("GET /gates/a", Route::Show(gate("a"))),
            ("GET /gates", Route::List(Kind::Gate)),
            ("GET /locks/a%2Fb/history", Route::History(lock("a/b"))),
            ("GET /locks/history?name=..", Route::History(lock(".."))),
            ("GET /locks/history", Route::Show(lock("history"))),
            ("GET /gates/a/history", Route::History(gate("a"))),
            ("GET /totals", Route::Totals),
            (
                "GET /",
                Route::Dashboard(dashboard::find("/").expect("a page")),
            ),
            ("POST /claims", Route::Claim),
            ("POST /requests", Route::Requests),
            ("GET /events", Route::Events),
            ("GET /metrics", Route::Metrics),
            ("GET /docs", Route::Docs(Part::Page)),
            ("GET /docs/page.js", Route::Docs(Part::Script)),
            ("HEAD /healthz", Route::Health),
        ] {
            assert_eq!(find(line), Ok(route), "{line}");
        }
    }

    #[test]
    fn unknown_paths_names_and_methods_are_refused() {
        for path in [
            "/dashboard",
            "/dashboard/nothing.js",
            "/lock",
            "/locks/a/1/heart",
            "/locks/a/1/heartbeat/x",
            "/locks/a/b/c/d",
            "/items/a/1",
            "/gates/a/1/heartbeat",
            "/claims/",
            "/claims/a",
        ] {
            let refused = find(&format!("POST {path}")).unwrap_err();
            let is_not_found = matches!(&refused, Rejection::Problem(p) if p.status == 404);
            assert!(is_not_found, "{path}: {refused:?}");
        }
        for line in [
            "POST /locks/a/x",
            "POST /locks/a/",
            "POST /locks/a/+1",
            "POST /locks/a/-1",
            "POST /locks/a/1.5",
            "POST /locks/a/9007199254740992",
            "POST /locks/",
            "POST /locks/%00",
            "POST /locks/%ff",
            "POST /locks?name=a&name=",
            "GET /locks?name=a&name=b",
            "POST /locks/1?name=a&name=b",
            "PUT /items?name=a&name=b",
            "PUT /items",
            "POST /gates",
            "DELETE /gates/a/x",
        ] {
            let refused = find(line).unwrap_err();
            let is_invalid = matches!(refused, Rejection::Error(Error::Invalid(_)));
            assert!(is_invalid, "{line}: {refused:?}");
        }
        for (line, allow) in [
            ("GET /locks/a/1", WRITE_DELETE),
            ("GET /locks/a/break", WRITE),
            ("DELETE /locks", READ_WRITE),
            ("PATCH /locks/a", ALL),
            ("GET /heartbeats", WRITE),
            ("GET /items/a", WRITE_DELETE),
            ("POST /gates/a/1", DELETE),
            ("GET /claims", WRITE),
            ("GET /requests", WRITE),
            ("POST /readyz", READ),
            ("POST /events", READ),
            ("POST /", READ),
            ("POST /totals", READ),
            ("POST /locks/a/history", READ),
        ] {
            assert_eq!(find(line), Err(Rejection::Method(allow)), "{line}");
        }
    }
}
