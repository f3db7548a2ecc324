//! MongoDB killed under load, alone and as one of three, or cut off; waiters on two engines; round trips.
#![cfg(feature = "mongodb")]

mod outages;
mod records;
mod witness;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

/// Otherwise the driver asks the server where it is, and goes there past the proxy.
const DIRECT: &str = "&directConnection=true";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load("mongodb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_leader_of_three_is_killed_under_load() {
    outages::leader_killed_under_load("mongodb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_the_network_swallows_everything() {
    let options = DIRECT;
    outages::cut_off("mongodb", options, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_through_another_engine_with_and_without_hints() {
    // A set of one answers reads with its next commit of the journal: 100 ms would hide what hints save.
    let server = Server::builder("mongodb")
        .arg("--journalCommitInterval")
        .arg("5");
    let server = server.start().await.expect("installed");
    outages::waiters_elsewhere(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_a_round_trip() {
    let server = Server::start("mongodb").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    // Nor is the driver to look after its servers meanwhile.
    let quiet = "&changes=off&heartbeatFrequencyMS=600000";
    let url = server.url_at(proxy.port()) + DIRECT + quiet;
    let trips = outages::Trips::between(&url, proxy, &server.url()).await;
    trips.one_by_one().await;
}
