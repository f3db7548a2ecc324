//! MongoDB's primary stalls for seven seconds under load, alone and as one of three: holders never overlap, no item
//! is lost, and items of a dead worker are claimed again in time.
#![cfg(feature = "mongodb")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::core::{BootTime, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{ClaimRequest, Client, ListRequest, connect};
use leasehold_testbed::Cluster;

const STALL: Duration = Duration::from_secs(7);
const TTL: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);
const ITEMS: usize = 40;
/// The number of additional items that a dying worker holds.
const ORPHANS: usize = 8;
/// Long enough for a busy machine to complete all items.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);

/// What holders and workers recorded during the test.
#[derive(Default)]
struct RunLog {
    /// The intervals in which holders believed that they held the lease.
    holds: Mutex<Vec<(BootTime, BootTime)>>,
    /// When each item was first claimed by a live worker.
    claimed: Mutex<BTreeMap<String, BootTime>>,
    /// Items whose completion was acknowledged.
    completed: Mutex<BTreeSet<String>>,
    is_over: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_primary_overlaps_no_holders_and_loses_no_items() {
    tokio::join!(primary_stalls(1), primary_stalls(3));
}

async fn primary_stalls(nodes: usize) {
    let cluster = Cluster::start("mongodb", nodes).await.unwrap();
    let url = cluster.url();
    let (first, second) = tokio::join!(connect(&url), connect(&url));
    let clients = [first.unwrap(), second.unwrap()];
    let orphans = claim_and_abandon(&url).await;
    let log = Arc::<RunLog>::default();
    let tasks = clients.iter().flat_map(|client| {
        [
            tokio::spawn(contend(client.clone(), Arc::clone(&log))),
            tokio::spawn(contend(client.clone(), Arc::clone(&log))),
            tokio::spawn(work(client.clone(), Arc::clone(&log))),
        ]
    });
    let tasks: Vec<_> = tasks.collect();
    let producing = tokio::spawn(produce(clients[0].clone()));

    let primary = cluster.leader().await;
    primary.pause().await;
    tokio::time::sleep(STALL).await;
    primary.resume().await;
    let back = wait_for_answer(&clients[0]).await;

    let finished = async {
        producing.await.unwrap();
        while count_done(&clients[0]).await < ITEMS + ORPHANS {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let finished = tokio::time::timeout(FINISH_TIMEOUT, finished).await;
    finished.expect("every item is finished in time");
    log.is_over.store(true, Ordering::SeqCst);
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    assert_eq!(count_done(&clients[0]).await, ITEMS + ORPHANS);

    let claimed = log.claimed.lock().unwrap();
    for (name, free) in orphans {
        let since = free.max(back);
        let late = claimed[&name].since(since);
        assert!(late <= 2 * TTL, "{nodes} nodes: `{name}` after {late:?}");
        println!("{nodes} nodes: `{name}` claimed {late:?} later");
    }

    let mut holds = std::mem::take(&mut *log.holds.lock().unwrap());
    holds.sort_unstable();
    assert!(holds.len() > 10, "{nodes} nodes: {} holds", holds.len());
    for pair in holds.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{nodes} nodes: {pair:?}");
    }
}

/// Acquires the lease repeatedly, and holds it briefly, or until it is lost.
async fn contend(client: Client, log: Arc<RunLog>) {
    while !log.is_over.load(Ordering::SeqCst) {
        let acquired = client.lease("resource").ttl(TTL).wait(TTL).acquire().await;
        let Ok(lease) = acquired else { continue };
        let begin = Machine.boot_time();
        let end = tokio::select! {
            _ = lease.lost() => lease.deadline(),
            () = tokio::time::sleep(PAUSE) => Machine.boot_time().min(lease.deadline()),
        };
        log.holds.lock().unwrap().push((begin, end));
        let _ = lease.release().await;
    }
}

/// Claims items and crashes. Returns when each of them is free again.
async fn claim_and_abandon(url: &str) -> BTreeMap<String, BootTime> {
    let worker = connect(url).await.unwrap();
    for number in 0..ORPHANS {
        let put = worker.put(format!("orphan {number}")).state("REQUESTED");
        put.await.unwrap();
    }
    // Through the low-level interface, which neither renews nor releases them.
    let claim = ClaimRequest {
        state: "REQUESTED".into(),
        prefix: "orphan".into(),
        limit: ORPHANS,
        ttl: TTL,
        owner: "dead".into(),
        nonce: Nonce::new("dead").unwrap(),
        wait: Duration::ZERO,
    };
    let claimed = worker.leases().claim(claim).await.unwrap();
    assert_eq!(claimed.len(), ORPHANS);
    let free = Machine.boot_time() + TTL;
    let names = claimed.iter().map(|item| item.name.to_string());
    names.map(|name| (name, free)).collect()
}

/// Returns when the store has answered again.
async fn wait_for_answer(client: &Client) -> BootTime {
    let name = Name::lock("resource").unwrap();
    while client.leases().show(&name).await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    Machine.boot_time()
}

/// Puts every item, and repeats a put that was not acknowledged.
async fn produce(client: Client) {
    for number in 0..ITEMS {
        let name = format!("item {number}");
        let put = || client.put(&name).state("REQUESTED").nonce(&name);
        while put().await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Completes items. An item whose completion was acknowledged must not be claimed again.
async fn work(client: Client, log: Arc<RunLog>) {
    while !log.is_over.load(Ordering::SeqCst) {
        let claim = client.claim("REQUESTED").limit(2).ttl(TTL).wait(TTL / 3);
        for item in claim.await.into_iter().flatten() {
            let name = item.name().to_string();
            let now = Machine.boot_time();
            log.claimed
                .lock()
                .unwrap()
                .entry(name.clone())
                .or_insert(now);
            let is_new = !log.completed.lock().unwrap().contains(&name);
            assert!(is_new, "`{name}` was claimed again");
            if item.complete().state("DONE").await.is_ok() {
                log.completed.lock().unwrap().insert(name);
            }
        }
    }
}

/// Returns how many items are done; zero while the store does not answer.
async fn count_done(client: &Client) -> usize {
    let request = ListRequest {
        state: Some("DONE".into()),
        limit: ITEMS + ORPHANS + 1,
        ..ListRequest::default()
    };
    let listed = client.leases().list(request).await;
    listed.map_or(0, |listing| listing.leases.len())
}
