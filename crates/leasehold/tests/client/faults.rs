//! A connection to real leases that fails on demand, and remembers what went over it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Name, View};
use leasehold::{
    AcquireAllRequest, AcquireRequest, Acquired, AcquiredAll, BreakRequest, Broke, ClaimRequest,
    Claimed, Error, Holding, Leases, ListRequest, Listing, PutRequest, RenewRequest, Renewed,
    Result, UpdateRequest, Updated,
};

/// What goes over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Acquire,
    Renew,
    Update,
    Release,
}

/// What may go wrong with it.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The request never arrives, and is never answered.
    Hangs,
    /// The request never arrives, and an error says so.
    Fails(Error),
    /// The request never arrives, and an error says so after this long.
    FailsAfter(Duration, Error),
    /// The request takes this long to arrive.
    Delayed(Duration),
    /// The request is performed, its answer takes this long.
    Slow(Duration),
    /// The request is performed, and an error is the answer.
    Unanswered(Error),
    /// All is well.
    None,
}

/// What was seen of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Called(Op),
    Answered(Op),
    /// Something that a test notes itself.
    Noted(&'static str),
}

pub(crate) struct Faulty {
    inner: Arc<dyn Leases>,
    next: Mutex<HashMap<Op, VecDeque<Fault>>>,
    always: Mutex<HashMap<Op, Fault>>,
    seen: Mutex<Vec<Seen>>,
    batches: Mutex<Vec<usize>>,
    nonces: Mutex<Vec<String>>,
    longest_wait: Mutex<Duration>,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Leases>) -> Self {
        Self {
            inner,
            next: Mutex::default(),
            always: Mutex::default(),
            seen: Mutex::default(),
            batches: Mutex::default(),
            nonces: Mutex::default(),
            longest_wait: Mutex::new(Duration::MAX),
        }
    }

    /// From now on.
    pub(crate) fn always(&self, op: Op, fault: Fault) {
        self.always.lock().unwrap().insert(op, fault);
    }

    /// For the next call.
    pub(crate) fn once(&self, op: Op, fault: Fault) {
        let mut next = self.next.lock().unwrap();
        next.entry(op).or_default().push_back(fault);
    }

    pub(crate) fn limit_waits(&self, longest: Duration) {
        *self.longest_wait.lock().unwrap() = longest;
    }

    /// Everything seen, in order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn note(&self, what: &'static str) {
        self.see(Seen::Noted(what));
    }

    /// How many calls there were.
    pub(crate) fn calls(&self, op: Op) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| **seen == Seen::Called(op))
            .count()
    }

    /// How many leases each call renewed.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    /// The nonces asked with.
    pub(crate) fn nonces(&self) -> Vec<String> {
        self.nonces.lock().unwrap().clone()
    }

    fn see(&self, what: Seen) {
        self.seen.lock().unwrap().push(what);
    }

    async fn through<T>(&self, op: Op, perform: impl Future<Output = T>) -> Result<T> {
        self.see(Seen::Called(op));
        let scripted = self
            .next
            .lock()
            .unwrap()
            .get_mut(&op)
            .and_then(VecDeque::pop_front);
        let fault = scripted.or_else(|| self.always.lock().unwrap().get(&op).cloned());
        let answer = match fault.unwrap_or(Fault::None) {
            Fault::None => Ok(perform.await),
            Fault::Hangs => std::future::pending().await,
            Fault::Fails(error) => Err(error),
            Fault::FailsAfter(delay, error) => {
                tokio::time::sleep(delay).await;
                Err(error)
            }
            Fault::Delayed(delay) => {
                tokio::time::sleep(delay).await;
                Ok(perform.await)
            }
            Fault::Slow(delay) => {
                let answer = perform.await;
                tokio::time::sleep(delay).await;
                Ok(answer)
            }
            Fault::Unanswered(error) => {
                perform.await;
                Err(error)
            }
        };
        self.see(Seen::Answered(op));
        answer
    }
}

#[async_trait]
impl Leases for Faulty {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquired> {
        self.nonces
            .lock()
            .unwrap()
            .push(request.nonce.expose().into());
        self.through(Op::Acquire, self.inner.acquire(request))
            .await?
    }

    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquiredAll> {
        self.through(Op::Acquire, self.inner.acquire_all(request))
            .await?
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>> {
        self.through(Op::Acquire, self.inner.claim(request)).await?
    }

    async fn put(&self, request: PutRequest) -> Result<()> {
        self.inner.put(request).await
    }

    async fn remove(&self, name: &Name) -> Result<()> {
        self.inner.remove(name).await
    }

    fn longest_wait(&self) -> Duration {
        *self.longest_wait.lock().unwrap()
    }

    async fn renew(&self, requests: Vec<RenewRequest>, within: Duration) -> Vec<Result<Renewed>> {
        let count = requests.len();
        self.batches.lock().unwrap().push(count);
        let renewal = self.inner.renew(requests, within);
        match self.through(Op::Renew, renewal).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn update(&self, request: UpdateRequest) -> Result<Updated> {
        self.through(Op::Update, self.inner.update(request)).await?
    }

    async fn release(&self, name: &Name, who: Holding) -> Result<bool> {
        self.through(Op::Release, self.inner.release(name, who))
            .await?
    }

    async fn break_lease(&self, name: &Name, how: BreakRequest) -> Result<Broke> {
        self.inner.break_lease(name, how).await
    }

    async fn show(&self, name: &Name) -> Result<Option<View>> {
        self.inner.show(name).await
    }

    async fn list(&self, request: ListRequest) -> Result<Listing> {
        self.inner.list(request).await
    }
}
