//! Every route, with its parameters and what it answers.

use leasehold::wire::Trouble;

/// One thing that can be asked.
pub(super) struct Operation {
    /// The first of them has this id, a second one `Put` behind it.
    pub(super) id: &'static str,
    pub(super) methods: &'static [&'static str],
    pub(super) path: &'static str,
    /// The same with the name as a parameter, for names that URLs mangle.
    pub(super) by_query: Option<&'static str>,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [&'static str],
    pub(super) body: Body,
    pub(super) answer: Answered,
    /// What may be wrong, but for what always may.
    pub(super) troubles: &'static [Trouble],
}

/// What a request's body is.
#[derive(Clone, Copy)]
pub(super) enum Body {
    None,
    /// Text that is kept, at most 64 KiB.
    Text,
    /// JSON of this schema, which may be left out.
    Json(&'static str),
}

/// What the answer is when all is well.
#[derive(Clone, Copy)]
pub(super) enum Answered {
    /// JSON of one of these schemas.
    Json(&'static [&'static str]),
    /// Something else, of this type.
    Other(&'static str),
}

/// What may be wrong with every request.
pub(super) const ALWAYS: &[Trouble] = &[Trouble::BadRequest];
/// What may be wrong with every request that needs the store.
pub(super) const STORED: &[Trouble] = &[
    Trouble::StoreUnavailable,
    Trouble::Indeterminate,
    Trouble::Corrupt,
];
/// What may be wrong with every request that takes a token.
pub(super) const GUARDED: &[Trouble] = &[Trouble::Unauthorized, Trouble::Denied];
/// What may be wrong with every request that has a body.
pub(super) const SENT: &[Trouble] = &[Trouble::RequestTimeout, Trouble::TooLarge];

const WRITE: &[&str] = &["post", "put"];
const READ: &[&str] = &["get"];
const DELETE: &[&str] = &["delete"];

use Answered::{Json as Answers, Other};
use Body::{Json, Text};

/// Defaults for what most have in common.
const PLAIN: Operation = Operation {
    id: "",
    methods: READ,
    path: "",
    by_query: None,
    tag: "service",
    summary: "",
    parameters: &[],
    body: Body::None,
    answer: Other("text/plain"),
    troubles: &[],
};

/// All of them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "acquire",
        methods: WRITE,
        path: "/locks/{name}",
        by_query: Some("/locks?name={name}"),
        tag: "locks",
        summary: "Take a lease",
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
        answer: Answers(&["Lease"]),
        troubles: &[Trouble::Held],
        ..PLAIN
    },
    Operation {
        id: "acquireAll",
        methods: WRITE,
        path: "/locks",
        tag: "locks",
        summary: "Take several leases, all or none",
        parameters: &["names", "nonce", "Leasehold-Nonce", "ttl", "wait", "owner"],
        body: Json("Names"),
        answer: Answers(&["NamedLeases", "Lease"]),
        troubles: &[Trouble::Held],
        ..PLAIN
    },
    Operation {
        id: "heartbeat",
        methods: WRITE,
        path: "/locks/{name}/{fence}/heartbeat",
        by_query: Some("/locks/{fence}/heartbeat?name={name}"),
        tag: "locks",
        summary: "Go on holding",
        parameters: &["name", "fence", "ttl"],
        answer: Answers(&["Lease"]),
        troubles: &[Trouble::Fenced, Trouble::Expired],
        ..PLAIN
    },
    Operation {
        id: "heartbeats",
        methods: WRITE,
        path: "/heartbeats",
        tag: "locks",
        summary: "Go on holding many",
        parameters: &["within"],
        body: Json("Heartbeats"),
        answer: Answers(&["HeartbeatsAnswer"]),
        ..PLAIN
    },
    Operation {
        id: "requests",
        methods: WRITE,
        path: "/requests",
        tag: "locks",
        summary: "Send many requests in one",
        body: Json("Requests"),
        answer: Answers(&["Answers"]),
        ..PLAIN
    },
    Operation {
        id: "update",
        methods: WRITE,
        path: "/locks/{name}/{fence}",
        by_query: Some("/locks/{fence}?name={name}"),
        tag: "locks",
        summary: "Write the body or the state, and go on holding or let go",
        parameters: &["name", "fence", "keep", "new-state", "release"],
        body: Text,
        answer: Answers(&["Lease", "Released"]),
        troubles: &[Trouble::Fenced, Trouble::Expired],
    },
    Operation {
        id: "release",
        methods: DELETE,
        path: "/locks/{name}/{fence}",
        by_query: Some("/locks/{fence}?name={name}"),
        tag: "locks",
        summary: "Let go, by the fence",
        parameters: &["name", "fence"],
        answer: Answers(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "releaseByNonce",
        methods: DELETE,
        path: "/locks/{name}",
        by_query: Some("/locks?name={name}"),
        tag: "locks",
        summary: "Let go, by the nonce",
        parameters: &["name", "nonce", "Leasehold-Nonce"],
        answer: Answers(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "break",
        methods: WRITE,
        path: "/locks/{name}/break",
        by_query: Some("/locks/break?name={name}"),
        tag: "locks",
        summary: "End somebody's lease; with parameters, or with the same as a body",
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
        answer: Answers(&["Broken"]),
        troubles: &[Trouble::Fenced, Trouble::Expired],
    },
    Operation {
        id: "show",
        path: "/locks/{name}",
        by_query: Some("/locks?name={name}"),
        tag: "locks",
        summary: "Look at one name",
        parameters: &["name"],
        answer: Answers(&["LockView"]),
        troubles: &[Trouble::NotFound],
        ..PLAIN
    },
    Operation {
        id: "list",
        path: "/locks",
        tag: "locks",
        summary: "Look at many names",
        parameters: &["prefix", "state", "held", "cursor", "page"],
        answer: Answers(&["Locks"]),
        ..PLAIN
    },
    Operation {
        id: "history",
        path: "/locks/{name}/history",
        by_query: Some("/locks/history?name={name}"),
        tag: "locks",
        summary: "Look at who held one name since the service started",
        parameters: &["name"],
        answer: Answers(&["History"]),
        ..PLAIN
    },
    Operation {
        id: "putItem",
        methods: WRITE,
        path: "/items/{name}",
        by_query: Some("/items?name={name}"),
        tag: "items",
        summary: "Create a work item, or put it into another state; without a body it keeps its own",
        parameters: &["name", "item-state", "empty", "nonce", "Leasehold-Nonce"],
        body: Text,
        answer: Answers(&["Stored"]),
        troubles: &[Trouble::Held],
    },
    Operation {
        id: "removeItem",
        methods: DELETE,
        path: "/items/{name}",
        by_query: Some("/items?name={name}"),
        tag: "items",
        summary: "Empty a work item",
        parameters: &["name"],
        answer: Answers(&["Removed"]),
        troubles: &[Trouble::Held],
        ..PLAIN
    },
    Operation {
        id: "claim",
        methods: WRITE,
        path: "/claims",
        tag: "items",
        summary: "Lease the next items of a state",
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
        answer: Answers(&["Items"]),
        ..PLAIN
    },
    Operation {
        id: "passGate",
        methods: WRITE,
        path: "/gates/{id}",
        by_query: Some("/gates?name={id}"),
        tag: "gates",
        summary: "Pass a gate, which is shut for a while then",
        parameters: &["id", "every", "nonce", "Leasehold-Nonce", "owner", "wait"],
        answer: Answers(&["Lease"]),
        troubles: &[Trouble::Throttled],
        ..PLAIN
    },
    Operation {
        id: "openGate",
        methods: DELETE,
        path: "/gates/{id}/{fence}",
        by_query: Some("/gates/{fence}?name={id}"),
        tag: "gates",
        summary: "Open a gate again, by the fence",
        parameters: &["id", "fence"],
        answer: Answers(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "openGateByNonce",
        methods: DELETE,
        path: "/gates/{id}",
        by_query: Some("/gates?name={id}"),
        tag: "gates",
        summary: "Open a gate again, by the nonce",
        parameters: &["id", "nonce", "Leasehold-Nonce"],
        answer: Answers(&["Released"]),
        ..PLAIN
    },
    Operation {
        id: "breakGate",
        methods: WRITE,
        path: "/gates/{id}/break",
        by_query: Some("/gates/break?name={id}"),
        tag: "gates",
        summary: "Open a gate that somebody else has shut",
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
        answer: Answers(&["Broken"]),
        troubles: &[Trouble::Fenced, Trouble::Expired],
    },
    Operation {
        id: "showGate",
        path: "/gates/{id}",
        by_query: Some("/gates?name={id}"),
        tag: "gates",
        summary: "Look at one gate",
        parameters: &["id"],
        answer: Answers(&["LockView"]),
        troubles: &[Trouble::NotFound],
        ..PLAIN
    },
    Operation {
        id: "gateHistory",
        path: "/gates/{id}/history",
        by_query: Some("/gates/history?name={id}"),
        tag: "gates",
        summary: "Look at who passed one gate since the service started",
        parameters: &["id"],
        answer: Answers(&["History"]),
        ..PLAIN
    },
    Operation {
        id: "listGates",
        path: "/gates",
        tag: "gates",
        summary: "Look at many gates",
        parameters: &["prefix", "state", "held", "cursor", "page"],
        answer: Answers(&["Gates"]),
        ..PLAIN
    },
    Operation {
        id: "events",
        path: "/events",
        tag: "service",
        summary: "Hear what happens, as it happens: server-sent events whose data is an `Event`",
        parameters: &["prefix", "Last-Event-ID"],
        answer: Other("text/event-stream"),
        ..PLAIN
    },
    Operation {
        id: "metrics",
        path: "/metrics",
        summary: "Numbers, for Prometheus",
        ..PLAIN
    },
    Operation {
        id: "totals",
        path: "/totals",
        summary: "How much there is to do, and was in the last hour",
        answer: Answers(&["Totals"]),
        ..PLAIN
    },
    Operation {
        id: "logIn",
        methods: WRITE,
        path: "/login",
        summary: "Open a session for a token, as a cookie, for browsers",
        body: Json("Login"),
        answer: Answers(&["Myself"]),
        troubles: &[
            Trouble::Unauthorized,
            Trouble::Denied,
            Trouble::TooManyRequests,
        ],
        ..PLAIN
    },
    Operation {
        id: "logOut",
        methods: WRITE,
        path: "/logout",
        summary: "End that session",
        answer: Answers(&["Myself"]),
        troubles: &[Trouble::Denied],
        ..PLAIN
    },
    Operation {
        id: "whoAmI",
        path: "/whoami",
        summary: "Who one is, and what one may do",
        answer: Answers(&["Myself"]),
        ..PLAIN
    },
    Operation {
        id: "alive",
        path: "/healthz",
        summary: "Whether the process lives",
        answer: Answers(&["Status"]),
        ..PLAIN
    },
    Operation {
        id: "ready",
        path: "/readyz",
        summary: "Whether a change can be made",
        answer: Answers(&["Status"]),
        troubles: STORED,
        ..PLAIN
    },
    Operation {
        id: "dashboard",
        path: "/",
        summary: "A page for people who look after the service",
        answer: Other("text/html"),
        ..PLAIN
    },
    Operation {
        id: "openapi",
        path: "/openapi.json",
        summary: "This document",
        answer: Other("application/json"),
        ..PLAIN
    },
    Operation {
        id: "docs",
        path: "/docs",
        summary: "The same as a page for people",
        answer: Other("text/html"),
        ..PLAIN
    },
    Operation {
        id: "docsScript",
        path: "/docs/page.js",
        summary: "What that page runs",
        answer: Other("text/javascript"),
        ..PLAIN
    },
    Operation {
        id: "docsStyle",
        path: "/docs/page.css",
        summary: "What it looks like",
        answer: Other("text/css"),
        ..PLAIN
    },
];
