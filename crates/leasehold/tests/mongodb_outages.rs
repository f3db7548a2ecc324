//! MongoDB killed under load; and waiters on two engines.
#![cfg(feature = "mongodb")]

mod outages;
mod witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load("mongodb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_through_another_engine_with_and_without_hints() {
    outages::waiters_elsewhere("mongodb").await;
}
