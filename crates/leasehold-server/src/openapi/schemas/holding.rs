//! What somebody holds, and lets go of.

use serde_json::{Value, json};

use super::{
    ALWAYS, FENCE, FROM, SOMETIMES, Schema, UNTIL, described, fence, flag, list, millis, one_of,
    reference, schema, text, time,
};

fn lease_members() -> Vec<(&'static str, bool, Value)> {
    vec![
        (
            "acquireTime",
            ALWAYS,
            time("When it was granted, in the store's time."),
        ),
        (
            "expireTime",
            ALWAYS,
            time("When it is over unless renewed."),
        ),
        (
            "fence",
            ALWAYS,
            fence("The fencing token: pass it to every write that the lease protects."),
        ),
        (
            "body",
            ALWAYS,
            text("Where the last holder stopped, or what was just written."),
        ),
        (
            "bodyBytes",
            SOMETIMES,
            millis(
                "The bytes of the whole body, where `body` is only the beginning of it; only in the answer to many heartbeats.",
            ),
        ),
        (
            "validFor",
            ALWAYS,
            millis(
                "How long the caller may believe in it, in milliseconds from the send of this request.",
            ),
        ),
        (
            "ttl",
            ALWAYS,
            millis("How long each renewal lasts, in milliseconds."),
        ),
        (
            "granted",
            SOMETIMES,
            one_of(
                &["fresh", "again", "kept"],
                "How it came to be granted; in the answer to acquire.",
            ),
        ),
        ("state", SOMETIMES, text("The work item's state.")),
        (
            "stateSince",
            SOMETIMES,
            time("Since when it has been in that state."),
        ),
        ("last", SOMETIMES, reference("Ending")),
    ]
}

fn lease() -> Value {
    json!({"acquireTime": FROM, "expireTime": UNTIL, "fence": FENCE, "body": "step 3", "bodyBytes": 65_536, "validFor": 29_970,
        "ttl": 30_000, "granted": "fresh", "state": "REQUESTED", "stateSince": FROM, "last": ending()})
}

pub(super) fn ending() -> Value {
    json!({"fence": FENCE - 1, "owner": "web-2", "how": "released", "at": FROM})
}

fn named_lease() -> Value {
    let mut named = lease();
    named["name"] = "ada".into();
    named
}

pub(super) fn holding() -> Vec<Schema> {
    let mut named = lease_members();
    named.push(("name", ALWAYS, text("Its name.")));
    let how = ["released", "completed", "expired", "broken"];
    let about_how = "`completed`: it wrote its result and let go in one write.";
    vec![
        schema(
            "Lease",
            "A lease that is the caller's.",
            lease_members(),
            lease(),
        ),
        schema(
            "NamedLease",
            "The same with its name.",
            named,
            named_lease(),
        ),
        schema(
            "NamedLeases",
            "Several leases, in the order of their names.",
            vec![(
                "leases",
                ALWAYS,
                list(reference("NamedLease"), "All of them."),
            )],
            json!({"leases": [named_lease()]}),
        ),
        schema(
            "Items",
            "Work items that are now the caller's.",
            vec![(
                "items",
                ALWAYS,
                list(reference("NamedLease"), "None if there was none."),
            )],
            json!({"items": [named_lease()]}),
        ),
        schema(
            "Ending",
            "How the last exclusive holder ended.",
            vec![
                ("fence", ALWAYS, fence("Its fence.")),
                ("owner", ALWAYS, text("Who it was.")),
                ("how", ALWAYS, one_of(&how, about_how)),
                ("at", ALWAYS, time("When.")),
            ],
            ending(),
        ),
        schema(
            "Released",
            "What came of letting go.",
            vec![(
                "released",
                ALWAYS,
                flag("Whether there was something to let go of (now, or by the same call before)."),
            )],
            json!({"released": true}),
        ),
        schema(
            "Stored",
            "The item is there.",
            vec![("stored", ALWAYS, flag("Always true."))],
            json!({"stored": true}),
        ),
        schema(
            "Removed",
            "The item is empty.",
            vec![("removed", ALWAYS, flag("Always true."))],
            json!({"removed": true}),
        ),
        schema(
            "Broken",
            "What came of breaking.",
            vec![
                (
                    "broken",
                    ALWAYS,
                    flag("Whether there was something to break."),
                ),
                (
                    "until",
                    SOMETIMES,
                    time("Until when the broken holder stays in the way."),
                ),
            ],
            json!({"broken": true, "until": UNTIL}),
        ),
        schema(
            "Answers",
            "What many requests were answered with, in the same order.",
            vec![(
                "answers",
                ALWAYS,
                list(reference("Answer"), "Each for itself."),
            )],
            json!({"answers": [{"status": 200, "body": lease()}]}),
        ),
        schema(
            "Answer",
            "One of them.",
            vec![
                (
                    "status",
                    ALWAYS,
                    described(
                        json!({"type": "integer", "minimum": 200, "maximum": 599}),
                        "The status that it would have had by itself.",
                    ),
                ),
                (
                    "body",
                    ALWAYS,
                    described(
                        json!({"type": "object"}),
                        "The body that it would have had by itself: what that route answers, or a problem.",
                    ),
                ),
            ],
            json!({"status": 200, "body": lease()}),
        ),
        schema(
            "HeartbeatsAnswer",
            "What came of many heartbeats, in the same order.",
            vec![(
                "leases",
                ALWAYS,
                list(reference("HeartbeatAnswer"), "Each for itself."),
            )],
            json!({"leases": [{"lease": lease()}]}),
        ),
    ]
}
