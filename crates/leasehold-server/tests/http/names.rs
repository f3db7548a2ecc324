//! Names with special characters, in paths and as parameters.

use std::collections::BTreeSet;

use crate::common::Server;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const NAMES: &[&str] = &[
    "a/b/c",
    "a",
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "#?%",
    "..",
    ".",
    "../..",
    "/",
    "//",
    "émoji 🔒",
    "e\u{301}moji 🔒",
    "a b",
    "a+b",
    "a%20b",
    "break",
    "history",
    "heartbeat",
    "13",
    "locks",
    "locks/a",
    "A",
    "a;b=c",
    "a&name=b",
    "\\",
    "'\"`",
    "%",
    "%00",
    "\u{feff}a",
    "~",
    "healthz",
    "a\u{200d}b",
];

fn encode(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn names_round_trip_and_never_collide() {
    let server = Server::start_on_sqlite().await;
    let mut fences = Vec::new();
    for name in NAMES {
        let fence = server
            .acquire(&format!("/locks/{}?nonce=n", encode(name)))
            .await;
        let target = format!("/locks/{}/{fence}", encode(name));
        server.send("POST", &target, name.as_bytes()).await.ok();
        fences.push(fence);
    }
    let listed = server.get("/locks?limit=1000").await.ok();
    let listed: BTreeSet<_> = listed.json["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| {
            assert_eq!(lock["name"], lock["body"]);
            lock["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        listed,
        NAMES.iter().map(|name| (*name).to_owned()).collect()
    );
    for (name, fence) in NAMES.iter().zip(fences) {
        let by_path = server.get(&format!("/locks/{}", encode(name))).await.ok();
        let by_query = server
            .get(&format!("/locks?name={}", encode(name)))
            .await
            .ok();
        assert_eq!(by_path.text("name"), *name);
        assert_eq!(by_path.json["holders"][0]["fence"], fence);
        assert_eq!(by_path.json["body"], by_query.json["body"]);
    }
}

#[tokio::test]
async fn every_route_takes_the_name_as_a_parameter() {
    let server = Server::start_on_sqlite().await;
    for name in ["..", "a/b/c", "émoji 🔒", "13"] {
        let name = encode(name);
        let fence = server.acquire(&format!("/locks?name={name}&nonce=n")).await;
        server
            .post(&format!("/locks/{fence}/heartbeat?name={name}"))
            .await
            .ok();
        server
            .send("PUT", &format!("/locks/{fence}?name={name}"), b"body")
            .await
            .ok();
        let shown = server.get(&format!("/locks?name={name}")).await.ok();
        assert_eq!(
            (shown.text("body"), &shown.json["held"]),
            ("body", &true.into())
        );
        assert_eq!(
            server.get(&format!("/locks/{name}")).await.ok().json["name"],
            shown.json["name"]
        );
        let broken = server
            .post(&format!("/locks/break?name={name}&nonce=n"))
            .await
            .ok();
        assert_eq!(broken.json["broken"], true);
        let fence = server.acquire(&format!("/locks?name={name}&nonce=n")).await;
        let released = server
            .delete(&format!("/locks/{fence}?name={name}"))
            .await
            .ok();
        assert_eq!(released.json["released"], true);
        server.acquire(&format!("/locks?name={name}&nonce=n")).await;
        let released = server
            .delete(&format!("/locks?name={name}&nonce=n"))
            .await
            .ok();
        assert_eq!(released.json["released"], true);
    }
}

#[tokio::test]
async fn name_without_encoding_is_taken_literally() {
    let server = Server::start().await;
    server.acquire("/locks/..?nonce=n").await;
    assert_eq!(server.get("/locks?name=..").await.ok().json["held"], true);
    server.acquire("/locks/a+b:c@d?nonce=n").await;
    assert_eq!(
        server.get("/locks?name=a%2Bb:c@d").await.ok().text("name"),
        "a+b:c@d"
    );
}
