//! Limits of bytes: of pages, claims and batches, and of all answers in progress together.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold::engine::Engine;
use leasehold::{Leases as _, ListRequest, Remote, store};
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::common::{Answer, Server, TIMEOUT};
use crate::guarded::Guarded;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// The longest body.
const LONGEST: usize = 64 * KIB;

/// Returns a body of the maximal length whose JSON is six times as long.
fn control_characters() -> String {
    "\u{1}".repeat(LONGEST)
}

/// Starts a service on a store in memory, and one on SQLite.
async fn servers() -> [Server; 2] {
    [Server::start().await, Server::start_on_sqlite().await]
}

async fn put(server: &Server, name: &str, body: &str) {
    let target = format!("/items/{name}?state=NEW");
    server.send("PUT", &target, body.as_bytes()).await.ok();
}

/// Puts this many items, most of them large, and returns their names in order.
async fn put_many(server: &Server, count: usize) -> Vec<String> {
    let controls = control_characters();
    let plain = "x".repeat(LONGEST);
    let bodies = [&controls, &plain, "", &plain[..10 * KIB]];
    let mut names = Vec::new();
    for (number, body) in (0..count).zip(bodies.into_iter().cycle()) {
        let name = format!("item-{number:03}");
        put(server, &name, body).await;
        names.push(name);
    }
    names
}

fn name_of(entry: &Value) -> String {
    entry["name"].as_str().expect("a name").to_owned()
}

/// Returns the names of all pages, and checks the size of each page.
async fn all_pages(first: &str, ask: impl AsyncFn(&str) -> Answer) -> Vec<String> {
    let (mut names, mut target, mut pages) = (Vec::new(), first.to_owned(), 0);
    loop {
        let page = ask(&target).await.ok();
        let entries = page.json["locks"].as_array().expect("a page");
        assert!(
            page.body.len() <= MIB + KIB || entries.len() == 1,
            "{} bytes of {}",
            page.body.len(),
            entries.len()
        );
        names.extend(entries.iter().map(name_of));
        pages += 1;
        assert!(pages < 1_000, "{first} never ends");
        let Some(cursor) = page.json["cursor"].as_str() else {
            return names;
        };
        target = format!("{first}&cursor={}", encoded(cursor));
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn pages_are_bounded_in_bytes_and_lose_and_repeat_nothing() {
    for server in servers().await {
        let names = put_many(&server, 60).await;
        let by_age = server.engine_names("NEW").await;
        for (query, expected) in [("", &names), ("&state=NEW", &by_age)] {
            for limit in [7, 100, 1000] {
                for held in ["", "&held=false"] {
                    let first = format!("/locks?bodies=full&limit={limit}{query}{held}");
                    let found = all_pages(&first, async |target| server.get(target).await).await;
                    assert_eq!(found, *expected, "{first}");
                }
            }
        }
        let first = "/locks?bodies=full&held=true";
        let held = all_pages(first, async |target| server.get(target).await).await;
        assert!(held.is_empty());
    }
}

#[tokio::test]
async fn pages_of_several_prefixes_lose_and_repeat_nothing() {
    let guarded = Guarded::start().await;
    let admin = guarded.token("admin", &["acquire:"]).await;
    let mut expected = Vec::new();
    for number in 0..40 {
        for prefix in ["a", "b", "c"] {
            let target = format!("/items/{prefix}{number:02}?state=NEW");
            let body = "x".repeat(30 * KIB);
            let put = guarded.ask("PUT", &target, &admin, body.as_bytes());
            put.await.ok();
            if prefix != "b" {
                expected.push(format!("{prefix}{number:02}"));
            }
        }
    }
    expected.sort();
    let reader = guarded.token("reader", &["read:a", "read:c"]).await;
    let first = "/locks?bodies=full&limit=1000";
    let found = all_pages(first, async |target| {
        guarded.ask("GET", target, &reader, b"").await
    });
    assert_eq!(found.await, expected);
}

#[tokio::test]
async fn lists_cut_bodies_unless_full_bodies_are_requested() {
    let server = Server::start().await;
    let long = format!("a{}", "é".repeat(300));
    put(&server, "long", &long).await;
    put(&server, "short", &long[..255]).await;
    for target in ["/locks?prefix=", "/locks?bodies=cut"] {
        let page = server.get(target).await.ok();
        let [cut, whole] = [&page.json["locks"][0], &page.json["locks"][1]];
        assert_eq!(cut["body"], long[..255], "at a character's end");
        assert_eq!(cut["bodyBytes"], 601);
        assert_eq!(whole["body"], long[..255]);
        assert_eq!(whole["bodyBytes"], Value::Null);
    }
    let page = server.get("/locks?bodies=full").await.ok();
    let entry = &page.json["locks"][0];
    assert_eq!(
        (&entry["body"], &entry["bodyBytes"]),
        (&long.as_str().into(), &Value::Null)
    );
    let shown = server.get("/locks/long").await.ok();
    assert_eq!(shown.json["body"], long);
    server.get("/gates?bodies=full").await.ok();
    let invalid = server.get("/locks?bodies=some").await;
    invalid.problem(400, "bad-request");
}

#[tokio::test]
async fn a_remote_lists_whole_bodies() {
    let server = Server::start().await;
    let names = put_many(&server, 30).await;
    let remote = Remote::connect(&server.url()).unwrap();
    let (mut request, mut found, mut bytes) = (ListRequest::default(), Vec::new(), 0);
    loop {
        let page = remote.list(request.clone()).await.unwrap();
        for (name, view) in page.leases {
            found.push(name.as_str().to_owned());
            bytes += view.record.body.len();
        }
        request.cursor = page.cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, names);
    assert_eq!(bytes, 8 * 2 * LONGEST + 7 * 10 * KIB);
}

#[tokio::test]
async fn a_claim_leases_no_more_than_its_answer_can_carry() {
    for server in servers().await {
        put_many(&server, 60).await;
        let expected = server.engine_names("NEW").await;
        let mut claimed = Vec::new();
        while claimed.len() < expected.len() {
            let claim = server.post("/claims?state=NEW&limit=1000").await.ok();
            assert!(claim.body.len() <= MIB + KIB, "{} bytes", claim.body.len());
            let items = claim.json["items"].as_array().unwrap();
            assert!(!items.is_empty());
            claimed.extend(items.iter().map(name_of));
            assert_eq!(claimed, expected[..claimed.len()], "oldest first");
            let mut held = all_pages("/locks?held=true&limit=1000", async |target| {
                server.get(target).await
            })
            .await;
            let mut answered = claimed.clone();
            held.sort();
            answered.sort();
            assert_eq!(held, answered, "only what was answered is leased");
        }
    }
}

async fn send_batch(server: &Server, targets: &[String]) -> Answer {
    let requests = targets.iter().map(|target| {
        let (method, target) = target.split_once(' ').expect("a method");
        json!({"method": method, "target": target})
    });
    let body = json!({ "requests": requests.collect::<Vec<_>>() }).to_string();
    let answer = server.send("POST", "/requests", body.as_bytes()).await;
    answer.ok()
}

#[tokio::test]
async fn requests_beyond_the_bytes_of_a_batch_are_refused_before_they_are_performed() {
    for server in servers().await {
        let body = control_characters();
        for number in 0..60 {
            put(&server, &number.to_string(), &body).await;
        }
        let acquire = |number| format!("POST /locks/{number}?nonce=n&ttl=1h");
        let targets: Vec<_> = (0..60).map(acquire).collect();
        let answer = send_batch(&server, &targets).await;
        assert!(answer.body.len() < 17 * MIB, "{} bytes", answer.body.len());
        let answers = answer.json["answers"].as_array().unwrap();
        let mut refused = 0;
        for (number, answer) in answers.iter().enumerate() {
            let lock = server.get(&format!("/locks?prefix={number}&limit=1")).await;
            let is_held = &lock.ok().json["locks"][0]["held"];
            if answer["status"] == 200 {
                assert_eq!(*is_held, true, "{number}");
                assert_eq!(answer["body"]["body"], body.as_str());
            } else {
                assert_eq!(answer["status"], 429, "{number}");
                assert_eq!(answer["body"]["type"], "too-many-requests");
                assert!(answer["body"]["retryAfter"].is_u64());
                assert_eq!(*is_held, false, "{number}: refused before it was performed");
                refused += 1;
            }
        }
        assert!((1..30).contains(&refused), "{refused} refused");
    }
}

#[tokio::test]
async fn a_full_batch_of_ordinary_requests_is_performed() {
    for server in servers().await {
        let acquire = |number| format!("POST /locks/{number}?nonce=n");
        let show = |number| format!("GET /locks/{number}");
        for request in [&acquire as &dyn Fn(usize) -> String, &show] {
            let targets: Vec<_> = (0..256).map(request).collect();
            let answer = send_batch(&server, &targets).await;
            let answers = answer.json["answers"].as_array().unwrap();
            assert!(answers.iter().all(|answer| answer["status"] == 200));
        }
    }
}

#[tokio::test]
async fn many_heartbeats_are_answered_with_as_many_bodies_as_fit() {
    let server = Server::start().await;
    let body = "x".repeat(LONGEST);
    let mut leases = Vec::new();
    for number in 0..40 {
        let name = number.to_string();
        let fence = server.acquire(&format!("/locks/{name}?nonce=n")).await;
        let target = format!("/locks/{name}/{fence}");
        server.send("POST", &target, body.as_bytes()).await.ok();
        leases.push(json!({"name": name, "fence": fence}));
    }
    let heartbeats = json!({ "leases": leases }).to_string();
    let answer = server.send("POST", "/heartbeats", heartbeats.as_bytes());
    let answer = answer.await.ok();
    assert!(answer.body.len() < MIB + 64 * KIB, "{}", answer.body.len());
    let mut whole = 0;
    for answer in answer.json["leases"].as_array().unwrap() {
        let lease = &answer["lease"];
        assert!(lease["validFor"].is_u64(), "each is renewed");
        match lease["bodyBytes"].as_u64() {
            None => {
                assert_eq!(lease["body"], body);
                whole += 1;
            }
            Some(bytes) => assert_eq!(
                (bytes as usize, &lease["body"]),
                (LONGEST, &body[..256].into())
            ),
        }
    }
    assert_eq!(whole, 16);
}

/// Connects with the smallest receive buffer, for a client that does not read.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(address).await.unwrap()
}

async fn answer_bytes(server: &Server) -> usize {
    let page = server.get("/metrics").await.body;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("leasehold_answer_bytes "));
    line.expect("a metric").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_hold_bounded_bytes_and_do_not_block_others() {
    const BUDGET: usize = 4 * MIB;
    let mut config = Config::default();
    config.max_answer_bytes = BUDGET;
    let engine = Engine::start(store::open("memory:").await.unwrap());
    let server = Server::start_with(engine.await.unwrap(), config).await;
    put_many(&server, 60).await;
    for head in ["", "Upgrade: nothing\r\n"] {
        // The answers on each connection exceed the buffers of the system.
        let list =
            format!("GET /locks?bodies=full&limit=1000 HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
        let mut slow = Vec::new();
        for _ in 0..12 {
            let mut stream = narrow(server.address).await;
            stream.write_all(list.repeat(20).as_bytes()).await.unwrap();
            slow.push(stream);
        }
        let full = async {
            while answer_bytes(&server).await < BUDGET / 2 - MIB {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, full)
            .await
            .expect("they fill the budget");
        for number in 0..5 {
            // Small answers never wait.
            server
                .acquire(&format!("/locks/{number}{}?nonce=n", head.len()))
                .await;
            assert!(answer_bytes(&server).await <= BUDGET + BUDGET / 2);
        }
        // Large answers get the room of unread ones.
        let served = async { while server.get("/locks").await.status != 200 {} };
        tokio::time::timeout(TIMEOUT, served)
            .await
            .expect("room again");
        drop(slow);
        let empty = async {
            while answer_bytes(&server).await > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, empty)
            .await
            .expect("the budget is free again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answers_arrive_whole_on_both_request_paths() {
    let server = Server::start().await;
    put_many(&server, 20).await;
    let plain = server.get("/locks?bodies=full&held=false").await.ok();
    assert!(plain.body.len() > MIB / 2);
    let by_hyper = server
        .send_with(
            "GET",
            "/locks?bodies=full&held=false",
            "Upgrade: nothing\r\n",
            b"",
        )
        .await
        .ok();
    assert_eq!(plain.body, by_hyper.body);
    let mut stream = narrow(server.address).await;
    let request = "GET /locks?bodies=full HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(Answer::parse(&bytes).ok().body, plain.body);
}
