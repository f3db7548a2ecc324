//! `GET /openapi.json` and `/docs`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::Server;

/// Returns the query parameters of an operation.
fn query_parameters(document: &Value, operation: &Value) -> BTreeSet<String> {
    let parameters = operation["parameters"].as_array().unwrap().iter();
    let parameters = parameters.map(|parameter| {
        let pointer = parameter["$ref"]
            .as_str()
            .unwrap()
            .strip_prefix('#')
            .unwrap();
        document.pointer(pointer).unwrap()
    });
    let parameters = parameters.filter(|parameter| parameter["in"] == "query");
    let names = parameters.map(|parameter| parameter["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[tokio::test]
async fn every_route_accepts_exactly_the_documented_parameters() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.ok().json;
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let target = path.replace("{fence}", "7").replace("{name}", "x");
            let mut target = target.replace("{id}", "x") + "?no-such=1";
            if operation["operationId"]
                .as_str()
                .unwrap()
                .starts_with("acquireAll")
            {
                target += "&name=a&name=b";
            }
            let answer = server.send(&method.to_uppercase(), &target, b"").await;
            let refused = answer.problem(400, "bad-request");
            let (_, known) = refused.text("detail").split_once("here: ").unwrap();
            let known = known.split('`').skip(1).step_by(2).map(str::to_owned);
            let mut known: BTreeSet<_> = known.collect();
            let documented = query_parameters(&document, operation);
            if operation.get("x-by-query").is_some() {
                assert!(known.remove("name"), "{method} {path}");
            }
            assert_eq!(known, documented, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn documentation_loads_nothing_from_other_hosts() {
    let server = Server::start().await;
    for (target, kind) in [
        ("/docs", "text/html"),
        ("/docs/page.js", "text/javascript"),
        ("/docs/page.css", "text/css"),
    ] {
        let answer = server.get(target).await;
        assert_eq!(answer.status, 200);
        let content_type = answer.header("content-type").unwrap();
        assert!(content_type.starts_with(kind), "{content_type}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains("http"),
            "{policy}"
        );
    }
}

#[tokio::test]
async fn browsers_are_forbidden_to_guess_content_types() {
    let server = Server::start().await;
    for target in [
        "/docs",
        "/docs/page.js",
        "/docs/page.css",
        "/openapi.json",
        "/metrics",
    ] {
        let answer = server.get(target).await;
        assert_eq!(answer.status, 200, "{target}");
        let options = answer.header("x-content-type-options");
        assert_eq!(options, Some("nosniff"), "{target}");
    }
}
