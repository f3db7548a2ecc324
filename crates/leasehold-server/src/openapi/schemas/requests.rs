//! Request bodies.

use serde_json::{Value, json};

use super::{
    FENCE, OPTIONAL, REQUIRED, Schema, described, fence, flag, list, or_null, reference, schema,
    text,
};
use crate::openapi::parameters::DURATION;

fn heartbeat() -> Value {
    json!({"name": "ada", "fence": FENCE, "ttl": "1m"})
}

fn request() -> Value {
    json!({"method": "POST", "target": "/locks/ada/7?state=HALF", "body": "so far"})
}

pub(super) fn schemas() -> Vec<Schema> {
    let name = || json!({"type": "string", "minLength": 1, "maxLength": 512});
    let mut names = list(name(), "The names, in any order.");
    names["maxItems"] = 64.into();
    let mut heartbeats = list(reference("Heartbeat"), "The renewals.");
    heartbeats["maxItems"] = leasehold::wire::MAX_HEARTBEATS.into();
    let mut requests = list(reference("Request"), "The requests, in any order.");
    requests["maxItems"] = leasehold::wire::MAX_REQUESTS.into();
    let ttl = json!({"type": "string", "pattern": DURATION, "description": "A new ttl. The default is the present one."});
    let nonce = json!({"type": "string", "minLength": 1, "maxLength": 64, "description": "The nonce of the caller's own lease."});
    vec![
        schema(
            "Names",
            "The names of several leases to acquire.",
            vec![("names", REQUIRED, names)],
            json!({"names": ["ada", "bob"]}),
        ),
        schema(
            "Heartbeats",
            "Several leases to renew.",
            vec![("leases", REQUIRED, heartbeats)],
            json!({"leases": [heartbeat()]}),
        ),
        schema(
            "Heartbeat",
            "The renewal of one lease.",
            vec![
                (
                    "name",
                    REQUIRED,
                    described(name(), "The name of the lease."),
                ),
                ("fence", REQUIRED, fence("The holder's fence.")),
                ("ttl", OPTIONAL, or_null(ttl)),
            ],
            heartbeat(),
        ),
        schema(
            "Requests",
            "Several requests, which are processed concurrently. Each is answered as if it was sent alone. Requests that wait, or that are not about a single name, are not allowed here.",
            vec![("requests", REQUIRED, requests)],
            json!({"requests": [request()]}),
        ),
        schema(
            "Request",
            "One request.",
            vec![
                ("method", REQUIRED, text("The method, such as `POST`.")),
                (
                    "target",
                    REQUIRED,
                    text("The path and the parameters, as in a URL. The nonce is a parameter."),
                ),
                ("body", OPTIONAL, text("The body; empty by default.")),
            ],
            request(),
        ),
        schema(
            "BreakHow",
            "The lease to break: the caller's own by `fence` or `nonce`, or that of another caller by `force` with a `reason`.",
            vec![
                (
                    "fence",
                    OPTIONAL,
                    or_null(fence(
                        "The fence of the caller's own lease. With `force`: breaks only the holder with this fence.",
                    )),
                ),
                ("nonce", OPTIONAL, or_null(nonce)),
                (
                    "force",
                    OPTIONAL,
                    flag("Breaks the leases of other callers."),
                ),
                (
                    "reason",
                    OPTIONAL,
                    or_null(text("The reason, which `force` requires.")),
                ),
                (
                    "now",
                    OPTIONAL,
                    flag("Frees the name immediately. Unsafe: the holder may still be working."),
                ),
            ],
            json!({"fence": FENCE, "nonce": "my-job-17", "force": true, "reason": "its machine is gone", "now": false}),
        ),
    ]
}
