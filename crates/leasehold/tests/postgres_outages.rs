//! PostgreSQL killed under load, cut off, with a clock that steps; and waiters on two engines.
#![cfg(feature = "postgres")]

mod outages;
mod witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_the_network_swallows_everything() {
    outages::cut_off("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_overlapped_when_its_clock_steps() {
    outages::its_clock_steps("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_through_another_engine_with_and_without_hints() {
    outages::waiters_elsewhere("postgres").await;
}
