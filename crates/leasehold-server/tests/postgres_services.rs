//! Two services on one PostgreSQL server, and one whose PostgreSQL server is down.

#[path = "http/common.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod common;
mod services;
#[path = "http/subscriber.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod subscriber;

use common::Server;
use leasehold_testbed::Server as Database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_one_service_is_granted_what_is_released_through_another() {
    services::hand_off("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_is_reported_in_time_and_work_continues_after_it() {
    services::outage("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_of_one_service_receive_the_events_of_another() {
    services::events("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_table_is_reported_with_the_command_that_creates_it() {
    let database = Database::start("postgres").await.expect("installed");
    let url = format!("{}?schema=leases", database.url());
    let service = Server::start_on(&url).await;
    let fence = service.acquire("/locks/job?nonce=job&ttl=10m").await;
    let (admin, connection) = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls)
        .await
        .expect("the server runs");
    tokio::spawn(connection);
    let drop = "drop schema leases cascade";
    admin.batch_execute(drop).await.expect("dropped");
    for target in ["/locks", "/locks/job", "/readyz"] {
        let shown = service.get(target).await;
        shown.problem(503, "store-unavailable");
    }
    for target in [
        "/locks/new?nonce=new",
        &format!("/locks/job/{fence}/heartbeat"),
    ] {
        let refused = service.post(target).await;
        let refused = refused.problem(503, "store-unavailable");
        assert!(
            refused.text("detail").contains("leasehold init"),
            "{refused:?}"
        );
    }
}
