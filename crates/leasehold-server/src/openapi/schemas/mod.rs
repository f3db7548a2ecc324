//! Every body that is JSON, with an example.

mod asking;
mod holding;
mod looking;
mod past;
mod telling;

use serde_json::{Value, json};

use super::parameters::MAX_FENCE;

/// What an object looks like.
pub(super) struct Schema {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Each member: its name, whether it is always there, and its schema.
    pub(super) members: Vec<(&'static str, bool, Value)>,
    /// With every member that there may be.
    pub(super) example: Value,
}

fn schema(
    name: &'static str,
    about: &'static str,
    members: Vec<(&'static str, bool, Value)>,
    example: Value,
) -> Schema {
    Schema {
        name,
        about,
        members,
        example,
    }
}

const ALWAYS: bool = true;
const SOMETIMES: bool = false;

fn described(mut schema: Value, about: &str) -> Value {
    schema["description"] = about.into();
    schema
}

fn text(about: &str) -> Value {
    described(json!({"type": "string"}), about)
}

fn time(about: &str) -> Value {
    described(json!({"type": "string", "format": "date-time"}), about)
}

fn millis(about: &str) -> Value {
    described(json!({"type": "integer", "minimum": 0}), about)
}

fn fence(about: &str) -> Value {
    let fence = json!({"type": "integer", "minimum": 0, "maximum": MAX_FENCE});
    described(fence, about)
}

fn flag(about: &str) -> Value {
    described(json!({"type": "boolean"}), about)
}

/// The same, or null.
fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn one_of(words: &[&str], about: &str) -> Value {
    described(json!({"type": "string", "enum": words}), about)
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list(of: Value, about: &str) -> Value {
    described(json!({"type": "array", "items": of}), about)
}

const FENCE: u64 = 1_794_776_043_850_001;
const FROM: &str = "2026-11-15T20:54:03.850288Z";
const UNTIL: &str = "2026-11-15T20:54:33.850288Z";

/// All but those that are one of two.
pub(super) fn all() -> Vec<Schema> {
    [
        holding::holding(),
        looking::looking(),
        past::past(),
        asking::asking(),
        telling::telling(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
