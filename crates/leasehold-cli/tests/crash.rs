//! The service is killed with -9 under load, again and again: nothing that it acknowledged is lost, and no fence comes
//! twice. Two hundred times in all, by four tests side by side: most of the time goes into clients that try again.

mod support;
#[path = "../../leasehold/tests/workers/mod.rs"]
mod workers;

use std::sync::Arc;

use leasehold::Remote;
use support::{Folder, Service};
use workers::WorkerPool;

const CYCLES: usize = 50;
const WORKERS: usize = 8;
/// Acknowledged operations in each life of the service before it is killed.
const LOAD: usize = 40;

macro_rules! fifty_lives {
    ($($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            nothing_acknowledged_is_lost_and_no_fence_comes_twice().await;
        })*
    };
}

fifty_lives! { first_fifty second_fifty third_fifty fourth_fifty }

async fn nothing_acknowledged_is_lost_and_no_fence_comes_twice() {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let mut crew = WorkerPool::new(WORKERS);
    for _ in 0..CYCLES {
        let service = Service::start(&store);
        let leases = Remote::connect(&service.url).expect("a good URL");
        let mut shift = crew.start(Arc::new(leases)).await;
        shift.acknowledged(LOAD).await;
        shift.stop();
        drop(service);
        crew.end(shift).await;
    }
    let service = Service::start(&store);
    let leases = Remote::connect(&service.url).expect("a good URL");
    crew.check(&leases).await;
    let granted = crew.fences.lock().expect("not poisoned").len();
    assert!(
        granted > CYCLES,
        "{granted} grants in {CYCLES} lives of the service"
    );
}
