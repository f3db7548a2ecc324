//! All routes, with their parameters and responses.

use leasehold::wire::ProblemType;

/// An operation of the API.
pub(super) struct Operation {
    /// The operation id with the first method. With a second method, `Put` is appended.
    pub(super) id: &'static str,
    pub(super) methods: &'static [&'static str],
    pub(super) path: &'static str,
    /// The path with the name as a parameter, for names that a proxy may change in a path.
    pub(super) by_query: Option<&'static str>,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [&'static str],
    pub(super) body: Body,
    pub(super) response: ResponseBody,
    /// Problem types beyond those that are derived from the tag, the method and the required scopes.
    pub(super) problems: &'static [ProblemType],
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) enum Body {
    None,
    /// Text of at most 64 KiB, which is stored.
    Text,
    /// JSON of this schema; optional.
    Json(&'static str),
}

/// The body of a successful response.
#[derive(Clone, Copy)]
pub(super) enum ResponseBody {
    /// JSON of one of these schemas.
    Json(&'static [&'static str]),
    /// Another content type.
    Other(&'static str),
}

/// The problem types of all requests.
pub(super) const ALWAYS: &[ProblemType] = &[ProblemType::BadRequest];
/// The problem types of requests that use the store.
pub(super) const STORED: &[ProblemType] = &[
    ProblemType::StoreUnavailable,
    ProblemType::Indeterminate,
    ProblemType::Corrupt,
];
/// The problem types of requests that require a token.
pub(super) const GUARDED: &[ProblemType] = &[ProblemType::Unauthorized, ProblemType::Denied];
/// The problem types of requests that may have a body.
pub(super) const SENT: &[ProblemType] = &[ProblemType::RequestTimeout, ProblemType::TooLarge];

const WRITE: &[&str] = &["post", "put"];
const READ: &[&str] = &["get"];
const DELETE: &[&str] = &["delete"];

use Body::{Json, Text};
use ResponseBody::{Json as JsonResponse, Other};

/// Defaults.
const PLAIN: Operation = Operation {
    id: "",
    methods: READ,
    path: "",
    by_query: None,
    tag: "service",
    summary: "",
    parameters: &[],
    body: Body::None,
    response: Other("text/plain"),
    problems: &[],
};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "acquire",
        methods: WRITE,
        path: "/locks/{name}",
        by_query: Some("/locks?name={name}"),
        tag: "locks",
        summary: "Acquire a lease",
        parameters: &[
            "name",
            "nonce",
            "Leasehold-Nonce",
            "ttl",
            "wait",
            "owner",
            "mode",
            "sharers",
            "own-fence",
        ],
        response: JsonResponse(&["Lease"]),
        problems: &[ProblemType::Held],
        ..PLAIN
    },
    Operation {
        id: "acquireAll",
        methods: WRITE,
        path: "/locks",
        tag: "locks",
        summary: "Acquire several leases, all or none",
        parameters: &["names", "nonce", "Leasehold-Nonce", "ttl", "wait", "owner"],
        body: Json("Names"),
        response: JsonResponse(&["NamedLeases", "Lease"]),
        problems: &[ProblemType::Held],
        ..PLAIN
    },
    Operation {
        id: "heartbeat",
        methods: WRITE,
        path: "/locks/{name}/{fence}/heartbeat",
        by_query: Some("/locks/{fence}/heartbeat?name={name}"),
        tag: "locks",
        summary: "Renew a lease",
        parameters: &["name", "fence", "ttl"],
        response: JsonResponse(&["Lease"]),
        problems: &[ProblemType::Fenced, ProblemType::Expired],
        ..PLAIN
    },
    Operation {
        id: "heartbeats",
        methods: WRITE,
        path: "/heartbeats",
        tag: "locks",
        summary: "Renew many leases",
        parameters: &["within"],
        body: Json("Heartbeats"),
        response: JsonResponse(&["HeartbeatsAnswer"]),
        ..PLAIN
    },
    Operation {
        id: "requests",
        methods: WRITE,
        path: "/requests",
        tag: "locks",
        summary: "Send many requests as one",
        body: Json("Requests"),
        response: JsonResponse(&["Answers"]),
        ..PLAIN
    },
    Operation {
        id: "update",
        methods: WRITE,
        path: "/locks/{name}/{fence}",
        by_query: Some("/locks/{fence}?name={name}"),
        tag: "locks",
        summary: "Update the body or the state; keep or release the lease",
        parameters: &["name", "fence", "keep", "new-state", "release"],
        body: Text,
        response: JsonResponse(&["Lease", "Released"]),
        problems: &[ProblemType::Fenced, ProblemType::Expired],
    },
    Operation {
        id: "release",
        methods: DELETE,
        path: "/locks/{name}/{fence}",
        by_query: Some("/locks/{fence}?name={name}"),
        tag: "locks",
        summary: "Release a lease by its fence",
        parameters: &["name", "fence"],
        response: JsonResponse(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "releaseByNonce",
        methods: DELETE,
        path: "/locks/{name}",
        by_query: Some("/locks?name={name}"),
        tag: "locks",
        summary: "Release a lease by its nonce",
        parameters: &["name", "nonce", "Leasehold-Nonce"],
        response: JsonResponse(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "break",
        methods: WRITE,
        path: "/locks/{name}/break",
        by_query: Some("/locks/break?name={name}"),
        tag: "locks",
        summary: "Break a lease; the options are parameters or a JSON body",
        parameters: &[
            "name",
            "broken-fence",
            "nonce",
            "Leasehold-Nonce",
            "force",
            "reason",
            "now",
        ],
        body: Json("BreakHow"),
        response: JsonResponse(&["Broken"]),
        problems: &[ProblemType::Fenced, ProblemType::Expired],
    },
    Operation {
        id: "show",
        path: "/locks/{name}",
        by_query: Some("/locks?name={name}"),
        tag: "locks",
        summary: "Show a name",
        parameters: &["name"],
        response: JsonResponse(&["LockView"]),
        problems: &[ProblemType::NotFound],
        ..PLAIN
    },
    Operation {
        id: "list",
        path: "/locks",
        tag: "locks",
        summary: "List names",
        parameters: &["prefix", "state", "held", "cursor", "page", "bodies"],
        response: JsonResponse(&["Locks"]),
        ..PLAIN
    },
    Operation {
        id: "history",
        path: "/locks/{name}/history",
        by_query: Some("/locks/history?name={name}"),
        tag: "locks",
        summary: "Show the recent hold periods of a name",
        parameters: &["name"],
        response: JsonResponse(&["History"]),
        ..PLAIN
    },
    Operation {
        id: "putItem",
        methods: WRITE,
        path: "/items/{name}",
        by_query: Some("/items?name={name}"),
        tag: "items",
        summary: "Create a work item or change its state; without a body, its body is kept",
        parameters: &["name", "item-state", "empty", "nonce", "Leasehold-Nonce"],
        body: Text,
        response: JsonResponse(&["Stored"]),
        problems: &[ProblemType::Held],
    },
    Operation {
        id: "removeItem",
        methods: DELETE,
        path: "/items/{name}",
        by_query: Some("/items?name={name}"),
        tag: "items",
        summary: "Empty a work item",
        parameters: &["name"],
        response: JsonResponse(&["Removed"]),
        problems: &[ProblemType::Held],
        ..PLAIN
    },
    Operation {
        id: "claim",
        methods: WRITE,
        path: "/claims",
        tag: "items",
        summary: "Claim the next work items of a state",
        parameters: &[
            "item-state",
            "prefix",
            "items",
            "claim-ttl",
            "owner",
            "nonce",
            "Leasehold-Nonce",
            "wait",
        ],
        response: JsonResponse(&["Items"]),
        ..PLAIN
    },
    Operation {
        id: "passGate",
        methods: WRITE,
        path: "/gates/{id}",
        by_query: Some("/gates?name={id}"),
        tag: "gates",
        summary: "Pass a gate and shut it for a period",
        parameters: &["id", "every", "nonce", "Leasehold-Nonce", "owner", "wait"],
        response: JsonResponse(&["Lease"]),
        problems: &[ProblemType::Throttled],
        ..PLAIN
    },
    Operation {
        id: "openGate",
        methods: DELETE,
        path: "/gates/{id}/{fence}",
        by_query: Some("/gates/{fence}?name={id}"),
        tag: "gates",
        summary: "Open a gate by its fence",
        parameters: &["id", "fence"],
        response: JsonResponse(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "openGateByNonce",
        methods: DELETE,
        path: "/gates/{id}",
        by_query: Some("/gates?name={id}"),
        tag: "gates",
        summary: "Open a gate by its nonce",
        parameters: &["id", "nonce", "Leasehold-Nonce"],
        response: JsonResponse(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "breakGate",
        methods: WRITE,
        path: "/gates/{id}/break",
        by_query: Some("/gates/break?name={id}"),
        tag: "gates",
        summary: "Open a gate that another caller has shut",
        parameters: &[
            "id",
            "broken-fence",
            "nonce",
            "Leasehold-Nonce",
            "force",
            "reason",
            "now",
        ],
        body: Json("BreakHow"),
        response: JsonResponse(&["Broken"]),
        problems: &[ProblemType::Fenced, ProblemType::Expired],
    },
    Operation {
        id: "showGate",
        path: "/gates/{id}",
        by_query: Some("/gates?name={id}"),
        tag: "gates",
        summary: "Show a gate",
        parameters: &["id"],
        response: JsonResponse(&["LockView"]),
        problems: &[ProblemType::NotFound],
        ..PLAIN
    },
    Operation {
        id: "gateHistory",
        path: "/gates/{id}/history",
        by_query: Some("/gates/history?name={id}"),
        tag: "gates",
        summary: "Show the recent passes of a gate",
        parameters: &["id"],
        response: JsonResponse(&["History"]),
        ..PLAIN
    },
    Operation {
        id: "listGates",
        path: "/gates",
        tag: "gates",
        summary: "List gates",
        parameters: &["prefix", "state", "held", "cursor", "page", "bodies"],
        response: JsonResponse(&["Gates"]),
        ..PLAIN
    },
    Operation {
        id: "events",
        path: "/events",
        tag: "service",
        summary: "Subscribe to changes: server-sent events, the data of each is an `Event`",
        parameters: &["prefix", "Last-Event-ID"],
        response: Other("text/event-stream"),
        ..PLAIN
    },
    Operation {
        id: "metrics",
        path: "/metrics",
        summary: "Metrics in Prometheus' text format",
        ..PLAIN
    },
    Operation {
        id: "totals",
        path: "/totals",
        summary: "The present load, and that of the last hour",
        response: JsonResponse(&["Totals"]),
        ..PLAIN
    },
    Operation {
        id: "logIn",
        methods: WRITE,
        path: "/login",
        summary: "Open a browser session: sends a cookie in exchange for a token",
        body: Json("Login"),
        response: JsonResponse(&["Myself"]),
        problems: &[
            ProblemType::Unauthorized,
            ProblemType::Denied,
            ProblemType::TooManyRequests,
        ],
        ..PLAIN
    },
    Operation {
        id: "logOut",
        methods: WRITE,
        path: "/logout",
        summary: "End the browser session",
        response: JsonResponse(&["Myself"]),
        problems: &[ProblemType::Denied],
        ..PLAIN
    },
    Operation {
        id: "whoAmI",
        path: "/whoami",
        summary: "Show the caller's principal and scopes",
        response: JsonResponse(&["Myself"]),
        ..PLAIN
    },
    Operation {
        id: "alive",
        path: "/healthz",
        summary: "Liveness: whether the process runs",
        response: JsonResponse(&["Status"]),
        ..PLAIN
    },
    Operation {
        id: "ready",
        path: "/readyz",
        summary: "Readiness: whether changes can be made",
        response: JsonResponse(&["Status"]),
        problems: STORED,
        ..PLAIN
    },
    Operation {
        id: "dashboard",
        path: "/",
        summary: "The dashboard for operators",
        response: Other("text/html"),
        ..PLAIN
    },
    Operation {
        id: "openapi",
        path: "/openapi.json",
        summary: "This document",
        response: Other("application/json"),
        ..PLAIN
    },
    Operation {
        id: "docs",
        path: "/docs",
        summary: "This document as a web page",
        response: Other("text/html"),
        ..PLAIN
    },
    Operation {
        id: "docsScript",
        path: "/docs/page.js",
        summary: "The script of that page",
        response: Other("text/javascript"),
        ..PLAIN
    },
    Operation {
        id: "docsStyle",
        path: "/docs/page.css",
        summary: "The style sheet of that page",
        response: Other("text/css"),
        ..PLAIN
    },
];
