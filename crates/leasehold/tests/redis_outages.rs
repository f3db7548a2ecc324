//! Redis killed under load, cut off, with a clock that steps; waiters on two engines; round trips.
#![cfg(feature = "redis")]

mod outages;
mod records;
mod stalls;
mod witness;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_the_network_swallows_everything() {
    outages::cut_off("redis", "", Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_overlapped_when_its_clock_steps() {
    outages::its_clock_steps("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_holder_is_overlapped_when_its_clock_is_slewed() {
    outages::its_clock_is_slewed("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_through_another_engine_with_and_without_hints() {
    let server = Server::start("redis").await.expect("installed");
    outages::waiters_elsewhere(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_a_round_trip_and_so_is_a_batch() {
    let server = Server::start("redis").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port()) + "?changes=off";
    let trips = outages::Trips::between(&url, proxy, &server.url()).await;
    trips.one_by_one().await;
    trips.sixty_four().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let place = stalls::Place {
        scheme: "redis",
        options: "",
        hasty: "",
        patient: "",
    };
    stalls::landed_writes_are_not_repeated(place).await;
}
