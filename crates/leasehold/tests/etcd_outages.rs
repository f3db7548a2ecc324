//! etcd killed under load, alone and as one of three, or cut off; hand-offs between engines; round trips.
#![cfg(feature = "etcd")]

mod outages;
mod records;
mod stalls;
mod workers;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

/// An etcd version that keeps acknowledged writes when it is killed, unlike 3.5.0 to 3.5.2.
const CRASH_SAFE_ETCD: &str = "etcd-debian";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill_under_load() {
    outages::check_kill_under_load(CRASH_SAFE_ETCD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill_of_the_leader_of_three() {
    outages::check_leader_kill_under_load(CRASH_SAFE_ETCD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_lost_in_time_when_the_network_is_cut_off() {
    // The smallest useful margin with a clock resolution of a second.
    let options = "?margin=1s";
    outages::check_network_cut("etcd", options, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_by_another_engine_with_and_without_notifications() {
    let server = Server::start("etcd").await.expect("installed");
    outages::check_hand_off_between_engines(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_or_batch_takes_one_round_trip() {
    let server = Server::start("etcd").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port()) + "?changes=off";
    let trips = outages::RoundTrips::new(&url, proxy, &server.url()).await;
    trips.check_single_operations().await;
    trips.check_batch().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let target = stalls::Target {
        scheme: "etcd",
        options: "?changes=off",
        short_timeouts: "",
        long_timeouts: "",
    };
    stalls::landed_writes_are_not_repeated(target).await;
}
