//! DynamoDB cut off; round trips.
#![cfg(feature = "dynamodb")]

mod outages;
mod records;
mod stalls;
mod witness;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_the_network_swallows_everything() {
    // The shortest that makes sense, where the time is told to the second.
    let options = "&margin=1s";
    outages::cut_off("dynoxide", options, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_a_round_trip() {
    let server = Server::start("dynoxide").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port());
    let trips = outages::Trips::between(&url, proxy, &server.url()).await;
    trips.one_by_one().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let place = stalls::Place {
        scheme: "dynamodb",
        options: "",
        hasty: "",
        patient: "",
    };
    stalls::landed_writes_are_not_repeated(place).await;
}
