//! Builds the document from the tables of operations, parameters and schemas.

use std::collections::BTreeMap;

use leasehold::wire::ProblemType;
use serde_json::{Map, Value, json};

use super::operations::{ALWAYS, Body, GUARDED, OPERATIONS, Operation, ResponseBody, SENT, STORED};
use super::parameters::{self, Parameter};
use super::schemas::{self, Schema, reference};
use crate::connections::PROBES;
use crate::query::Query;
use crate::route::Route;

const DESCRIPTION: &str = "Leases with fencing tokens on the database you already run. Times are in RFC 3339 and in the \
    store's time. Durations in answers are integers in milliseconds. Durations in requests are written `500ms`, `30s`, `5m`, \
    `2h` or `1d`. A route with a name in its path also takes the name as `?name=`, without that segment: `x-by-query` is that \
    form. Unknown parameters are refused. If access control is on, a token requires one of the scopes in `x-scopes`. `{name}` \
    stands for the name, or for each of several names. `{prefix}` stands for a part of the names with the prefix: the answer \
    contains only that part. A scope without either stands for every name. An empty list requires any token. Without a list no \
    token is required.";

/// Builds the document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        for (index, method) in operation.methods.iter().enumerate() {
            let path = paths.entry(operation.path).or_insert_with(|| json!({}));
            path[*method] = operation_object(operation, method, index > 0);
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
            "description": "The result of one heartbeat: the renewed lease, or a problem.",
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
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "tags": [
            {"name": "locks", "description": "Leases, exclusive or shared."},
            {"name": "items", "description": "Work items: locks with a state."},
            {"name": "gates", "description": "Gates: at most one pass per period, for a whole fleet."},
            {"name": "service", "description": "The service itself: events, health, metrics, sessions, documents."},
        ],
        "paths": paths,
        "components": {
            "parameters": parameters.collect::<Map<_, _>>(),
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token, created by `leasehold token create`."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "leasehold-session", "description": "A session, opened by `/login`. With TLS the cookie is named `__Host-leasehold-session`."},
            },
        },
    })
}

fn operation_object(operation: &Operation, method: &str, is_alias: bool) -> Value {
    let suffix = if is_alias { "Put" } else { "" };
    let parameters = operation.parameters.iter();
    let parameters =
        parameters.map(|key| json!({"$ref": format!("#/components/parameters/{key}")}));
    let scopes = route(method, operation.path).requirement().scopes();
    let mut object = json!({
        "operationId": format!("{}{suffix}", operation.id),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": responses(operation, scopes.is_some()),
    });
    if let Some(scopes) = scopes {
        object["x-scopes"] = scopes.into();
    }
    if is_alias {
        object["description"] = "An alias of the POST operation.".into();
    }
    if let Some(by_query) = operation.by_query {
        object["x-by-query"] = by_query.into();
    }
    let content = match operation.body {
        _ if method == "get" || method == "delete" => return object,
        Body::None => return object,
        Body::Text => json!({"text/plain": {
            "schema": {"type": "string", "maxLength": leasehold::core::limits::MAX_BODY_BYTES},
            "example": "step 3",
        }}),
        Body::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
    };
    object["requestBody"] = json!({"content": content});
    object
}

/// Returns the route of an operation's path, or of its form with `?name=`.
pub(super) fn route(method: &str, template: &str) -> Route {
    let target = template.replace("{fence}", "7");
    let target = target.replace("{name}", "x").replace("{id}", "x");
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let route = Query::parse(Some(query)).ok().and_then(|query| {
        let method = method.to_uppercase().parse().ok()?;
        Route::find(&method, path, &query).ok()
    });
    route.unwrap_or_else(|| panic!("no route for `{template}`"))
}

fn responses(operation: &Operation, is_guarded: bool) -> Value {
    let mut responses = Map::new();
    let content = match operation.response {
        ResponseBody::Json([schema]) => json!({"application/json": {"schema": reference(schema)}}),
        ResponseBody::Json(schemas) => {
            let any = schemas.iter().map(|schema| reference(schema));
            json!({"application/json": {"schema": {"anyOf": any.collect::<Vec<_>>()}}})
        }
        ResponseBody::Other(content_type) => json!({content_type: {}}),
    };
    let ok = json!({"description": "Success.", "content": content});
    responses.insert("200".into(), ok);
    let mut by_status = BTreeMap::<u16, Vec<ProblemType>>::new();
    for problem in problem_types(operation, is_guarded) {
        by_status.entry(problem.status()).or_default().push(problem);
    }
    let mut too_large = problem_response(&[ProblemType::TooLarge]);
    let description =
        "The head of the request is larger than the limit, which is 16 KiB by default.";
    too_large["description"] = description.into();
    responses.insert("431".into(), too_large);
    for (status, problems) in by_status {
        responses.insert(status.to_string(), problem_response(&problems));
    }
    responses.into()
}

/// Returns all problem types that an operation may answer with.
fn problem_types(operation: &Operation, is_guarded: bool) -> Vec<ProblemType> {
    let mut problems = [ALWAYS, operation.problems].concat();
    if matches!(operation.tag, "locks" | "items" | "gates") {
        problems.extend(STORED);
    }
    if is_guarded {
        problems.extend(GUARDED);
    }
    // Too many requests with a token, or too many connections.
    if is_guarded || !PROBES.contains(&operation.path) {
        problems.push(ProblemType::TooManyRequests);
    }
    if operation.methods != ["get"] && operation.methods != ["delete"] {
        problems.extend(SENT);
    }
    problems
}

fn problem_response(problems: &[ProblemType]) -> Value {
    let titles: Vec<_> = problems.iter().map(|problem| problem.title()).collect();
    let types: Vec<_> = problems.iter().map(|problem| problem.as_str()).collect();
    let only = json!({"properties": {"type": {"enum": types}}});
    let mut response = json!({
        "description": format!("{}.", titles.join(", or ")),
        "content": {"application/problem+json": {
            "schema": {"allOf": [reference("Problem"), only]},
        }},
    });
    let with_retry_after = [
        ProblemType::Held,
        ProblemType::Throttled,
        ProblemType::TooManyRequests,
        ProblemType::StoreUnavailable,
    ];
    let mut problems = problems.iter();
    if problems.any(|problem| with_retry_after.contains(problem)) {
        response["headers"] = json!({"Retry-After": {
            "description": "When to retry, in seconds.",
            "schema": {"type": "integer", "minimum": 0},
        }});
    }
    response
}

fn parameter_object(parameter: Parameter) -> Value {
    let mut object = json!({
        "name": parameter.name,
        "in": parameter.location.as_str(),
        "description": parameter.description,
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
        .filter_map(|(name, is_required, _)| is_required.then_some(*name))
        .collect();
    let properties: Map<_, _> = schema
        .members
        .into_iter()
        .map(|(name, _, member)| (name.to_owned(), member))
        .collect();
    json!({
        "type": "object",
        "description": schema.description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "examples": [schema.example],
    })
}
