//! MongoDB killed under load, alone and as one of three, or cut off; hand-offs between engines; round trips.
#![cfg(feature = "mongodb")]

mod outages;
mod records;
mod workers;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

/// Prevents the driver from discovering the server's address and bypassing the proxy.
const DIRECT: &str = "&directConnection=true";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill_under_load() {
    outages::check_kill_under_load("mongodb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill_of_the_leader_of_three() {
    outages::check_leader_kill_under_load("mongodb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_lost_in_time_when_the_network_is_cut_off() {
    let options = DIRECT;
    outages::check_network_cut("mongodb", options, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_by_another_engine_with_and_without_notifications() {
    // A single member answers reads with its next journal commit; the default of 100 ms would hide the effect of
    // notifications.
    let server = Server::builder("mongodb")
        .arg("--journalCommitInterval")
        .arg("5");
    let server = server.start().await.expect("installed");
    outages::check_hand_off_between_engines(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_takes_one_round_trip() {
    let server = Server::start("mongodb").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    // Prevents the driver from monitoring its servers meanwhile.
    let quiet = "&changes=off&heartbeatFrequencyMS=600000";
    let url = server.url_at(proxy.port()) + DIRECT + quiet;
    let trips = outages::RoundTrips::new(&url, proxy, &server.url()).await;
    trips.check_single_operations().await;
}
