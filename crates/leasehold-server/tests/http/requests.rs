//! Many requests in one: `POST /requests`, and a `Remote` that makes use of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Mode, Name, Nonce};
use leasehold::engine::Engine;
use leasehold::store::memory::Memory;
use leasehold::store::{Answer as Told, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{AcquireRequest, Acquired, Holding, Leases as _, Remote, Result};
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::common::{Answer, PATIENCE, Server};
use crate::guarded::Guarded;

fn one(method: &str, target: &str) -> Value {
    json!({"method": method, "target": target})
}

async fn ask(server: &Server, requests: Vec<Value>) -> Answer {
    let body = json!({"requests": requests}).to_string();
    server.send("POST", "/requests", body.as_bytes()).await
}

/// Each answer as its status, and its body.
fn each(answer: Answer) -> Vec<(u64, Value)> {
    let answers = answer.ok().json["answers"].take();
    let one = |answer: &Value| (answer["status"].as_u64().unwrap(), answer["body"].clone());
    answers.as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn each_is_answered_as_if_it_had_come_by_itself() {
    let server = Server::start_on_sqlite().await;
    let fence = server.acquire("/locks/held?nonce=mine&ttl=1h").await;
    let mut update = one("POST", &format!("/locks/held/{fence}?state=HALF"));
    update["body"] = "so far".into();
    let mut put = one("PUT", "/items/item?state=NEW");
    put["body"] = "work".into();
    let answers = each(
        ask(
            &server,
            vec![
                one("POST", "/locks/a%2Fb?nonce=mine&ttl=1h&owner=me"),
                one("POST", "/locks/held?nonce=yours"),
                update,
                put,
                one("POST", "/gates/gate?every=1h"),
                one("GET", "/locks/nobodys"),
            ],
        )
        .await,
    );
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 409, 200, 200, 200, 404]);
    assert_eq!(answers[0].1["granted"], "fresh");
    assert_eq!(answers[1].1["type"], "held");
    assert_eq!(answers[2].1["body"], "so far");
    assert_eq!(answers[3].1, json!({"stored": true}));
    assert_eq!(answers[5].1["type"], "not-found");
    let taken = server.get("/locks/a%2Fb").await.ok().json;
    assert_eq!(taken["holders"][0]["owner"], "me");
    assert_eq!(taken["holders"][0]["fence"], answers[0].1["fence"]);
    let held = server.get("/locks/held").await.ok().json;
    assert_eq!(
        (&held["body"], &held["state"]),
        (&"so far".into(), &"HALF".into())
    );

    assert_eq!(each(ask(&server, vec![]).await), []);
    let mut released = ask(
        &server,
        vec![one("DELETE", &format!("/locks/held/{fence}"))],
    )
    .await;
    let released = released.json["answers"][0]["body"].take();
    assert_eq!(released, json!({"released": true}));
}

#[tokio::test]
async fn what_cannot_go_with_others_is_refused_alone() {
    let server = Server::start().await;
    let mut long = one("PUT", "/items/item?state=NEW");
    long["body"] = "x".repeat(64 * 1024 + 1).into();
    let answers = each(
        ask(
            &server,
            vec![
                one("POST", "/locks/a?nonce=n"),
                one("POST", "/locks/b?nonce=n&wait=1m"),
                one("POST", "/requests"),
                one("GET", "/locks"),
                one("POST", "/locks?name=b&name=c&nonce=n"),
                one("POST", "/claims?state=NEW"),
                one("GET", "/events"),
                one("GET", "/metrics"),
                one("GET", "/"),
                one("NO METHOD", "/locks/b"),
                one("POST", "/locks/b?nonce=n&nonce=n"),
                one("POST", "/locks/b"),
                one("POST", "http://elsewhere/locks/b?nonce=n"),
                one("PATCH", "/locks/b"),
                long,
            ],
        )
        .await,
    );
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    let expected = [
        200, 400, 400, 400, 400, 400, 400, 400, 400, 400, 400, 400, 404, 405, 413,
    ];
    assert_eq!(statuses, expected, "{answers:?}");
    assert!(
        answers[1].1["detail"]
            .as_str()
            .unwrap()
            .contains("by itself")
    );
    server.get("/locks/b").await.problem(404, "not-found");
}

#[tokio::test]
async fn what_makes_no_sense_changes_nothing() {
    let server = Server::start().await;
    let fine = one("POST", "/locks/a?nonce=n");
    let mut unknown = fine.clone();
    unknown["wait"] = "1m".into();
    for body in [
        String::new(),
        "[]".into(),
        "{}".into(),
        json!({"requests": [fine], "more": 1}).to_string(),
        json!({"requests": [fine, unknown]}).to_string(),
        json!({"requests": [fine, {"method": "GET"}]}).to_string(),
        json!({"requests": vec![fine.clone(); 257]}).to_string(),
    ] {
        let refused = server.send("POST", "/requests", body.as_bytes()).await;
        refused.problem(400, "bad-request");
    }
    let body = json!({"requests": [fine]}).to_string();
    let refused = server.send("POST", "/requests?a=b", body.as_bytes()).await;
    refused.problem(400, "bad-request");
    server.get("/locks/a").await.problem(404, "not-found");
}

#[tokio::test]
async fn each_needs_its_own_right() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ci", &["acquire:ci/"]).await;
    let both = json!({"requests": [
        one("POST", "/locks?name=ci/a&nonce=n"),
        one("POST", "/locks?name=other&nonce=n"),
    ]});
    let both = both.to_string();
    let nobody = guarded.ask("POST", "/requests", "", both.as_bytes()).await;
    nobody.problem(401, "unauthorized");
    let answers = guarded
        .ask("POST", "/requests", &token, both.as_bytes())
        .await;
    let answers = each(answers);
    assert_eq!((answers[0].0, answers[1].0), (200, 403));
    assert_eq!(answers[1].1["type"], "denied");
}

fn acquire(text: &str, by: &str) -> AcquireRequest {
    AcquireRequest {
        name: Name::lock(text).unwrap(),
        nonce: Nonce::new(by).unwrap(),
        owner: "me".into(),
        ttl: Duration::from_secs(3_600),
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    }
}

/// How often something was asked, by the service's own count.
async fn asked(server: &Server, what: &str) -> u64 {
    let page = server.get("/metrics").await.body;
    let start = format!("leasehold_requests_total{{operation=\"{what}\"");
    let lines = page.lines().filter(|line| line.starts_with(&start));
    let counts = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    counts.sum()
}

#[tokio::test]
async fn tasks_of_one_client_share_requests() {
    let server = Server::start_on_sqlite().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let alone = remote.acquire(acquire("alone", "n")).await.unwrap();
    assert!(matches!(alone, Acquired::Granted(_)));
    assert_eq!(
        asked(&server, "requests").await,
        0,
        "one alone goes by itself"
    );
    let tasks = (0..100).map(|number| {
        let remote = remote.clone();
        tokio::spawn(async move {
            let name = format!("job/{number}");
            let Acquired::Granted(hold) = remote.acquire(acquire(&name, "it's \"mine\" é")).await?
            else {
                panic!("nobody else wants {name}");
            };
            let name = Name::lock(&name)?;
            assert!(remote.show(&name).await?.is_some());
            remote
                .release(&name, Holding::Fence(hold.grant.fence))
                .await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Ok(true));
    }
    assert_eq!(asked(&server, "acquire").await, 101);
    assert_eq!(asked(&server, "release").await, 100);
    let together = asked(&server, "requests").await;
    assert!((1..150).contains(&together), "{together} for 300");
}

#[tokio::test]
async fn a_service_that_is_gone_is_told_to_everybody() {
    let mut server = Server::start().await;
    let remote = Remote::connect(&server.url()).unwrap();
    server.stop().await;
    let tasks = (0..20).map(|number| {
        let remote = remote.clone();
        tokio::spawn(async move { remote.acquire(acquire(&number.to_string(), "n")).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        let error = task.await.unwrap().unwrap_err();
        assert!(matches!(error, leasehold::Error::Unavailable(_)), "{error}");
    }
}

/// A store that writes only as often as it may.
pub(crate) struct Gated {
    memory: Memory,
    pub(crate) writes: Semaphore,
}

impl Gated {
    /// One that does not write yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(),
            writes: Semaphore::new(0),
        })
    }

    /// A service on one that does not write yet.
    async fn serve() -> (Server, Arc<Self>) {
        let store = Self::new();
        let engine = Engine::start(store.clone()).await.unwrap();
        (Server::start_with(engine, Config::default()).await, store)
    }
}

#[async_trait]
impl Store for Gated {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Told<Vec<Option<Stored>>>> {
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Told<Vec<Swapped>>> {
        let permit = self.writes.acquire().await;
        permit.expect("it is never closed").forget();
        self.memory.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Told<Page>> {
        self.memory.find(query).await
    }
}

/// Acquires on which this store lets their engine wait.
async fn stuck(server: &Server, remote: &Remote) -> Vec<JoinHandle<Result<Acquired>>> {
    let tasks = (0..8).map(|number| {
        let remote = remote.clone();
        tokio::spawn(async move { remote.acquire(acquire(&number.to_string(), "n")).await })
    });
    let tasks = tasks.collect();
    let arrived = async {
        while server.engine.stats().cached < 8 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let arrived = tokio::time::timeout(PATIENCE, arrived).await;
    arrived.expect("they arrive");
    tasks
}

#[tokio::test]
async fn those_that_are_slow_to_be_answered_are_not_waited_for() {
    let (server, _writes) = Gated::serve().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let slow = stuck(&server, &remote).await;
    for number in 0..20 {
        let name = Name::lock(number.to_string()).unwrap();
        let shown = remote.show(&name).await.unwrap();
        assert_eq!(shown, None);
    }
    assert!(!slow.iter().any(JoinHandle::is_finished));
    slow.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn whoever_leaves_before_it_is_told_leaves_nothing() {
    let (server, store) = Gated::serve().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let tasks = stuck(&server, &remote).await;
    tasks.iter().for_each(JoinHandle::abort);
    for task in tasks {
        assert!(task.await.unwrap_err().is_cancelled());
    }
    store.writes.add_permits(Semaphore::MAX_PERMITS / 2);
    for number in 0..8 {
        let free = format!("/locks/{number}?nonce=next&wait=30s");
        server.post(&free).await.ok();
    }
}

#[tokio::test]
async fn targets_with_a_fragment_are_refused_among_others_too() {
    let server = Server::start().await;
    let targets = [
        "/locks/a#b?nonce=n",
        "/locks/a?nonce=n#b",
        "/locks/a?nonce=n",
    ];
    let requests = targets.map(|target| one("POST", target)).to_vec();
    let answers = each(ask(&server, requests).await);
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [400, 400, 200]);
    assert_eq!(answers[0].1["type"], "bad-request");
    server.get("/locks/a%23b").await.problem(404, "not-found");
}
