//! etcd killed under load, alone and as one of three, or cut off; waiters on two engines; round trips.
#![cfg(feature = "etcd")]

mod outages;
mod records;
mod stalls;
mod witness;

use std::time::Duration;

use leasehold_testbed::{Proxy, Server};

/// An etcd that keeps its word when it is killed: 3.5.0 to 3.5.2 do not.
const THAT_MAY_BE_KILLED: &str = "etcd-debian";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load(THAT_MAY_BE_KILLED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_leader_of_three_is_killed_under_load() {
    outages::leader_killed_under_load(THAT_MAY_BE_KILLED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_the_network_swallows_everything() {
    // The shortest that makes sense, where the time is told to the second.
    let options = "?margin=1s";
    outages::cut_off("etcd", options, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_through_another_engine_with_and_without_hints() {
    let server = Server::start("etcd").await.expect("installed");
    outages::waiters_elsewhere(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_a_round_trip_and_so_is_a_batch() {
    let server = Server::start("etcd").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port()) + "?changes=off";
    let trips = outages::Trips::between(&url, proxy, &server.url()).await;
    trips.one_by_one().await;
    trips.sixty_four().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let place = stalls::Place {
        scheme: "etcd",
        options: "?changes=off",
        hasty: "",
        patient: "",
    };
    stalls::landed_writes_are_not_repeated(place).await;
}
