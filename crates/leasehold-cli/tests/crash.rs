//! The service is killed with -9 under load, again and again: nothing that it acknowledged is lost, and no fence comes
//! twice. Two hundred times in all, by four tests side by side: most of the time goes into clients that try again.

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::{
    AcquireRequest, Acquired, Holding, Leases, Remote, Result, UpdateRequest, Updated,
};
use support::{Folder, Service};

const CYCLES: usize = 50;
const WORKERS: usize = 8;
/// Acknowledged operations in each life of the service before it is killed.
const LOAD: usize = 40;
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
    let mut workers: Vec<_> = (0..WORKERS).map(|_| Knowledge::default()).collect();
    let fences = Arc::new(Mutex::new(BTreeSet::new()));
    for cycle in 0..CYCLES {
        let service = Service::start(&store);
        let remote = Remote::connect(&service.url).expect("a good URL");
        let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
        let running: Vec<_> = workers
            .drain(..)
            .enumerate()
            .map(|(number, knowledge)| {
                let worker = Worker {
                    remote: remote.clone(),
                    name: Name::lock(format!("worker {number}")).expect("a good name"),
                    fences: Arc::clone(&fences),
                    acknowledge: acknowledge.clone(),
                };
                tokio::spawn(worker.work(knowledge, cycle))
            })
            .collect();
        for _ in 0..LOAD {
            acknowledged.recv().await.expect("the workers go on");
        }
        drop(service);
        for worker in running {
            workers.push(worker.await.expect("every acknowledgement held"));
        }
    }
    let service = Service::start(&store);
    let remote = Remote::connect(&service.url).expect("a good URL");
    for (number, knowledge) in workers.iter().enumerate() {
        let name = Name::lock(format!("worker {number}")).expect("a good name");
        check(&remote, &name, knowledge)
            .await
            .expect("the service answers");
    }
    let granted = fences.lock().expect("not poisoned").len();
    assert!(
        granted > CYCLES,
        "{granted} grants in {CYCLES} lives of the service"
    );
}

struct Worker {
    remote: Remote,
    name: Name,
    fences: Arc<Mutex<BTreeSet<(Name, Fence)>>>,
    acknowledge: tokio::sync::mpsc::UnboundedSender<()>,
}

impl Worker {
    /// Checks what it knows, and goes on until the service is gone.
    async fn work(self, mut knowledge: Knowledge, cycle: usize) -> Knowledge {
        if check(&self.remote, &self.name, &knowledge).await.is_err() {
            return knowledge;
        }
        for step in 0.. {
            if self
                .step(&mut knowledge, &format!("{cycle}.{step}"))
                .await
                .is_err()
            {
                break;
            }
            let _ = self.acknowledge.send(());
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
                .remote
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
            let updated = self.remote.update(update).await?;
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
        let grant = match self.remote.acquire(request).await {
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
async fn check(remote: &Remote, name: &Name, knowledge: &Knowledge) -> Result<()> {
    let Some(view) = remote.show(name).await? else {
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
