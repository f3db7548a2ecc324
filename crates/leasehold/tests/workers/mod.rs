//! Workers that record everything that was acknowledged, and check it repeatedly.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::{
    AcquireOutcome, AcquireRequest, HolderKey, Leases, Result, UpdateOutcome, UpdateRequest,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(3_600);

/// What a worker expects of its name: the acknowledged state, and an unanswered operation.
#[derive(Default)]
struct ExpectedState {
    highest: Fence,
    held: Option<Fence>,
    body: String,
    pending: Option<PendingOperation>,
}

/// An operation that was sent and never answered, so it may have happened.
enum PendingOperation {
    Acquire,
    Update(String),
    Release,
}

/// All grants.
pub(crate) type Fences = Arc<Mutex<BTreeSet<(Name, Fence)>>>;

/// A pool of workers, each with its own name, on any kind of leases.
pub(crate) struct WorkerPool {
    expected: Vec<ExpectedState>,
    pub(crate) fences: Fences,
    round: usize,
}

/// Running workers.
pub(crate) struct RunningWorkers {
    running: Vec<JoinHandle<ExpectedState>>,
    acknowledged: mpsc::UnboundedReceiver<()>,
    stop: Arc<AtomicBool>,
}

impl WorkerPool {
    pub(crate) fn new(workers: usize) -> Self {
        let expected = (0..workers).map(|_| ExpectedState::default()).collect();
        Self {
            expected,
            fences: Fences::default(),
            round: 0,
        }
    }

    /// Checks that the store has what the workers expect, and starts them.
    pub(crate) async fn start(&mut self, leases: Arc<dyn Leases>) -> RunningWorkers {
        self.check(&*leases).await;
        self.round += 1;
        let (acknowledge, acknowledged) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let workers = self
            .expected
            .drain(..)
            .enumerate()
            .map(|(number, expected)| {
                let worker = Worker {
                    leases: Arc::clone(&leases),
                    name: name_of(number),
                    fences: Arc::clone(&self.fences),
                    acknowledge: acknowledge.clone(),
                    stop: Arc::clone(&stop),
                };
                tokio::spawn(worker.work(expected, self.round))
            });
        RunningWorkers {
            running: workers.collect(),
            acknowledged,
            stop,
        }
    }

    /// Stops the workers and collects their expectations.
    pub(crate) async fn end(&mut self, workers: RunningWorkers) {
        workers.stop();
        for worker in workers.running {
            self.expected
                .push(worker.await.expect("every acknowledgement held"));
        }
    }

    /// Checks that the store still has everything that was acknowledged.
    pub(crate) async fn check(&self, leases: &dyn Leases) {
        for (number, expected) in self.expected.iter().enumerate() {
            check(leases, &name_of(number), expected)
                .await
                .expect("the store answers");
        }
    }
}

impl RunningWorkers {
    /// Waits until this many further operations were acknowledged.
    pub(crate) async fn acknowledged(&mut self, count: usize) {
        while self.acknowledged.try_recv().is_ok() {}
        for _ in 0..count {
            self.acknowledged
                .recv()
                .await
                .expect("the workers are running");
        }
    }

    /// Lets the workers finish their current operation.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn name_of(worker: usize) -> Name {
    Name::lock(format!("worker {worker}")).expect("a valid name")
}

/// A worker with its own name.
struct Worker {
    leases: Arc<dyn Leases>,
    name: Name,
    fences: Fences,
    acknowledge: mpsc::UnboundedSender<()>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// Runs until stopped, also after errors. An unanswered operation stays pending.
    async fn work(self, mut expected: ExpectedState, round: usize) -> ExpectedState {
        for step in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            match self.step(&mut expected, &format!("{round}.{step}")).await {
                Ok(()) => drop(self.acknowledge.send(())),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        expected
    }

    /// Acquires, updates or releases, in turn, and records the answer or its absence.
    async fn step(&self, expected: &mut ExpectedState, label: &str) -> Result<()> {
        // After an ambiguous operation, acquire again: the name is this worker's own, so its nonce regains the lease.
        let Some(fence) = expected.held.filter(|_| expected.pending.is_none()) else {
            return self.acquire(expected).await;
        };
        if expected
            .body
            .starts_with(label.split('.').next().unwrap_or_default())
        {
            expected.pending = Some(PendingOperation::Release);
            let released = self
                .leases
                .release(&self.name, HolderKey::Fence(fence))
                .await?;
            assert!(released, "{} lost its lease", self.name);
            expected.held = None;
        } else {
            expected.pending = Some(PendingOperation::Update(label.to_owned()));
            let update = UpdateRequest {
                name: self.name.clone(),
                fence,
                body: Some(label.into()),
                state: None,
                then_release: false,
            };
            let updated = self.leases.update(update).await?;
            assert!(matches!(updated, UpdateOutcome::Renewed(_)));
            label.clone_into(&mut expected.body);
        }
        expected.pending = None;
        Ok(())
    }

    async fn acquire(&self, expected: &mut ExpectedState) -> Result<()> {
        let pending = expected.pending.replace(PendingOperation::Acquire);
        let request = AcquireRequest {
            name: self.name.clone(),
            nonce: Nonce::new(format!("nonce of {}", self.name)).expect("short"),
            owner: "worker".into(),
            ttl: LONG,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        let grant = match self.leases.acquire(request).await {
            Ok(AcquireOutcome::Granted(hold)) => hold.grant,
            Ok(AcquireOutcome::Held(held)) => panic!("{} is held by {held:?}", self.name),
            Err(error) => {
                // An earlier ambiguous update is still pending.
                if let Some(pending @ PendingOperation::Update(_)) = pending {
                    expected.pending = Some(pending);
                }
                return Err(error);
            }
        };
        let is_new = self
            .fences
            .lock()
            .expect("not poisoned")
            .insert((self.name.clone(), grant.fence));
        assert!(
            is_new,
            "fence {} of {} was granted twice",
            grant.fence, self.name
        );
        assert!(
            grant.fence > expected.highest,
            "{} after {}",
            grant.fence,
            expected.highest
        );
        match pending {
            Some(PendingOperation::Update(body)) if *grant.body == body => expected.body = body,
            _ => assert_eq!(*grant.body, *expected.body, "{} lost its body", self.name),
        }
        (expected.highest, expected.held, expected.pending) =
            (grant.fence, Some(grant.fence), None);
        Ok(())
    }
}

/// Checks that the store still has what was acknowledged.
async fn check(leases: &dyn Leases, name: &Name, expected: &ExpectedState) -> Result<()> {
    let Some(view) = leases.show(name).await? else {
        assert_eq!(expected.highest, Fence::default(), "{name} is gone");
        return Ok(());
    };
    let record = view.record;
    assert!(
        record.fence >= expected.highest,
        "{name}: fence {} is lost",
        expected.highest
    );
    let holder = record.holders.first().map(|holder| holder.fence);
    match &expected.pending {
        None => assert_eq!(holder, expected.held, "{name}: holder"),
        Some(PendingOperation::Release) => assert!(
            holder.is_none() || holder == expected.held,
            "{name}: holder"
        ),
        Some(PendingOperation::Update(_)) | Some(PendingOperation::Acquire) => {
            assert!(
                holder >= expected.held,
                "{name}: holder {holder:?}, not {:?}",
                expected.held
            );
        }
    }
    match &expected.pending {
        Some(PendingOperation::Update(body)) if *record.body == *body => {}
        _ => assert_eq!(*record.body, *expected.body, "{name}: body"),
    }
    Ok(())
}
