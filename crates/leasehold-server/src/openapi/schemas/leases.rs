//! Answers to requests that acquire, renew or end leases.

use serde_json::{Value, json};

use super::{
    FENCE, FROM, OPTIONAL, REQUIRED, Schema, UNTIL, count, described, fence, flag, list, one_of,
    reference, schema, text, time,
};

fn lease_members() -> Vec<(&'static str, bool, Value)> {
    vec![
        (
            "acquireTime",
            REQUIRED,
            time("When the lease was granted, in the store's time."),
        ),
        (
            "expireTime",
            REQUIRED,
            time("When the lease expires unless it is renewed."),
        ),
        (
            "fence",
            REQUIRED,
            fence("The fencing token: pass it to every write that the lease protects."),
        ),
        (
            "body",
            REQUIRED,
            text("The body: what the last holder wrote, or this request."),
        ),
        (
            "bodyBytes",
            OPTIONAL,
            count(
                "The length of the whole body in bytes if `body` is truncated; only in the answer to several heartbeats.",
            ),
        ),
        (
            "validFor",
            REQUIRED,
            count(
                "How long the caller may rely on the lease, in milliseconds from when it sent this request.",
            ),
        ),
        (
            "ttl",
            REQUIRED,
            count("How long the lease lasts after each renewal, in milliseconds."),
        ),
        (
            "granted",
            OPTIONAL,
            one_of(
                &["fresh", "again", "kept"],
                "Only in the answer to acquire. `fresh`: the lease was free. `again`: the caller held it by the same nonce, and its older fence is no longer valid. `kept`: the caller held it and sent its fence, which stays valid.",
            ),
        ),
        ("state", OPTIONAL, text("The work item's state.")),
        (
            "stateSince",
            OPTIONAL,
            time("When the item entered that state."),
        ),
        ("last", OPTIONAL, reference("Ending")),
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

pub(super) fn schemas() -> Vec<Schema> {
    let mut named = lease_members();
    named.push(("name", REQUIRED, text("The name of the lease.")));
    let how = ["released", "completed", "expired", "broken"];
    let about_how = "How it ended. `completed`: the holder wrote its result and released the lease in one write.";
    vec![
        schema(
            "Lease",
            "A lease that the caller holds.",
            lease_members(),
            lease(),
        ),
        schema(
            "NamedLease",
            "A lease that the caller holds, with its name.",
            named,
            named_lease(),
        ),
        schema(
            "NamedLeases",
            "Several leases, in the order of their names.",
            vec![(
                "leases",
                REQUIRED,
                list(reference("NamedLease"), "The leases."),
            )],
            json!({"leases": [named_lease()]}),
        ),
        schema(
            "Items",
            "Work items that the caller has claimed.",
            vec![(
                "items",
                REQUIRED,
                list(
                    reference("NamedLease"),
                    "The items; empty if there were none.",
                ),
            )],
            json!({"items": [named_lease()]}),
        ),
        schema(
            "Ending",
            "How the last exclusive holder ended.",
            vec![
                ("fence", REQUIRED, fence("The holder's fence.")),
                ("owner", REQUIRED, text("The holder's description.")),
                ("how", REQUIRED, one_of(&how, about_how)),
                ("at", REQUIRED, time("When it ended.")),
            ],
            ending(),
        ),
        schema(
            "Released",
            "The result of a release.",
            vec![(
                "released",
                REQUIRED,
                flag("Whether a lease was released, by this call or by the same call before."),
            )],
            json!({"released": true}),
        ),
        schema(
            "Stored",
            "The work item was stored.",
            vec![("stored", REQUIRED, flag("Always true."))],
            json!({"stored": true}),
        ),
        schema(
            "Removed",
            "The work item is empty.",
            vec![("removed", REQUIRED, flag("Always true."))],
            json!({"removed": true}),
        ),
        schema(
            "Broken",
            "The result of a break.",
            vec![
                ("broken", REQUIRED, flag("Whether a lease was broken.")),
                (
                    "until",
                    OPTIONAL,
                    time("Until when the name stays reserved for the broken holder."),
                ),
            ],
            json!({"broken": true, "until": UNTIL}),
        ),
        schema(
            "Answers",
            "The answers to several requests, in the same order.",
            vec![(
                "answers",
                REQUIRED,
                list(reference("Answer"), "The answers."),
            )],
            json!({"answers": [{"status": 200, "body": lease()}]}),
        ),
        schema(
            "Answer",
            "The answer to one request.",
            vec![
                (
                    "status",
                    REQUIRED,
                    described(
                        json!({"type": "integer", "minimum": 200, "maximum": 599}),
                        "The HTTP status of this answer.",
                    ),
                ),
                (
                    "body",
                    REQUIRED,
                    described(
                        json!({"type": "object"}),
                        "The body of this answer: that of its route, or a problem.",
                    ),
                ),
            ],
            json!({"status": 200, "body": lease()}),
        ),
        schema(
            "HeartbeatsAnswer",
            "The results of several heartbeats, in the same order.",
            vec![(
                "leases",
                REQUIRED,
                list(reference("HeartbeatAnswer"), "The results."),
            )],
            json!({"leases": [{"lease": lease()}]}),
        ),
    ]
}
