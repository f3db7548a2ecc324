//! Routes and parameters beyond those of Glock.

use crate::common::Server;
use serde_json::json;

#[tokio::test]
async fn reacquiring_with_the_fence_keeps_it() {
    let server = Server::start().await;
    let first = server.post("/locks/leader?nonce=me").await.ok();
    assert_eq!(first.json["granted"], "fresh");
    let kept = server
        .post(&format!("/locks/leader?nonce=me&fence={}", first.fence()))
        .await
        .ok();
    assert_eq!(
        (kept.fence(), &kept.json["granted"]),
        (first.fence(), &json!("kept"))
    );
    let again = server.post("/locks/leader?nonce=me").await.ok();
    assert_eq!(
        (again.fence(), &again.json["granted"]),
        (first.fence() + 1, &json!("again"))
    );
}

#[tokio::test]
async fn shared_leases_have_a_limit() {
    let server = Server::start().await;
    let first = server
        .acquire("/locks/gpu?nonce=1&mode=shared&limit=2&owner=one")
        .await;
    server
        .acquire("/locks/gpu?nonce=2&mode=shared&limit=2&owner=two")
        .await;
    let full = server.post("/locks/gpu?nonce=3&mode=shared&limit=2").await;
    full.problem(409, "held");
    server.post("/locks/gpu?nonce=3").await.problem(409, "held");
    server
        .post("/locks/gpu?nonce=3&mode=shared&limit=3")
        .await
        .problem(400, "bad-request");
    let shown = server.get("/locks/gpu").await.ok();
    let holders = shown.json["holders"].as_array().unwrap();
    assert_eq!(holders.len(), 2);
    assert_eq!(
        (&holders[0]["mode"], &holders[0]["limit"]),
        (&json!("shared"), &json!(2))
    );
    server.delete(&format!("/locks/gpu/{first}")).await.ok();
    server
        .acquire("/locks/gpu?nonce=3&mode=shared&limit=2")
        .await;
}

#[tokio::test]
async fn held_problem_has_the_owner_and_the_remaining_time_but_no_fence() {
    let server = Server::start().await;
    let fence = server
        .acquire("/locks/job?nonce=secret&owner=host:1&ttl=90s")
        .await;
    let held = server
        .post("/locks/job?nonce=other")
        .await
        .problem(409, "held");
    assert_eq!(held.text("owner"), "host:1");
    let retry_after = held.json["retryAfter"].as_u64().unwrap();
    assert!((80_000..=90_001).contains(&retry_after), "{retry_after}");
    assert_eq!(
        held.header("retry-after"),
        Some(&*retry_after.div_ceil(1_000).to_string())
    );
    let text = held.json.to_string();
    assert!(!text.contains(&fence.to_string()), "{text}");
}

#[tokio::test]
async fn neither_a_nonce_nor_its_hash_is_ever_shown() {
    let server = Server::start().await;
    let nonce = leasehold::core::Nonce::new("top-secret").unwrap();
    let job = leasehold::core::Name::lock("job").unwrap();
    let hash = nonce.hash(&job).to_string();
    let granted = server.post("/locks/job?nonce=top-secret").await.ok();
    let fence = granted.fence();
    for answer in [
        granted,
        server.get("/locks/job").await.ok(),
        server.get("/locks").await.ok(),
        server
            .post("/locks/job?nonce=other")
            .await
            .problem(409, "held"),
        server
            .post(&format!("/locks/job/{fence}/heartbeat"))
            .await
            .ok(),
    ] {
        let text = format!("{}{}", answer.head, answer.json);
        assert!(!text.contains("top-secret"), "{text}");
        assert!(!text.contains(&hash), "{text}");
    }
}

#[tokio::test]
async fn owner_is_the_peer_address_by_default() {
    let server = Server::start().await;
    server.acquire("/locks/job?nonce=n").await;
    let shown = server.get("/locks/job").await.ok();
    let owner = shown.json["holders"][0]["owner"].as_str().unwrap();
    assert!(owner.starts_with("127.0.0.1:"), "{owner}");
}

#[tokio::test]
async fn update_sets_the_state_and_releases() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/item?nonce=n").await;
    server
        .send("POST", &format!("/locks/item/{fence}?state=RUNNING"), b"1")
        .await
        .ok();
    let shown = server.get("/locks/item").await.ok();
    assert_eq!((shown.text("state"), shown.text("body")), ("RUNNING", "1"));
    server
        .post(&format!("/locks/item/{fence}?body=keep&state="))
        .await
        .ok();
    let shown = server.get("/locks/item").await.ok();
    assert_eq!((shown.json.get("state"), shown.text("body")), (None, "1"));
    let done = format!("/locks/item/{fence}?release=true&state=DONE");
    // Twice, because the answer to the first may have been lost.
    for _ in 0..2 {
        let completed = server.send("POST", &done, b"2").await.ok();
        assert_eq!(completed.json, json!({"released": true}));
    }
    let shown = server.get("/locks/item").await.ok();
    assert_eq!((shown.text("state"), shown.text("body")), ("DONE", "2"));
    assert_eq!(
        (&shown.json["held"], &shown.json["last"]["how"]),
        (&json!(false), &json!("completed"))
    );
    server
        .send("POST", &done, b"3")
        .await
        .problem(409, "fenced");
}

#[tokio::test]
async fn heartbeat_can_change_the_ttl_but_never_shortens_the_lease() {
    let server = Server::start().await;
    let first = server.post("/locks/job?nonce=n&ttl=10s").await.ok();
    let target = format!("/locks/job/{}/heartbeat", first.fence());
    let longer = server.post(&format!("{target}?ttl=1h")).await.ok();
    assert_eq!(longer.json["ttl"], 3_600_000);
    server.post(&format!("{target}?ttl=1s")).await.ok();
    let shown = server.get("/locks/job").await.ok();
    let left = shown.json["holders"][0]["left"].as_u64().unwrap();
    assert!(left > 3_500_000, "{left}");
}

#[tokio::test]
async fn each_of_many_heartbeats_has_its_own_answer() {
    let server = Server::start().await;
    let a = server.acquire("/locks/a?nonce=n&ttl=10s").await;
    let b = server.acquire("/locks/a%2Fb?nonce=n&ttl=10s").await;
    let body = json!({"leases": [
        {"name": "a", "fence": a, "ttl": "1m"},
        {"name": "a/b", "fence": b},
        {"name": "a", "fence": a + 1},
        {"name": "unused", "fence": 1},
    ]});
    let answer = server
        .send("POST", "/heartbeats?within=2s", body.to_string().as_bytes())
        .await;
    let answer = answer.ok();
    let leases = answer.json["leases"].as_array().unwrap();
    assert_eq!(leases.len(), 4);
    assert_eq!(
        (&leases[0]["lease"]["fence"], &leases[0]["lease"]["ttl"]),
        (&json!(a), &json!(60_000))
    );
    assert_eq!(leases[1]["lease"]["fence"], b);
    assert!(leases[1]["lease"]["validFor"].as_u64().unwrap() <= 10_000);
    assert_eq!(leases[2]["problem"]["type"], "fenced");
    assert_eq!(leases[3]["problem"]["type"], "fenced");
    let none = server
        .send("PUT", "/heartbeats", b"{\"leases\": []}")
        .await
        .ok();
    assert_eq!(none.json, json!({"leases": []}));
    let many: Vec<_> = (0..1001)
        .map(|_| json!({"name": "a", "fence": a}))
        .collect();
    let many = json!({"leases": many}).to_string();
    server
        .send("POST", "/heartbeats", many.as_bytes())
        .await
        .problem(400, "bad-request");
}

#[tokio::test]
async fn lists_filter_by_prefix_state_and_held_and_have_pages() {
    let server = Server::start_on_sqlite().await;
    for name in ["a1", "a2", "a3", "b1"] {
        let fence = server
            .acquire(&format!("/locks/{name}?nonce=n&owner=me"))
            .await;
        if name != "a2" {
            server
                .post(&format!("/locks/{name}/{fence}?state=NEW&release=true"))
                .await
                .ok();
        }
    }
    let names = async |query: &str| {
        let mut names = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = server.get(&format!("/locks?{query}{cursor}")).await.ok();
            let locks = page.json["locks"].as_array().unwrap();
            names.extend(
                locks
                    .iter()
                    .map(|lock| lock["name"].as_str().unwrap().to_owned()),
            );
            match page.json["cursor"].as_str() {
                None => return names,
                Some(next) => {
                    let next = percent_encoding::utf8_percent_encode(
                        next,
                        percent_encoding::NON_ALPHANUMERIC,
                    );
                    cursor = format!("&cursor={next}");
                }
            }
        }
    };
    assert_eq!(names("").await, ["a1", "a2", "a3", "b1"]);
    assert_eq!(names("limit=1").await, ["a1", "a2", "a3", "b1"]);
    assert_eq!(names("prefix=a").await, ["a1", "a2", "a3"]);
    assert_eq!(names("held=true").await, ["a2"]);
    assert_eq!(names("held=false&limit=2").await, ["a1", "a3", "b1"]);
    // Oldest first, but these two may have been put at the same time.
    let mut new = names("state=NEW&prefix=a").await;
    new.sort();
    assert_eq!(new, ["a1", "a3"]);
    assert_eq!(names("prefix=zzz").await, [""; 0]);
}

#[tokio::test]
async fn break_without_force_ends_only_the_lease_of_the_caller() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    server
        .post(&format!("/locks/job/break?fence={}", fence - 1))
        .await
        .problem(409, "fenced");
    server
        .post("/locks/job/break?nonce=other")
        .await
        .problem(409, "fenced");
    let broken = server.post("/locks/job/break?nonce=mine").await.ok();
    assert_eq!(broken.json, json!({"broken": true}));
    server.acquire("/locks/job?nonce=other").await;
    let free = server
        .send("POST", "/locks/free/break", b"{\"fence\": 1}")
        .await
        .ok();
    assert_eq!(free.json, json!({"broken": false}));
}

#[tokio::test]
async fn forced_break_keeps_the_lease_taken_until_expiry_unless_now_is_given() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/job?nonce=mine&ttl=1h").await;
    let body = json!({"force": true, "reason": "stuck"}).to_string();
    let broken = server
        .send("POST", "/locks/job/break", body.as_bytes())
        .await
        .ok();
    let shown = server.get("/locks/job").await.ok();
    assert_eq!(broken.json["until"], shown.json["holders"][0]["expireTime"]);
    assert_eq!(shown.json["holders"][0]["broken"], "stuck");
    server
        .post(&format!("/locks/job/{fence}/heartbeat"))
        .await
        .problem(409, "fenced");
    server
        .post("/locks/job?nonce=other")
        .await
        .problem(409, "held");
    let now = server
        .post("/locks/job/break?force=true&reason=really&now=true")
        .await
        .ok();
    assert_eq!(now.json, json!({"broken": true}));
    server.acquire("/locks/job?nonce=other").await;
}

#[tokio::test]
async fn lease_is_released_by_nonce() {
    let server = Server::start().await;
    server.acquire("/locks/job?nonce=mine").await;
    server
        .delete("/locks/job")
        .await
        .problem(400, "bad-request");
    let other = server.delete("/locks/job?nonce=other").await.ok();
    assert_eq!(other.json["released"], false);
    let mine = server
        .send_with("DELETE", "/locks/job", "Leasehold-Nonce: mine\r\n", b"")
        .await
        .ok();
    assert_eq!(mine.json["released"], true);
}

#[tokio::test]
async fn health_and_readiness_are_reported() {
    let server = Server::start_on_sqlite().await;
    assert_eq!(server.get("/healthz").await.ok().json["status"], "alive");
    assert_eq!(server.get("/readyz").await.ok().json["status"], "ready");
    let head = server.send("HEAD", "/healthz", b"").await;
    assert_eq!((head.status, head.json), (200, serde_json::Value::Null));
    server.get("/healthz?x=1").await.problem(400, "bad-request");
}

#[tokio::test]
async fn answers_are_not_cached() {
    let server = Server::start().await;
    server.acquire("/locks/job?nonce=n").await;
    for answer in [server.get("/locks/job").await, server.get("/locks/x").await] {
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}
