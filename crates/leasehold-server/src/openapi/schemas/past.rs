//! What was.

use serde_json::{Value, json};

use super::{
    ALWAYS, FENCE, FROM, SOMETIMES, Schema, UNTIL, fence, list, millis, one_of, reference, schema,
    text, time,
};

fn tenure() -> Value {
    json!({"fence": FENCE, "owner": "web-1", "mode": "exclusive", "from": FROM, "until": UNTIL, "how": "expired"})
}

fn minute() -> Value {
    json!({"grants": 812, "refusals": 40, "waits": 7, "waited": 9_120})
}

pub(super) fn past() -> Vec<Schema> {
    let since = || time("When the service started: what was before is not known.");
    let told = || time("When this was told, in the store's time.");
    let how = ["released", "completed", "expired", "broken"];
    vec![
        schema(
            "History",
            "Who held a name, as far as the service knows.",
            vec![
                ("since", ALWAYS, since()),
                ("time", ALWAYS, told()),
                (
                    "tenures",
                    ALWAYS,
                    list(
                        reference("Tenure"),
                        "Who, in the order of their fences; the oldest are forgotten.",
                    ),
                ),
            ],
            json!({"since": FROM, "time": UNTIL, "tenures": [tenure()]}),
        ),
        schema(
            "Tenure",
            "One who held it, and for how long.",
            vec![
                ("fence", ALWAYS, fence("Its fencing token.")),
                ("owner", ALWAYS, text("Who it was, for people.")),
                (
                    "mode",
                    ALWAYS,
                    one_of(&["exclusive", "shared"], "How it held."),
                ),
                ("from", ALWAYS, time("From when.")),
                (
                    "until",
                    SOMETIMES,
                    time("Until when; missing where no end is known."),
                ),
                (
                    "how",
                    SOMETIMES,
                    one_of(
                        &how,
                        "What became of it; missing with an end: nobody knows.",
                    ),
                ),
            ],
            tenure(),
        ),
        schema(
            "Totals",
            "How much a service has to do, and had to in the last hour.",
            vec![
                ("since", ALWAYS, since()),
                ("time", ALWAYS, told()),
                (
                    "held",
                    ALWAYS,
                    millis("Leases held, of the names in its cache."),
                ),
                ("waiters", ALWAYS, millis("Who waits in line.")),
                (
                    "minutes",
                    ALWAYS,
                    list(
                        reference("Minute"),
                        "The last hour or as much of it as there was; the last minute is not over.",
                    ),
                ),
            ],
            json!({"since": FROM, "time": UNTIL, "held": 31, "waiters": 2, "minutes": [minute()]}),
        ),
        schema(
            "Minute",
            "What happened within a minute.",
            vec![
                ("grants", ALWAYS, millis("Leases granted.")),
                (
                    "refusals",
                    ALWAYS,
                    millis("Requests refused because somebody else had it, or a gate was shut."),
                ),
                (
                    "waits",
                    ALWAYS,
                    millis("Requests answered that were ready to wait in line."),
                ),
                (
                    "waited",
                    ALWAYS,
                    millis("How long those took together, in milliseconds."),
                ),
            ],
            minute(),
        ),
    ]
}
