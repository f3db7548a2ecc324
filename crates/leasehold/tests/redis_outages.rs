//! Redis killed under load, cut off, with a clock that steps; hand-offs between engines; round trips.
#![cfg(feature = "redis")]

mod outages;
mod records;
mod stalls;
mod workers;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill_under_load() {
    outages::check_kill_under_load("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_lost_in_time_when_the_network_is_cut_off() {
    outages::check_network_cut("redis", "", Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_holder_is_overlapped_when_the_clock_steps() {
    outages::check_clock_steps("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_holder_is_overlapped_when_the_clock_is_slewed() {
    outages::check_clock_slew("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_by_another_engine_with_and_without_notifications() {
    let server = Server::start("redis").await.expect("installed");
    outages::check_hand_off_between_engines(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_or_batch_takes_one_round_trip() {
    let server = Server::start("redis").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port()) + "?changes=off";
    let trips = outages::RoundTrips::new(&url, proxy, &server.url()).await;
    trips.check_single_operations().await;
    trips.check_batch().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let target = stalls::Target {
        scheme: "redis",
        options: "",
        short_timeouts: "",
        long_timeouts: "",
    };
    stalls::landed_writes_are_not_repeated(target).await;
}
