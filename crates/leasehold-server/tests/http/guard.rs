//! Rate limits, browser sessions, requests of other sites, allowed hosts, and audit lines.

use std::time::Duration;

use leasehold::core::{Name, Operation, Put};
use leasehold::engine::WaitLimit;
use leasehold_server::access::Limits;
use leasehold_server::{Audit, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::audit::lines_of;
use crate::common::Server;
use crate::guarded::Guarded;
use crate::subscriber::Subscriber;

#[tokio::test]
async fn each_token_has_a_rate_limit_and_a_limit_of_waits() {
    let guarded = Guarded::start_with(|config| config.limits = Limits { rate: 50, waits: 2 }).await;
    let (one, other) = (
        guarded.token("one", &["acquire:"]).await,
        guarded.token("other", &["acquire:"]).await,
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    guarded.post("/locks/a?nonce=n", &one).await.ok();
    let header = format!("Authorization: Bearer {one}\r\n");
    let mut waiting = Vec::new();
    for nonce in 1..=2 {
        let target = format!("/locks/a?nonce={nonce}&wait=1m");
        waiting.push(guarded.server.begin("POST", &target, &header, b"").await);
        guarded.server.wait_for_waiters("a", nonce).await;
    }
    let third = guarded.post("/locks/a?nonce=3&wait=1m", &one).await;
    let third = third.problem(429, "too-many-requests");
    assert_eq!(third.header("retry-after"), Some("1"));
    // Other tokens may still wait, and a waiter that disconnects makes room.
    guarded
        .post("/locks/a?nonce=4&wait=10ms", &other)
        .await
        .problem(409, "held");
    drop(waiting.pop());
    guarded.server.wait_for_waiters("a", 1).await;
    guarded
        .post("/locks/a?nonce=5&wait=10ms", &one)
        .await
        .problem(409, "held");

    let mut refused = None;
    for _ in 0..1_000 {
        let answer = guarded.post("/locks/a?nonce=6", &one).await;
        if answer.status == 429 {
            refused = Some(answer.problem(429, "too-many-requests"));
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert!(
        refused.json["retryAfter"].as_u64().unwrap() <= 20,
        "{refused:?}"
    );
    guarded.post("/locks/b?nonce=n", &other).await.ok();
}

#[tokio::test]
async fn browser_session_is_an_http_only_cookie() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ops", &["read:", "break:jobs/"]).await;
    let login = async |token: &str| {
        let body = format!(r#"{{"token":"{token}"}}"#);
        guarded.server.send("POST", "/login", body.as_bytes()).await
    };
    let wrong = login("lh_wrong").await.problem(401, "unauthorized");
    assert_eq!(wrong.header("set-cookie"), None);
    let signed_in = login(&token).await.ok();
    assert_eq!(signed_in.json["principal"], "ops");
    let set = signed_in.set_cookie();
    assert!(!set.contains(&token[12..]), "not the token itself");
    assert!(
        set.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{set}"
    );
    let cookie = format!("Cookie: theme=dark; {}\r\n", cookie_of(&set));
    let myself = guarded
        .server
        .send_with("GET", "/whoami", &cookie, b"")
        .await
        .ok();
    assert_eq!(myself.json["scopes"][1], "break:jobs/");
    let own = format!("{cookie}Sec-Fetch-Site: same-origin\r\n");
    let target = "/locks/jobs%2Fa/break?force=true&reason=x";
    guarded
        .server
        .send_with("POST", target, &own, b"")
        .await
        .ok();
    let foreign = format!("{cookie}Sec-Fetch-Site: cross-site\r\nOrigin: https://evil.example\r\n");
    guarded
        .server
        .send_with("POST", target, &foreign, b"")
        .await
        .problem(403, "denied");
    let out = guarded
        .server
        .send_with("POST", "/logout", &own, b"")
        .await
        .ok();
    let set = out.set_cookie();
    assert!(
        set.starts_with("leasehold-session=; ") && set.ends_with("; Max-Age=0"),
        "{set}"
    );
    for header in [&*cookie, ""] {
        let answer = guarded
            .server
            .send_with("GET", "/whoami", header, b"")
            .await;
        answer.problem(401, "unauthorized");
    }
}

/// Returns the cookie that a browser sends back.
fn cookie_of(set: &str) -> &str {
    set.split(';').next().unwrap()
}

#[tokio::test]
async fn session_is_not_a_token_and_ends_with_its_token() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ops", &["read:"]).await;
    let log_in = async || {
        let body = json!({ "token": token }).to_string();
        let answer = guarded.server.send("POST", "/login", body.as_bytes());
        cookie_of(&answer.await.ok().set_cookie()).to_owned()
    };
    let (one, other) = (log_in().await, log_in().await);
    assert_ne!(one, other);
    let by_cookie = async |cookie: &str, method: &str, target: &str| {
        let header = format!("Cookie: {cookie}\r\n");
        let server = &guarded.server;
        server.send_with(method, target, &header, b"").await
    };
    // Neither is accepted in place of the other.
    let secret = one.split_once('=').unwrap().1;
    guarded
        .ask("GET", "/whoami", secret, b"")
        .await
        .problem(401, "unauthorized");
    for cookie in [
        format!("leasehold-session={token}"),
        format!("leasehold-session={}", &token[3..]),
        format!("leasehold-token={token}"),
        format!("{one}x"),
    ] {
        let refused = by_cookie(&cookie, "GET", "/whoami").await;
        refused.problem(401, "unauthorized");
    }
    by_cookie(&one, "POST", "/logout").await.ok();
    by_cookie(&one, "GET", "/whoami")
        .await
        .problem(401, "unauthorized");
    let header = format!("Cookie: {other}\r\n");
    let mut subscriber = Subscriber::with(&guarded.server, "", &header).await;
    guarded.change_scope(&token, "read:", "admin:").await;
    let myself = by_cookie(&other, "GET", "/whoami").await.ok();
    assert_eq!(
        myself.json["scopes"][0], "admin:",
        "the rights are the token's"
    );
    assert!(subscriber.next().await.is_none(), "they have changed");
    let mut subscriber = Subscriber::with(&guarded.server, "", &header).await;
    by_cookie(&other, "POST", "/logout").await.ok();
    assert!(subscriber.next().await.is_none(), "the session has ended");
    let last = log_in().await;
    guarded.revoke(&token).await;
    by_cookie(&last, "GET", "/whoami")
        .await
        .problem(401, "unauthorized");
}

/// Returns the status of the next request of this token.
async fn status_of_next(guarded: &Guarded, token: &str) -> u16 {
    guarded.ask("GET", "/whoami", token, b"").await.status
}

#[tokio::test]
async fn parts_and_invalid_requests_count_towards_the_rate() {
    let guarded = Guarded::start_with(|config| config.limits = Limits { rate: 20, waits: 2 }).await;
    let leases: Vec<_> = (0..400)
        .map(|n| json!({"name": "a", "fence": n + 1}))
        .collect();
    let heartbeats = json!({ "leases": leases }).to_string();
    let names: Vec<_> = (0..64).map(|n| format!("name{n}")).collect();
    let names = json!({ "names": names }).to_string();
    let invalid = json!({"method": "GET", "target": "/nowhere"});
    let requests = json!({"requests": vec![invalid; 100]}).to_string();
    for (target, body) in [
        ("/heartbeats", heartbeats),
        ("/locks?nonce=n&ttl=10s", names),
        ("/requests", requests),
    ] {
        let token = guarded.token("ci", &["admin:"]).await;
        // A request of any size is admitted, and the next one is refused.
        guarded
            .ask("POST", target, &token, body.as_bytes())
            .await
            .ok();
        assert_eq!(status_of_next(&guarded, &token).await, 429, "{target}");
    }
    for target in [
        "/nowhere",
        "/locks/a?x=%zz",
        "/locks/a?x=1&x=2",
        "/locks/a/b/c/d",
    ] {
        let token = guarded.token("ci", &["admin:"]).await;
        let mut statuses = Vec::new();
        for _ in 0..200 {
            statuses.push(guarded.ask("GET", target, &token, b"").await.status);
        }
        assert!(matches!(statuses[0], 400 | 404), "{target}: {statuses:?}");
        assert!(statuses.contains(&429), "{target}: {statuses:?}");
    }
}

#[tokio::test]
async fn each_claimed_item_counts_towards_the_rate() {
    let guarded = Guarded::start_with(|config| config.limits = Limits { rate: 20, waits: 2 }).await;
    for number in 0..100 {
        let name = Name::lock(format!("item{number}")).unwrap();
        let put = Operation::Put(Put {
            state: "NEW".into(),
            body: None,
            nonce: None,
        });
        let engine = &guarded.server.engine;
        let stored = engine.perform(&name, put, WaitLimit::NONE).await;
        stored.unwrap().take();
    }
    let token = guarded.token("ci", &["admin:"]).await;
    let claimed = guarded
        .post("/claims?state=NEW&limit=100", &token)
        .await
        .ok();
    assert_eq!(claimed.json["items"].as_array().unwrap().len(), 100);
    assert_eq!(status_of_next(&guarded, &token).await, 429);
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing_on_an_open_service() {
    let server = Server::start().await;
    let foreign = "Origin: https://evil.example\r\n";
    let refused = server
        .send_with("POST", "/locks/a?nonce=n", foreign, b"")
        .await;
    refused.problem(403, "denied");
    server.get("/locks/a").await.problem(404, "not-found");
    server
        .send_with(
            "POST",
            "/locks/a?nonce=n",
            "Origin: http://localhost\r\n",
            b"",
        )
        .await
        .ok();
    let myself = server.get("/whoami").await.ok();
    assert_eq!(myself.json["principal"], Value::Null);
    assert_eq!(myself.json["scopes"][0], "admin:");
}

#[tokio::test]
async fn audit_log_has_every_change_and_refusal_without_secrets() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::open(&file).unwrap();
    let guarded = Guarded::start_with(|config| config.audit = Some(audit)).await;
    let token = guarded.token("ci", &["acquire:jobs/"]).await;
    let other = guarded.token("other", &["acquire:jobs/"]).await;
    // The number of lines about unknown callers is limited.
    let lines = || {
        let lines = lines_of(&file).into_iter();
        lines
            .filter(|line| line["principal"].is_string())
            .collect::<Vec<_>>()
    };
    let start = lines().len();
    let fence = guarded
        .post("/locks?name=jobs/a&nonce=s3cret-nonce", &token)
        .await
        .ok()
        .fence();
    let at = |rest: &str| format!("/locks/{fence}{rest}?name=jobs/a");
    guarded
        .post("/locks?name=jobs/a&nonce=n2", &other)
        .await
        .problem(409, "held");
    guarded
        .post(&at("/heartbeat"), &other)
        .await
        .problem(403, "denied");
    guarded.post(&at("/heartbeat"), &token).await.ok();
    guarded
        .ask("POST", &at(""), &token, b"s3cret body")
        .await
        .ok();
    guarded.ask("DELETE", &at(""), &token, b"").await.ok();
    guarded
        .ask("GET", "/locks?name=jobs/a", &token, b"")
        .await
        .problem(403, "denied");
    guarded
        .ask("PUT", "/items?name=jobs/i&state=NEW", &token, b"s3cret")
        .await
        .ok();
    guarded.post("/claims?state=NEW", &token).await.ok();
    guarded
        .post("/locks?name=jobs/x&name=jobs/y&nonce=n", &token)
        .await
        .ok();
    let body = r#"{"leases":[{"name":"b","fence":1}]}"#;
    guarded
        .ask("POST", "/heartbeats", &token, body.as_bytes())
        .await
        .ok();
    let all = lines().split_off(start);
    let outcomes: Vec<_> = all
        .iter()
        .filter(|line| line["outcome"] != "requested")
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
            [
                text("principal"),
                text("operation"),
                text("name"),
                text("outcome"),
            ]
            .join(" ")
        })
        .collect();
    let expected = [
        "ci acquire jobs/a granted",
        "other acquire jobs/a held",
        "other renew jobs/a denied",
        "ci renew jobs/a renewed",
        "ci update jobs/a renewed",
        "ci release jobs/a released",
        "ci show jobs/a denied",
        "ci put jobs/i put",
        "ci claim jobs/i granted",
        "ci acquire jobs/x granted",
        "ci acquire jobs/y granted",
        "ci renew b denied",
    ];
    assert_eq!(outcomes, expected);
    let (requested, granted) = (&all[0], &all[1]);
    assert_eq!(requested["outcome"], "requested");
    for key in ["request", "principal", "operation", "kind", "name"] {
        assert_eq!(requested[key], granted[key], "{key}");
    }
    assert_eq!(granted["fence"], fence);
    assert_eq!(granted["credential"], token[3..11]);
    assert!(
        granted["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("s3cret") && !text.contains(&token), "{text}");
}

#[tokio::test]
async fn audit_log_that_was_moved_away_is_created_again() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::open(&file).unwrap();
    let guarded = Guarded::start_with(|config| config.audit = Some(audit)).await;
    let token = guarded.token("ci", &["acquire:"]).await;
    guarded.post("/locks/a?nonce=n", &token).await.ok();
    std::fs::rename(&file, folder.path().join("old.jsonl")).unwrap();
    let created = async {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::common::TIMEOUT, created)
        .await
        .expect("the log is created again");
    guarded.post("/locks/b?nonce=n", &token).await.ok();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(r#""name":"b""#), "{text}");
}

#[tokio::test]
async fn rebound_host_name_is_refused_on_an_open_loopback_service() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/a?nonce=n").await;
    let before = server.everything().await;
    let refused = async |request: String| {
        let answer = server.send_raw(&request).await;
        let refused = answer.problem(403, "denied");
        assert!(
            refused.text("detail").contains("evil.example"),
            "{refused:?}"
        );
    };
    // If the name of a foreign site resolves to loopback, its requests are of the same origin for the browser.
    let page = "Host: evil.example:12345\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n";
    for target in [
        "/",
        "/locks",
        "/locks/a",
        "/events",
        "/openapi.json",
        "/metrics",
    ] {
        refused(format!("GET {target} HTTP/1.1\r\n{page}\r\n")).await;
    }
    refused(format!("DELETE /locks/a/{fence} HTTP/1.1\r\n{page}\r\n")).await;
    refused(format!(
        "POST /locks/a/break?force=true&reason=x HTTP/1.1\r\n{page}\r\n"
    ))
    .await;
    refused(format!(
        "PUT /items/i?state=NEW HTTP/1.1\r\n{page}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ))
    .await;
    // A host in the target overrides the header.
    refused(
        "GET http://evil.example/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            .into(),
    )
    .await;
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn allowed_hosts_are_answered_and_a_guarded_service_answers_every_host() {
    let request = "GET /healthz HTTP/1.1\r\nHost: leases.internal\r\nConnection: close\r\n\r\n";
    let open = Server::start().await;
    open.send_raw(request).await.problem(403, "denied");
    let mut config = Config::default();
    config.allowed_hosts = vec!["leases.internal".into()];
    let engine = open.engine.clone();
    let allowing = Server::start_with(engine, config).await;
    assert_eq!(allowing.send_raw(request).await.status, 200);
    let guarded = Guarded::start().await;
    assert_eq!(guarded.server.send_raw(request).await.status, 200);
}

#[tokio::test]
async fn requests_without_one_valid_host_are_refused_on_both_paths() {
    let server = Server::start().await;
    let chunked = "Transfer-Encoding: chunked\r\n";
    for hosts in [
        "",
        "Host:\r\n",
        "Host: a b\r\n",
        "Host: localhost\r\nHost: localhost\r\n",
    ] {
        for (place, more, body) in [
            ("", "", ""),
            ("", chunked, "0\r\n\r\n"),
            ("http://localhost", "", ""),
        ] {
            let request = format!(
                "PUT {place}/items/i?state=NEW HTTP/1.1\r\n{hosts}Connection: close\r\n{more}\r\n{body}"
            );
            server.send_raw(&request).await.problem(400, "bad-request");
        }
    }
    server.get("/locks/i").await.problem(404, "not-found");
    // HTTP/1.0 has no such rule, and simple probes speak it.
    let probe = server.send_raw("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(probe.status, 200);
}
