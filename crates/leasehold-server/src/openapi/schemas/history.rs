//! Hold periods, and the load of the last hour.

use serde_json::{Value, json};

use super::{
    FENCE, FROM, OPTIONAL, REQUIRED, Schema, UNTIL, count, fence, list, one_of, reference, schema,
    text, time,
};

fn hold_period() -> Value {
    json!({"fence": FENCE, "owner": "web-1", "mode": "exclusive", "from": FROM, "until": UNTIL, "how": "expired"})
}

fn minute() -> Value {
    json!({"grants": 812, "refusals": 40, "waits": 7, "waited": 9_120})
}

pub(super) fn schemas() -> Vec<Schema> {
    let since = || time("When the service started. It has no earlier data.");
    let now = || time("When this answer was made, in the store's time.");
    let how = ["released", "completed", "expired", "broken"];
    vec![
        schema(
            "History",
            "The recent hold periods of a name that this service has recorded.",
            vec![
                ("since", REQUIRED, since()),
                ("time", REQUIRED, now()),
                (
                    "tenures",
                    REQUIRED,
                    list(
                        reference("HoldPeriod"),
                        "The hold periods, in the order of their fences. Only the most recent are kept.",
                    ),
                ),
            ],
            json!({"since": FROM, "time": UNTIL, "tenures": [hold_period()]}),
        ),
        schema(
            "HoldPeriod",
            "The time in which one holder held a name.",
            vec![
                ("fence", REQUIRED, fence("The holder's fencing token.")),
                (
                    "owner",
                    REQUIRED,
                    text("The holder's description, for display."),
                ),
                (
                    "mode",
                    REQUIRED,
                    one_of(
                        &["exclusive", "shared"],
                        "Whether the holder shared the lease with others.",
                    ),
                ),
                ("from", REQUIRED, time("When it began.")),
                (
                    "until",
                    OPTIONAL,
                    time("When it ended; absent if no end is known."),
                ),
                (
                    "how",
                    OPTIONAL,
                    one_of(
                        &how,
                        "How it ended; absent if it has not ended, or if that is unknown.",
                    ),
                ),
            ],
            hold_period(),
        ),
        schema(
            "Totals",
            "The load of a service, now and in the last hour.",
            vec![
                ("since", REQUIRED, since()),
                ("time", REQUIRED, now()),
                (
                    "held",
                    REQUIRED,
                    count("Leases held, among the names in its cache."),
                ),
                (
                    "waiters",
                    REQUIRED,
                    count("Requests that wait for a lease."),
                ),
                (
                    "minutes",
                    REQUIRED,
                    list(
                        reference("Minute"),
                        "The minutes of the last hour, or since the service started. The last one has not ended.",
                    ),
                ),
            ],
            json!({"since": FROM, "time": UNTIL, "held": 31, "waiters": 2, "minutes": [minute()]}),
        ),
        schema(
            "Minute",
            "The counts of one minute.",
            vec![
                ("grants", REQUIRED, count("Leases granted.")),
                (
                    "refusals",
                    REQUIRED,
                    count("Requests refused because the lease was held or the gate was shut."),
                ),
                (
                    "waits",
                    REQUIRED,
                    count("Requests with `wait=` that were answered."),
                ),
                (
                    "waited",
                    REQUIRED,
                    count("The sum of their durations, in milliseconds."),
                ),
            ],
            minute(),
        ),
    ]
}
