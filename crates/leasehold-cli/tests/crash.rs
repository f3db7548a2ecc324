//! The service is killed with SIGKILL under load 200 times: no acknowledged write is lost, and no fence repeats. Four tests
//! run in parallel, because most of the time is spent by clients that retry.

mod support;
#[path = "../../leasehold/tests/workers/mod.rs"]
mod workers;

use std::sync::Arc;

use leasehold::Remote;
use support::{Folder, Service};
use workers::WorkerPool;

const CYCLES: usize = 50;
const WORKERS: usize = 8;
/// The number of acknowledged operations before each kill.
const LOAD: usize = 40;

macro_rules! fifty_kills {
    ($($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            assert_durable_and_fences_unique().await;
        })*
    };
}

fifty_kills! {
    acknowledged_writes_survive_kills_1_to_50
    acknowledged_writes_survive_kills_51_to_100
    acknowledged_writes_survive_kills_101_to_150
    acknowledged_writes_survive_kills_151_to_200
}

/// Asserts that no acknowledged write is lost and no fence repeats, over fifty kills of the service.
async fn assert_durable_and_fences_unique() {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let mut pool = WorkerPool::new(WORKERS);
    for _ in 0..CYCLES {
        let service = Service::start(&store);
        let leases = Remote::connect(&service.url).expect("the URL is valid");
        let mut shift = pool.start(Arc::new(leases)).await;
        shift.acknowledged(LOAD).await;
        shift.stop();
        drop(service);
        pool.end(shift).await;
    }
    let service = Service::start(&store);
    let leases = Remote::connect(&service.url).expect("the URL is valid");
    pool.check(&leases).await;
    let granted = pool.fences.lock().expect("not poisoned").len();
    assert!(
        granted > CYCLES,
        "{granted} grants between {CYCLES} kills of the service"
    );
}
