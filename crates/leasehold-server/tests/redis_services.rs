//! Two services on one Redis server, and one whose Redis server is down.

#[path = "http/common.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod common;
mod services;
#[path = "http/subscriber.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod subscriber;

use common::Server;
use leasehold_testbed::Server as Database;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_one_service_is_granted_what_is_released_through_another() {
    services::hand_off("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_is_reported_in_time_and_work_continues_after_it() {
    services::outage("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_of_one_service_receive_the_events_of_another() {
    services::events("redis").await;
}

/// Makes a Redis server the replica of another one.
async fn demote(primary: &Database, other: &Database) {
    let mut stream = TcpStream::connect(("127.0.0.1", primary.port())).await;
    let stream = stream.as_mut().expect("the server runs");
    let command = format!("REPLICAOF 127.0.0.1 {}\r\n", other.port());
    stream.write_all(command.as_bytes()).await.expect("sent");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"+OK\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_is_not_ready_once_its_redis_is_demoted() {
    let primary = Database::start("redis").await.expect("installed");
    let other = Database::start("redis").await.expect("installed");
    let service = Server::start_on(&primary.url()).await;
    let fence = service.acquire("/locks/job?nonce=job&ttl=10m").await;
    service.get("/readyz").await.ok();
    demote(&primary, &other).await;
    for target in ["/locks", "/locks/job", "/readyz"] {
        let shown = service.get(target).await;
        shown.problem(503, "store-unavailable");
    }
    for target in [
        "/locks/new?nonce=new",
        &format!("/locks/job/{fence}/heartbeat"),
    ] {
        let refused = service.post(target).await;
        refused.problem(503, "store-unavailable");
    }
    service.get("/healthz").await.ok();
}
