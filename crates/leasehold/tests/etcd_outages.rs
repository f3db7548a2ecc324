//! etcd killed under load, alone and as one of three, or silent; and waiters on two engines.
#![cfg(feature = "etcd")]

mod outages;
mod witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_it_is_killed_under_load() {
    outages::killed_under_load("etcd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_through_another_engine_with_and_without_hints() {
    outages::waiters_elsewhere("etcd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_leader_of_three_is_killed_under_load() {
    outages::leader_killed_under_load("etcd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_is_given_up_in_time() {
    let url = |server: &leasehold_testbed::Server, port| server.url_at(port);
    outages::silent(url, "etcd").await;
}
