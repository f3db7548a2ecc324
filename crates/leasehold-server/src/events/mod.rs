//! Server-sent events: `GET /events`.
//!
//! One task receives the engine's events and encodes each once; all subscribers send the same bytes. A subscriber only
//! has a position in a ring of recent events. So a slow one costs no memory, and is sent `missed` if its position was
//! evicted. Operations never wait for subscribers.
//!
//! | file | what it does |
//! |---|---|
//! | `ring.rs` | keeps recent events by number |
//! | `hub.rs` | fills the ring, and wakes the subscribers that read it |
//! | `stream.rs` | sends events and heartbeats to one subscriber |

mod hub;
mod ring;
mod stream;

pub(crate) use hub::Hub;
pub(crate) use stream::Stream;

use hyper::header::{HeaderName, HeaderValue};
use leasehold::core::Name;
use leasehold::wire::{Problem, ProblemType};

use crate::access::Right;
use crate::access::caller::Caller;
use crate::access::meter::WaitPermit;
use crate::answer::{self, Answer};
use crate::connections::Subscription;
use crate::rejection::Rejection;
use crate::service::{Call, Service};

/// The only path whose answers have no end.
pub(crate) const PATH: &str = "/events";

/// How long a subscriber is asked to wait before it reconnects, in milliseconds.
const RETRY_MILLIS: u32 = 1_000;

/// Tells nginx not to buffer events.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Selects the names whose events a subscriber receives. This is the only check of its right to read them.
pub(crate) struct Filter {
    caller: Caller,
    prefixes: Vec<String>,
}

impl Filter {
    /// Returns a filter for the names with this prefix that the caller may read.
    pub(crate) fn new(caller: Caller, prefix: &str) -> Result<Self, Rejection> {
        let prefixes = caller.narrow(Right::Read, prefix)?;
        Ok(Self { caller, prefixes })
    }

    /// Waits until the caller's rights end or change: then it has to subscribe again.
    pub(crate) fn rights_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let caller = self.caller.clone();
        async move { caller.ended().await }
    }

    /// Whether it admits every name.
    pub(crate) fn admits_all(&self) -> bool {
        self.prefixes.iter().any(String::is_empty)
    }

    pub(crate) fn admits(&self, name: &Name) -> bool {
        let mut prefixes = self.prefixes.iter();
        prefixes.any(|prefix| name.as_str().starts_with(prefix))
    }
}

/// Counts a subscriber toward the limits until it is dropped.
#[derive(Default)]
pub(crate) struct SubscriptionGuard {
    _by_address: Option<Subscription>,
    _by_token: Option<WaitPermit>,
}

impl Service {
    pub(crate) fn events(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&["prefix"])?;
        let prefix = call.query.get("prefix").unwrap_or_default();
        let filter = Filter::new(call.caller.clone(), prefix)?;
        // An id that cannot be parsed is another service's: the subscriber is sent `missed`.
        let last_event_id = call.headers.get(&LAST_EVENT_ID);
        let last_event_id = last_event_id.map(|id| id.to_str().unwrap_or_default());
        let heartbeat = self.config.heartbeat;
        let stream = Hub::subscribe(
            &self.events,
            filter,
            last_event_id,
            heartbeat,
            self.count_subscriber(call)?,
        );
        let mut answer = answer::event_stream(stream);
        let no = HeaderValue::from_static("no");
        answer.headers.push((X_ACCEL_BUFFERING, no));
        Ok(answer)
    }

    /// Counts a subscriber by its address and by its token, because it keeps its connection for an unlimited time.
    fn count_subscriber(&self, call: &Call<'_>) -> Result<SubscriptionGuard, Rejection> {
        let by_token = call.caller.wait(&self.config.limits)?;
        match self.connections.subscribe(call.client_address) {
            Some(by_address) => Ok(SubscriptionGuard {
                _by_address: Some(by_address),
                _by_token: by_token,
            }),
            None => {
                let detail =
                    "too many subscribers of this service or this address: try again later";
                let mut problem = Problem::new(ProblemType::TooManyRequests, detail);
                problem.retry_after = Some(RETRY_MILLIS.into());
                Err(problem.into())
            }
        }
    }
}
