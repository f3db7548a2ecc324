//! All JSON bodies, with examples.

mod history;
mod leases;
mod requests;
mod service;
mod views;

use serde_json::{Value, json};

use super::parameters::MAX_FENCE;

/// The schema of an object.
pub(super) struct Schema {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// The name of each member, whether it is required, and its schema.
    pub(super) members: Vec<(&'static str, bool, Value)>,
    /// An example with all members.
    pub(super) example: Value,
}

fn schema(
    name: &'static str,
    description: &'static str,
    members: Vec<(&'static str, bool, Value)>,
    example: Value,
) -> Schema {
    Schema {
        name,
        description,
        members,
        example,
    }
}

const REQUIRED: bool = true;
const OPTIONAL: bool = false;

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

fn text(description: &str) -> Value {
    described(json!({"type": "string"}), description)
}

fn time(description: &str) -> Value {
    let time = json!({"type": "string", "format": "date-time"});
    described(time, description)
}

fn count(description: &str) -> Value {
    described(json!({"type": "integer", "minimum": 0}), description)
}

fn fence(description: &str) -> Value {
    let fence = json!({"type": "integer", "minimum": 0, "maximum": MAX_FENCE});
    described(fence, description)
}

fn flag(description: &str) -> Value {
    described(json!({"type": "boolean"}), description)
}

/// Returns the schema, but also allows null.
fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn one_of(words: &[&str], description: &str) -> Value {
    described(json!({"type": "string", "enum": words}), description)
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list(items: Value, description: &str) -> Value {
    described(json!({"type": "array", "items": items}), description)
}

const FENCE: u64 = 1_794_776_043_850_001;
const FROM: &str = "2026-11-15T20:54:03.850288Z";
const UNTIL: &str = "2026-11-15T20:54:33.850288Z";

/// Returns the schemas of all objects.
pub(super) fn all() -> Vec<Schema> {
    [
        leases::schemas(),
        views::schemas(),
        history::schemas(),
        requests::schemas(),
        service::schemas(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
