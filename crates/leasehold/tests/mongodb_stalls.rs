//! MongoDB whose answers stall until the driver interrupts the commands in flight, whose writes have landed.
#![cfg(feature = "mongodb")]

mod records;
mod stalls;

use leasehold::core::{Fence, Name};
use leasehold::{Error, store};
use leasehold_testbed::Proxy;
use records::{create, load_one, record, replace, swap_one};
use stalls::Target;

/// Prevents the driver from discovering the server's address and bypassing the proxy.
const DIRECT: &str = "&directConnection=true&changes=off";
/// The driver's monitor times out after the sum of these, well before the store itself.
const SHORT_TIMEOUTS: &str = "&connectTimeoutMS=500&heartbeatFrequencyMS=500";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated() {
    let target = Target {
        scheme: "mongodb",
        options: DIRECT,
        short_timeouts: SHORT_TIMEOUTS,
        long_timeouts: "",
    };
    stalls::landed_writes_are_not_repeated(target).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_write_is_ambiguous() {
    let server = leasehold_testbed::shared("mongodb").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port()) + DIRECT + SHORT_TIMEOUTS;
    let store = store::open(&url).await.unwrap();
    let name = Name::lock("interrupted").unwrap();
    swap_one(&*store, create(&name, record(1, ""))).await;
    let current = load_one(&*store, &name).await.unwrap();
    proxy.stall_answers();
    let write = replace(&name, &current, record(2, ""));
    let swapped = store.swap(vec![write]).await;
    assert!(
        matches!(&swapped, Err(Error::Indeterminate(why)) if why.contains("interrupted")),
        "{swapped:?}"
    );
    let landed = store::open(&server.url()).await.unwrap();
    let landed = load_one(&*landed, &name).await.unwrap();
    assert_eq!(landed.record.fence, Fence::new(2).unwrap());
}
