//! Work items are put, removed, and unchanged while they are leased.

use std::time::Duration;

use crate::common::Server;

#[tokio::test]
async fn an_item_is_put_replaced_and_removed() {
    let server = Server::start_on_sqlite().await;
    for (target, body) in [
        ("/items/order%2F1?state=NEW", "first"),
        ("/items?name=order%2F1&state=PAID", "second"),
    ] {
        let stored = server.send("PUT", target, body.as_bytes()).await.ok();
        assert_eq!(stored.json, serde_json::json!({"stored": true}));
        let shown = server.get("/locks/order%2F1").await.ok();
        assert_eq!(shown.text("body"), body);
        assert!(target.ends_with(shown.text("state")), "{shown:?}");
        assert!(shown.json["stateSince"].is_string(), "{shown:?}");
    }
    for _ in 0..2 {
        let removed = server.delete("/items/order%2F1").await.ok();
        assert_eq!(removed.json, serde_json::json!({"removed": true}));
    }
    let shown = server.get("/locks/order%2F1").await.ok();
    assert_eq!((shown.text("body"), shown.text("state")), ("", ""));
    server.delete("/items/never").await.ok();
    server.get("/locks/never").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_put_keeps_the_body_unless_another_one_is_given() {
    let server = Server::start().await;
    let put = async |target: &str, body: &[u8]| {
        server.send("PUT", target, body).await.ok();
        let shown = server.get("/locks/order").await.ok();
        (
            shown.text("state").to_owned(),
            shown.text("body").to_owned(),
        )
    };
    let state = |state: &str, body: &str| (state.to_owned(), body.to_owned());
    assert_eq!(
        put("/items/order?state=NEW", b"3 apples").await,
        state("NEW", "3 apples")
    );
    assert_eq!(
        put("/items/order?state=AGAIN", b"").await,
        state("AGAIN", "3 apples")
    );
    assert_eq!(
        put("/items/order?state=NEW&body=empty", b"").await,
        state("NEW", "")
    );
    for (target, body) in [
        ("/items/order?state=BAD&body=empty", "and one"),
        ("/items/order?state=BAD&body=keep", ""),
    ] {
        let refused = server.send("PUT", target, body.as_bytes()).await;
        refused.problem(400, "bad-request");
    }
}

#[tokio::test]
async fn a_repeated_put_resets_nothing() {
    let server = Server::start().await;
    let put = "/items/order?state=NEW&nonce=mine";
    server.send("PUT", put, b"first").await.ok();
    let fence = server.acquire("/locks/order?nonce=worker").await;
    let done = format!("/locks/order/{fence}?state=DONE&release=true");
    server.send("POST", &done, b"finished").await.ok();
    server.send("PUT", put, b"first").await.ok();
    let header = "Leasehold-Nonce: mine\r\n";
    let target = "/items/order?state=NEW";
    server.send_with("PUT", target, header, b"first").await.ok();
    let shown = server.get("/locks/order").await.ok();
    assert_eq!(shown.text("body"), "finished");
    assert_eq!(shown.text("state"), "DONE");
}

#[tokio::test]
async fn a_leased_item_is_neither_put_nor_removed() {
    let server = Server::start().await;
    server.send("PUT", "/items/order?state=NEW", b"kept").await;
    server
        .acquire("/locks/order?nonce=n&owner=ada&ttl=1h")
        .await;
    let before = server.everything().await;
    for (method, target) in [
        ("PUT", "/items/order?state=OTHER"),
        ("DELETE", "/items/order"),
    ] {
        let refused = server.send(method, target, b"other").await;
        let refused = refused.problem(409, "held");
        assert_eq!(refused.text("owner"), "ada");
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn invalid_item_requests_are_refused() {
    let server = Server::start().await;
    let long = "s".repeat(65);
    for target in [
        "/items/a",
        "/items/a?state=",
        "/items/a?state=%07",
        &format!("/items/a?state={long}"),
        "/items/a?state=NEW&ttl=30s",
        "/items/a?state=NEW&nonce=",
        "/items?state=NEW",
        "/items/?state=NEW",
        "/items?name=a&name=b&state=NEW",
    ] {
        let refused = server.send("PUT", target, b"").await;
        refused.problem(400, "bad-request");
    }
    let refused = server.send("PUT", "/items/a?state=NEW", b"\xff").await;
    refused.problem(400, "bad-request");
    let large = vec![b'x'; 64 * 1024 + 1];
    let refused = server.send("PUT", "/items/a?state=NEW", &large).await;
    refused.problem(413, "too-large");
    let refused = server.delete("/items/a?state=NEW").await;
    refused.problem(400, "bad-request");
    let refused = server.get("/items/a").await;
    let refused = refused.problem(405, "method-not-allowed");
    assert_eq!(refused.header("allow"), Some("post, put, delete"));
    assert_eq!(server.everything().await["locks"], serde_json::json!([]));
}

#[tokio::test]
async fn the_routes_of_locks_work_on_a_claimed_item() {
    let server = Server::start().await;
    server.send("PUT", "/items/a?state=NEW", b"work").await.ok();
    let claimed = server.post("/claims?state=NEW&nonce=mine").await.ok();
    let fence = claimed.json["items"][0]["fence"].as_u64().unwrap();
    let beat = server.post(&format!("/locks/a/{fence}/heartbeat")).await;
    let left = Duration::from_millis(beat.ok().json["validFor"].as_u64().unwrap());
    assert!(left > Duration::from_secs(50), "{left:?}");
    let heartbeats = format!(r#"{{"leases":[{{"name":"a","fence":{fence}}}]}}"#);
    let beats = server
        .send("POST", "/heartbeats", heartbeats.as_bytes())
        .await;
    assert_eq!(beats.ok().json["leases"][0]["lease"]["fence"], fence);
    let broken = server.post("/locks/a/break?nonce=mine").await.ok();
    assert_eq!(broken.json["broken"], true);
    let again = server.post("/claims?state=NEW").await.ok();
    assert!(again.json["items"][0]["fence"].as_u64().unwrap() > fence);
}
