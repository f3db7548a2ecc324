//! Two services on one PostgreSQL, and one whose PostgreSQL is away.

#[path = "http/common.rs"]
#[allow(dead_code, reason = "each test uses its own part of it")]
mod common;
mod services;
#[path = "http/subscriber.rs"]
#[allow(dead_code, reason = "each test uses its own part of it")]
mod subscriber;

use common::Server;
use leasehold_testbed::Server as Database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_one_service_is_granted_what_is_released_through_another() {
    services::hand_over("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_told_in_time_that_it_is_away_and_work_goes_on_when_it_is_back() {
    services::away("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_service_tells_what_happens_through_another() {
    services::events("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_table_is_the_operators_problem() {
    let database = Database::start("postgres").await.expect("installed");
    let url = format!("{}?schema=leases", database.url());
    let service = Server::start_on(&url).await;
    let fence = service.acquire("/locks/job?nonce=job&ttl=10m").await;
    let (admin, connection) = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls)
        .await
        .expect("it is there");
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
