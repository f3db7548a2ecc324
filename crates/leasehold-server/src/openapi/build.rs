//! The document, made of the tables.

use std::collections::BTreeMap;

use leasehold::wire::Trouble;
use serde_json::{Map, Value, json};

use super::operations::{ALWAYS, Answered, Body, GUARDED, OPERATIONS, Operation, SENT, STORED};
use super::parameters::{self, Parameter};
use super::schemas::{self, Schema, reference};
use crate::connections::PROBES;
use crate::query::Query;
use crate::route::Route;

const ABOUT: &str = "Leases with fencing tokens on the database you already run. Times are RFC 3339 in the store's time, spans \
    in answers are whole milliseconds, spans in requests are written `500ms`, `30s`, `5m`, `2h` or `1d`. Every route with a \
    name in its path also takes it as `?name=`, with that segment left out: `x-by-query` has that form. Unknown parameters \
    are refused. Where access control is on, `x-scopes` has the scopes one of which a token needs: on the name, or on each of several; \
    on a part of what starts with the prefix, which is then all that is seen; without either, on every name. An empty list takes \
    any token, and no list none.";

/// The document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        for (index, method) in operation.methods.iter().enumerate() {
            let path = paths.entry(operation.path).or_insert_with(|| json!({}));
            path[*method] = described(operation, method, index > 0);
        }
    }
    let parameters = parameters::all().into_iter().map(|parameter| {
        let key = parameter.key.to_owned();
        (key, parameter_object(parameter))
    });
    let mut schemas: Map<_, _> = schemas::all()
        .into_iter()
        .map(|schema| (schema.name.to_owned(), schema_object(schema)))
        .collect();
    schemas.insert(
        "HeartbeatAnswer".into(),
        json!({
            "description": "What came of one heartbeat.",
            "oneOf": [
                {"type": "object", "properties": {"lease": reference("Lease")}, "required": ["lease"]},
                {"type": "object", "properties": {"problem": reference("Problem")}, "required": ["problem"]},
            ],
        }),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Leasehold",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "tags": [
            {"name": "locks", "description": "Leases, alone or shared."},
            {"name": "items", "description": "Work items: locks with a state."},
            {"name": "gates", "description": "At most once in a while, for a whole fleet."},
            {"name": "service", "description": "The service itself."},
        ],
        "paths": paths,
        "components": {
            "parameters": parameters.collect::<Map<_, _>>(),
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of `leasehold token create`."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "leasehold-session", "description": "A session of `/login`; under TLS it is called `__Host-leasehold-session`."},
            },
        },
    })
}

fn described(operation: &Operation, method: &str, again: bool) -> Value {
    let suffix = if again { "Put" } else { "" };
    let parameters = operation.parameters.iter();
    let parameters =
        parameters.map(|key| json!({"$ref": format!("#/components/parameters/{key}")}));
    let scopes = route(method, operation.path).need().scopes();
    let mut described = json!({
        "operationId": format!("{}{suffix}", operation.id),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": responses(operation, scopes.is_some()),
    });
    if let Some(scopes) = scopes {
        described["x-scopes"] = scopes.into();
    }
    if again {
        described["description"] = "The same as by POST.".into();
    }
    if let Some(by_query) = operation.by_query {
        described["x-by-query"] = by_query.into();
    }
    let content = match operation.body {
        _ if method == "get" || method == "delete" => return described,
        Body::None => return described,
        Body::Text => json!({"text/plain": {
            "schema": {"type": "string", "maxLength": leasehold::core::limits::MAX_BODY_BYTES},
            "example": "step 3",
        }}),
        Body::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
    };
    described["requestBody"] = json!({"content": content});
    described
}

/// The route of an operation's path, or of its other form.
pub(super) fn route(method: &str, template: &str) -> Route {
    let target = template.replace("{fence}", "7");
    let target = target.replace("{name}", "x").replace("{id}", "x");
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let found = Query::parse(Some(query)).ok().and_then(|query| {
        let method = method.to_uppercase().parse().ok()?;
        Route::find(&method, path, &query).ok()
    });
    found.unwrap_or_else(|| panic!("`{template}` is no route"))
}

fn responses(operation: &Operation, guarded: bool) -> Value {
    let mut responses = Map::new();
    let ok = match operation.answer {
        Answered::Json([schema]) => json!({"application/json": {"schema": reference(schema)}}),
        Answered::Json(schemas) => {
            let any = schemas.iter().map(|schema| reference(schema));
            json!({"application/json": {"schema": {"anyOf": any.collect::<Vec<_>>()}}})
        }
        Answered::Other(content_type) => json!({content_type: {}}),
    };
    let done = json!({"description": "Done.", "content": ok});
    responses.insert("200".into(), done);
    let mut by_status = BTreeMap::<u16, Vec<Trouble>>::new();
    for trouble in troubles(operation, guarded) {
        by_status.entry(trouble.status()).or_default().push(trouble);
    }
    let large = "The head is larger than the service takes: 16 KiB, unless it says otherwise.";
    let mut too_large = problem(&[Trouble::TooLarge]);
    too_large["description"] = large.into();
    responses.insert("431".into(), too_large);
    for (status, troubles) in by_status {
        responses.insert(status.to_string(), problem(&troubles));
    }
    responses.into()
}

/// Everything that may be wrong with a request.
fn troubles(operation: &Operation, guarded: bool) -> Vec<Trouble> {
    let mut troubles = [ALWAYS, operation.troubles].concat();
    if matches!(operation.tag, "locks" | "items" | "gates") {
        troubles.extend(STORED);
    }
    if guarded {
        troubles.extend(GUARDED);
    }
    // Too many requests of a token, or too many connections.
    if guarded || !PROBES.contains(&operation.path) {
        troubles.push(Trouble::TooManyRequests);
    }
    if operation.methods != ["get"] && operation.methods != ["delete"] {
        troubles.extend(SENT);
    }
    troubles
}

fn problem(troubles: &[Trouble]) -> Value {
    let titles: Vec<_> = troubles.iter().map(|trouble| trouble.title()).collect();
    let words: Vec<_> = troubles.iter().map(|trouble| trouble.as_str()).collect();
    let only = json!({"properties": {"type": {"enum": words}}});
    let mut problem = json!({
        "description": format!("{}.", titles.join(", or ")),
        "content": {"application/problem+json": {
            "schema": {"allOf": [reference("Problem"), only]},
        }},
    });
    let waits = [
        Trouble::Held,
        Trouble::Throttled,
        Trouble::TooManyRequests,
        Trouble::StoreUnavailable,
    ];
    if troubles.iter().any(|trouble| waits.contains(trouble)) {
        problem["headers"] = json!({"Retry-After": {
            "description": "When to come back, in seconds.",
            "schema": {"type": "integer", "minimum": 0},
        }});
    }
    problem
}

fn parameter_object(parameter: Parameter) -> Value {
    let mut object = json!({
        "name": parameter.name,
        "in": parameter.place.as_str(),
        "description": parameter.about,
        "schema": parameter.schema,
    });
    if parameter.required {
        object["required"] = true.into();
    }
    if !parameter.example.is_null() {
        object["example"] = parameter.example;
    }
    object
}

fn schema_object(schema: Schema) -> Value {
    let required: Vec<_> = schema
        .members
        .iter()
        .filter_map(|(name, always, _)| always.then_some(*name))
        .collect();
    let properties: Map<_, _> = schema
        .members
        .into_iter()
        .map(|(name, _, of)| (name.to_owned(), of))
        .collect();
    json!({
        "type": "object",
        "description": schema.about,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "examples": [schema.example],
    })
}
