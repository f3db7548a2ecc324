//! Azure outages and recoveries.
#![cfg(feature = "azblob")]

mod azblob_support;
mod blackhole;
mod idle_connections;
mod records;
mod stalls;

use std::time::Duration;

use leasehold::Error;
use leasehold::core::Name;
use leasehold::store;
use leasehold_testbed::{Proxy, Server, shared};
use records::{create, load_one, record, swap_one};
use tokio::time::Instant;

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

#[tokio::test]
async fn killed_server_is_used_again() {
    let server = Server::start("azblob").await.expect("installed");
    let store = store::open(&server.url()).await.expect("it opens");
    swap_one(&*store, create(&name("a"), record(1, ""))).await;
    server.kill().await;
    let down = Instant::now();
    let loaded = store.load(&[name("a")]).await;
    assert!(matches!(loaded, Err(Error::Unavailable(_))), "{loaded:?}");
    let swapped = store.swap(vec![create(&name("b"), record(1, ""))]).await;
    assert!(
        matches!(swapped, Err(Error::Unavailable(_))),
        "nothing was sent: {swapped:?}"
    );
    assert!(down.elapsed() < Duration::from_secs(9));
    server.restart().await;
    let back = Instant::now();
    // The emulator has lost everything.
    let loaded = store.load(&[name("a")]).await;
    assert!(
        matches!(&loaded, Err(Error::Denied(why)) if why.contains("leasehold init")),
        "{loaded:?}"
    );
    store.init().await.expect("it is back");
    swap_one(&*store, create(&name("a"), record(1, ""))).await;
    load_one(&*store, &name("a"))
        .await
        .expect("the record exists");
    assert!(back.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn unresponsive_network_is_an_error_in_time() {
    let server = shared("azblob").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let store = store::open(&server.url_at(proxy.port()))
        .await
        .expect("it opens");
    blackhole::calls_fail_in_time(&*store, &proxy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated_when_answers_stall() {
    let target = stalls::Target {
        scheme: "azblob",
        options: "",
        short_timeouts: "",
        long_timeouts: "&timeout=30s",
    };
    stalls::landed_writes_are_not_repeated(target).await;
}

#[tokio::test]
async fn operations_succeed_despite_a_closed_idle_connection() {
    let (url, port) = azblob_support::container_url("idle").await;
    let proxy = Proxy::to(port).await;
    let url = url.replace(&port.to_string(), &proxy.port().to_string());
    idle_connections::operations_succeed(&url, &proxy).await;
}
