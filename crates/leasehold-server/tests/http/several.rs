//! Several leases in one request: all or none.

use crate::common::Server;

#[tokio::test]
async fn several_leases_are_taken_in_the_order_of_their_names() {
    let server = Server::start_on_sqlite().await;
    let target = "/locks?name=b&name=a%2Fb&name=b&nonce=mine&owner=ada&ttl=1h";
    let granted = server.post(target).await.ok();
    let leases = granted.json["leases"].as_array().unwrap().clone();
    let names: Vec<_> = leases.iter().map(|lease| &lease["name"]).collect();
    assert_eq!(names, ["a/b", "b"]);
    for lease in &leases {
        assert_eq!(lease["ttl"], 3_600_000);
        assert!(lease["validFor"].as_u64().unwrap() > 3_000_000, "{lease}");
        let (name, fence) = (&lease["name"].as_str().unwrap(), &lease["fence"]);
        let beat = format!("/locks/{}/{fence}/heartbeat", name.replace('/', "%2F"));
        server.post(&beat).await.ok();
    }
    let again = server.post(target).await.ok();
    assert_eq!(again.json["leases"][0]["granted"], "again");
}

#[tokio::test]
async fn refusal_has_the_name_that_is_held_and_nothing_is_taken() {
    let server = Server::start().await;
    server
        .acquire("/locks/b?nonce=other&owner=eve&ttl=1h")
        .await;
    let before = server.get("/locks/b").await.ok().fence();
    for (target, body) in [
        ("/locks?name=a&name=b&name=c&nonce=n", &b""[..]),
        ("/locks?nonce=n&wait=20ms", br#"{"names":["c","b","a"]}"#),
    ] {
        let refused = server.send("POST", target, body).await;
        let refused = refused.problem(409, "held");
        assert_eq!(refused.text("name"), "b");
        assert_eq!(refused.text("owner"), "eve");
        assert!(refused.header("retry-after").is_some());
    }
    // The other leases may still be about to be released.
    server.acquire("/locks/a?nonce=next&wait=10s").await;
    server.acquire("/locks/c?nonce=next&wait=10s").await;
    assert_eq!(server.get("/locks/b").await.ok().fence(), before);
}

#[tokio::test]
async fn many_long_names_can_be_sent_in_the_body() {
    let server = Server::start().await;
    let names: Vec<_> = (10..74).map(|n| format!("{n}").repeat(256)).collect();
    let body = serde_json::json!({ "names": names }).to_string();
    let granted = server.send("POST", "/locks?nonce=n", body.as_bytes()).await;
    let leases = granted.ok().json["leases"].as_array().unwrap().len();
    assert_eq!(leases, 64);
}

#[tokio::test]
async fn invalid_names_are_refused_and_nothing_is_taken() {
    let server = Server::start().await;
    let many: String = (0..65).map(|n| format!("name={n}&")).collect();
    for target in [
        "/locks?name=a&name=b",
        "/locks?name=a&name=&nonce=n",
        "/locks?name=a&name=%00&nonce=n",
        "/locks?name=a&name=b&nonce=n&ttl=0s",
        "/locks?name=a&name=b&nonce=n&mode=shared",
        "/locks?name=a&name=b&nonce=n&fence=1",
        "/locks?name=a&name=b&nonce=n&nonce=m",
        "/locks?nonce=n",
        &format!("/locks?{many}nonce=n"),
    ] {
        server.post(target).await.problem(400, "bad-request");
    }
    for body in [
        r#"{"names":[]}"#,
        r#"{"names":["a",""]}"#,
        r#"{"names":["a",1]}"#,
        r#"{"names":["a"],"ttl":"1s"}"#,
        "a, b",
    ] {
        let refused = server.send("POST", "/locks?nonce=n", body.as_bytes()).await;
        refused.problem(400, "bad-request");
    }
    let both = server.send(
        "POST",
        "/locks?name=a&name=b&nonce=n",
        br#"{"names":["c"]}"#,
    );
    both.await.problem(400, "bad-request");
    assert_eq!(server.everything().await["locks"], serde_json::json!([]));
}
