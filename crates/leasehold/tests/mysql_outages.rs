//! MariaDB killed under load, or cut off; round trips.
#![cfg(feature = "mysql")]

mod outages;
mod records;
mod stalls;
mod workers;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill_under_load() {
    outages::check_kill_under_load("mysql").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_lost_in_time_when_the_network_is_cut_off() {
    outages::check_network_cut("mysql", "", Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_or_batch_takes_one_round_trip() {
    let server = Server::start("mysql").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port());
    let trips = outages::RoundTrips::new(&url, proxy, &server.url()).await;
    trips.check_single_operations().await;
    trips.check_batch().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let target = stalls::Target {
        scheme: "mysql",
        options: "",
        short_timeouts: "",
        long_timeouts: "",
    };
    stalls::landed_writes_are_not_repeated(target).await;
}
