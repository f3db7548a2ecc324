//! Refusals that require a service, a store or a token in a certain state.
//!
//! Some texts are not here: of leases that are lost while others are acquired, and of lost answers of a store, because they
//! require a race; of certificates that expire, because they require a long wait; and the errors of each database.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::core::{Fence, Name, Record};
use leasehold::engine::{self, Engine};
use leasehold::host::Machine;
use leasehold::store::memory::Memory;
use leasehold::store::{Store, Write, WriteId};
use leasehold::{HolderKey, Leases as _};
use leasehold_server::access::Limits;
use leasehold_server::{Config, OnFailure};
use tempfile::TempDir;

use super::{Snapshot, Values, read_answer_or_reset, send};
use crate::audit::{self, LogLink};
use crate::common::{Server, TIMEOUT};
use crate::guarded::Guarded;
use crate::requests::Gated;
use crate::subscriber::Subscriber;
use crate::tls::{self, PemFolder};
use crate::waiting::Hanging;

pub(super) async fn add_to(snapshot: &mut Snapshot) {
    limits_of_a_token(snapshot).await;
    limits_of_a_service(snapshot).await;
    rights_that_end(snapshot).await;
    unknown_certificate(snapshot).await;
    slow_and_large_requests(snapshot).await;
    silent_store(snapshot).await;
    corrupt_record(snapshot).await;
    full_audit_log(snapshot).await;
    closed_engine(snapshot).await;
}

/// Starts a service whose engine has these limits.
async fn start_on(
    store: Arc<dyn Store>,
    limits: engine::Config,
    configure: impl FnOnce(&mut Config),
) -> Server {
    let engine = Engine::start_with(store, Machine::shared(), limits).await;
    let mut config = Config::default();
    configure(&mut config);
    Server::start_with(engine.unwrap(), config).await
}

async fn start_with(configure: impl FnOnce(&mut Config)) -> Server {
    start_on(
        Arc::new(Memory::new()),
        engine::Config::default(),
        configure,
    )
    .await
}

async fn limits_of_a_token(snapshot: &mut Snapshot) {
    snapshot.begin_section("More requests of a token than allowed");
    let guarded = Guarded::start_with(|config| config.limits = Limits { rate: 1, waits: 1 }).await;
    let mut values = Values::default();
    values.set("TOKEN", guarded.token("ci", &["read:"]).await);
    // At most one request a second is admitted.
    let request = "GET /locks | Authorization: Bearer $TOKEN";
    let http = values.to_http(request);
    let mut answer = send(&guarded.server, &http).await;
    while answer.status == 200 {
        answer = send(&guarded.server, &http).await;
    }
    snapshot.add(request, &answer);

    snapshot.begin_section("More waiting requests of a token than allowed");
    let guarded = Guarded::start_with(|config| config.limits.waits = 1).await;
    guarded.server.engine_acquire("job").await;
    let token = guarded.token("ci", &["acquire:"]).await;
    let _waiting = guarded
        .begin("POST", "/locks/job?nonce=n&wait=5m", &token)
        .await;
    guarded.server.wait_for_waiters("job", 1).await;
    values.set("WAITING", token);
    let request = "POST /locks/job?nonce=m&wait=1s | Authorization: Bearer $WAITING";
    snapshot.add_all(&guarded.server, &values, &[request]).await;
}

async fn limits_of_a_service(snapshot: &mut Snapshot) {
    let values = Values::default();
    snapshot.begin_section("More subscribers than allowed");
    let server = start_with(|config| config.max_subscribers = 1).await;
    let _subscriber = Subscriber::new(&server, "", None).await;
    snapshot.add_all(&server, &values, &["GET /events"]).await;

    snapshot.begin_section("More connections than allowed");
    let server = start_with(|config| {
        config.max_connections = 2;
        config.max_connections_per_address = Some(1);
    })
    .await;
    server.engine_acquire("job").await;
    let waiting = "/locks/job?nonce=n&wait=5m";
    let _waiting = server.begin("POST", waiting, "", b"").await;
    server.wait_for_waiters("job", 1).await;
    snapshot.add_all(&server, &values, &["GET /locks"]).await;

    snapshot.begin_section("More large answers than allowed");
    let limits = engine::Config::default();
    let server = start_on(Gated::new(), limits, |config| config.max_answer_bytes = 1).await;
    // Two answers that may be large are in progress, so there is no room for a page.
    let requests = br#"{"requests":[{"method":"POST","target":"/locks/a?nonce=n"},{"method":"POST","target":"/locks/b?nonce=n"}]}"#;
    let _batch = server.begin("POST", "/requests", "", requests).await;
    let in_progress = async {
        while server.engine.stats().cached < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let in_progress = tokio::time::timeout(TIMEOUT, in_progress).await;
    in_progress.expect("both requests arrive");
    snapshot.add_all(&server, &values, &["GET /locks"]).await;

    snapshot.begin_section("More operations and waiters than allowed");
    let mut limits = engine::Config::default();
    (limits.queue, limits.waiters) = (1, 0);
    let store = Arc::new(Hanging::default());
    let server = start_on(store.clone(), limits, |_| ()).await;
    server.engine_acquire("job").await;
    let waiting = [
        "POST /locks/job?nonce=n&wait=1s",
        "POST /claims?state=NEW&wait=1s",
    ];
    snapshot.add_all(&server, &values, &waiting).await;
    store.hangs.store(true, Ordering::SeqCst);
    let _queued = server.begin("POST", "/locks/a?nonce=n", "", b"").await;
    let queued = async {
        while server.engine.stats().queued < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let queued = tokio::time::timeout(TIMEOUT, queued).await;
    queued.expect("the operation is queued");
    snapshot
        .add_all(&server, &values, &["POST /locks/b?nonce=n"])
        .await;
}

async fn rights_that_end(snapshot: &mut Snapshot) {
    snapshot.begin_section("Rights that end while a request waits");
    let guarded = Guarded::start().await;
    let root = guarded.token("root", &["acquire:"]).await;
    let token = guarded.token("ci", &["acquire:job"]).await;
    guarded.post("/locks/job?nonce=n&ttl=1h", &root).await.ok();
    let target = "/locks/job?nonce=m&wait=5m";
    let waiting = guarded.begin("POST", target, &token).await;
    guarded.server.wait_for_waiters("job", 1).await;
    guarded.revoke(&token).await;
    let request = format!("POST {target} | Authorization: Bearer $REVOKED");
    snapshot.add(&request, &read_answer_or_reset(waiting).await);
}

async fn unknown_certificate(snapshot: &mut Snapshot) {
    snapshot.begin_section("A client certificate without an entry");
    let folder = PemFolder::new();
    folder.issue_server(&folder.authority("ca.pem"));
    folder.issue(&folder.authority("clients.pem"), "worker", "worker", &[]);
    let guarded = tls::start_guarded(&folder, Some("clients.pem")).await;
    let mut stream = tls::connect(&guarded, &folder.connector(Some("worker"))).await;
    let answer = tls::send_on(&mut stream, "GET", "/whoami").await;
    snapshot.add("GET /whoami", &answer);
}

async fn slow_and_large_requests(snapshot: &mut Snapshot) {
    snapshot.begin_section("Slow and large requests");
    let server = start_with(|config| config.body_timeout = Duration::from_millis(100)).await;
    let slow = "POST /locks/job/1 | Content-Length: 9 < half";
    snapshot.add_all(&server, &Values::default(), &[slow]).await;

    let mut values = Values::default();
    values.set("HEADER", "x".repeat(20_000));
    let server = start_with(|_| ()).await;
    let large = "GET /locks | X-Large: $HEADER";
    snapshot.add_all(&server, &values, &[large]).await;

    values.set("TARGET", "x".repeat(70_000));
    let server = start_with(|config| config.max_head = 256 * 1024).await;
    snapshot.add_all(&server, &values, &["GET /$TARGET"]).await;
}

async fn silent_store(snapshot: &mut Snapshot) {
    snapshot.begin_section("A store that does not answer");
    let mut limits = engine::Config::default();
    limits.timeout = Duration::from_millis(100);
    let store = Arc::new(Hanging::default());
    let server = start_on(store.clone(), limits, |_| ()).await;
    let fence = server.acquire("/locks/nightly?nonce=mine&ttl=1h").await;
    let mut values = Values::default();
    values.set("FENCE", fence.to_string());
    store.hangs.store(true, Ordering::SeqCst);
    let requests = [
        "GET /locks",
        "GET /locks/job",
        "POST /locks/job?nonce=n",
        "POST /locks/nightly/$FENCE/heartbeat",
    ];
    snapshot.add_all(&server, &values, &requests).await;

    let store = Arc::new(Hanging::default());
    let server = start_on(store.clone(), engine::Config::default(), |config| {
        config.ready_timeout = Duration::from_millis(50);
    })
    .await;
    store.hangs.store(true, Ordering::SeqCst);
    snapshot.add_all(&server, &values, &["GET /readyz"]).await;
}

async fn corrupt_record(snapshot: &mut Snapshot) {
    snapshot.begin_section("A corrupt record");
    let store = Memory::new();
    let record = Record {
        fence: Fence::MAX,
        holders: Vec::new(),
        last: None,
        next: None,
        body: "".into(),
        state: None,
        put: None,
    };
    let write = Write {
        name: Name::lock("job").unwrap(),
        expect: None,
        put: Some((WriteId(1), Arc::new(record))),
        body_changed: true,
    };
    store.swap(vec![write]).await.unwrap();
    let server = start_on(Arc::new(store), engine::Config::default(), |_| ()).await;
    let acquire = "POST /locks/job?nonce=n";
    snapshot
        .add_all(&server, &Values::default(), &[acquire])
        .await;
}

async fn full_audit_log(snapshot: &mut Snapshot) {
    snapshot.begin_section("An audit log that cannot be written");
    let server = audit::start(audit::FULL.as_ref(), OnFailure::Refuse).await;
    let requests = ["POST /locks/job?nonce=n", "GET /readyz"];
    snapshot
        .add_all(&server, &Values::default(), &requests)
        .await;

    snapshot.begin_section("An audit log that fails during a request");
    let folder = TempDir::new().unwrap();
    let link = LogLink::new(folder.path().join("audit.jsonl"));
    let server = audit::start(&link.path(), OnFailure::Refuse).await;
    let fence = Fence::new(server.engine_acquire("job").await).unwrap();
    let target = "/locks/job?nonce=n&wait=5m";
    let waiting = server.begin("POST", target, "", b"").await;
    server.wait_for_waiters("job", 1).await;
    link.point_to(audit::FULL);
    audit::wait_for_readiness(&server, 503).await;
    let job = Name::lock("job").unwrap();
    let released = server.engine.release(&job, HolderKey::Fence(fence)).await;
    released.unwrap();
    snapshot.add(
        &format!("POST {target}"),
        &read_answer_or_reset(waiting).await,
    );
}

async fn closed_engine(snapshot: &mut Snapshot) {
    snapshot.begin_section("A service that shuts down");
    let server = start_with(|_| ()).await;
    server.engine.close().await;
    let acquire = "POST /locks/job?nonce=n";
    snapshot
        .add_all(&server, &Values::default(), &[acquire])
        .await;
}
