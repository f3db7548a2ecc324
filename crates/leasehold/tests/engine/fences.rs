//! Fences only grow, also after the record was deleted.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Fence, Operation, Outcome, Time};
use leasehold::engine::{Config, Engine};
use leasehold::store::Store as _;
use leasehold::store::memory::Memory;

use crate::support::{ManualClock, memory, name, outcome, release, take};

#[tokio::test]
async fn purged_name_gets_higher_fences() {
    let host = ManualClock::new();
    let epoch = Time::from_micros(1_700_000_000_000_000);
    let store = Arc::new(Memory::with_clock(host.clone(), epoch));
    let engine = Engine::start_with(store.clone(), host.clone(), Config::default())
        .await
        .expect("starts");
    let job = name("job");
    let first = take(&engine, &job, "me").await;
    outcome(&engine, &job, release(first.fence)).await;
    let purge = Operation::Purge {
        retention: Duration::from_secs(3_600),
    };
    assert_eq!(
        outcome(&engine, &job, purge.clone()).await,
        Outcome::NotPurged
    );
    host.set(Duration::from_secs(2 * 3_600));
    assert_eq!(outcome(&engine, &job, purge).await, Outcome::Purged);
    assert_eq!(
        store
            .load(std::slice::from_ref(&job))
            .await
            .expect("answers")
            .value,
        [None]
    );
    let second = take(&engine, &job, "me").await;
    assert!(
        second.fence > first.fence,
        "{} after {}",
        second.fence,
        first.fence
    );
}

#[tokio::test]
async fn restarted_store_in_memory_grants_higher_fences() {
    let job = name("job");
    let mut last = Fence::default();
    for _ in 0..5 {
        let engine = memory().await;
        for turn in 0..10 {
            let grant = take(&engine, &job, &turn.to_string()).await;
            assert!(grant.fence > last, "{} after {last}", grant.fence);
            last = grant.fence;
            outcome(&engine, &job, release(last)).await;
        }
        // A process takes longer than this to start.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
