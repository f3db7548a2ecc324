//! What is wrong, what happened, and how the service is.

use leasehold::wire::{EventKind, Trouble};
use serde_json::json;

use super::{
    ALWAYS, FENCE, FROM, SOMETIMES, Schema, UNTIL, fence, list, millis, one_of, or_null, schema,
    text, time,
};

pub(super) fn telling() -> Vec<Schema> {
    let troubles = Trouble::ALL.map(Trouble::as_str);
    let events = EventKind::ALL.map(EventKind::as_str);
    let status = json!({"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."});
    vec![
        schema(
            "Problem",
            "What is wrong (RFC 9457).",
            vec![
                (
                    "type",
                    ALWAYS,
                    one_of(&troubles, "What kind of problem; stable."),
                ),
                (
                    "title",
                    ALWAYS,
                    text("The kind in a few words, for people."),
                ),
                ("status", ALWAYS, status),
                (
                    "detail",
                    ALWAYS,
                    text("What is wrong in this case and what would be right, for people."),
                ),
                ("name", SOMETIMES, text("The name that is meant.")),
                (
                    "owner",
                    SOMETIMES,
                    text("Who holds it; empty for a waiter that is next."),
                ),
                ("since", SOMETIMES, time("Since when it is held.")),
                (
                    "retryAfter",
                    SOMETIMES,
                    millis("When to come back, in milliseconds from now."),
                ),
            ],
            json!({"type": "held", "title": "The lease is held", "status": 409,
                "detail": "held by web-1 for another 29.981939s", "name": "nightly", "owner": "web-1", "since": FROM,
                "retryAfter": 29_982}),
        ),
        schema(
            "Event",
            "What happened, as the data of a server-sent event.",
            vec![
                (
                    "event",
                    ALWAYS,
                    one_of(&events, "What happened; `missed`: load the list again."),
                ),
                ("name", SOMETIMES, text("Under which name.")),
                (
                    "kind",
                    SOMETIMES,
                    one_of(&["lock", "gate"], "What it names."),
                ),
                (
                    "time",
                    SOMETIMES,
                    time("When it was seen, in the store's time."),
                ),
                ("fence", SOMETIMES, fence("The holder's fence.")),
                ("owner", SOMETIMES, text("Who that is, for people.")),
                (
                    "mode",
                    SOMETIMES,
                    one_of(&["exclusive", "shared"], "How it holds."),
                ),
                (
                    "limit",
                    SOMETIMES,
                    millis("With how many others at most, itself included."),
                ),
                (
                    "ttl",
                    SOMETIMES,
                    millis("How long each renewal lasts, in milliseconds."),
                ),
                (
                    "acquireTime",
                    SOMETIMES,
                    time("Since when it holds or held."),
                ),
                (
                    "expireTime",
                    SOMETIMES,
                    time("When it is over unless renewed."),
                ),
                ("state", SOMETIMES, text("The work item's state.")),
            ],
            json!({"event": "granted", "name": "nightly", "kind": "lock", "time": FROM, "fence": FENCE,
                "owner": "web-1", "mode": "shared", "limit": 4, "ttl": 30_000, "acquireTime": FROM,
                "expireTime": UNTIL, "state": "REQUESTED"}),
        ),
        schema(
            "Login",
            "A token for which a session is opened.",
            vec![("token", ALWAYS, text("The token."))],
            json!({"token": "lh_7gK2mQx9_…"}),
        ),
        schema(
            "Myself",
            "Who one is, and what one may do.",
            vec![
                (
                    "principal",
                    ALWAYS,
                    or_null(text("Who one is; null where access control is off.")),
                ),
                (
                    "scopes",
                    ALWAYS,
                    list(text("As `RIGHT:PREFIX`."), "What one may do."),
                ),
            ],
            json!({"principal": "ops", "scopes": ["read:", "break:jobs/"]}),
        ),
        schema(
            "Status",
            "How the service is.",
            vec![(
                "status",
                ALWAYS,
                one_of(&["alive", "ready"], "In one word."),
            )],
            json!({"status": "alive"}),
        ),
    ]
}
