//! Workers that remember everything that was acknowledged to them, and check it again and again.
#![allow(dead_code, reason = "each test uses its own part of it")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::{AcquireRequest, Acquired, Holding, Leases, Result, UpdateRequest, Updated};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(3_600);

/// What one worker knows of its own name: everything that was acknowledged, and what was not answered.
#[derive(Default)]
struct Knowledge {
    highest: Fence,
    held: Option<Fence>,
    body: String,
    doubt: Option<Doubt>,
}

/// An operation that was sent and never answered: it may have happened.
enum Doubt {
    Acquire,
    Update(String),
    Release,
}

/// Every grant there was.
pub(crate) type Fences = Arc<Mutex<BTreeSet<(Name, Fence)>>>;

/// Workers, each with a name of its own, on whatever leases there are.
pub(crate) struct Crew {
    knowledge: Vec<Knowledge>,
    pub(crate) fences: Fences,
    round: usize,
}

/// Workers at work.
pub(crate) struct Shift {
    running: Vec<JoinHandle<Knowledge>>,
    acknowledged: mpsc::UnboundedReceiver<()>,
    stop: Arc<AtomicBool>,
}

impl Crew {
    pub(crate) fn new(workers: usize) -> Self {
        let knowledge = (0..workers).map(|_| Knowledge::default()).collect();
        Self {
            knowledge,
            fences: Fences::default(),
            round: 0,
        }
    }

    /// Sends them to work, after a look at whether everything is still as they know it.
    pub(crate) async fn start(&mut self, leases: Arc<dyn Leases>) -> Shift {
        self.check(&*leases).await;
        self.round += 1;
        let (acknowledge, acknowledged) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let workers = self
            .knowledge
            .drain(..)
            .enumerate()
            .map(|(number, knowledge)| {
                let worker = Worker {
                    leases: Arc::clone(&leases),
                    name: name_of(number),
                    fences: Arc::clone(&self.fences),
                    acknowledge: acknowledge.clone(),
                    stop: Arc::clone(&stop),
                };
                tokio::spawn(worker.work(knowledge, self.round))
            });
        Shift {
            running: workers.collect(),
            acknowledged,
            stop,
        }
    }

    /// Takes them back.
    pub(crate) async fn end(&mut self, shift: Shift) {
        shift.stop();
        for worker in shift.running {
            self.knowledge
                .push(worker.await.expect("every acknowledgement held"));
        }
    }

    /// Whether the store still says everything that was acknowledged.
    pub(crate) async fn check(&self, leases: &dyn Leases) {
        for (number, knowledge) in self.knowledge.iter().enumerate() {
            check(leases, &name_of(number), knowledge)
                .await
                .expect("the store answers");
        }
    }
}

impl Shift {
    /// Waits until so many operations were acknowledged from now on.
    pub(crate) async fn acknowledged(&mut self, count: usize) {
        while self.acknowledged.try_recv().is_ok() {}
        for _ in 0..count {
            self.acknowledged.recv().await.expect("the workers go on");
        }
    }

    /// They finish what they are at.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn name_of(worker: usize) -> Name {
    Name::lock(format!("worker {worker}")).expect("a good name")
}

/// A worker with a name of its own.
struct Worker {
    leases: Arc<dyn Leases>,
    name: Name,
    fences: Fences,
    acknowledge: mpsc::UnboundedSender<()>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// Goes on, whatever goes wrong, until it is told to stop; what was not answered stays in doubt.
    async fn work(self, mut knowledge: Knowledge, round: usize) -> Knowledge {
        for step in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            match self.step(&mut knowledge, &format!("{round}.{step}")).await {
                Ok(()) => drop(self.acknowledge.send(())),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        knowledge
    }

    /// Acquires, updates or releases, whatever comes next; remembers what was answered, or that nothing was.
    async fn step(&self, knowledge: &mut Knowledge, label: &str) -> Result<()> {
        // After a doubt, take the lease anew: its nonce does not matter, the name is this worker's own.
        let Some(fence) = knowledge.held.filter(|_| knowledge.doubt.is_none()) else {
            return self.acquire(knowledge).await;
        };
        if knowledge
            .body
            .starts_with(label.split('.').next().unwrap_or_default())
        {
            knowledge.doubt = Some(Doubt::Release);
            let released = self
                .leases
                .release(&self.name, Holding::Fence(fence))
                .await?;
            assert!(released, "{} lost its lease", self.name);
            knowledge.held = None;
        } else {
            knowledge.doubt = Some(Doubt::Update(label.to_owned()));
            let update = UpdateRequest {
                name: self.name.clone(),
                fence,
                body: Some(label.into()),
                state: None,
                then_release: false,
            };
            let updated = self.leases.update(update).await?;
            assert!(matches!(updated, Updated::Renewed(_)));
            label.clone_into(&mut knowledge.body);
        }
        knowledge.doubt = None;
        Ok(())
    }

    async fn acquire(&self, knowledge: &mut Knowledge) -> Result<()> {
        let doubt = knowledge.doubt.replace(Doubt::Acquire);
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
            Ok(Acquired::Granted(hold)) => hold.grant,
            Ok(Acquired::Held(held)) => panic!("{} is held by {held:?}", self.name),
            Err(error) => {
                // What was in doubt before still is.
                if let Some(doubt @ Doubt::Update(_)) = doubt {
                    knowledge.doubt = Some(doubt);
                }
                return Err(error);
            }
        };
        let fresh = self
            .fences
            .lock()
            .expect("not poisoned")
            .insert((self.name.clone(), grant.fence));
        assert!(fresh, "fence {} of {} came twice", grant.fence, self.name);
        assert!(
            grant.fence > knowledge.highest,
            "{} after {}",
            grant.fence,
            knowledge.highest
        );
        match doubt {
            Some(Doubt::Update(body)) if *grant.body == body => knowledge.body = body,
            _ => assert_eq!(*grant.body, *knowledge.body, "{} lost its body", self.name),
        }
        (knowledge.highest, knowledge.held, knowledge.doubt) =
            (grant.fence, Some(grant.fence), None);
        Ok(())
    }
}

/// Whether the store still says what was acknowledged.
async fn check(leases: &dyn Leases, name: &Name, knowledge: &Knowledge) -> Result<()> {
    let Some(view) = leases.show(name).await? else {
        assert_eq!(knowledge.highest, Fence::default(), "{name} is gone");
        return Ok(());
    };
    let record = view.record;
    assert!(
        record.fence >= knowledge.highest,
        "{name}: fence {} is lost",
        knowledge.highest
    );
    let holder = record.holders.first().map(|holder| holder.fence);
    match &knowledge.doubt {
        None => assert_eq!(holder, knowledge.held, "{name}: holder"),
        Some(Doubt::Release) => assert!(
            holder.is_none() || holder == knowledge.held,
            "{name}: holder"
        ),
        Some(Doubt::Update(_)) | Some(Doubt::Acquire) => {
            assert!(
                holder >= knowledge.held,
                "{name}: holder {holder:?}, not {:?}",
                knowledge.held
            );
        }
    }
    match &knowledge.doubt {
        Some(Doubt::Update(body)) if *record.body == *body => {}
        _ => assert_eq!(*record.body, *knowledge.body, "{name}: body"),
    }
    Ok(())
}
