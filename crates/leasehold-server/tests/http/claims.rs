//! Claims of work items by state.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Answer, Server, TIMEOUT, read_answer};

async fn put(server: &Server, name: &str, state: &str, body: &str) {
    let target = format!("/items/{name}?state={state}");
    server.send("PUT", &target, body.as_bytes()).await.ok();
}

fn names(answer: &Answer) -> Vec<&str> {
    let items = answer.json["items"].as_array().expect("a list");
    let names = items.iter().map(|item| item["name"].as_str().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_claim_leases_the_oldest_items_of_a_state() {
    let server = Server::start_on_sqlite().await;
    for name in ["c", "b", "a"] {
        put(&server, name, "NEW", &format!("work {name}")).await;
    }
    put(&server, "other", "DONE", "").await;
    // The store may give items that are put this quickly the same time.
    let listed = server.get("/locks?state=NEW").await.ok();
    let listed = listed.json["locks"].as_array().unwrap();
    let oldest: Vec<_> = listed.iter().map(|item| &item["name"]).collect();
    let first = server
        .post("/claims?state=NEW&limit=2&owner=ada")
        .await
        .ok();
    assert_eq!(names(&first), oldest[..2], "oldest first");
    let item = &first.json["items"][0];
    let name = item["name"].as_str().unwrap();
    assert_eq!(item["body"], format!("work {name}"));
    assert_eq!(item["state"], "NEW");
    assert_eq!(item["granted"], "fresh");
    assert_eq!(item["ttl"], 60_000, "a minute by default");
    assert!(item["validFor"].as_u64().unwrap() > 50_000, "{item}");
    assert!(item["stateSince"].is_string(), "{item}");
    let rest = server.post("/claims?state=NEW&ttl=5m").await.ok();
    assert_eq!(names(&rest), oldest[2..], "claimed items are left out");
    assert_eq!(rest.json["items"][0]["ttl"], 300_000);
    let none = server.post("/claims?state=NEW").await.ok();
    assert_eq!(none.json, serde_json::json!({"items": []}));
    let shown = server.get(&format!("/locks/{name}")).await.ok();
    assert_eq!(shown.json["holders"][0]["owner"], "ada");
    let done = format!("/locks/{name}/{}?state=DONE&release=true", item["fence"]);
    server.send("POST", &done, b"result").await.ok();
    let by_prefix = format!("/claims?state=DONE&prefix={name}");
    let next = server.post(&by_prefix).await.ok();
    assert_eq!(names(&next), [name]);
    assert_eq!(next.json["items"][0]["body"], "result");
}

#[tokio::test]
async fn claim_leases_ten_items_by_default() {
    let server = Server::start().await;
    for number in 0..12 {
        put(&server, &format!("{number}"), "NEW", "").await;
    }
    let first = server.post("/claims?state=NEW").await.ok();
    let rest = server.post("/claims?state=NEW&limit=1000").await.ok();
    assert_eq!((names(&first).len(), names(&rest).len()), (10, 2));
    let all: BTreeSet<_> = names(&first).into_iter().chain(names(&rest)).collect();
    assert_eq!(all.len(), 12);
}

#[tokio::test]
async fn invalid_claims_are_refused_and_change_nothing() {
    let server = Server::start().await;
    put(&server, "item", "NEW", "").await;
    let before = server.everything().await;
    for query in [
        "",
        "state=",
        "state=%07",
        "state=NEW&limit=0",
        "state=NEW&limit=1001",
        "state=NEW&limit=-1",
        "state=NEW&limit=many",
        "state=NEW&ttl=0s",
        "state=NEW&ttl=25h",
        "state=NEW&wait=25h",
        "state=NEW&nonce=",
        "state=NEW&state=OLD",
        "state=NEW&mode=shared",
        "state=NEW&name=item",
    ] {
        let refused = server.post(&format!("/claims?{query}")).await;
        refused.problem(400, "bad-request");
    }
    server
        .get("/claims?state=NEW")
        .await
        .problem(405, "method-not-allowed");
    assert_eq!(server.everything().await, before);
}

/// Waits until a claim searches for items.
async fn wait_for_search(server: &Server) {
    let searched = async {
        while server.engine.stats().searches == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, searched)
        .await
        .expect("the claim searches");
}

#[tokio::test]
async fn a_claim_waits_for_work() {
    let server = Server::start_on_sqlite().await;
    let early = server.post("/claims?state=NEW&wait=50ms").await.ok();
    assert_eq!(early.json["items"], serde_json::json!([]));
    let target = "/claims?state=NEW&wait=5m";
    let waiting = server.begin("POST", target, "", b"").await;
    put(&server, "item", "NEW", "work").await;
    assert_eq!(names(&read_answer(waiting).await.ok()), ["item"]);
}

#[tokio::test]
async fn disconnected_claimant_is_leased_nothing() {
    let server = Server::start_on_sqlite().await;
    let waiting = server
        .begin("POST", "/claims?state=NEW&wait=5m", "", b"")
        .await;
    wait_for_search(&server).await;
    drop(waiting);
    put(&server, "item", "NEW", "work").await;
    let claim = async {
        loop {
            let claimed = server.post("/claims?state=NEW&wait=5s").await.ok();
            if names(&claimed) == ["item"] {
                break;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, claim)
        .await
        .expect("a grant to the disconnected claimant is released");
}

#[tokio::test]
async fn shutdown_answers_waiting_claims() {
    let mut server = Server::start().await;
    let waiting = server
        .begin("POST", "/claims?state=NEW&wait=5m", "", b"")
        .await;
    wait_for_search(&server).await;
    server.stop().await;
    read_answer(waiting).await.problem(503, "store-unavailable");
}
