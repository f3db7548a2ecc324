//! A network that drops all traffic, at the level of a store.

use std::time::{Duration, Instant};

use leasehold::Error;
use leasehold::core::Name;
use leasehold::store::Store;
use leasehold_testbed::Proxy;

use crate::records::{create, load_one, record, replace, swap_one};

/// Checks that no call hangs, that each error is as unambiguous as possible, and that calls succeed once the network
/// is back.
pub(crate) async fn calls_fail_in_time(store: &dyn Store, proxy: &Proxy) {
    let bound = Duration::from_secs(5);
    let name = Name::lock("a").expect("a valid name");
    swap_one(store, create(&name, record(1, ""))).await;
    let current = load_one(store, &name).await.expect("the record exists");
    proxy.blackhole();
    let started = Instant::now();
    // It is sent on the existing connection, so its outcome is unknown.
    let swapped = store
        .swap(vec![replace(&name, &current, record(2, ""))])
        .await;
    assert!(
        matches!(swapped, Err(Error::Indeterminate(_))),
        "{swapped:?}"
    );
    assert!(started.elapsed() < bound);
    let started = Instant::now();
    let loaded = store.load(&[]).await;
    assert!(matches!(loaded, Err(Error::Unavailable(_))), "{loaded:?}");
    assert!(started.elapsed() < bound);
    proxy.forward();
    let back = Instant::now();
    store.load(&[]).await.expect("it is back");
    assert!(back.elapsed() < bound);
}
