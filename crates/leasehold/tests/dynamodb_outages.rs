//! DynamoDB cut off; round trips.
#![cfg(feature = "dynamodb")]

mod outages;
mod records;
mod stalls;
mod workers;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_lost_in_time_when_the_network_is_cut_off() {
    // The smallest useful margin with a clock resolution of a second.
    let options = "&margin=1s";
    outages::check_network_cut("dynoxide", options, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_takes_one_round_trip() {
    let server = Server::start("dynoxide").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port());
    let trips = outages::RoundTrips::new(&url, proxy, &server.url()).await;
    trips.check_single_operations().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let target = stalls::Target {
        scheme: "dynamodb",
        options: "",
        short_timeouts: "",
        long_timeouts: "",
    };
    stalls::landed_writes_are_not_repeated(target).await;
}
