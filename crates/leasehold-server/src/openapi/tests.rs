//! Compares the document with the routes and the wire types.

use std::collections::BTreeSet;

use leasehold::wire;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::build::{document, route as route_of};
use super::operations::OPERATIONS;
use super::schemas;
use crate::route::Route;

/// Returns a label for each route. A new route has to be added here, to `WORDS` and to the operations.
fn word(route: &Route) -> &'static str {
    match route {
        Route::Acquire(_) => "acquire",
        Route::AcquireAll(_) => "acquire all",
        Route::Heartbeat(..) => "heartbeat",
        Route::Heartbeats => "heartbeats",
        Route::Requests => "requests",
        Route::Update(..) => "update",
        Route::Release(..) => "release",
        Route::ReleaseByNonce(_) => "release by nonce",
        Route::Break(_) => "break",
        Route::Show(_) => "show",
        Route::List(_) => "list",
        Route::History(_) => "history",
        Route::Pass(_) => "pass",
        Route::Put(_) => "put",
        Route::Remove(_) => "remove",
        Route::Claim => "claim",
        Route::Events => "events",
        Route::Metrics => "metrics",
        Route::Totals => "totals",
        Route::Dashboard(_) => "dashboard",
        Route::Health => "health",
        Route::Ready => "ready",
        Route::OpenApi => "openapi",
        Route::Docs(_) => "docs",
        Route::LogIn => "log in",
        Route::LogOut => "log out",
        Route::WhoAmI => "who am i",
    }
}

const WORDS: [&str; 27] = [
    "acquire",
    "acquire all",
    "heartbeat",
    "heartbeats",
    "requests",
    "update",
    "release",
    "release by nonce",
    "break",
    "show",
    "list",
    "history",
    "pass",
    "put",
    "remove",
    "claim",
    "events",
    "metrics",
    "totals",
    "dashboard",
    "health",
    "ready",
    "openapi",
    "docs",
    "log in",
    "log out",
    "who am i",
];

#[test]
fn every_route_is_documented_and_every_operation_is_a_route() {
    let mut words = BTreeSet::new();
    for operation in OPERATIONS {
        for method in operation.methods {
            let route = route_of(method, operation.path);
            words.insert(word(&route));
            if let Some(by_query) = operation.by_query {
                assert_eq!(route_of(method, by_query), route, "{by_query}");
            }
        }
    }
    assert_eq!(words, BTreeSet::from(WORDS));
}

#[test]
fn operation_ids_are_unique_and_references_resolve() {
    let document = document();
    let mut ids = BTreeSet::new();
    for path in document["paths"].as_object().unwrap().values() {
        for operation in path.as_object().unwrap().values() {
            assert!(
                ids.insert(operation["operationId"].to_string()),
                "{operation}"
            );
        }
    }
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str).map(Into::into));
            members
                .values()
                .for_each(|value| collect(value, references));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

/// Checks that the example has every member, survives a round trip through the wire type, and is invalid without each of
/// its required members.
fn check_schema<T: Serialize + Deserialize<'static>>(name: &str) {
    let all = schemas::all();
    let schema = all.iter().find(|schema| schema.name == name).unwrap();
    // Leaked, because some wire types borrow from their input.
    let read = |value: &Value| serde_json::from_str::<T>(value.to_string().leak());
    let example = &schema.example;
    let written = serde_json::to_value(read(example).unwrap()).unwrap();
    assert_eq!(&written, example, "{name}");
    let present: BTreeSet<_> = example
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let documented: BTreeSet<_> = schema.members.iter().map(|(member, ..)| *member).collect();
    assert_eq!(present, documented, "{name}");
    for (member, is_required, _) in &schema.members {
        let mut without = example.clone();
        without.as_object_mut().unwrap().remove(*member);
        let is_invalid = read(&without).is_err();
        assert_eq!(is_invalid, *is_required, "{name} without {member}");
    }
}

#[test]
fn schemas_match_the_wire_types() {
    check_schema::<wire::Lease>("Lease");
    check_schema::<wire::NamedLease>("NamedLease");
    check_schema::<wire::NamedLeases>("NamedLeases");
    check_schema::<wire::Items>("Items");
    check_schema::<wire::LastHolderView>("Ending");
    check_schema::<wire::ReleaseResponse>("Released");
    check_schema::<wire::PutResponse>("Stored");
    check_schema::<wire::RemoveResponse>("Removed");
    check_schema::<wire::BreakResponse>("Broken");
    check_schema::<wire::HeartbeatsResponse>("HeartbeatsAnswer");
    check_schema::<wire::LockView>("LockView");
    check_schema::<wire::HolderView>("HolderView");
    check_schema::<wire::Locks>("Locks");
    check_schema::<wire::Gates>("Gates");
    check_schema::<wire::Names>("Names");
    check_schema::<wire::Heartbeats>("Heartbeats");
    check_schema::<wire::Heartbeat>("Heartbeat");
    check_schema::<wire::Requests<'static>>("Requests");
    check_schema::<wire::SingleRequest<'static>>("Request");
    check_schema::<wire::Answers>("Answers");
    check_schema::<wire::Answer>("Answer");
    check_schema::<wire::BreakOptions>("BreakHow");
    check_schema::<wire::Problem>("Problem");
    check_schema::<wire::EventMessage>("Event");
    check_schema::<wire::History>("History");
    check_schema::<wire::HoldPeriod>("HoldPeriod");
    check_schema::<wire::Totals>("Totals");
    check_schema::<wire::Minute>("Minute");
}
