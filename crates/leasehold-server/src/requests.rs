//! Many requests in one, for whoever has many at a time: they share a round trip, and what they write a commit.

use std::pin::pin;
use std::str::FromStr as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::{HeaderMap, Method};
use leasehold::core::{BootTime, limits};
use leasehold::wire::{MAX_REQUESTS, Requests, Single};
use leasehold::{Error, Result, side_by_side};
use tokio::sync::Notify;

use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::body::{self, Body};
use crate::budget::{AnswerBudget, Reserved, Share, too_many_answers};
use crate::connections::ClientAddress;
use crate::http1;
use crate::metrics::Asked;
use crate::query::Query;
use crate::refused::Refused;
use crate::route::Route;
use crate::service::{self, Call, Service};

/// Bytes of many requests.
const REQUESTS_BYTES: usize = 1024 * 1024;

/// Bytes of the answers to them.
const ANSWERS_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that a request takes while it waits or is performed.
const REQUEST_BYTES: usize = 6 * 1024;
/// The most bytes of an answer with a body: all of its characters may be escaped.
const MAX_LEASE: usize = 6 * limits::MAX_BODY_BYTES + 16 * 1024;
/// The same with holders.
const MAX_VIEW: usize = 4 * MAX_LEASE;

/// A request, and who sent it among others.
struct Among<'a> {
    single: Single<'a>,
    caller: &'a Caller,
    headers: &'a HeaderMap,
    client_address: ClientAddress,
    arrival: BootTime,
    room: &'a Room<'a>,
}

impl Service {
    /// Answers many requests, each as if it had come by itself, side by side.
    pub(crate) async fn answer_many(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let text = call
            .body
            .read_text(REQUESTS_BYTES, self.config.body_timeout)
            .await?;
        let Requests { requests } = body::parse_json(&text)?;
        if requests.len() > MAX_REQUESTS {
            let detail = format!("more than {MAX_REQUESTS} requests in one: send several of them");
            return Err(Error::invalid(detail).into());
        }
        let room = Room::new(&self.answers, call.client_address);
        let _requests = room.reserve(requests.len() * REQUEST_BYTES).await?;
        let answers = requests.into_iter().map(|single| {
            self.answer_among(Among {
                single,
                caller: &call.caller,
                // What came with all of them is not meant for each.
                headers: &http1::NO_HEADERS,
                client_address: call.client_address,
                arrival: call.arrival,
                room: &room,
            })
        });
        let answers = side_by_side(answers).await;
        Ok(answer::many(self.deliverable(&call.caller, answers)))
    }

    async fn answer_among(&self, among: Among<'_>) -> Answer {
        let (mut asked, arrival) = (Asked::Other, among.arrival);
        let answer = self.dispatch_among(among, &mut asked).await;
        let trouble = answer.as_ref().err().map(Refused::trouble);
        let took = self.engine.host().boot_time().since(arrival);
        self.metrics.answered(asked, trouble, took);
        answer.unwrap_or_else(|refused| answer::problem(&refused))
    }

    async fn dispatch_among(&self, among: Among<'_>, asked: &mut Asked) -> Result<Answer, Refused> {
        among.caller.count(&self.config.limits)?;
        let Single {
            method,
            target,
            body,
        } = among.single;
        service::check_fragment(&target)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*target, None),
        };
        let method = Method::from_str(&method)
            .map_err(|_| Error::invalid("the method is none: give something like `POST`"))?;
        let query = Query::parse(query)?;
        let route = Route::find(&method, path, &query)?;
        *asked = Asked::from(&route);
        if !route.is_about_one_name() {
            return Err(not_among_others());
        }
        if query.has("wait") {
            return Err(Error::invalid(
                "whoever waits keeps the others waiting: send it by itself",
            )
            .into());
        }
        let call = Call {
            query,
            caller: among.caller.clone(),
            headers: among.headers,
            client_address: among.client_address,
            body: Body::Here(body.into_owned().into_bytes()),
            arrival: among.arrival,
        };
        let bytes = max_bytes(&route);
        let witness = self.witness(&route, &call.caller);
        let answer = match bytes {
            0 => self.answer_to(route, call).await,
            // Before anything is done: what has been done must be answered.
            bytes => match among.room.take(bytes).await {
                Ok(part) => part.answered(self.answer_to(route, call).await),
                Err(refused) => Err(refused),
            },
        };
        service::tell(witness, &answer);
        answer
    }
}

/// The most bytes of an answer that may be large, or zero.
fn max_bytes(route: &Route) -> usize {
    match route {
        Route::Acquire(_) | Route::Heartbeat(..) | Route::Update(..) | Route::History(_) => {
            MAX_LEASE
        }
        Route::Show(_) => MAX_VIEW,
        _ => 0,
    }
}

/// The room for the answers to many requests. What an answer may take is reserved before its request is performed, so as
/// many are performed at once as fit; the others follow when those before them took less.
struct Room<'a> {
    budget: &'a AnswerBudget,
    share: Share,
    state: Mutex<RoomState>,
    given_back: Notify,
}

struct RoomState {
    left: usize,
    under_way: usize,
    /// A reservation was refused: those that follow would only wait for the same.
    is_over: bool,
}

/// A part of it, for the answer to one request.
struct Part<'a> {
    room: &'a Room<'a>,
    reserved: Option<Reserved>,
    bytes: usize,
}

impl<'a> Room<'a> {
    fn new(budget: &'a AnswerBudget, address: ClientAddress) -> Self {
        Self {
            budget,
            share: budget.share_of(address),
            state: Mutex::new(RoomState {
                left: ANSWERS_BYTES,
                under_way: 0,
                is_over: false,
            }),
            given_back: Notify::new(),
        }
    }

    /// Reserves room, as soon as there is enough. Refuses if there will not be.
    async fn take(&'a self, bytes: usize) -> Result<Part<'a>, Refused> {
        loop {
            let mut given_back = pin!(self.given_back.notified());
            given_back.as_mut().enable();
            match self.state().take(bytes) {
                Some(true) => break,
                Some(false) => {}
                None => return Err(too_many_answers()),
            }
            given_back.await;
        }
        let mut part = Part {
            room: self,
            reserved: None,
            bytes,
        };
        match self.reserve(bytes).await {
            Ok(reserved) => part.reserved = Some(reserved),
            Err(refused) => {
                self.state().is_over = true;
                return Err(refused);
            }
        }
        Ok(part)
    }

    async fn reserve(&self, bytes: usize) -> Result<Reserved, Refused> {
        self.budget.reserve_of(&self.share, bytes).await
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoomState {
    /// Whether there was enough; `None` if there will not be.
    fn take(&mut self, bytes: usize) -> Option<bool> {
        if self.is_over {
            return None;
        }
        if self.left >= bytes {
            self.left -= bytes;
            self.under_way += 1;
            return Some(true);
        }
        (self.under_way > 0).then_some(false)
    }
}

impl Part<'_> {
    /// Leaves what the answer has taken in the budget, and gives back the rest.
    fn answered(mut self, answer: Result<Answer, Refused>) -> Result<Answer, Refused> {
        let mut answer = answer?;
        let length = answer.body.length();
        if let Some(mut reserved) = self.reserved.take() {
            reserved.shrink_to(length);
            answer.body.set_reserved(reserved);
        }
        self.bytes = self.bytes.saturating_sub(length);
        Ok(answer)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.left += self.bytes;
        state.under_way -= 1;
        drop(state);
        self.room.given_back.notify_waiters();
    }
}

/// Only what is about one name is: what tells of many would be too much, many times over.
pub(crate) fn not_among_others() -> Refused {
    Error::invalid("only what is about one name goes with others: send this by itself").into()
}
