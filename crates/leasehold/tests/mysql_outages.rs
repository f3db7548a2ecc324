//! MariaDB killed under load, or cut off; round trips.
#![cfg(feature = "mysql")]

mod outages;
mod records;
mod stalls;
mod witness;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load("mysql").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_the_network_swallows_everything() {
    outages::cut_off("mysql", "", Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_a_round_trip_and_so_is_a_batch() {
    let server = Server::start("mysql").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port());
    let trips = outages::Trips::between(&url, proxy, &server.url()).await;
    trips.one_by_one().await;
    trips.sixty_four().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let place = stalls::Place {
        scheme: "mysql",
        options: "",
        hasty: "",
        patient: "",
    };
    stalls::landed_writes_are_not_repeated(place).await;
}
