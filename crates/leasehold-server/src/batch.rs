//! Batches of requests: they share a round trip, and their writes share a commit.

use std::pin::pin;
use std::str::FromStr as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::{HeaderMap, Method};
use leasehold::core::{BootTime, limits};
use leasehold::wire::{MAX_REQUESTS, Requests, SingleRequest};
use leasehold::{Error, Result, join_all};
use tokio::sync::Notify;

use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::body::{self, Body};
use crate::budget::{AnswerBudget, BudgetPermit, Share, too_many_answers};
use crate::connections::ClientAddress;
use crate::http1;
use crate::metrics::RequestKind;
use crate::query::Query;
use crate::rejection::Rejection;
use crate::route::Route;
use crate::service::{self, Call, Service};

/// The maximum size of a batch.
const REQUESTS_BYTES: usize = 1024 * 1024;

/// The maximum size of the answers to a batch.
const ANSWERS_BYTES: usize = 16 * 1024 * 1024;
/// Memory of one request while it waits or is performed.
const REQUEST_BYTES: usize = 6 * 1024;
/// The maximum size of an answer with a lease's body, if all of its characters are escaped.
const MAX_LEASE_BYTES: usize = 6 * limits::MAX_BODY_BYTES + 16 * 1024;
/// The maximum size of an answer that also lists holders.
const MAX_VIEW_BYTES: usize = 4 * MAX_LEASE_BYTES;

/// One request of a batch.
struct BatchItem<'a> {
    request: SingleRequest<'a>,
    caller: &'a Caller,
    headers: &'a HeaderMap,
    client_address: ClientAddress,
    arrival: BootTime,
    budget: &'a BatchBudget<'a>,
}

impl Service {
    /// Answers a batch of requests concurrently, each as if it was sent separately.
    pub(crate) async fn answer_batch(&self, call: Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        let text = call
            .body
            .read_text(REQUESTS_BYTES, self.config.body_timeout)
            .await?;
        let Requests { requests } = body::parse_json(&text)?;
        if requests.len() > MAX_REQUESTS {
            let detail = format!(
                "the batch has {} requests: send at most {MAX_REQUESTS} at a time",
                requests.len()
            );
            return Err(Error::invalid(detail).into());
        }
        let budget = BatchBudget::new(&self.answers, call.client_address);
        let _requests = budget.permit(requests.len() * REQUEST_BYTES).await?;
        let answers = requests.into_iter().map(|request| {
            self.answer_item(BatchItem {
                request,
                caller: &call.caller,
                // The headers belong to the batch, not to its requests.
                headers: &http1::NO_HEADERS,
                client_address: call.client_address,
                arrival: call.arrival,
                budget: &budget,
            })
        });
        let answers = join_all(answers).await;
        Ok(answer::batch(self.withhold_revoked(&call.caller, answers)))
    }

    async fn answer_item(&self, item: BatchItem<'_>) -> Answer {
        let (mut kind, arrival) = (RequestKind::Other, item.arrival);
        let answer = self.dispatch_item(item, &mut kind).await;
        let problem_type = answer.as_ref().err().map(Rejection::problem_type);
        let elapsed = self.engine.host().boot_time().since(arrival);
        self.metrics.answered(kind, problem_type, elapsed);
        answer.unwrap_or_else(|refused| answer::problem(&refused))
    }

    async fn dispatch_item(
        &self,
        item: BatchItem<'_>,
        kind: &mut RequestKind,
    ) -> Result<Answer, Rejection> {
        item.caller.count(&self.config.limits)?;
        let SingleRequest {
            method,
            target,
            body,
        } = item.request;
        service::check_fragment(&target)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*target, None),
        };
        let method = Method::from_str(&method)
            .map_err(|_| Error::invalid("the method is invalid: give one such as `POST`"))?;
        let query = Query::parse(query)?;
        let route = Route::find(&method, path, &query)?;
        *kind = RequestKind::from(&route);
        if !route.has_single_name() {
            return Err(not_batchable());
        }
        if query.has("wait") {
            return Err(Error::invalid(
                "a request in a batch cannot wait, since the other answers would wait too: send it by itself",
            )
            .into());
        }
        let call = Call {
            query,
            caller: item.caller.clone(),
            headers: item.headers,
            client_address: item.client_address,
            body: Body::Buffered(body.into_owned().into_bytes()),
            arrival: item.arrival,
        };
        let bytes = max_answer_bytes(&route);
        let refusal_recorder = self.refusal_recorder(&route, &call.caller);
        let answer = match bytes {
            0 => self.authorize_and_perform(route, call).await,
            // Before the request is performed: an operation that was performed must be answered.
            bytes => match item.budget.reserve(bytes).await {
                Ok(reservation) => {
                    reservation.complete(self.authorize_and_perform(route, call).await)
                }
                Err(refused) => Err(refused),
            },
        };
        service::record_refusal(refusal_recorder, &answer);
        answer
    }
}

/// Returns the maximum size of an answer that may be large; 0 if it is always small.
fn max_answer_bytes(route: &Route) -> usize {
    match route {
        Route::Acquire(_) | Route::Heartbeat(..) | Route::Update(..) | Route::History(_) => {
            MAX_LEASE_BYTES
        }
        Route::Show(_) => MAX_VIEW_BYTES,
        _ => 0,
    }
}

/// The memory budget of the answers to a batch. The maximum size of an answer is reserved before its request is performed. The
/// other requests follow when earlier answers turn out smaller.
struct BatchBudget<'a> {
    answers: &'a AnswerBudget,
    share: Share,
    state: Mutex<BatchBudgetState>,
    released: Notify,
}

struct BatchBudgetState {
    available: usize,
    in_progress: usize,
    /// Set when a reservation was refused, so that later ones do not wait in vain.
    is_exhausted: bool,
}

/// The reservation for the answer to one request.
struct BatchReservation<'a> {
    budget: &'a BatchBudget<'a>,
    permit: Option<BudgetPermit>,
    bytes: usize,
}

impl<'a> BatchBudget<'a> {
    fn new(answers: &'a AnswerBudget, address: ClientAddress) -> Self {
        Self {
            answers,
            share: answers.share_of(address),
            state: Mutex::new(BatchBudgetState {
                available: ANSWERS_BYTES,
                in_progress: 0,
                is_exhausted: false,
            }),
            released: Notify::new(),
        }
    }

    /// Reserves bytes as soon as there are enough. Fails if there will not be.
    async fn reserve(&'a self, bytes: usize) -> Result<BatchReservation<'a>, Rejection> {
        loop {
            let mut released = pin!(self.released.notified());
            released.as_mut().enable();
            match self.state().try_reserve(bytes) {
                Some(true) => break,
                Some(false) => {}
                None => return Err(too_many_answers()),
            }
            released.await;
        }
        let mut reservation = BatchReservation {
            budget: self,
            permit: None,
            bytes,
        };
        match self.permit(bytes).await {
            Ok(permit) => reservation.permit = Some(permit),
            Err(refused) => {
                self.state().is_exhausted = true;
                return Err(refused);
            }
        }
        Ok(reservation)
    }

    async fn permit(&self, bytes: usize) -> Result<BudgetPermit, Rejection> {
        self.answers.reserve_from(&self.share, bytes).await
    }

    fn state(&self) -> MutexGuard<'_, BatchBudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchBudgetState {
    /// Returns whether there were enough bytes; `None` if there will not be.
    fn try_reserve(&mut self, bytes: usize) -> Option<bool> {
        if self.is_exhausted {
            return None;
        }
        if self.available >= bytes {
            self.available -= bytes;
            self.in_progress += 1;
            return Some(true);
        }
        (self.in_progress > 0).then_some(false)
    }
}

impl BatchReservation<'_> {
    /// Shrinks the reservation to the size of the answer, which then owns it.
    fn complete(mut self, answer: Result<Answer, Rejection>) -> Result<Answer, Rejection> {
        let mut answer = answer?;
        let length = answer.body.length();
        if let Some(mut permit) = self.permit.take() {
            permit.shrink_to(length);
            answer.body.set_permit(permit);
        }
        self.bytes = self.bytes.saturating_sub(length);
        Ok(answer)
    }
}

impl Drop for BatchReservation<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.available += self.bytes;
        state.in_progress -= 1;
        drop(state);
        self.budget.released.notify_waiters();
    }
}

/// Returns the refusal of a request that is not about a single name: a batch of their answers could be too large.
pub(crate) fn not_batchable() -> Rejection {
    Error::invalid("a batch takes only requests about a single name: send this one by itself")
        .into()
}
