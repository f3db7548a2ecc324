//! Leases that fail on demand and record a trace of the calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Name, View};
use leasehold::{
    AcquireAllOutcome, AcquireAllRequest, AcquireOutcome, AcquireRequest, BreakOutcome,
    BreakRequest, ClaimRequest, Error, HolderKey, Leases, ListRequest, Listing, NamedHold,
    PutRequest, RenewRequest, RenewedHold, Result, UpdateOutcome, UpdateRequest,
};

/// An operation that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Acquire,
    Renew,
    Update,
    Release,
}

/// A fault of an operation.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The request is lost, and the call never returns.
    Hang,
    /// The request is lost, and the call returns this error.
    Fail(Error),
    /// The request is lost, and the call returns this error after a delay.
    FailAfter(Duration, Error),
    /// The request is delayed.
    DelayRequest(Duration),
    /// The request is performed, and its response is delayed.
    DelayResponse(Duration),
    /// The request is performed, its response is lost, and the call returns this error.
    LoseResponse(Error),
    /// No fault.
    None,
}

/// An entry of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TraceEvent {
    Request(Op),
    Response(Op),
    /// An entry that a test adds.
    Note(&'static str),
}

pub(crate) struct FaultyLeases {
    inner: Arc<dyn Leases>,
    next: Mutex<HashMap<Op, VecDeque<Fault>>>,
    always: Mutex<HashMap<Op, Fault>>,
    trace: Mutex<Vec<TraceEvent>>,
    batches: Mutex<Vec<usize>>,
    nonces: Mutex<Vec<String>>,
    wait_limit: Mutex<Duration>,
}

impl FaultyLeases {
    pub(crate) fn new(inner: Arc<dyn Leases>) -> Self {
        Self {
            inner,
            next: Mutex::default(),
            always: Mutex::default(),
            trace: Mutex::default(),
            batches: Mutex::default(),
            nonces: Mutex::default(),
            wait_limit: Mutex::new(Duration::MAX),
        }
    }

    /// Sets the fault of all calls from now on.
    pub(crate) fn always(&self, op: Op, fault: Fault) {
        self.always.lock().unwrap().insert(op, fault);
    }

    /// Sets the fault of the next call.
    pub(crate) fn once(&self, op: Op, fault: Fault) {
        let mut next = self.next.lock().unwrap();
        next.entry(op).or_default().push_back(fault);
    }

    /// Limits the wait of one call.
    pub(crate) fn limit_waits(&self, limit: Duration) {
        *self.wait_limit.lock().unwrap() = limit;
    }

    /// Returns the trace.
    pub(crate) fn trace(&self) -> Vec<TraceEvent> {
        self.trace.lock().unwrap().clone()
    }

    /// Adds a note to the trace.
    pub(crate) fn note(&self, text: &'static str) {
        self.record(TraceEvent::Note(text));
    }

    /// Returns the number of calls of an operation.
    pub(crate) fn calls(&self, op: Op) -> usize {
        let trace = self.trace.lock().unwrap();
        trace
            .iter()
            .filter(|event| **event == TraceEvent::Request(op))
            .count()
    }

    /// Returns the number of leases of each renewal call.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    /// Returns the nonces of all acquisitions.
    pub(crate) fn nonces(&self) -> Vec<String> {
        self.nonces.lock().unwrap().clone()
    }

    fn record(&self, event: TraceEvent) {
        self.trace.lock().unwrap().push(event);
    }

    async fn perform<T>(&self, op: Op, call: impl Future<Output = T>) -> Result<T> {
        self.record(TraceEvent::Request(op));
        let scripted = self
            .next
            .lock()
            .unwrap()
            .get_mut(&op)
            .and_then(VecDeque::pop_front);
        let fault = scripted.or_else(|| self.always.lock().unwrap().get(&op).cloned());
        let response = match fault.unwrap_or(Fault::None) {
            Fault::None => Ok(call.await),
            Fault::Hang => std::future::pending().await,
            Fault::Fail(error) => Err(error),
            Fault::FailAfter(delay, error) => {
                tokio::time::sleep(delay).await;
                Err(error)
            }
            Fault::DelayRequest(delay) => {
                tokio::time::sleep(delay).await;
                Ok(call.await)
            }
            Fault::DelayResponse(delay) => {
                let response = call.await;
                tokio::time::sleep(delay).await;
                Ok(response)
            }
            Fault::LoseResponse(error) => {
                call.await;
                Err(error)
            }
        };
        self.record(TraceEvent::Response(op));
        response
    }
}

#[async_trait]
impl Leases for FaultyLeases {
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        self.nonces
            .lock()
            .unwrap()
            .push(request.nonce.expose().into());
        self.perform(Op::Acquire, self.inner.acquire(request))
            .await?
    }

    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquireAllOutcome> {
        self.perform(Op::Acquire, self.inner.acquire_all(request))
            .await?
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<NamedHold>> {
        self.perform(Op::Acquire, self.inner.claim(request)).await?
    }

    async fn put(&self, request: PutRequest) -> Result<()> {
        self.inner.put(request).await
    }

    async fn remove(&self, name: &Name) -> Result<()> {
        self.inner.remove(name).await
    }

    fn max_wait(&self) -> Duration {
        *self.wait_limit.lock().unwrap()
    }

    async fn renew(
        &self,
        requests: Vec<RenewRequest>,
        timeout: Duration,
    ) -> Vec<Result<RenewedHold>> {
        let count = requests.len();
        self.batches.lock().unwrap().push(count);
        let renewal = self.inner.renew(requests, timeout);
        match self.perform(Op::Renew, renewal).await {
            Ok(responses) => responses,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn update(&self, request: UpdateRequest) -> Result<UpdateOutcome> {
        self.perform(Op::Update, self.inner.update(request)).await?
    }

    async fn release(&self, name: &Name, holder: HolderKey) -> Result<bool> {
        self.perform(Op::Release, self.inner.release(name, holder))
            .await?
    }

    async fn break_lease(&self, name: &Name, request: BreakRequest) -> Result<BreakOutcome> {
        self.inner.break_lease(name, request).await
    }

    async fn show(&self, name: &Name) -> Result<Option<View>> {
        self.inner.show(name).await
    }

    async fn list(&self, request: ListRequest) -> Result<Listing> {
        self.inner.list(request).await
    }
}
