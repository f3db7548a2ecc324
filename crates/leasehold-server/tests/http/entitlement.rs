//! Rights that end or change while a request waits, or before its answer is sent.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use leasehold_server::access::AccessFile;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::common::{TIMEOUT, read_answer};
use crate::guarded::Guarded;
use crate::requests::Gated;
use crate::subscriber::Subscriber;

/// Sends a request that waits for `job`, and returns once this many wait.
async fn wait_for_job(guarded: &Guarded, token: &str, nonce: usize) -> TcpStream {
    let target = format!("/locks/job?nonce=n{nonce}&wait=5m&ttl=1h");
    let waiting = guarded.begin("POST", &target, token).await;
    guarded.server.wait_for_waiters("job", nonce).await;
    waiting
}

#[tokio::test]
async fn waiter_with_a_revoked_token_is_refused_and_the_next_waiter_is_granted() {
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["admin:"]).await;
    let (revoked, next) = (
        guarded.token("revoked", &["acquire:job"]).await,
        guarded.token("next", &["acquire:job"]).await,
    );
    let fence = guarded.post("/locks/job?nonce=n&ttl=1h", &root).await.ok();
    let fence = fence.fence();
    let first = wait_for_job(&guarded, &revoked, 1).await;
    let second = wait_for_job(&guarded, &next, 2).await;
    guarded.revoke(&revoked).await;
    // Before its wait ends, and while the lease is still held.
    read_answer(first).await.problem(401, "unauthorized");
    guarded.server.wait_for_waiters("job", 1).await;
    let release = format!("/locks/job/{fence}");
    guarded.ask("DELETE", &release, &root, b"").await.ok();
    let granted = read_answer(second).await.ok();
    assert_eq!(granted.fence(), fence + 1, "nothing was granted in between");
}

#[tokio::test]
async fn waiter_with_an_expired_token_is_refused() {
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["admin:"]).await;
    guarded.post("/locks/job?nonce=n&ttl=1h", &root).await.ok();
    let soon = Timestamp::now() + SignedDuration::from_secs(6);
    let scopes = ["acquire:".parse().unwrap()];
    let (token, entry) =
        AccessFile::create_token(&guarded.file(), "ci", &scopes, Some(soon)).unwrap();
    guarded
        .wait_for_status(token.expose(), |status| status != 401)
        .await;
    let waiting = wait_for_job(&guarded, token.expose(), 1).await;
    read_answer(waiting).await.problem(401, "unauthorized");
    assert!(Timestamp::now() >= entry.expires.unwrap());
}

#[tokio::test]
async fn waiter_whose_token_keeps_the_right_keeps_its_place() {
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["admin:"]).await;
    let (changed, other) = (
        guarded.token("changed", &["acquire:job"]).await,
        guarded.token("other", &["acquire:"]).await,
    );
    let fence = guarded.post("/locks/job?nonce=n&ttl=1h", &root).await.ok();
    let first = wait_for_job(&guarded, &changed, 1).await;
    let _second = wait_for_job(&guarded, &other, 2).await;
    guarded
        .change_scope(&changed, "acquire:job", "acquire:jo")
        .await;
    guarded
        .change_scope(&changed, "acquire:jo", "admin:j")
        .await;
    let release = format!("/locks/job/{}", fence.fence());
    guarded.ask("DELETE", &release, &root, b"").await.ok();
    assert_eq!(read_answer(first).await.ok().fence(), fence.fence() + 1);
}

#[tokio::test]
async fn waiter_whose_token_loses_the_right_is_refused() {
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["admin:"]).await;
    let token = guarded.token("ci", &["acquire:job"]).await;
    guarded.post("/locks/job?nonce=n&ttl=1h", &root).await.ok();
    let waiting = wait_for_job(&guarded, &token, 1).await;
    guarded
        .change_scope(&token, "acquire:job", "acquire:other")
        .await;
    read_answer(waiting).await.problem(403, "denied");
    guarded.server.wait_for_waiters("job", 0).await;
}

#[tokio::test]
async fn waiting_claim_with_a_revoked_token_is_refused() {
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["admin:"]).await;
    let (revoked, narrowed, next) = (
        guarded.token("revoked", &["acquire:a"]).await,
        guarded.token("narrowed", &["acquire:"]).await,
        guarded.token("next", &["acquire:a"]).await,
    );
    let claim = "/claims?state=NEW&prefix=a&wait=5m&ttl=1h";
    let first = guarded.begin("POST", claim, &revoked).await;
    let second = guarded.begin("POST", claim, &narrowed).await;
    guarded.revoke(&revoked).await;
    read_answer(first).await.problem(401, "unauthorized");
    guarded
        .change_scope(&narrowed, "acquire:", "acquire:ab")
        .await;
    read_answer(second).await.problem(403, "denied");
    let third = guarded.begin("POST", claim, &next).await;
    let item = "/items/a?state=NEW";
    guarded.ask("PUT", item, &root, b"").await.ok();
    let claimed = read_answer(third).await.ok();
    assert_eq!(claimed.json["items"][0]["name"], "a");
}

#[tokio::test]
async fn waiter_for_several_leases_with_a_revoked_token_releases_those_it_has() {
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["admin:"]).await;
    let token = guarded.token("ci", &["acquire:"]).await;
    guarded.post("/locks/b?nonce=n&ttl=1h", &root).await.ok();
    let both = "/locks?name=a&name=b&nonce=n&wait=5m&ttl=1h";
    let waiting = guarded.begin("POST", both, &token).await;
    guarded.server.wait_for_waiters("b", 1).await;
    guarded
        .post("/locks/a?nonce=n", &root)
        .await
        .problem(409, "held");
    guarded.revoke(&token).await;
    read_answer(waiting).await.problem(401, "unauthorized");
    let free = guarded.post("/locks/a?nonce=n&wait=30s", &root).await.ok();
    assert_eq!(free.json["last"]["how"], "released");
}

/// Starts a service whose store does not write yet, and creates a token.
async fn start_gated(scopes: &[&str]) -> (Guarded, Arc<Gated>, String) {
    let store = Gated::new();
    let guarded = Guarded::start_on(store.clone(), |_| ()).await;
    let token = guarded.token("ci", scopes).await;
    (guarded, store, token)
}

/// Waits until the engine has cached this many names, which it writes next.
async fn wait_for_cached(guarded: &Guarded, count: u64) {
    let arrived = async {
        while guarded.server.engine.stats().cached < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, arrived)
        .await
        .expect("the requests arrive");
}

#[tokio::test]
async fn grant_is_released_if_its_token_was_revoked_before_the_answer() {
    let (guarded, store, token) = start_gated(&["acquire:a"]).await;
    let root = guarded.token("root", &["admin:"]).await;
    let asking = guarded
        .begin("POST", "/locks/a?nonce=n&ttl=1h", &token)
        .await;
    wait_for_cached(&guarded, 1).await;
    guarded.revoke(&token).await;
    store.writes.add_permits(Semaphore::MAX_PERMITS / 2);
    read_answer(asking).await.problem(401, "unauthorized");
    let next = guarded
        .post("/locks/a?nonce=next&wait=30s", &root)
        .await
        .ok();
    assert_eq!(next.json["last"]["how"], "released", "it had been granted");
}

#[tokio::test]
async fn grants_of_a_batch_are_withheld_one_by_one() {
    let (guarded, store, token) = start_gated(&["acquire:a", "acquire:b"]).await;
    let root = guarded.token("root", &["admin:"]).await;
    let acquire =
        |name: &str| json!({"method": "POST", "target": format!("/locks/{name}?nonce=n&ttl=1h")});
    let body = json!({"requests": [acquire("a"), acquire("b")]}).to_string();
    let header = format!("Authorization: Bearer {token}\r\n");
    let server = &guarded.server;
    let asking = server
        .begin("POST", "/requests", &header, body.as_bytes())
        .await;
    wait_for_cached(&guarded, 2).await;
    guarded.change_scope(&token, "acquire:b", "acquire:c").await;
    store.writes.add_permits(Semaphore::MAX_PERMITS / 2);
    let answers = read_answer(asking).await.ok();
    let status = |number: usize| answers.json["answers"][number]["status"].as_u64();
    assert_eq!((status(0), status(1)), (Some(200), Some(403)));
    guarded
        .post("/locks/a?nonce=next", &root)
        .await
        .problem(409, "held");
    guarded
        .post("/locks/b?nonce=next&wait=30s", &root)
        .await
        .ok();
}

#[tokio::test]
async fn completed_change_is_answered_although_its_token_was_revoked() {
    let (guarded, store, token) = start_gated(&["acquire:"]).await;
    let root = guarded.token("root", &["admin:"]).await;
    let asking = guarded.begin("PUT", "/items/a?state=NEW", &token).await;
    wait_for_cached(&guarded, 1).await;
    guarded.revoke(&token).await;
    store.writes.add_permits(Semaphore::MAX_PERMITS / 2);
    read_answer(asking).await.ok();
    let shown = guarded.ask("GET", "/locks/a", &root, b"").await.ok();
    assert_eq!(shown.json["state"], "NEW");
}

#[tokio::test]
async fn event_stream_ends_when_its_rights_change_and_not_before() {
    let guarded = Guarded::start_with(|config| config.heartbeat = Duration::from_secs(3_600)).await;
    let token = guarded.token("ci", &["read:a"]).await;
    let header = format!("Authorization: Bearer {token}\r\n");
    let mut subscriber = Subscriber::with(&guarded.server, "", &header).await;
    // The file changes, and this token does not.
    let root = guarded.token("root", &["admin:"]).await;
    guarded.post("/locks/a?nonce=n", &root).await.ok();
    subscriber.expect("granted", "a").await;
    guarded.revoke(&token).await;
    assert!(subscriber.next().await.is_none());
}

#[tokio::test]
async fn access_file_replaced_by_a_named_pipe_changes_nothing_and_is_still_followed() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ci", &["acquire:"]).await;
    let (file, pipe) = (guarded.file(), guarded.file().with_extension("pipe"));
    let text = std::fs::read(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    // Longer than the service takes to notice the change.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    guarded.post("/locks/a?nonce=n", &token).await.ok();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, text).unwrap();
    guarded.token("new", &["acquire:"]).await;
}
