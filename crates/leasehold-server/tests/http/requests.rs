//! Batches: `POST /requests`, and a `Remote` that uses it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Mode, Name, Nonce};
use leasehold::engine::Engine;
use leasehold::store::memory::Memory;
use leasehold::store::{Answer as StoreAnswer, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{AcquireOutcome, AcquireRequest, HolderKey, Leases as _, Remote, Result};
use leasehold_server::Config;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::common::{Answer, Server, TIMEOUT};
use crate::guarded::Guarded;

fn request(method: &str, target: &str) -> Value {
    json!({"method": method, "target": target})
}

async fn send_batch(server: &Server, requests: Vec<Value>) -> Answer {
    let body = json!({"requests": requests}).to_string();
    server.send("POST", "/requests", body.as_bytes()).await
}

/// Returns the status and the body of each answer.
fn answers_of(answer: Answer) -> Vec<(u64, Value)> {
    let answers = answer.ok().json["answers"].take();
    let one = |answer: &Value| (answer["status"].as_u64().unwrap(), answer["body"].clone());
    answers.as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn requests_of_a_batch_are_answered_as_if_sent_alone() {
    let server = Server::start_on_sqlite().await;
    let fence = server.acquire("/locks/held?nonce=mine&ttl=1h").await;
    let mut update = request("POST", &format!("/locks/held/{fence}?state=HALF"));
    update["body"] = "so far".into();
    let mut put = request("PUT", "/items/item?state=NEW");
    put["body"] = "work".into();
    let answers = answers_of(
        send_batch(
            &server,
            vec![
                request("POST", "/locks/a%2Fb?nonce=mine&ttl=1h&owner=me"),
                request("POST", "/locks/held?nonce=yours"),
                update,
                put,
                request("POST", "/gates/gate?every=1h"),
                request("GET", "/locks/unused"),
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

    assert_eq!(answers_of(send_batch(&server, vec![]).await), []);
    let mut released = send_batch(
        &server,
        vec![request("DELETE", &format!("/locks/held/{fence}"))],
    )
    .await;
    let released = released.json["answers"][0]["body"].take();
    assert_eq!(released, json!({"released": true}));
}

#[tokio::test]
async fn requests_that_cannot_be_batched_are_refused_one_by_one() {
    let server = Server::start().await;
    let mut long = request("PUT", "/items/item?state=NEW");
    long["body"] = "x".repeat(64 * 1024 + 1).into();
    let answers = answers_of(
        send_batch(
            &server,
            vec![
                request("POST", "/locks/a?nonce=n"),
                request("POST", "/locks/b?nonce=n&wait=1m"),
                request("POST", "/requests"),
                request("GET", "/locks"),
                request("POST", "/locks?name=b&name=c&nonce=n"),
                request("POST", "/claims?state=NEW"),
                request("GET", "/events"),
                request("GET", "/metrics"),
                request("GET", "/"),
                request("NO METHOD", "/locks/b"),
                request("POST", "/locks/b?nonce=n&nonce=n"),
                request("POST", "/locks/b"),
                request("POST", "http://elsewhere/locks/b?nonce=n"),
                request("PATCH", "/locks/b"),
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
async fn invalid_batches_change_nothing() {
    let server = Server::start().await;
    let fine = request("POST", "/locks/a?nonce=n");
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
async fn rights_are_checked_for_each_request_of_a_batch() {
    let guarded = Guarded::start().await;
    let token = guarded.token("ci", &["acquire:ci/"]).await;
    let both = json!({"requests": [
        request("POST", "/locks?name=ci/a&nonce=n"),
        request("POST", "/locks?name=other&nonce=n"),
    ]});
    let both = both.to_string();
    let anonymous = guarded.ask("POST", "/requests", "", both.as_bytes()).await;
    anonymous.problem(401, "unauthorized");
    let answers = guarded
        .ask("POST", "/requests", &token, both.as_bytes())
        .await;
    let answers = answers_of(answers);
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

/// Returns how often an operation was requested, by the service's metrics.
async fn request_count(server: &Server, operation: &str) -> u64 {
    let page = server.get("/metrics").await.body;
    let start = format!("leasehold_requests_total{{operation=\"{operation}\"");
    let lines = page.lines().filter(|line| line.starts_with(&start));
    let counts = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    counts.sum()
}

#[tokio::test]
async fn requests_of_concurrent_tasks_are_batched() {
    let server = Server::start_on_sqlite().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let alone = remote.acquire(acquire("alone", "n")).await.unwrap();
    assert!(matches!(alone, AcquireOutcome::Granted(_)));
    assert_eq!(
        request_count(&server, "requests").await,
        0,
        "a single request is not batched"
    );
    let tasks = (0..100).map(|number| {
        let remote = remote.clone();
        tokio::spawn(async move {
            let name = format!("job/{number}");
            let AcquireOutcome::Granted(hold) =
                remote.acquire(acquire(&name, "it's \"mine\" é")).await?
            else {
                panic!("{name} is free");
            };
            let name = Name::lock(&name)?;
            assert!(remote.show(&name).await?.is_some());
            remote
                .release(&name, HolderKey::Fence(hold.grant.fence))
                .await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Ok(true));
    }
    assert_eq!(request_count(&server, "acquire").await, 101);
    assert_eq!(request_count(&server, "release").await, 100);
    let batches = request_count(&server, "requests").await;
    assert!((1..150).contains(&batches), "{batches} for 300");
}

#[tokio::test]
async fn stopped_service_is_reported_to_all_callers() {
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

/// A store that requires a permit for each write.
pub(crate) struct Gated {
    memory: Memory,
    pub(crate) writes: Semaphore,
}

impl Gated {
    /// Creates a store without permits.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(),
            writes: Semaphore::new(0),
        })
    }

    /// Starts a service on a store without permits.
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

    async fn load(&self, names: &[Name]) -> Result<StoreAnswer<Vec<Option<Stored>>>> {
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<StoreAnswer<Vec<Swapped>>> {
        let permit = self.writes.acquire().await;
        permit.expect("the semaphore is never closed").forget();
        self.memory.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<StoreAnswer<Page>> {
        self.memory.find(query).await
    }
}

/// Starts acquisitions that wait for the store.
async fn start_stuck_acquisitions(
    server: &Server,
    remote: &Remote,
) -> Vec<JoinHandle<Result<AcquireOutcome>>> {
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
    let arrived = tokio::time::timeout(TIMEOUT, arrived).await;
    arrived.expect("the requests arrive");
    tasks
}

#[tokio::test]
async fn slow_requests_do_not_delay_others() {
    let (server, _writes) = Gated::serve().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let slow = start_stuck_acquisitions(&server, &remote).await;
    for number in 0..20 {
        let name = Name::lock(number.to_string()).unwrap();
        let shown = remote.show(&name).await.unwrap();
        assert_eq!(shown, None);
    }
    assert!(!slow.iter().any(JoinHandle::is_finished));
    slow.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn callers_that_leave_before_their_answer_hold_nothing() {
    let (server, store) = Gated::serve().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let tasks = start_stuck_acquisitions(&server, &remote).await;
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
async fn targets_with_a_fragment_are_refused_in_batches() {
    let server = Server::start().await;
    let targets = [
        "/locks/a#b?nonce=n",
        "/locks/a?nonce=n#b",
        "/locks/a?nonce=n",
    ];
    let requests = targets.map(|target| request("POST", target)).to_vec();
    let answers = answers_of(send_batch(&server, requests).await);
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [400, 400, 200]);
    assert_eq!(answers[0].1["type"], "bad-request");
    server.get("/locks/a%23b").await.problem(404, "not-found");
}
