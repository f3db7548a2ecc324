//! Principals of leases, answers for callers with few rights, and the end of tokens. `matrix.rs` calls every route as every
//! caller.

use leasehold::{Client, Error, Remote};
use leasehold_server::access::{Access, AccessFile};
use serde_json::json;
use tempfile::TempDir;

use crate::guarded::Guarded;
use crate::subscriber::Subscriber;

#[tokio::test]
async fn lease_belongs_to_its_principal_under_each_of_its_tokens() {
    let guarded = Guarded::start().await;
    let old = guarded.token("ci", &["acquire:"]).await;
    let new = guarded.token("ci", &["admin:"]).await;
    let other = guarded.token("other", &["acquire:"]).await;
    let fence = guarded.post("/locks/a?nonce=n", &old).await.ok().fence();
    let heartbeat = format!("/locks/a/{fence}/heartbeat");
    guarded
        .post(&heartbeat, &other)
        .await
        .problem(403, "denied");
    guarded
        .post(&format!("/locks/a/{fence}"), &other)
        .await
        .problem(403, "denied");
    guarded
        .post("/locks/a/break?nonce=n", &other)
        .await
        .problem(403, "denied");
    // Not even with its nonce.
    guarded
        .post("/locks/a?nonce=n", &other)
        .await
        .problem(409, "held");
    let release = guarded
        .ask("DELETE", &format!("/locks/a/{fence}"), &other, b"")
        .await
        .ok();
    assert_eq!(release.json["released"], false);
    let many = json!({"leases": [{"name": "a", "fence": fence}]}).to_string();
    let answers = guarded
        .ask("POST", "/heartbeats", &other, many.as_bytes())
        .await
        .ok();
    assert_eq!(answers.json["leases"][0]["problem"]["type"], "denied");

    guarded.post(&heartbeat, &new).await.ok();
    let answers = guarded
        .ask("POST", "/heartbeats", &new, many.as_bytes())
        .await
        .ok();
    assert_eq!(answers.json["leases"][0]["lease"]["fence"], fence);
    let shown = guarded.ask("GET", "/locks/a", &new, b"").await.ok();
    assert_eq!(shown.json["holders"][0]["principal"], "ci");
    guarded
        .post(&format!("/locks/a/{fence}?release=true"), &new)
        .await
        .ok();

    let all = guarded
        .post("/locks?name=a&name=b&nonce=all", &old)
        .await
        .ok();
    let fence = all.json["leases"][0]["fence"].as_u64().unwrap();
    guarded
        .post(&format!("/locks/a/{fence}/heartbeat"), &other)
        .await
        .problem(403, "denied");
    guarded
        .post(&format!("/locks/a/{fence}/heartbeat"), &new)
        .await
        .ok();
    guarded
        .ask("PUT", "/items/item?state=NEW", &old, b"")
        .await
        .ok();
    let claimed = guarded.post("/claims?state=NEW", &old).await.ok();
    let fence = claimed.json["items"][0]["fence"].as_u64().unwrap();
    guarded
        .post(&format!("/locks/item/{fence}/heartbeat"), &other)
        .await
        .problem(403, "denied");
    guarded
        .post(&format!("/locks/item/{fence}/heartbeat"), &new)
        .await
        .ok();
}

#[tokio::test]
async fn rights_are_checked_for_each_of_several_names() {
    let guarded = Guarded::start().await;
    let both = guarded
        .token("both", &["acquire:a/", "acquire:c/", "read:"])
        .await;
    let fence = guarded
        .post("/locks?name=a/x&nonce=n", &both)
        .await
        .ok()
        .fence();
    guarded
        .post("/locks?name=a/y&name=b/y&nonce=n", &both)
        .await
        .problem(403, "denied");
    let listed = guarded.ask("GET", "/locks", &both, b"").await.ok();
    assert_eq!(
        listed.json["locks"].as_array().unwrap().len(),
        1,
        "nothing else was taken"
    );
    let many = json!({"leases": [{"name": "b/x", "fence": 1}, {"name": "a/x", "fence": fence}]});
    let answers = guarded
        .ask("POST", "/heartbeats", &both, many.to_string().as_bytes())
        .await
        .ok();
    assert_eq!(answers.json["leases"][0]["problem"]["type"], "denied");
    assert_eq!(answers.json["leases"][1]["lease"]["fence"], fence);
}

#[tokio::test]
async fn lists_and_claims_are_limited_to_the_scopes_of_the_caller() {
    let guarded = Guarded::start().await;
    let admin = guarded.token("root", &["admin:"]).await;
    let mut names = Vec::new();
    for prefix in ["a", "b", "c", "d"] {
        for number in 0..3 {
            let name = format!("{prefix}/{number}");
            let target = format!("/items?name={name}&state=NEW");
            guarded.ask("PUT", &target, &admin, b"").await.ok();
            names.push(name);
        }
    }
    let some = guarded
        .token("some", &["read:c/", "read:a/", "read:a/1", "acquire:b/"])
        .await;
    let visible = ["a/0", "a/1", "a/2", "c/0", "c/1", "c/2"];
    for extra in ["", "&state=NEW", "&held=false"] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let target = format!("/locks?limit=2{extra}{cursor}");
            let page = guarded.ask("GET", &target, &some, b"").await.ok().json;
            for lock in page["locks"].as_array().unwrap() {
                seen.push(lock["name"].as_str().unwrap().to_owned());
            }
            let Some(next) = page["cursor"].as_str() else {
                break;
            };
            assert!(!next.contains("b/") && !next.contains("d/"), "{next}");
            let encoded =
                percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC);
            cursor = format!("&cursor={encoded}");
        }
        // Items that were put within a millisecond have no certain order.
        seen.sort();
        assert_eq!(seen, visible, "{extra}");
    }
    guarded
        .ask("GET", "/locks?prefix=b", &some, b"")
        .await
        .problem(403, "denied");
    guarded
        .ask("GET", "/locks?cursor=x", &some, b"")
        .await
        .problem(400, "bad-request");

    let claimed = guarded.post("/claims?state=NEW", &some).await.ok();
    let claimed = claimed.json["items"].as_array().unwrap();
    assert!(
        claimed.len() == 3
            && claimed
                .iter()
                .all(|item| item["name"].as_str().unwrap().starts_with("b/"))
    );
    guarded
        .post("/claims?state=NEW&prefix=c/", &some)
        .await
        .problem(403, "denied");
    let two = guarded.token("two", &["acquire:a/", "acquire:c/"]).await;
    guarded
        .post("/claims?state=NEW", &two)
        .await
        .problem(400, "bad-request");
    guarded.post("/claims?state=NEW&prefix=c/", &two).await.ok();
}

#[tokio::test]
async fn revoked_and_expired_tokens_are_refused() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ci", &["admin:"]).await;
    let id = &token[3..11];
    AccessFile::revoke_token(&guarded.file(), id).unwrap();
    guarded
        .wait_for_status(&token, |status| status == 401)
        .await;
    let past = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    let scopes = ["admin:".parse().unwrap()];
    let expired = AccessFile::create_token(&guarded.file(), "ci", &scopes, Some(past))
        .unwrap()
        .0;
    // Once this token is known, the file with the expired one has been read.
    guarded.token("ci", &["read:"]).await;
    let refused = guarded
        .post("/locks/a?nonce=n", expired.expose())
        .await
        .problem(401, "unauthorized");
    assert!(!refused.json.to_string().contains(expired.expose()));
    for header in ["Basic x", "Bearer", ""] {
        let header = format!("Authorization: {header}\r\n");
        let answer = guarded
            .server
            .send_with("GET", "/locks", &header, b"")
            .await;
        answer.problem(401, "unauthorized");
    }
}

#[tokio::test]
async fn access_file_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("access.toml");
    AccessFile::create_token(&file, "ci", &[], None).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o620)).unwrap();
    let error = Access::open(&file).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[tokio::test]
async fn remote_client_sends_its_token() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ci", &["acquire:jobs/", "read:jobs/"]).await;
    let anonymous = Remote::connect(&guarded.server.url()).unwrap();
    let known = anonymous.with_token(&token).unwrap();
    let client = Client::new(std::sync::Arc::new(known));
    let lease = client.lease("jobs/a").acquire().await.unwrap();
    lease.update("half").await.unwrap();
    lease.release().await.unwrap();
    assert!(matches!(
        client.lease("other").acquire().await,
        Err(Error::Denied(_))
    ));
    let client = Client::new(std::sync::Arc::new(anonymous));
    let refused = client.lease("jobs/a").acquire().await.unwrap_err();
    assert!(
        refused.to_string().contains("a token is required"),
        "{refused}"
    );
}

#[tokio::test]
async fn event_streams_have_readable_names_only_and_end_with_the_right() {
    let guarded = Guarded::start().await;
    let admin = guarded.token("root", &["admin:"]).await;
    let some = guarded.token("some", &["read:a/", "read:c/"]).await;
    let writer = guarded.token("writer", &["acquire:"]).await;
    guarded
        .ask("GET", "/events", "", b"")
        .await
        .problem(401, "unauthorized");
    guarded
        .ask("GET", "/events", &writer, b"")
        .await
        .problem(403, "denied");
    guarded
        .ask("GET", "/events?prefix=b/", &some, b"")
        .await
        .problem(403, "denied");
    let header = format!("Authorization: Bearer {some}\r\n");
    let mut subscriber = Subscriber::with(&guarded.server, "", &header).await;
    for name in ["b/hidden", "a/seen", "d/hidden", "c/seen"] {
        let target = format!("/locks?name={name}&nonce=n");
        guarded.post(&target, &admin).await.ok();
    }
    subscriber.expect("granted", "a/seen").await;
    subscriber.expect("granted", "c/seen").await;
    AccessFile::revoke_token(&guarded.file(), &some[3..11]).unwrap();
    guarded.wait_for_status(&some, |status| status == 401).await;
    guarded
        .post("/locks?name=a/late&nonce=n", &admin)
        .await
        .ok();
    assert!(
        subscriber.next().await.is_none(),
        "the stream ends without another event"
    );
}
