//! The document says what the routes, the handlers and the wire types do.

use std::collections::BTreeSet;

use leasehold::wire;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::build::{document, route as found};
use super::operations::OPERATIONS;
use super::schemas;
use crate::route::Route;

/// A word for each route. Whoever adds one adds it here, to the list below, and to the operations.
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
            let route = found(method, operation.path);
            words.insert(word(&route));
            if let Some(by_query) = operation.by_query {
                assert_eq!(found(method, by_query), route, "{by_query}");
            }
        }
    }
    assert_eq!(words, BTreeSet::from(WORDS));
}

#[test]
fn ids_are_unique_and_references_lead_somewhere() {
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

/// The example has every member; it is read and written as it is; and it cannot be read without what is always there.
fn fits<T: Serialize + Deserialize<'static>>(name: &str) {
    let all = schemas::all();
    let schema = all.iter().find(|schema| schema.name == name).unwrap();
    // Some borrow from what they are read from.
    let read = |value: &Value| serde_json::from_str::<T>(value.to_string().leak());
    let example = &schema.example;
    let again = serde_json::to_value(read(example).unwrap()).unwrap();
    assert_eq!(&again, example, "{name}");
    let there: BTreeSet<_> = example
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let documented: BTreeSet<_> = schema.members.iter().map(|(member, ..)| *member).collect();
    assert_eq!(there, documented, "{name}");
    for (member, always, _) in &schema.members {
        let mut without = example.clone();
        without.as_object_mut().unwrap().remove(*member);
        assert_eq!(read(&without).is_err(), *always, "{name} without {member}");
    }
}

#[test]
fn schemas_fit_the_wire_types() {
    fits::<wire::Lease>("Lease");
    fits::<wire::NamedLease>("NamedLease");
    fits::<wire::NamedLeases>("NamedLeases");
    fits::<wire::Items>("Items");
    fits::<wire::Ending>("Ending");
    fits::<wire::Released>("Released");
    fits::<wire::Stored>("Stored");
    fits::<wire::Removed>("Removed");
    fits::<wire::Broken>("Broken");
    fits::<wire::HeartbeatsAnswer>("HeartbeatsAnswer");
    fits::<wire::LockView>("LockView");
    fits::<wire::HolderView>("HolderView");
    fits::<wire::Locks>("Locks");
    fits::<wire::Gates>("Gates");
    fits::<wire::Names>("Names");
    fits::<wire::Heartbeats>("Heartbeats");
    fits::<wire::Heartbeat>("Heartbeat");
    fits::<wire::Requests<'static>>("Requests");
    fits::<wire::Single<'static>>("Request");
    fits::<wire::Answers>("Answers");
    fits::<wire::Answer>("Answer");
    fits::<wire::BreakHow>("BreakHow");
    fits::<wire::Problem>("Problem");
    fits::<wire::Told>("Event");
    fits::<wire::History>("History");
    fits::<wire::Tenure>("Tenure");
    fits::<wire::Totals>("Totals");
    fits::<wire::Minute>("Minute");
}
