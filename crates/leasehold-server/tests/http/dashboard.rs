//! The page at `/`, and the data that the service keeps for it: waiters, histories and totals.

use leasehold::core::{Acquire, Fence, Mode, Name, Nonce, Operation};
use leasehold::engine::WaitLimit;
use serde_json::{Value, json};

use crate::common::Server;
use crate::subscriber::Subscriber;

#[tokio::test]
async fn dashboard_loads_nothing_from_other_hosts_and_is_cached_until_it_changes() {
    let server = Server::start().await;
    for (target, kind) in [
        ("/", "text/html"),
        ("/dashboard/app.js", "text/javascript"),
        ("/dashboard/style.css", "text/css"),
        ("/dashboard/icon.svg", "image/svg+xml"),
    ] {
        let answer = server.get(target).await;
        assert_eq!(answer.status, 200, "{target}");
        let content_type = answer.header("content-type").unwrap();
        assert!(content_type.starts_with(kind), "{content_type}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains("http"),
            "{policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        let tag = answer.header("etag").unwrap();
        let again = async |tag: &str| {
            let header = format!("If-None-Match: {tag}\r\n");
            server.send_with("GET", target, &header, b"").await
        };
        let same = again(tag).await;
        assert_eq!((same.status, same.header("etag")), (304, Some(tag)));
        assert_eq!(again("\"another\"").await.status, 200);
    }
    server.get("/dashboard/").await.problem(404, "not-found");
    server.post("/").await.problem(405, "method-not-allowed");
}

#[tokio::test]
async fn waiters_are_shown_with_the_lease() {
    let server = Server::start().await;
    server.acquire("/locks/job?nonce=a&ttl=1h").await;
    assert!(
        server
            .get("/locks/job")
            .await
            .ok()
            .json
            .get("waiters")
            .is_none()
    );
    let waiting = server
        .begin("POST", "/locks/job?nonce=b&wait=1m", "", b"")
        .await;
    server.wait_for_waiters("job", 1).await;
    assert_eq!(server.get("/locks/job").await.ok().json["waiters"], 1);
    let list = server.get("/locks").await.ok().json;
    assert_eq!(list["locks"][0]["waiters"], 1);
    drop(waiting);
    server.wait_for_waiters("job", 0).await;
}

/// Returns the owner and the end of each hold period.
fn hold_periods(history: &Value) -> Vec<(&str, &str)> {
    let periods = history["tenures"].as_array().unwrap().iter();
    let pairs = periods.map(|one| {
        let how = one["how"].as_str().unwrap_or_default();
        let open = one.get("until").is_none();
        assert_eq!(how.is_empty(), open, "{one}");
        (one["owner"].as_str().unwrap(), how)
    });
    pairs.collect()
}

#[tokio::test]
async fn history_has_the_owner_and_the_end_of_each_hold_period() {
    let server = Server::start().await;
    let take = async |owner: &str, more: &str| {
        let target = format!("/locks/a%2Fb?nonce={owner}&owner={owner}&wait=30s{more}");
        server.acquire(&target).await
    };
    let fence = take("first", "").await;
    server.delete(&format!("/locks/a%2Fb/{fence}")).await.ok();
    let fence = take("second", "").await;
    let update = format!("/locks/a%2Fb/{fence}?release=true");
    server.send("POST", &update, b"done").await.ok();
    take("third", "&ttl=50ms").await;
    let fence = take("fourth", "").await;
    let how = json!({"force": true, "fence": fence, "reason": "SECRET", "now": true}).to_string();
    let target = "/locks/a%2Fb/break";
    server.send("POST", target, how.as_bytes()).await.ok();
    let last = take("fifth", "").await;

    let history = server.get("/locks/a%2Fb/history").await.ok().json;
    let expected = [
        ("first", "released"),
        ("second", "completed"),
        ("third", "expired"),
        ("fourth", "broken"),
        ("fifth", ""),
    ];
    assert_eq!(hold_periods(&history), expected);
    assert_eq!(history["tenures"][4]["fence"], last);
    assert!(!history.to_string().contains("SECRET"));
    // RFC 3339 times sort as text.
    let time = |value: &Value| value.as_str().unwrap().to_owned();
    for one in history["tenures"].as_array().unwrap() {
        let until = one.get("until").unwrap_or(&history["time"]);
        assert!(time(&one["from"]) <= time(until), "{one}");
    }
    assert!(time(&history["since"]) <= time(&history["tenures"][0]["from"]));
    let same = server.get("/locks/history?name=a/b").await.ok().json;
    assert_eq!(same["tenures"], history["tenures"]);
    let unknown = server.get("/gates/a%2Fb/history").await.ok().json;
    assert_eq!(unknown["tenures"], json!([]));
}

#[tokio::test]
async fn history_has_foreign_changes_and_expiries_while_events_are_subscribed() {
    let server = Server::start().await;
    let mut subscriber = Subscriber::new(&server, "", None).await;
    let name = Name::lock("job").unwrap();
    // Not through the service.
    let acquire = Operation::Acquire(Acquire {
        nonce: Nonce::new("n").unwrap().hash(&name),
        owner: "other".into(),
        principal: None,
        ttl: std::time::Duration::from_millis(50),
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    });
    let reply = server
        .engine
        .perform(&name, acquire, WaitLimit::NONE)
        .await
        .unwrap();
    let _ = reply.take();
    subscriber.expect("granted", "job").await;
    subscriber.expect("expired", "job").await;
    let history = server.get("/locks/job/history").await.ok().json;
    assert_eq!(hold_periods(&history), [("other", "expired")]);
}

#[tokio::test]
async fn totals_count_grants_refusals_and_waits() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/a?nonce=a&ttl=1h").await;
    server.acquire("/locks/b?nonce=b&ttl=1h").await;
    server.post("/gates/g?every=1h").await.ok();
    server
        .post("/gates/g?every=1h")
        .await
        .problem(429, "throttled");
    server.post("/locks/a?nonce=c").await.problem(409, "held");
    server
        .post("/locks/a?nonce=c&wait=1ms")
        .await
        .problem(409, "held");
    // The same lease, kept: no grant.
    server
        .post(&format!("/locks/a?nonce=a&fence={fence}"))
        .await
        .ok();
    server.send("PUT", "/items/i?state=NEW", b"").await.ok();
    server.post("/claims?state=NEW").await.ok();
    let totals = server.get("/totals").await.ok().json;
    let minutes = totals["minutes"].as_array().unwrap();
    let sum = |member: &str| -> u64 {
        let values = minutes.iter().map(|minute| minute[member].as_u64());
        values.map(Option::unwrap).sum()
    };
    assert_eq!(
        (sum("grants"), sum("refusals"), sum("waits")),
        (4, 3, 1),
        "{totals}"
    );
    assert_eq!(
        (&totals["held"], &totals["waiters"]),
        (&json!(4), &json!(0))
    );
}
