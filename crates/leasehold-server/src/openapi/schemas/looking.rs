//! What can be seen.

use serde_json::{Value, json};

use super::holding::ending;
use super::{
    ALWAYS, FENCE, FROM, SOMETIMES, Schema, UNTIL, fence, flag, list, millis, one_of, reference,
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

fn page(of: &'static str) -> Vec<(&'static str, bool, Value)> {
    let cursor =
        json!({"type": ["string", "null"], "description": "Where to go on; null at the end."});
    vec![
        (of, ALWAYS, list(reference("LockView"), "Them.")),
        ("cursor", SOMETIMES, cursor),
    ]
}

pub(super) fn looking() -> Vec<Schema> {
    vec![
        schema(
            "LockView",
            "What is known of a name.",
            vec![
                ("name", ALWAYS, text("The name.")),
                ("held", ALWAYS, flag("Whether anybody holds it.")),
                (
                    "reserved",
                    ALWAYS,
                    flag("Whether a waiter has reserved it."),
                ),
                (
                    "fence",
                    ALWAYS,
                    fence("The highest fence ever granted under this name."),
                ),
                ("body", ALWAYS, text("The body.")),
                (
                    "bodyBytes",
                    SOMETIMES,
                    millis(
                        "The bytes of the whole body, where `body` is only the beginning of it.",
                    ),
                ),
                ("state", SOMETIMES, text("The work item's state.")),
                (
                    "stateSince",
                    SOMETIMES,
                    time("Since when it has been in that state."),
                ),
                (
                    "holders",
                    ALWAYS,
                    list(reference("HolderView"), "Who holds it."),
                ),
                ("last", SOMETIMES, reference("Ending")),
                (
                    "waiters",
                    SOMETIMES,
                    millis("How many wait in line for it, at this service."),
                ),
            ],
            view(),
        ),
        schema(
            "HolderView",
            "One who holds it.",
            vec![
                ("fence", ALWAYS, fence("Its fencing token.")),
                ("owner", ALWAYS, text("Who it is, for people.")),
                (
                    "principal",
                    SOMETIMES,
                    text("Whose it is, where access control is on."),
                ),
                (
                    "mode",
                    ALWAYS,
                    one_of(&["exclusive", "shared"], "How it holds."),
                ),
                (
                    "limit",
                    SOMETIMES,
                    millis("With how many others at most, itself included."),
                ),
                (
                    "ttl",
                    ALWAYS,
                    millis("How long each renewal lasts, in milliseconds."),
                ),
                ("acquireTime", ALWAYS, time("When it was granted.")),
                ("renewTime", ALWAYS, time("When it was last renewed.")),
                (
                    "expireTime",
                    ALWAYS,
                    time("When it is over unless renewed."),
                ),
                ("left", ALWAYS, millis("The same in milliseconds from now.")),
                (
                    "broken",
                    SOMETIMES,
                    text("Why it was broken: its fence acts no more, but it stays in the way."),
                ),
            ],
            holder(),
        ),
        schema(
            "Locks",
            "A page of names.",
            page("locks"),
            json!({"locks": [view()], "cursor": null}),
        ),
        schema(
            "Gates",
            "A page of gates.",
            page("gates"),
            json!({"gates": [view()], "cursor": null}),
        ),
    ]
}
