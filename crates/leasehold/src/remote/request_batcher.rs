//! Batches the concurrent requests of many tasks: one round trip carries those that arrived during the last ones.
//!
//! A few requests are sent directly, each on its own connection, so a lone caller never waits for a batch. A request
//! that the service does not answer immediately, such as a wait for a lease, is always sent directly.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use tokio::sync::oneshot;

use super::connection::ExchangeError;
use super::leases::json;
use super::{ANSWER_TIMEOUT, Remote, ServiceCall, ServiceResponse};
use crate::wire::{Answers, GrantKind, Lease, MAX_REQUESTS, Requests, SingleRequest};

/// The maximum number of requests in flight for a request to be sent directly.
const MAX_SINGLE: usize = 4;
/// The maximum number of prompt senders: two, so that the client and the service work at the same time.
const MAX_PROMPT_SENDERS: usize = 2;
/// The time after which a batch is slow, and another sender may start…
const SLOW_BATCH: Duration = Duration::from_millis(10);
/// …unless there are this many slow senders.
const MAX_SLOW_SENDERS: usize = 16;
/// The longest body of a batched request.
const MAX_BATCHED_BODY: usize = 1024;
/// The maximum size of a batch: half of what a service accepts.
const MAX_BATCH_BYTES: usize = 512 * 1024;

/// The queue of requests to batch.
#[derive(Default)]
pub(super) struct RequestBatcher {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests that have not been sent yet.
    queue: VecDeque<QueuedRequest>,
    /// How many requests are unanswered, both direct and batched ones…
    in_flight: usize,
    /// …and how many of them are in batches that have been sent.
    in_batches: usize,
    /// Senders whose batch is not slow so far.
    prompt_senders: usize,
    slow_senders: usize,
}

struct QueuedRequest {
    call: ServiceCall,
    /// The caller's channel, unless no caller waits.
    reply: Option<oneshot::Sender<Result<ServiceResponse, ExchangeError>>>,
}

impl QueuedRequest {
    /// Returns whether its caller was dropped.
    fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Returns an upper bound of its size in a batch.
    fn max_bytes(&self) -> usize {
        let escaped = 6 * self.call.body.len();
        self.call.target.without_base().len() + escaped + 512
    }
}

/// How a request is sent.
pub(super) enum Dispatch<'a> {
    /// Directly, by the caller.
    SingleRequest(ServiceCall, Option<InFlight<'a>>),
    /// In a batch. The receiver gets the answer.
    Batched(
        oneshot::Receiver<Result<ServiceResponse, ExchangeError>>,
        InFlight<'a>,
    ),
}

/// Counts a request that is in flight.
pub(super) struct InFlight<'a>(&'a RequestBatcher);

impl InFlight<'_> {
    /// Returns whether no other request is in flight.
    pub(super) fn is_only_one(&self) -> bool {
        self.0.state().in_flight == 1
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

impl RequestBatcher {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the next batch: an equal share of all batched requests, so that every sender has some.
    fn next_batch(&mut self) -> Vec<QueuedRequest> {
        self.queue.retain(|queued| !queued.is_abandoned());
        let all = self.queue.len() + self.in_batches;
        let share = all.div_ceil(MAX_PROMPT_SENDERS).min(MAX_REQUESTS);
        let mut bytes = 0;
        let fits = |queued: &&QueuedRequest| {
            bytes += queued.max_bytes();
            bytes <= MAX_BATCH_BYTES
        };
        let count = self.queue.iter().take(share).take_while(fits).count();
        self.in_batches += count;
        self.queue.drain(..count).collect()
    }

    fn uncount(&mut self, sender: SenderState) {
        match sender {
            SenderState::Prompt => self.prompt_senders -= 1,
            SenderState::Slow => self.slow_senders -= 1,
            SenderState::Ended => {}
        }
    }
}

impl Remote {
    /// Decides how a request is sent, and queues it if it is batched.
    pub(super) fn dispatch(&self, call: ServiceCall) -> Dispatch<'_> {
        if !call.batchable || call.body.len() > MAX_BATCHED_BODY {
            return Dispatch::SingleRequest(call, None);
        }
        let batcher = &self.inner.batcher;
        let mut state = batcher.state();
        state.in_flight += 1;
        let in_flight = InFlight(batcher);
        if state.in_flight <= MAX_SINGLE {
            return Dispatch::SingleRequest(call, Some(in_flight));
        }
        let (reply, answer) = oneshot::channel();
        let reply = Some(reply);
        state.queue.push_back(QueuedRequest { call, reply });
        if state.prompt_senders < MAX_PROMPT_SENDERS {
            BatchSender::spawn(self, &mut state);
        }
        Dispatch::Batched(answer, in_flight)
    }

    /// Sends a batch as one request, and delivers the answers.
    async fn send_batch(&self, batch: Vec<QueuedRequest>) {
        let singles = batch.iter().map(|queued| queued.call.single());
        let body = json(&Requests {
            requests: singles.collect(),
        });
        let call = ServiceCall {
            body,
            ..ServiceCall::new(Method::POST, self.inner.url.route("/requests"))
        };
        match self.send_single(call, ANSWER_TIMEOUT).await {
            Ok(response) => {
                let answers = self.split_answers(&response, batch.len());
                for (queued, (status, body)) in batch.into_iter().zip(answers) {
                    let answer = ServiceResponse {
                        status,
                        body,
                        ..response
                    };
                    self.deliver(queued, Ok(answer));
                }
            }
            Err(error) => {
                for queued in batch {
                    self.deliver(queued, Err(error.clone()));
                }
            }
        }
    }

    /// Returns the answer to each request of a batch. Any other response, such as an error, answers all of them.
    fn split_answers(&self, response: &ServiceResponse, count: usize) -> Vec<(StatusCode, Bytes)> {
        let status = |number| StatusCode::from_u16(number).unwrap_or(StatusCode::BAD_GATEWAY);
        match self.parse::<Answers>(response) {
            Ok(Answers { answers }) if answers.len() == count => {
                let answers = answers.into_iter();
                let bytes = |body: Box<_>| Bytes::from(String::from(Box::<str>::from(body)));
                answers
                    .map(|answer| (status(answer.status), bytes(answer.body)))
                    .collect()
            }
            _ => vec![(response.status, response.body.clone()); count],
        }
    }

    /// Delivers an answer to its caller. If the caller was dropped, releases a lease that the answer granted.
    fn deliver(&self, queued: QueuedRequest, answer: Result<ServiceResponse, ExchangeError>) {
        let Some(reply) = queued.reply else {
            return;
        };
        if let Err(Ok(undelivered)) = reply.send(answer)
            && let Some(name) = queued.call.acquires
            && let Ok(lease) = self.parse::<Lease>(&undelivered)
            && lease.granted == Some(GrantKind::Fresh)
        {
            // Otherwise it would block contenders until its ttl ends.
            let target = self.inner.url.lease(&name, &format!("/{}", lease.fence));
            self.inner.batcher.state().queue.push_back(QueuedRequest {
                call: ServiceCall::batchable(Method::DELETE, target),
                reply: None,
            });
        }
    }
}

impl ServiceCall {
    /// Returns the call as a part of a batch.
    fn single(&self) -> SingleRequest<'_> {
        let target = match &self.nonce {
            Some(nonce) => self
                .target
                .clone()
                .with("nonce", nonce.expose())
                .without_base()
                .to_owned()
                .into(),
            None => self.target.without_base().into(),
        };
        SingleRequest {
            method: self.method.as_str().into(),
            target,
            body: std::str::from_utf8(&self.body).unwrap_or_default().into(),
        }
    }
}

/// A task that sends batches until the queue is empty.
struct BatchSender {
    remote: Remote,
    state: SenderState,
}

/// Which counter of [`State`] includes a sender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SenderState {
    Prompt,
    Slow,
    /// Neither: the sender has ended.
    Ended,
}

impl BatchSender {
    fn spawn(remote: &Remote, state: &mut State) {
        state.prompt_senders += 1;
        let sender = Self {
            remote: remote.clone(),
            state: SenderState::Prompt,
        };
        tokio::spawn(sender.run());
    }

    async fn run(mut self) {
        let remote = self.remote.clone();
        loop {
            // Callers that were just answered can queue their next requests before the batch is taken.
            tokio::task::yield_now().await;
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            let _in_batch = InBatch(&remote.inner.batcher, batch.len());
            let mut sending = std::pin::pin!(remote.send_batch(batch));
            if tokio::time::timeout(SLOW_BATCH, &mut sending)
                .await
                .is_err()
            {
                self.mark_slow();
                sending.await;
            }
        }
    }

    /// Returns the next batch. It is empty if no request is queued, or if other senders send them: this sender has
    /// ended then, and a later request spawns another one if there are too few.
    fn next_batch(&mut self) -> Vec<QueuedRequest> {
        let mut state = self.remote.inner.batcher.state();
        state.uncount(self.state);
        self.state = SenderState::Ended;
        if state.prompt_senders >= MAX_PROMPT_SENDERS {
            return Vec::new();
        }
        let batch = state.next_batch();
        if !batch.is_empty() {
            state.prompt_senders += 1;
            self.state = SenderState::Prompt;
        }
        batch
    }

    /// Lets another sender start, because the current batch may take long.
    fn mark_slow(&mut self) {
        let mut state = self.remote.inner.batcher.state();
        if state.slow_senders < MAX_SLOW_SENDERS {
            state.uncount(self.state);
            state.slow_senders += 1;
            self.state = SenderState::Slow;
            if !state.queue.is_empty() && state.prompt_senders < MAX_PROMPT_SENDERS {
                Self::spawn(&self.remote, &mut state);
            }
        }
    }
}

impl Drop for BatchSender {
    /// Fails the queued requests if the runtime has shut down the sender.
    fn drop(&mut self) {
        if self.state != SenderState::Ended {
            let mut state = self.remote.inner.batcher.state();
            state.uncount(self.state);
            state.queue.clear();
        }
    }
}

/// Counts the requests of a batch that is being sent.
struct InBatch<'a>(&'a RequestBatcher, usize);

impl Drop for InBatch<'_> {
    fn drop(&mut self) {
        self.0.state().in_batches -= self.1;
    }
}
