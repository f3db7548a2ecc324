//! Every parameter. One that means different things on different routes has a row for each.

use leasehold::ClaimRequest;
use leasehold::wire::MAX_PAGE;
use serde_json::{Value, json};

/// Where a parameter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query,
    Header,
}

impl Place {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

/// A parameter.
pub(super) struct Parameter {
    /// What operations call it by.
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) required: bool,
    pub(super) about: &'static str,
    pub(super) schema: Value,
    pub(super) example: Value,
}

/// A name: anything without control characters. (`.` and `..` do not survive in a path.)
const NAME: &str = "^(?!\\.{1,2}$)[^\\u0000-\\u001f\\u007f-\\u009f]+$";
/// A span, such as `30s`.
pub(super) const SPAN: &str = "^[0-9]{1,9}(ms|s|m|h|d)$";
/// Text without control characters.
const WORDS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
/// The highest fence.
pub(super) const MAX_FENCE: u64 = leasehold::core::Fence::MAX.get();

/// All of them.
pub(super) fn all() -> Vec<Parameter> {
    let name = || json!({"type": "string", "minLength": 1, "maxLength": 512, "pattern": NAME});
    let nonce = || json!({"type": "string", "minLength": 1, "maxLength": 64});
    let span = || json!({"type": "string", "pattern": SPAN});
    let text = || json!({"type": "string"});
    let label = |least: usize| json!({"type": "string", "minLength": least, "maxLength": 64, "pattern": WORDS});
    let fence = || json!({"type": "integer", "minimum": 0, "maximum": MAX_FENCE});
    let flag = || json!({"type": "boolean"});
    let limit = |most: usize| json!({"type": "integer", "minimum": 1, "maximum": most});
    let path = |key, name, about, schema, example| Parameter {
        key,
        name,
        place: Place::Path,
        required: true,
        about,
        schema,
        example,
    };
    let query = |key, name, about, schema, example| Parameter {
        key,
        name,
        place: Place::Query,
        required: false,
        about,
        schema,
        example,
    };
    let by_query = "The name, 1 to 512 bytes of UTF-8 without control characters. Where URLs are mangled on their way, \
                    leave this segment out and give `?name=` instead.";
    let one_of = "What identifies this call, a secret of 1 to 64 characters: here, or as the header `Leasehold-Nonce`.";
    vec![
        path("name", "name", by_query, name(), json!("nightly")),
        path("id", "id", by_query, name(), json!("device-42")),
        path(
            "fence",
            "fence",
            "The holder's fence.",
            fence(),
            json!(1_794_776_043_850_001_u64),
        ),
        query(
            "names",
            "name",
            "The names, all or none of which are taken; or leave them out and give a body. One alone is as `/locks/{name}`.",
            json!({"type": "array", "items": name(), "maxItems": 64}),
            json!(["ada", "bob"]),
        ),
        query("nonce", "nonce", one_of, nonce(), json!("my-job-17")),
        Parameter {
            place: Place::Header,
            ..query(
                "Leasehold-Nonce",
                "Leasehold-Nonce",
                "The nonce, kept out of the URL. Give it here or there.",
                nonce(),
                json!("my-job-17"),
            )
        },
        query(
            "ttl",
            "ttl",
            "How long to hold without a heartbeat: 1 ms to 24 h.",
            span(),
            json!("30s"),
        ),
        query(
            "wait",
            "wait",
            "How long to wait in line, up to 24 h.",
            span(),
            json!("10s"),
        ),
        query(
            "owner",
            "owner",
            "Who asks, for people; by default where the request came from.",
            json!({"type": "string", "maxLength": 128}),
            json!("web-1"),
        ),
        query(
            "mode",
            "mode",
            "Alone, or with other sharers.",
            json!({"type": "string", "enum": ["exclusive", "shared"]}),
            json!("shared"),
        ),
        query(
            "sharers",
            "limit",
            "With `mode=shared`: how many may hold at once.",
            limit(256),
            json!(4),
        ),
        query(
            "own-fence",
            "fence",
            "The fence that the caller holds already: it is kept.",
            fence(),
            json!(1_794_776_043_850_001_u64),
        ),
        query(
            "within",
            "within",
            "How long this may take: 5 s by default, a minute at most.",
            span(),
            json!("2s"),
        ),
        query(
            "new-state",
            "state",
            "The new state, a label of at most 64 bytes; an empty one clears it.",
            label(0),
            json!("DONE"),
        ),
        query(
            "keep",
            "body",
            "Leaves the body as it is.",
            json!({"type": "string", "enum": ["keep"]}),
            json!("keep"),
        ),
        query(
            "empty",
            "body",
            "Empties the body; one that is not sent is left as it is.",
            json!({"type": "string", "enum": ["empty"]}),
            json!("empty"),
        ),
        query(
            "release",
            "release",
            "Lets go in the same write.",
            flag(),
            json!(true),
        ),
        query(
            "broken-fence",
            "fence",
            "The caller's own; with `force`, the only holder that is meant.",
            fence(),
            json!(1_794_776_043_850_001_u64),
        ),
        query("force", "force", "Anybody's.", flag(), json!(true)),
        query(
            "reason",
            "reason",
            "Why, if by force.",
            text(),
            json!("its machine is gone"),
        ),
        query(
            "now",
            "now",
            "At once, although the holder may still be at work. Unsafe.",
            flag(),
            json!(false),
        ),
        query(
            "prefix",
            "prefix",
            "Only names that start like this.",
            text(),
            json!("night"),
        ),
        query(
            "state",
            "state",
            "Only work items in this state, oldest first.",
            text(),
            json!("REQUESTED"),
        ),
        query(
            "held",
            "held",
            "Only what somebody holds, or nobody.",
            flag(),
            json!(true),
        ),
        query(
            "cursor",
            "cursor",
            "Where the page before ended.",
            json!({"type": "string"}),
            Value::Null,
        ),
        query(
            "page",
            "limit",
            "How many in one page at most, 100 by default. A large page ends earlier.",
            limit(MAX_PAGE),
            json!(100),
        ),
        query(
            "bodies",
            "bodies",
            "`cut`, the default: at most the first 256 bytes of each body. `full`: all of it, and shorter pages.",
            json!({"type": "string", "enum": ["cut", "full"]}),
            json!("full"),
        ),
        Parameter {
            required: true,
            ..query(
                "item-state",
                "state",
                "The item's state, a label of 1 to 64 bytes.",
                label(1),
                json!("REQUESTED"),
            )
        },
        query(
            "items",
            "limit",
            "At most so many, 10 by default, and as many as fit into 1 MiB.",
            limit(ClaimRequest::MOST_ITEMS),
            json!(10),
        ),
        query(
            "claim-ttl",
            "ttl",
            "How long to hold without a heartbeat, 60 s by default.",
            span(),
            json!("60s"),
        ),
        Parameter {
            required: true,
            ..query(
                "every",
                "every",
                "For how long the gate is shut: 1 ms to 10 years.",
                span(),
                json!("60s"),
            )
        },
        Parameter {
            place: Place::Header,
            ..query(
                "Last-Event-ID",
                "Last-Event-ID",
                "The id of the last event that the caller has seen: it gets what came since, or is told that some are missing.",
                json!({"type": "string"}),
                json!("5f0d3c1b9a7e2468-17"),
            )
        },
    ]
}
