//! MongoDB with callers on runtimes that may end at any time.
#![cfg(feature = "mongodb")]

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::store::{self, Store};
use tokio::runtime::{Builder, Runtime};

/// How often a runtime ends with active callers. Without the driver's own runtime, about one in ten panics.
const RUNTIMES: usize = 30;
const CALLERS: usize = 16;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

async fn open() -> Arc<dyn Store> {
    let server = leasehold_testbed::shared("mongodb").await.unwrap();
    store::open(&server.url()).await.unwrap()
}

#[test]
fn store_outlives_the_runtime_that_opened_it() {
    let first = runtime();
    let store = first.block_on(open());
    drop(first);
    runtime().block_on(store.load(&[])).unwrap();
}

#[test]
fn runtime_with_active_callers_ends_without_a_panic() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        report(panicked);
    }));
    for _ in 0..RUNTIMES {
        let ending = runtime();
        ending.block_on(async {
            let store = open().await;
            for _ in 0..CALLERS {
                let store = store.clone();
                tokio::spawn(async move { while store.load(&[]).await.is_ok() {} });
            }
            store.load(&[]).await.unwrap();
        });
        drop(ending);
    }
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}
