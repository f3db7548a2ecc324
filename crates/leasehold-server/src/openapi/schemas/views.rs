//! Answers that show or list names.

use serde_json::{Value, json};

use super::leases::ending;
use super::{
    FENCE, FROM, OPTIONAL, REQUIRED, Schema, UNTIL, count, fence, flag, list, one_of, reference,
    schema, text, time,
};

fn holder() -> Value {
    json!({"fence": FENCE, "owner": "web-1", "principal": "ci", "mode": "shared", "limit": 4, "ttl": 30_000, "acquireTime": FROM,
        "renewTime": FROM, "expireTime": UNTIL, "left": 29_947, "broken": "its machine is gone"})
}

fn view() -> Value {
    json!({"name": "nightly", "held": true, "reserved": false, "fence": FENCE, "body": "step 3", "bodyBytes": 65_536, "state": "REQUESTED",
        "stateSince": FROM, "holders": [holder()], "last": ending(), "waiters": 2})
}

fn page_members(names: &'static str) -> Vec<(&'static str, bool, Value)> {
    let cursor = json!({"type": ["string", "null"], "description": "The cursor of the next page; null on the last page."});
    vec![
        (
            names,
            REQUIRED,
            list(reference("LockView"), "The names on this page."),
        ),
        ("cursor", OPTIONAL, cursor),
    ]
}

pub(super) fn schemas() -> Vec<Schema> {
    vec![
        schema(
            "LockView",
            "A name with its record.",
            vec![
                ("name", REQUIRED, text("The name.")),
                ("held", REQUIRED, flag("Whether it has a holder.")),
                (
                    "reserved",
                    REQUIRED,
                    flag("Whether it is reserved for a waiter."),
                ),
                (
                    "fence",
                    REQUIRED,
                    fence("The highest fence ever granted under this name."),
                ),
                ("body", REQUIRED, text("The body.")),
                (
                    "bodyBytes",
                    OPTIONAL,
                    count("The length of the whole body in bytes if `body` is truncated."),
                ),
                ("state", OPTIONAL, text("The work item's state.")),
                (
                    "stateSince",
                    OPTIONAL,
                    time("When the item entered that state."),
                ),
                (
                    "holders",
                    REQUIRED,
                    list(reference("HolderView"), "The present holders."),
                ),
                ("last", OPTIONAL, reference("Ending")),
                (
                    "waiters",
                    OPTIONAL,
                    count("How many requests wait for it at this service."),
                ),
            ],
            view(),
        ),
        schema(
            "HolderView",
            "A holder of a lease.",
            vec![
                ("fence", REQUIRED, fence("Its fencing token.")),
                ("owner", REQUIRED, text("Its description, for display.")),
                (
                    "principal",
                    OPTIONAL,
                    text("Its principal, if access control is on."),
                ),
                (
                    "mode",
                    REQUIRED,
                    one_of(
                        &["exclusive", "shared"],
                        "Whether it shares the lease with other holders.",
                    ),
                ),
                (
                    "limit",
                    OPTIONAL,
                    count("The maximum number of shared holders, including itself."),
                ),
                (
                    "ttl",
                    REQUIRED,
                    count("How long the lease lasts after each renewal, in milliseconds."),
                ),
                ("acquireTime", REQUIRED, time("When the lease was granted.")),
                (
                    "renewTime",
                    REQUIRED,
                    time("When the lease was last renewed."),
                ),
                (
                    "expireTime",
                    REQUIRED,
                    time("When the lease expires unless it is renewed."),
                ),
                (
                    "left",
                    REQUIRED,
                    count("The time until it expires, in milliseconds from now."),
                ),
                (
                    "broken",
                    OPTIONAL,
                    text(
                        "Why the lease was broken. Its fence is no longer valid, but the name is reserved until it expires.",
                    ),
                ),
            ],
            holder(),
        ),
        schema(
            "Locks",
            "A page of names.",
            page_members("locks"),
            json!({"locks": [view()], "cursor": null}),
        ),
        schema(
            "Gates",
            "A page of gates.",
            page_members("gates"),
            json!({"gates": [view()], "cursor": null}),
        ),
    ]
}
