//! MongoDB whose answers stall until the driver interrupts the commands in flight: their writes have landed.
#![cfg(feature = "mongodb")]

mod records;
mod stalls;

use leasehold::core::{Fence, Name};
use leasehold::{Error, store};
use leasehold_testbed::Proxy;
use records::{create, load_one, record, replace, swap_one};
use stalls::Place;

/// Otherwise the driver asks the server where it is, and goes there past the proxy.
const DIRECT: &str = "&directConnection=true&changes=off";
/// The driver's monitor gives up after the sum of these, well before the store itself does.
const HASTY: &str = "&connectTimeoutMS=500&heartbeatFrequencyMS=500";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landed_writes_are_not_repeated() {
    let place = Place {
        scheme: "mongodb",
        options: DIRECT,
        hasty: HASTY,
        patient: "",
    };
    stalls::landed_writes_are_not_repeated(place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_write_is_ambiguous() {
    let server = leasehold_testbed::shared("mongodb").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let url = server.url_at(proxy.port()) + DIRECT + HASTY;
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
