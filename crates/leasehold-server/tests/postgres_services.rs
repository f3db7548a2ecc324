//! Two services on one PostgreSQL, and one whose PostgreSQL is away.

#[path = "http/common.rs"]
#[allow(dead_code, reason = "each test uses its own part of it")]
mod common;
mod services;
#[path = "http/subscriber.rs"]
#[allow(dead_code, reason = "each test uses its own part of it")]
mod subscriber;

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
