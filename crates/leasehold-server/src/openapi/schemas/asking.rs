//! What is asked with a body.

use serde_json::{Value, json};

use super::{
    ALWAYS, FENCE, SOMETIMES, Schema, described, fence, flag, list, or_null, reference, schema,
    text,
};
use crate::openapi::parameters::SPAN;

fn heartbeat() -> Value {
    json!({"name": "ada", "fence": FENCE, "ttl": "1m"})
}

fn single() -> Value {
    json!({"method": "POST", "target": "/locks/ada/7?state=HALF", "body": "so far"})
}

pub(super) fn asking() -> Vec<Schema> {
    let name = || json!({"type": "string", "minLength": 1, "maxLength": 512});
    let mut names = list(name(), "Them, in any order.");
    names["maxItems"] = 64.into();
    let mut heartbeats = list(reference("Heartbeat"), "Them.");
    heartbeats["maxItems"] = leasehold::wire::MAX_HEARTBEATS.into();
    let mut requests = list(reference("Request"), "Them, in any order.");
    requests["maxItems"] = leasehold::wire::MAX_REQUESTS.into();
    let ttl = json!({"type": "string", "pattern": SPAN, "description": "Another ttl than before."});
    let nonce = json!({"type": "string", "minLength": 1, "maxLength": 64, "description": "What the caller acquired with."});
    vec![
        schema(
            "Names",
            "The names of several leases.",
            vec![("names", ALWAYS, names)],
            json!({"names": ["ada", "bob"]}),
        ),
        schema(
            "Heartbeats",
            "Many heartbeats.",
            vec![("leases", ALWAYS, heartbeats)],
            json!({"leases": [heartbeat()]}),
        ),
        schema(
            "Heartbeat",
            "One of them.",
            vec![
                ("name", ALWAYS, described(name(), "The lease's name.")),
                ("fence", ALWAYS, fence("Its holder's fence.")),
                ("ttl", SOMETIMES, or_null(ttl)),
            ],
            heartbeat(),
        ),
        schema(
            "Requests",
            "Many requests, each answered as if it had come by itself, side by side. Those that wait in line, and those that are not about one name, are sent by themselves.",
            vec![("requests", ALWAYS, requests)],
            json!({"requests": [single()]}),
        ),
        schema(
            "Request",
            "One of them.",
            vec![
                ("method", ALWAYS, text("`GET`, `POST` and the like.")),
                (
                    "target",
                    ALWAYS,
                    text("Path and parameters, as in a URL; a nonce is one of them."),
                ),
                (
                    "body",
                    SOMETIMES,
                    text("What would be sent with it; empty if it is left out."),
                ),
            ],
            single(),
        ),
        schema(
            "BreakHow",
            "Whose lease to end: the caller's own by `fence` or `nonce`, or anybody's by `force` with a `reason`.",
            vec![
                (
                    "fence",
                    SOMETIMES,
                    or_null(fence(
                        "The caller's own; with force, the only holder that is meant.",
                    )),
                ),
                ("nonce", SOMETIMES, or_null(nonce)),
                ("force", SOMETIMES, flag("Anybody's.")),
                ("reason", SOMETIMES, or_null(text("Why, if by force."))),
                (
                    "now",
                    SOMETIMES,
                    flag("At once, although the holder may still be at work. Unsafe."),
                ),
            ],
            json!({"fence": FENCE, "nonce": "my-job-17", "force": true, "reason": "its machine is gone", "now": false}),
        ),
    ]
}
