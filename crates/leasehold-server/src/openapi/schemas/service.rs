//! Problems, events, sessions and the status of the service.

use leasehold::wire::{EventKind, ProblemType};
use serde_json::json;

use super::{
    FENCE, FROM, OPTIONAL, REQUIRED, Schema, UNTIL, count, fence, list, one_of, or_null, schema,
    text, time,
};

pub(super) fn schemas() -> Vec<Schema> {
    let problems = ProblemType::ALL.map(ProblemType::as_str);
    let events = EventKind::ALL.map(EventKind::as_str);
    let status = json!({"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."});
    vec![
        schema(
            "Problem",
            "A problem (RFC 9457).",
            vec![
                (
                    "type",
                    REQUIRED,
                    one_of(&problems, "The type of the problem, for programs. Stable."),
                ),
                (
                    "title",
                    REQUIRED,
                    text("The type in a few words, for display."),
                ),
                ("status", REQUIRED, status),
                (
                    "detail",
                    REQUIRED,
                    text("What failed, why, and what to do, for display."),
                ),
                ("name", OPTIONAL, text("The name of the lease.")),
                (
                    "owner",
                    OPTIONAL,
                    text(
                        "The description of the holder; empty if the name is reserved for a waiter.",
                    ),
                ),
                ("since", OPTIONAL, time("When it was granted.")),
                (
                    "retryAfter",
                    OPTIONAL,
                    count("When to retry, in milliseconds from now."),
                ),
            ],
            json!({"type": "held", "title": ProblemType::Held.title(), "status": 409,
                "detail": "held by web-1 for another 29.981939s", "name": "nightly", "owner": "web-1", "since": FROM,
                "retryAfter": 29_982}),
        ),
        schema(
            "Event",
            "A change of a lease: the data of a server-sent event.",
            vec![
                (
                    "event",
                    REQUIRED,
                    one_of(
                        &events,
                        "The kind of the change. `missed`: events are missing here, load the list again.",
                    ),
                ),
                ("name", OPTIONAL, text("The name.")),
                (
                    "kind",
                    OPTIONAL,
                    one_of(&["lock", "gate"], "The kind of the name."),
                ),
                (
                    "time",
                    OPTIONAL,
                    time("When the service noticed the change, in the store's time."),
                ),
                ("fence", OPTIONAL, fence("The holder's fence.")),
                (
                    "owner",
                    OPTIONAL,
                    text("The holder's description, for display."),
                ),
                (
                    "mode",
                    OPTIONAL,
                    one_of(
                        &["exclusive", "shared"],
                        "Whether the holder shares the lease with others.",
                    ),
                ),
                (
                    "limit",
                    OPTIONAL,
                    count("The maximum number of shared holders, including this one."),
                ),
                (
                    "ttl",
                    OPTIONAL,
                    count("How long the lease lasts after each renewal, in milliseconds."),
                ),
                ("acquireTime", OPTIONAL, time("When the lease was granted.")),
                (
                    "expireTime",
                    OPTIONAL,
                    time("When the lease expires unless it is renewed."),
                ),
                ("state", OPTIONAL, text("The work item's state.")),
            ],
            json!({"event": "granted", "name": "nightly", "kind": "lock", "time": FROM, "fence": FENCE,
                "owner": "web-1", "mode": "shared", "limit": 4, "ttl": 30_000, "acquireTime": FROM,
                "expireTime": UNTIL, "state": "REQUESTED"}),
        ),
        schema(
            "Login",
            "The token for which a session is opened.",
            vec![("token", REQUIRED, text("The token."))],
            json!({"token": "lh_7gK2mQx9_…"}),
        ),
        schema(
            "Myself",
            "The caller's principal and scopes.",
            vec![
                (
                    "principal",
                    REQUIRED,
                    or_null(text("The principal; null if access control is off.")),
                ),
                (
                    "scopes",
                    REQUIRED,
                    list(text("A scope, as `RIGHT:PREFIX`."), "The scopes."),
                ),
            ],
            json!({"principal": "ops", "scopes": ["read:", "break:jobs/"]}),
        ),
        schema(
            "Status",
            "The status of the service.",
            vec![(
                "status",
                REQUIRED,
                one_of(&["alive", "ready"], "The answer of the probe."),
            )],
            json!({"status": "alive"}),
        ),
    ]
}
