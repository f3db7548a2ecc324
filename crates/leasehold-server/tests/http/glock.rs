//! Glock's README, sentence by sentence, through real HTTP on the SQLite store.

use std::time::{Duration, Instant};

use crate::common::{Answer, Server, TIMEOUT};
use leasehold_server::{Config, DEFAULT_PORT};

async fn server() -> Server {
    Server::start_on_sqlite().await
}

/// Acquires a lease with a short ttl, and returns its fence once it has expired.
pub(crate) async fn acquire_expired(server: &Server, name: &str) -> u64 {
    let fence = server
        .acquire(&format!("/locks/{name}?nonce=short&ttl=20ms"))
        .await;
    // A list knows the time less exactly than a request about one name: it is the last to report the expiry.
    let held = format!("/locks?prefix={name}&held=true");
    while server.get(&held).await.ok().json["locks"] != serde_json::json!([]) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fence
}

/// Repeats a request until the lease expires later than before. The store's time is known within an interval only, so
/// the first request may not extend it.
async fn send_until_extended(
    server: &Server,
    method: &str,
    target: &str,
    body: &str,
    before: &Answer,
) -> Answer {
    let started = Instant::now();
    loop {
        let answer = server.send(method, target, body.as_bytes()).await.ok();
        if answer.text("expireTime") > before.text("expireTime") {
            return answer;
        }
        assert!(started.elapsed() < TIMEOUT, "{answer:?}");
    }
}

// "`POST/PUT` `http://localhost:12345/locks/<lock name>?nonce=<nonce-up-to-64-chars>`"

#[test]
fn the_default_port_is_glocks() {
    assert_eq!(DEFAULT_PORT, 12345);
}

#[tokio::test]
async fn post_and_put_acquire() {
    let server = server().await;
    for method in ["POST", "PUT"] {
        let target = format!("/locks/{method}?nonce=n");
        let answer = server.send(method, &target, b"").await.ok();
        assert_eq!(
            server.get(&format!("/locks/{method}")).await.ok().json["held"],
            true
        );
        assert_eq!(answer.text("body"), "");
    }
}

#[tokio::test]
async fn a_nonce_has_up_to_64_characters() {
    let server = server().await;
    for nonce in ["n".to_owned(), "n".repeat(64), "%F0%9F%94%92".repeat(64)] {
        let target = format!("/locks/up-to-{}?nonce={nonce}", nonce.len());
        server.post(&target).await.ok();
    }
    let target = format!("/locks/over?nonce={}", "n".repeat(65));
    server.post(&target).await.problem(400, "bad-request");
}

// "This will acquire the lock `<lock name>`."

#[tokio::test]
async fn acquired_lock_is_exclusive() {
    let server = server().await;
    server.acquire("/locks/job?nonce=mine&owner=me").await;
    let refused = server
        .post("/locks/job?nonce=yours")
        .await
        .problem(409, "held");
    assert_eq!(refused.text("owner"), "me");
    server.acquire("/locks/other-job?nonce=yours").await;
}

// "You must provide a nonce so that you can re-acquire the lock without waiting for its expiration, allowing for
// idempotent acquisitions."

#[tokio::test]
async fn a_nonce_must_be_provided() {
    let server = server().await;
    server.post("/locks/job").await.problem(400, "bad-request");
    server
        .post("/locks/job?nonce=")
        .await
        .problem(400, "bad-request");
    server.get("/locks/job").await.problem(404, "not-found");
}

#[tokio::test]
async fn the_same_nonce_re_acquires_without_waiting_for_the_expiration() {
    let server = server().await;
    let first = server.post("/locks/job?nonce=mine&ttl=1h").await.ok();
    let again = server.post("/locks/job?nonce=mine&ttl=1h").await.ok();
    assert_eq!(
        (first.json["ttl"].as_u64(), again.json["ttl"].as_u64()),
        (Some(3_600_000), Some(3_600_000))
    );
    server
        .post("/locks/job?nonce=yours")
        .await
        .problem(409, "held");
}

// "You will receive back some JSON": acquireTime, expireTime, fence, body.

#[tokio::test]
async fn acquire_answers_with_times_fence_and_body() {
    let server = server().await;
    let answer = server.post("/locks/job?nonce=mine").await.ok();
    let [acquired, expires] = ["acquireTime", "expireTime"].map(|member| {
        let time: jiff::Timestamp = answer.text(member).parse().expect("RFC 3339");
        time.as_microsecond()
    });
    // "2019-06-11T22:57:31" to "2019-06-11T22:58:01": the default is 30 seconds.
    assert_eq!(expires - acquired, 30_000_000);
    assert!(answer.fence() > 0);
    assert_eq!(answer.text("body"), "");
    let valid = answer.json["validFor"].as_u64().unwrap();
    assert!((1..=30_000).contains(&valid), "{valid}");
}

// "The "body" is a value you can set so that you can also resume a process that was stopped in the middle."

#[tokio::test]
async fn the_next_holder_resumes_from_the_body() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=first").await;
    server
        .send("POST", &format!("/locks/job/{fence}"), b"some contents")
        .await
        .ok();
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    let next = server.post("/locks/job?nonce=second").await.ok();
    assert_eq!(next.text("body"), "some contents");
}

#[tokio::test]
async fn the_body_survives_a_dead_holder() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=first&ttl=300ms").await;
    server
        .send("PUT", &format!("/locks/job/{fence}"), b"half way")
        .await
        .ok();
    let next = server.post("/locks/job?nonce=second&wait=20s").await.ok();
    assert_eq!(next.text("body"), "half way");
    assert_eq!(next.json["last"]["how"], "expired");
}

// "The "fence" is used for the commands below, to prevent competing lock holders from doing the wrong thing."

#[tokio::test]
async fn a_former_holder_is_fenced_off() {
    let server = server().await;
    let old = server.acquire("/locks/job?nonce=old").await;
    server.delete(&format!("/locks/job/{old}")).await.ok();
    let new = server.acquire("/locks/job?nonce=new").await;
    assert!(new > old);
    server
        .post(&format!("/locks/job/{old}/heartbeat"))
        .await
        .problem(409, "fenced");
    server
        .send("POST", &format!("/locks/job/{old}"), b"wrong")
        .await
        .problem(409, "fenced");
    server.delete(&format!("/locks/job/{old}")).await.ok();
    let lock = server.get("/locks/job").await.ok();
    assert_eq!(lock.json["holders"][0]["fence"], new);
    assert_eq!(lock.text("body"), "");
}

// "Note, that if you re-acquire a lock by using the same nonce, the fence value will be incremented."

#[tokio::test]
async fn re_acquiring_increments_the_fence() {
    let server = server().await;
    let first = server.acquire("/locks/job?nonce=mine").await;
    let second = server.acquire("/locks/job?nonce=mine").await;
    assert_eq!(second, first + 1);
    server
        .post(&format!("/locks/job/{first}/heartbeat"))
        .await
        .problem(409, "fenced");
    server
        .post(&format!("/locks/job/{second}/heartbeat"))
        .await
        .ok();
}

// "### Heartbeat A Lock": "This will extend your expiration time."

#[tokio::test]
async fn a_heartbeat_extends_the_expiration() {
    let server = server().await;
    for method in ["POST", "PUT"] {
        let first = server.post("/locks/job?nonce=mine").await.ok();
        let target = format!("/locks/job/{}/heartbeat", first.fence());
        let renewed = send_until_extended(&server, method, &target, "", &first).await;
        assert_eq!(renewed.fence(), first.fence());
        assert_eq!(renewed.text("acquireTime"), first.text("acquireTime"));
    }
}

// "If the value of `fence` is wrong, or if the lock has expired, you will receive an error."

#[tokio::test]
async fn a_heartbeat_with_a_wrong_fence_is_an_error() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    let before = server.everything().await;
    for wrong in [0, fence - 1, fence + 1] {
        server
            .post(&format!("/locks/job/{wrong}/heartbeat"))
            .await
            .problem(409, "fenced");
    }
    server
        .post("/locks/unused/1/heartbeat")
        .await
        .problem(409, "fenced");
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn a_heartbeat_after_the_expiration_is_an_error() {
    let server = server().await;
    let fence = acquire_expired(&server, "job").await;
    server
        .post(&format!("/locks/job/{fence}/heartbeat"))
        .await
        .problem(409, "expired");
    assert_eq!(server.get("/locks/job").await.ok().json["held"], false);
}

// "### Update A Lock's Value": "This will update the value of the "body" field of the lock, while also heartbeating
// the lock. Put the desired value in the request body."

#[tokio::test]
async fn an_update_writes_the_body_and_heartbeats() {
    let server = server().await;
    let mut before = server.post("/locks/job?nonce=mine").await.ok();
    for (method, value) in [("POST", "rollback"), ("PUT", "rollforward"), ("POST", "")] {
        let target = format!("/locks/job/{}", before.fence());
        let updated = send_until_extended(&server, method, &target, value, &before).await;
        assert_eq!(updated.text("body"), value);
        assert_eq!(updated.fence(), before.fence());
        before = updated;
        assert_eq!(server.get("/locks/job").await.ok().text("body"), value);
    }
}

// "Please use strings so that JSON doesn't barf."

#[tokio::test]
async fn any_text_is_a_body() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    for value in [
        "{\"a\": [1, \"\\\"\"]}",
        "line\nbreak\0\u{1}",
        "émoji 🔒",
        "'; drop table",
    ] {
        server
            .send("POST", &format!("/locks/job/{fence}"), value.as_bytes())
            .await
            .ok();
        assert_eq!(server.get("/locks/job").await.ok().text("body"), value);
    }
    let before = server.everything().await;
    let target = format!("/locks/job/{fence}");
    server
        .send("POST", &target, b"\xff\xfe")
        .await
        .problem(400, "bad-request");
    assert_eq!(server.everything().await, before);
}

// "If the value of `fence` is wrong, or the lock has expired, you will receive an error."

#[tokio::test]
async fn an_update_with_a_wrong_or_expired_fence_is_an_error() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    let before = server.everything().await;
    for wrong in [fence - 1, fence + 1] {
        let target = format!("/locks/job/{wrong}");
        server
            .send("POST", &target, b"wrong")
            .await
            .problem(409, "fenced");
    }
    assert_eq!(server.everything().await, before);
    let old = acquire_expired(&server, "brief").await;
    let target = format!("/locks/brief/{old}");
    server
        .send("PUT", &target, b"late")
        .await
        .problem(409, "expired");
    assert_eq!(server.get("/locks/brief").await.ok().text("body"), "");
}

// "### Release A Lock": "Idempotent." "If you have the right fence number, it will set the expiration time to epoch",
// that is, the lock is free.

#[tokio::test]
async fn a_release_frees_the_lock_and_is_idempotent() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    for _ in 0..3 {
        let released = server.delete(&format!("/locks/job/{fence}")).await.ok();
        assert_eq!(released.json["released"], true);
    }
    assert_eq!(server.get("/locks/job").await.ok().json["held"], false);
    server.acquire("/locks/job?nonce=yours").await;
}

// "This method will always succeed so long as there's no database failures", "otherwise it will just return 200
// without doing anything."

#[tokio::test]
async fn a_release_with_a_wrong_fence_returns_200_and_does_nothing() {
    let server = server().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    let expired_fence = acquire_expired(&server, "brief").await;
    let before = server.everything().await;
    for target in [
        format!("/locks/job/{}", fence - 1),
        format!("/locks/job/{}", fence + 1),
        format!("/locks/brief/{expired_fence}"),
        "/locks/unused/1".to_owned(),
    ] {
        let answer = server.delete(&target).await.ok();
        assert_eq!(answer.json["released"], false, "{target}");
    }
    assert_eq!(server.everything().await, before);
}

// "## Why Have Lock Values?": the two-phase commit, killed at every step and picked up again.

#[tokio::test]
async fn a_two_phase_commit_picks_up_where_it_was_killed() {
    let server = server().await;
    let steps = ["rollback", "rollforward", ""];
    for killed_after in 0..=steps.len() {
        let name = format!("job.{killed_after}");
        let job = server
            .post(&format!("/locks/{name}?nonce=first"))
            .await
            .ok();
        assert_eq!(job.text("body"), "", "if \"body\" is empty, continue");
        for value in &steps[..killed_after] {
            let target = format!("/locks/{name}/{}", job.fence());
            server.send("POST", &target, value.as_bytes()).await.ok();
        }
        // Killed and started again: the same nonce takes the lock back at once.
        let resumed = server
            .post(&format!("/locks/{name}?nonce=first"))
            .await
            .ok();
        let expected = killed_after.checked_sub(1).map_or("", |step| steps[step]);
        assert_eq!(resumed.text("body"), expected);
    }
}

#[test]
fn the_default_ttl_is_30_seconds() {
    assert_eq!(Config::default().default_ttl, Duration::from_secs(30));
}
