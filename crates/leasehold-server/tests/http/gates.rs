//! Gates, which are passed once per period.

use serde_json::json;

use crate::common::Server;

#[tokio::test]
async fn gate_is_passed_once_per_period_and_refusals_have_a_retry_time() {
    let server = Server::start_on_sqlite().await;
    let passed = server.post("/gates/device-42?every=90s&owner=ada").await;
    let passed = passed.ok();
    assert_eq!(passed.json["ttl"], 90_000);
    assert_eq!(passed.json["granted"], "fresh");
    for _ in 0..2 {
        let refused = server.post("/gates/device-42?every=1ms").await;
        let refused = refused.problem(429, "throttled");
        assert_eq!(refused.text("owner"), "ada");
        let millis = refused.json["retryAfter"].as_u64().unwrap();
        assert!((60_000..=90_001).contains(&millis), "{refused:?}");
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(seconds, millis.div_ceil(1_000), "never too early");
    }
}

#[tokio::test]
async fn gate_is_reopened_by_fence_or_nonce() {
    let server = Server::start().await;
    let first = server.acquire("/gates/a?every=1d&nonce=mine").await;
    let again = server.acquire("/gates/a?every=1d&nonce=mine").await;
    assert!(
        again > first,
        "a repeated call passes, under the next fence"
    );
    for (target, released) in [
        (format!("/gates/a/{first}"), false),
        ("/gates/a?nonce=other".into(), false),
        (format!("/gates/a/{again}"), true),
    ] {
        let opened = server.delete(&target).await.ok();
        assert_eq!(opened.json, json!({"released": released}), "{target}");
    }
    server.acquire("/gates/a?every=3652d&nonce=mine").await;
    let opened = server.delete("/gates/a?nonce=mine").await.ok();
    assert_eq!(opened.json["released"], true);
    server.acquire("/gates/a?every=1d").await;
    let forced = server.post("/gates/a/break?force=true&reason=stuck&now=true");
    assert_eq!(forced.await.ok().json["broken"], true);
    server.acquire("/gates?name=a&every=1d").await;
}

#[tokio::test]
async fn gates_are_shown_and_listed_apart_from_locks() {
    let server = Server::start_on_sqlite().await;
    server.get("/gates/a").await.problem(404, "not-found");
    server.acquire("/gates/a?every=1d&owner=ada").await;
    server.acquire("/gates/b%2Fc?every=1d").await;
    server.get("/locks/a").await.problem(404, "not-found");
    server.acquire("/locks/a?nonce=n&owner=eve").await;
    let shown = server.get("/gates/a").await.ok();
    assert_eq!(shown.json["held"], true);
    assert_eq!(shown.json["holders"][0]["owner"], "ada");
    assert_eq!(server.get("/gates?name=b/c").await.ok().text("name"), "b/c");
    let page = server.get("/gates?limit=1").await.ok();
    assert_eq!(page.json["gates"][0]["name"], "a");
    let cursor = page.text("cursor");
    let rest = server.get(&format!("/gates?cursor={cursor}")).await.ok();
    assert_eq!(rest.json["gates"].as_array().unwrap().len(), 1);
    let some = server.get("/gates?prefix=b&held=true").await.ok();
    assert_eq!(some.json["gates"][0]["name"], "b/c");
    assert_eq!(
        server.everything().await["locks"].as_array().unwrap().len(),
        1
    );
}

#[tokio::test]
async fn invalid_gate_requests_are_refused() {
    let server = Server::start().await;
    for target in [
        "/gates/a",
        "/gates/a?every=",
        "/gates/a?every=0s",
        "/gates/a?every=0ms",
        "/gates/a?every=3653d",
        "/gates/a?every=soon",
        "/gates/a?every=60s&nonce=",
        "/gates/a?every=60s&ttl=60s",
        "/gates/a?ttl=60s",
        "/gates/a?every=60s&mode=shared",
        "/gates?every=60s",
        "/gates/?every=60s",
        "/gates?name=a&name=b&every=60s",
    ] {
        server.post(target).await.problem(400, "bad-request");
    }
    server.delete("/gates/a").await.problem(400, "bad-request");
    server
        .delete("/gates/a/x")
        .await
        .problem(400, "bad-request");
    let none = server.get("/gates").await.ok();
    assert_eq!(none.json, json!({"gates": [], "cursor": null}));
}
