//! All parameters. A parameter with different meanings on different routes has an entry for each.

use leasehold::ClaimRequest;
use leasehold::wire::MAX_PAGE;
use serde_json::{Value, json};

/// The location of a parameter in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Path,
    Query,
    Header,
}

impl Location {
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
    /// The key by which operations refer to it.
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) location: Location,
    pub(super) required: bool,
    pub(super) description: &'static str,
    pub(super) schema: Value,
    pub(super) example: Value,
}

/// The pattern of a name: no control characters. `.` and `..` are excluded, because clients remove them from a path.
const NAME: &str = "^(?!\\.{1,2}$)[^\\u0000-\\u001f\\u007f-\\u009f]+$";
/// The pattern of a duration, such as `30s`.
pub(super) const DURATION: &str = "^[0-9]{1,9}(ms|s|m|h|d)$";
/// The pattern of a label: no control characters.
const LABEL: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
pub(super) const MAX_FENCE: u64 = leasehold::core::Fence::MAX.get();

/// Returns all parameters.
pub(super) fn all() -> Vec<Parameter> {
    let name = || json!({"type": "string", "minLength": 1, "maxLength": 512, "pattern": NAME});
    let nonce = || json!({"type": "string", "minLength": 1, "maxLength": 64});
    let duration = || json!({"type": "string", "pattern": DURATION});
    let text = || json!({"type": "string"});
    let label =
        |min: usize| json!({"type": "string", "minLength": min, "maxLength": 64, "pattern": LABEL});
    let fence = || json!({"type": "integer", "minimum": 0, "maximum": MAX_FENCE});
    let flag = || json!({"type": "boolean"});
    let limit = |max: usize| json!({"type": "integer", "minimum": 1, "maximum": max});
    let path = |key, name, description, schema, example| Parameter {
        key,
        name,
        location: Location::Path,
        required: true,
        description,
        schema,
        example,
    };
    let query = |key, name, description, schema, example| Parameter {
        key,
        name,
        location: Location::Query,
        required: false,
        description,
        schema,
        example,
    };
    let about_name = "The name: 1 to 512 bytes of UTF-8 without control characters. If a proxy changes paths, \
                      omit this segment and send `?name=` instead.";
    let about_nonce = "Identifies this call: a secret of 1 to 64 characters. Send it here or in the header `Leasehold-Nonce`.";
    vec![
        path("name", "name", about_name, name(), json!("nightly")),
        path("id", "id", about_name, name(), json!("device-42")),
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
            "The names to acquire, all or none. Without them, send a body. With a single name, the route is `/locks/{name}`.",
            json!({"type": "array", "items": name(), "maxItems": 64}),
            json!(["ada", "bob"]),
        ),
        query("nonce", "nonce", about_nonce, nonce(), json!("my-job-17")),
        Parameter {
            location: Location::Header,
            ..query(
                "Leasehold-Nonce",
                "Leasehold-Nonce",
                "The nonce. As a header it does not appear in logs of URLs. Send it here or as a parameter, not as both.",
                nonce(),
                json!("my-job-17"),
            )
        },
        query(
            "ttl",
            "ttl",
            "How long the lease lasts without renewal: 1 ms to 24 h.",
            duration(),
            json!("30s"),
        ),
        query(
            "wait",
            "wait",
            "How long to wait in the queue: at most 24 h.",
            duration(),
            json!("10s"),
        ),
        query(
            "owner",
            "owner",
            "A description of the caller, for display. The default is its address.",
            json!({"type": "string", "maxLength": 128}),
            json!("web-1"),
        ),
        query(
            "mode",
            "mode",
            "`exclusive`, the default: no other holder. `shared`: with other shared holders.",
            json!({"type": "string", "enum": ["exclusive", "shared"]}),
            json!("shared"),
        ),
        query(
            "sharers",
            "limit",
            "With `mode=shared`: the maximum number of holders.",
            limit(256),
            json!(4),
        ),
        query(
            "own-fence",
            "fence",
            "The fence of a lease that the caller already holds: the lease is kept with this fence.",
            fence(),
            json!(1_794_776_043_850_001_u64),
        ),
        query(
            "within",
            "within",
            "The deadline of the call: 5 s by default, at most one minute.",
            duration(),
            json!("2s"),
        ),
        query(
            "new-state",
            "state",
            "The new state: a label of at most 64 bytes. An empty one clears the state.",
            label(0),
            json!("DONE"),
        ),
        query(
            "keep",
            "body",
            "Keeps the body.",
            json!({"type": "string", "enum": ["keep"]}),
            json!("keep"),
        ),
        query(
            "empty",
            "body",
            "Clears the body. Without it, an omitted body is kept.",
            json!({"type": "string", "enum": ["empty"]}),
            json!("empty"),
        ),
        query(
            "release",
            "release",
            "Releases the lease in the same write.",
            flag(),
            json!(true),
        ),
        query(
            "broken-fence",
            "fence",
            "The fence of the caller's own lease. With `force`: breaks only the holder with this fence.",
            fence(),
            json!(1_794_776_043_850_001_u64),
        ),
        query(
            "force",
            "force",
            "Breaks the leases of other callers.",
            flag(),
            json!(true),
        ),
        query(
            "reason",
            "reason",
            "The reason, which `force` requires.",
            text(),
            json!("its machine is gone"),
        ),
        query(
            "now",
            "now",
            "Frees the name immediately. Unsafe: the holder may still be working.",
            flag(),
            json!(false),
        ),
        query(
            "prefix",
            "prefix",
            "Only names with this prefix.",
            text(),
            json!("night"),
        ),
        query(
            "state",
            "state",
            "Only work items in this state; those that entered it first come first.",
            text(),
            json!("REQUESTED"),
        ),
        query(
            "held",
            "held",
            "Only held names (`true`), or only free ones (`false`).",
            flag(),
            json!(true),
        ),
        query(
            "cursor",
            "cursor",
            "The cursor of the previous page.",
            json!({"type": "string"}),
            Value::Null,
        ),
        query(
            "page",
            "limit",
            "The maximum number of names on a page, 100 by default. A page may be shorter if its answer would be too large.",
            limit(MAX_PAGE),
            json!(100),
        ),
        query(
            "bodies",
            "bodies",
            "`cut`, the default: at most the first 256 bytes of each body. `full`: whole bodies, on shorter pages.",
            json!({"type": "string", "enum": ["cut", "full"]}),
            json!("full"),
        ),
        Parameter {
            required: true,
            ..query(
                "item-state",
                "state",
                "The state of the items: a label of 1 to 64 bytes.",
                label(1),
                json!("REQUESTED"),
            )
        },
        query(
            "items",
            "limit",
            "The maximum number of items, 10 by default. There may be fewer, so that the answer is at most 1 MiB.",
            limit(ClaimRequest::MAX_ITEMS),
            json!(10),
        ),
        query(
            "claim-ttl",
            "ttl",
            "How long the leases last without renewal: 60 s by default.",
            duration(),
            json!("60s"),
        ),
        Parameter {
            required: true,
            ..query(
                "every",
                "every",
                "How long the gate is shut: 1 ms to 10 years.",
                duration(),
                json!("60s"),
            )
        },
        Parameter {
            location: Location::Header,
            ..query(
                "Last-Event-ID",
                "Last-Event-ID",
                "The id of the last event that the caller received. It gets the later events, or `missed` if some are lost.",
                json!({"type": "string"}),
                json!("5f0d3c1b9a7e2468-17"),
            )
        },
    ]
}
