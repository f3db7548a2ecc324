//! Requests built from the API description of the service.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// One operation of the API, by one method.
pub(crate) struct Operation {
    /// Its id, which is the same for each of its methods.
    pub(crate) id: String,
    method: String,
    /// Its path, and its path with the name as a parameter.
    targets: Vec<String>,
    /// Names and examples of the query parameters that every request has.
    parameters: BTreeMap<String, Value>,
    /// The example of its body.
    body: Option<Value>,
    /// Scopes that admit a caller. `None` if the operation is open.
    pub(crate) scopes: Option<Vec<String>>,
    /// Whether its answer is a stream.
    streams: bool,
}

/// A request without its caller.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) body: String,
    pub(crate) streams: bool,
}

/// Returns the parameters with which a break requires this scope.
fn parameters_for(scope: &str) -> Value {
    match scope {
        "acquire:{name}" => json!({"nonce": "n"}),
        "break:{name}" => json!({"force": true, "reason": "x"}),
        "admin:{name}" => json!({"force": true, "reason": "x", "now": true}),
        other => panic!("add parameters that require `{other}`"),
    }
}

/// Returns all described operations, with `HEAD` wherever there is `GET`.
pub(crate) fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, described) in methods.as_object().unwrap() {
            operations.push(Operation::new(document, path, method, described));
            if method == "get" {
                operations.push(Operation::new(document, path, "head", described));
            }
        }
    }
    operations
}

/// Resolves a reference.
fn resolve<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(&reference[1..]).unwrap(),
        None => value,
    }
}

impl Operation {
    fn new(document: &Value, path: &str, method: &str, described: &Value) -> Self {
        let parameters = described["parameters"].as_array().unwrap().iter();
        let parameters = parameters.map(|parameter| resolve(document, parameter));
        // Required parameters, the nonce, and the parameters that select names.
        let parameters = parameters.filter(|parameter| {
            let named = ["nonce", "name", "prefix"].map(Value::from);
            parameter["in"] == "query"
                && (parameter["required"] == true || named.contains(&parameter["name"]))
        });
        let parameters = parameters.map(|parameter| {
            let name = parameter["name"].as_str().unwrap().to_owned();
            (name, parameter["example"].clone())
        });
        let content = &described["requestBody"]["content"];
        let json = &content["application/json"]["schema"];
        let body = match json {
            Value::Null => content["text/plain"].get("example"),
            schema => resolve(document, schema)["examples"].get(0),
        };
        let by_query = described["x-by-query"].as_str();
        let scopes = described.get("x-scopes").map(|scopes| {
            let scopes = scopes.as_array().unwrap().iter();
            scopes.map(|scope| scope.as_str().unwrap().to_owned())
        });
        let id = described["operationId"].as_str().unwrap();
        Self {
            id: id.trim_end_matches("Put").to_owned(),
            method: method.to_uppercase(),
            targets: std::iter::once(path)
                .chain(by_query)
                .map(str::to_owned)
                .collect(),
            parameters: parameters.collect(),
            body: body.cloned(),
            scopes: scopes.map(Iterator::collect),
            streams: described["responses"]["200"]["content"]
                .get("text/event-stream")
                .is_some(),
        }
    }

    /// Returns every form of the request with_name this name, each with the scopes that admit a caller.
    pub(crate) fn requests(&self, scopes: &[String], name: &str) -> Vec<(Vec<String>, Request)> {
        let mut requests = Vec::new();
        for target in &self.targets {
            let target = target.replace("{fence}", "7");
            let target = target.replace("{name}", name).replace("{id}", name);
            if scopes.len() > 1 {
                for scope in scopes {
                    let how = parameters_for(scope);
                    let query = query_string(how.as_object().unwrap().iter());
                    let by_query = self.request(&target, &query, "");
                    requests.push((vec![scope.clone()], by_query));
                    let by_body = self.request(&target, "", &how.to_string());
                    requests.push((vec![scope.clone()], by_body));
                }
                continue;
            }
            let parameters = |name_too: bool| {
                let all = self.parameters.iter();
                let given = all.filter(|(parameter, _)| name_too || *parameter != "name");
                let given = given.map(|(parameter, example)| match &**parameter {
                    "prefix" => (parameter, json!(name)),
                    "name" => (parameter, json!([name, format!("{name}2")])),
                    _ => (parameter, example.clone()),
                });
                query_string(given)
            };
            let names = self.parameters.contains_key("name");
            if names || self.body.is_none() {
                let request = self.request(&target, &parameters(true), "");
                requests.push((scopes.to_vec(), request));
            }
            if let Some(example) = &self.body {
                let body = match with_name(example, name) {
                    Value::String(text) => text,
                    json => json.to_string(),
                };
                let request = self.request(&target, &parameters(false), &body);
                requests.push((scopes.to_vec(), request));
            }
        }
        requests
    }

    /// Returns the request with_name all names.
    pub(crate) fn request_without_prefix(&self) -> Request {
        let all = self.parameters.iter();
        let given = all.filter(|(parameter, _)| *parameter != "prefix");
        self.request(&self.targets[0], &query_string(given), "")
    }

    fn request(&self, target: &str, query: &str, body: &str) -> Request {
        let between = if target.contains('?') { '&' } else { '?' };
        Request {
            method: self.method.clone(),
            target: format!("{target}{between}{query}"),
            body: body.to_owned(),
            streams: self.streams,
        }
    }
}

/// Returns a query string. The values of the tests require no escaping.
fn query_string<'v, V: std::borrow::Borrow<Value>>(
    parameters: impl Iterator<Item = (&'v String, V)>,
) -> String {
    let mut pairs = Vec::new();
    for (name, value) in parameters {
        let value = value.borrow();
        let values = value
            .as_array()
            .map_or(std::slice::from_ref(value), |all| all);
        for value in values {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            pairs.push(format!("{name}={text}"));
        }
    }
    pairs.join("&")
}

/// Replaces the names in the example of a body.
fn with_name(example: &Value, name: &str) -> Value {
    match example {
        Value::Object(members) => members
            .iter()
            .map(|(member, value)| match &**member {
                "name" => (member.clone(), json!(name)),
                "names" => (member.clone(), json!([name, format!("{name}2")])),
                _ => (member.clone(), with_name(value, name)),
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(values) => values.iter().map(|value| with_name(value, name)).collect(),
        other => other.clone(),
    }
}
