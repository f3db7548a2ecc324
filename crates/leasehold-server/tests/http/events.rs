//! `GET /events`.

use std::time::Duration;

use leasehold::core::{Acquire, Fence, Mode, Name, Nonce, Operation};
use leasehold::engine::WaitLimit;
use leasehold::wire::EventKind;
use leasehold::{Error, Remote};
use leasehold_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::common::Server;
use crate::subscriber::Subscriber;

#[tokio::test]
async fn events_arrive_in_order_and_without_secrets() {
    let server = Server::start().await;
    let mut subscriber = Subscriber::new(&server, "", None).await;
    let target = "/locks/job?nonce=SECRET-NONCE&owner=web-1&ttl=1m";
    let fence = server.acquire(target).await;
    let body = b"SECRET-BODY";
    let update = format!("/locks/job/{fence}?state=NEXT");
    server.send("POST", &update, body).await.ok();
    let heartbeat = format!("/locks/job/{fence}/heartbeat");
    server.post(&heartbeat).await.ok();
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    server.post("/gates/g?every=1h&owner=web-2").await.ok();
    server.post("/locks/job?nonce=SECRET-NONCE").await.ok();
    let force = "/locks/job/break?force=true&now=true&reason=SECRET-REASON";
    server.post(force).await.ok();
    server.send("PUT", "/items/i?state=NEW", body).await.ok();

    let mut ids = Vec::new();
    let mut all = String::new();
    for (event, name) in [
        ("granted", "job"),
        ("renewed", "job"),
        ("updated", "job"),
        ("renewed", "job"),
        ("released", "job"),
        ("granted", "g"),
        ("granted", "job"),
        ("broken", "job"),
        ("updated", "i"),
    ] {
        let (text, next) = loop {
            let block = subscriber.block().await.unwrap();
            if !block.1.event.is_empty() {
                break block;
            }
        };
        assert_eq!(
            (&*next.event, next.data["name"].as_str()),
            (event, Some(name))
        );
        if event == "granted" && ids.is_empty() {
            let data = &next.data;
            assert_eq!(data["fence"], fence);
            assert_eq!(
                (&data["owner"], &data["ttl"]),
                (&"web-1".into(), &60_000.into())
            );
            assert_eq!(
                (&data["kind"], &data["mode"]),
                (&"lock".into(), &"exclusive".into())
            );
            for time in ["time", "acquireTime", "expireTime"] {
                assert!(data[time].as_str().unwrap().ends_with('Z'), "{data}");
            }
        }
        if name == "g" {
            assert_eq!(next.data["kind"], "gate");
        }
        if name == "i" {
            assert_eq!(next.data["state"], "NEW");
        }
        let (epoch, number) = next.id.split_once('-').unwrap();
        ids.push((epoch.to_owned(), number.parse::<u64>().unwrap()));
        all.push_str(&text);
    }
    assert!(ids.is_sorted() && ids.iter().all(|(epoch, _)| *epoch == ids[0].0));
    assert!(!all.contains("SECRET"), "{all}");
    let nonce = Nonce::new("SECRET-NONCE").unwrap();
    for name in [Name::lock("job").unwrap(), Name::gate("g").unwrap()] {
        assert!(!all.contains(&nonce.hash(&name).to_string()), "{all}");
    }
}

#[tokio::test]
async fn subscriber_receives_events_with_its_prefix_only() {
    let server = Server::start().await;
    let mut subscriber = Subscriber::new(&server, "?prefix=b%2F", None).await;
    for name in ["a", "b%2F1", "c", "bb", "b%2F2"] {
        server.acquire(&format!("/locks/{name}?nonce=n")).await;
    }
    subscriber.expect("granted", "b/1").await;
    subscriber.expect("granted", "b/2").await;
    server
        .get("/events?perfix=b")
        .await
        .problem(400, "bad-request");
}

#[tokio::test]
async fn reconnecting_subscriber_misses_nothing() {
    let server = Server::start().await;
    let mut subscriber = Subscriber::new(&server, "", None).await;
    // The id to resume from if the connection is lost before the first event.
    let (_, greeting) = subscriber.block().await.unwrap();
    drop(subscriber);
    for name in ["a", "b", "c"] {
        server.acquire(&format!("/locks/{name}?nonce=n")).await;
    }
    let mut again = Subscriber::new(&server, "", Some(&greeting.id)).await;
    let seen = again.expect("granted", "a").await.id;
    drop(again);
    let mut again = Subscriber::new(&server, "", Some(&seen)).await;
    again.expect("granted", "b").await;
    again.expect("granted", "c").await;
    server.acquire("/locks/d?nonce=n").await;
    again.expect("granted", "d").await;
}

#[tokio::test]
async fn subscriber_that_missed_events_first_receives_missed() {
    let server = Server::start().await;
    let mut watching = Subscriber::new(&server, "?prefix=none", None).await;
    let start = watching.block().await.unwrap().1.id;
    let name = Name::lock("busy").unwrap();
    for turn in 0..17_000_u32 {
        let operation = Operation::Acquire(Acquire {
            nonce: Nonce::new("mine").unwrap().hash(&name),
            owner: "me".into(),
            principal: None,
            ttl: Duration::from_secs(60),
            mode: Mode::Exclusive,
            fence: None,
            floor: Fence::default(),
            in_state: None,
        });
        let reply = server.engine.perform(&name, operation, WaitLimit::NONE);
        let _ = reply.await.unwrap().take();
        if turn % 100 == 0 {
            // No faster than events can be published: a lagging publisher is not the subject of this test.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let other = "00000000000000aa-1";
    for last in [&*start, other, "nonsense", ""] {
        let mut late = Subscriber::new(&server, "", Some(last)).await;
        let first = late.next().await.unwrap();
        assert_eq!(first.event, "missed", "{last}: {first:?}");
        // From there on it misses nothing.
        server.acquire("/locks/next?nonce=n").await;
        while late.next().await.unwrap().data["name"] != "next" {}
    }
}

#[tokio::test]
async fn quiet_stream_sends_heartbeats_with_newer_ids() {
    let mut config = Config::default();
    config.heartbeat = Duration::from_millis(50);
    let engine = Server::start().await.engine.clone();
    let server = Server::start_with(engine, config).await;
    let mut subscriber = Subscriber::new(&server, "?prefix=none", None).await;
    let greeting = subscriber.block().await.unwrap().1.id;
    server.acquire("/locks/other?nonce=n").await;
    loop {
        let (text, block) = subscriber.block().await.unwrap();
        assert!(text.starts_with(':'), "{text}");
        if block.id != greeting {
            break;
        }
    }
}

#[tokio::test]
async fn streams_end_when_the_service_stops() {
    let mut server = Server::start().await;
    let mut subscriber = Subscriber::new(&server, "", None).await;
    let stopping = std::time::Instant::now();
    server.stop().await;
    assert!(subscriber.next().await.is_none());
    let drain = Config::default().drain_timeout;
    assert!(stopping.elapsed() < drain, "{:?}", stopping.elapsed());
}

#[tokio::test]
async fn remote_resumes_after_the_last_event() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let event = |number: u32, name: &str| {
        format!(
            "id: e-{number}\nevent: granted\ndata: {{\"event\":\"granted\",\"name\":\"{name}\",\"kind\":\"lock\"}}\n\n"
        )
    };
    let answers = [
        format!(
            "retry: 1\nid: e-0\n\n{}: alive\n\n{}",
            event(1, "a"),
            &event(2, "b")[..20]
        ),
        event(2, "b"),
    ];
    let serving = tokio::spawn(async move {
        let mut heads = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            heads.push(String::from_utf8(head).unwrap());
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        heads
    });
    let mut events = Remote::connect(&url).unwrap().events("a b");
    let first = events.next().await.unwrap();
    assert_eq!(
        (first.event, first.name()),
        (EventKind::Granted, Name::lock("a").ok())
    );
    let lost = events.next().await.unwrap_err();
    assert!(matches!(lost, Error::Unavailable(_)), "{lost}");
    assert_eq!(events.next().await.unwrap().name(), Name::lock("b").ok());
    let heads = serving.await.unwrap();
    assert!(
        heads[0].starts_with("GET /events?prefix=a%20b "),
        "{heads:?}"
    );
    assert!(!heads[0].contains("last-event-id"), "{heads:?}");
    assert!(heads[1].contains("last-event-id: e-1"), "{heads:?}");
}
