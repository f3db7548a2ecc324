//! Workers are killed with SIGKILL at random moments: every item is completed by exactly one fence, two commands never work
//! on an item at the same time, and the fence of a killed worker cannot complete it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::core::{EndReason, Fence, Name, View};
use leasehold::host::{Host as _, Machine};
use leasehold::{Client, Error, ListRequest, PutRequest, UpdateRequest};
use tempfile::TempDir;

const ITEMS: usize = 500;
const WORKERS: usize = 4;
/// How many workers are killed, at random intervals of up to [`MAX_PAUSE_MS`].
const KILLS: usize = 15;
const MAX_PAUSE_MS: u128 = 1_000;
const TIMEOUT: Duration = Duration::from_secs(300);

/// Appends its begin and its end to the journal; short appended lines are never torn.
const COMMAND: &str = "\
    echo \"begin $LEASEHOLD_NAME $LEASEHOLD_FENCE\" >>\"$JOURNAL\"
    sleep 0.02
    echo \"end $LEASEHOLD_NAME $LEASEHOLD_FENCE\" >>\"$JOURNAL\"";

#[tokio::test]
async fn every_item_is_completed_once_although_workers_are_killed() {
    let folder = TempDir::new().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("leases.db").display());
    let journal = folder.path().join("journal");
    let client = leasehold::connect(&store).await.expect("a new file");
    for number in 0..ITEMS {
        let item = PutRequest {
            name: Name::lock(format!("item-{number}")).expect("the name is valid"),
            state: "NEW".into(),
            body: Some(format!("{number}").into()),
            nonce: None,
        };
        client.leases().put(item).await.expect("put");
    }

    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| Worker::start(&store, &journal))
        .collect();
    for _ in 0..KILLS {
        let pause = Machine.random() % MAX_PAUSE_MS;
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        let victim = (Machine.random() % WORKERS as u128) as usize;
        workers[victim] = Worker::start(&store, &journal);
    }
    let give_up = Instant::now() + TIMEOUT;
    while in_state(&client, "DONE").await.len() < ITEMS {
        assert!(Instant::now() < give_up, "some items were not completed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(workers);

    let journal = std::fs::read_to_string(&journal).expect("a journal");
    let done = in_state(&client, "DONE").await;
    assert_eq!(done.len(), ITEMS);
    let mut stale = 0;
    for (name, view) in &done {
        // A worker that was killed between the end of its command and the write has an `end` in the journal too.
        let fences = fences_of(&journal, name.as_str());
        let last = view.record.last.as_ref().expect("the item was completed");
        assert!(
            matches!(last.how, EndReason::Completed(_)),
            "{name}: {last:?}"
        );
        assert_eq!(
            fences.last_key_value(),
            Some((&last.fence, &true)),
            "{name}"
        );
        for (&fence, _) in fences.range(..last.fence) {
            assert_refused(&client, name, fence).await;
            stale += 1;
        }
    }
    assert!(
        stale > 0,
        "no worker was killed while it had an item: kill more often"
    );
    client.close().await;
}

/// Returns the fences that worked on an item, and whether their commands ended. Asserts that they never overlapped.
fn fences_of(journal: &str, item: &str) -> BTreeMap<Fence, bool> {
    let mut fences = BTreeMap::new();
    for line in journal.lines() {
        let mut words = line.split(' ');
        let (what, name, fence) = (words.next(), words.next(), words.next());
        if name != Some(item) {
            continue;
        }
        let fence = fence.and_then(|fence| fence.parse().ok());
        let fence = fence.and_then(Fence::new).expect("a fence");
        let latest = fences.last_key_value().map(|(fence, _)| *fence);
        match what {
            Some("begin") => {
                assert!(
                    latest < Some(fence),
                    "{item}: {fence} comes after {latest:?}"
                );
                fences.insert(fence, false);
            }
            _ => {
                assert_eq!(latest, Some(fence), "{item}: two commands overlapped");
                fences.insert(fence, true);
            }
        }
    }
    fences
}

async fn assert_refused(client: &Client, name: &Name, fence: Fence) {
    let completion = UpdateRequest {
        name: name.clone(),
        fence,
        body: None,
        state: Some(Some("DONE".into())),
        then_release: true,
    };
    let refused = client.leases().update(completion).await;
    assert!(
        matches!(refused, Err(Error::Fenced | Error::Expired)),
        "{name} by {fence}: {refused:?}"
    );
}

async fn in_state(client: &Client, state: &str) -> Vec<(Name, View)> {
    let request = ListRequest {
        state: Some(state.into()),
        limit: 2 * ITEMS,
        ..ListRequest::default()
    };
    client.leases().list(request).await.expect("a list").leases
}

/// A `leasehold work`, which is killed with SIGKILL when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(store: &str, journal: &Path) -> Self {
        let states = ["NEW", "--next", "DONE", "--failed", "FAILED"];
        let child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["--store", store, "work"])
            .args(states)
            .args(["--parallel", "2", "--ttl", "3s", "--quiet", "--"])
            .args(["sh", "-c", COMMAND])
            .env("JOURNAL", journal)
            .stdin(Stdio::null())
            .spawn()
            .expect("a worker");
        Self(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Sends SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
