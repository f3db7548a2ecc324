//! What happens, told to many: `GET /events`.
//!
//! One task hears what the engine tells, and writes each event down once; every subscriber then sends the same bytes. A
//! subscriber only has a place in a ring of recent events, so one that is slow costs nothing but its place, and is told
//! when it has missed some. Operations never wait for any of this.
//!
//! | file | what it does |
//! |---|---|
//! | `ring.rs` | recent events, numbered |
//! | `hub.rs` | fills the ring, and wakes those who read it |
//! | `stream.rs` | one subscriber: what is sent, and when |

mod hub;
mod ring;
mod stream;

pub(crate) use hub::Hub;
pub(crate) use stream::Stream;

use hyper::header::{HeaderName, HeaderValue};
use leasehold::core::Name;
use leasehold::wire::{Problem, Trouble};

use crate::access::Right;
use crate::access::caller::Caller;
use crate::access::meter::Waiting;
use crate::answer::{self, Answer};
use crate::connections::Subscription;
use crate::refused::Refused;
use crate::service::{Call, Service};

/// Where: its answer is the only one that has no end.
pub(crate) const PATH: &str = "/events";

/// How long a subscriber is asked to wait before it connects again, in milliseconds.
const RETRY_MILLIS: u32 = 1_000;

/// Tells a proxy not to hold events back.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Which names a subscriber hears of. Whatever a caller may not know of is kept from it here, and nowhere else.
pub(crate) struct Filter {
    caller: Caller,
    prefixes: Vec<String>,
}

impl Filter {
    /// What starts with this prefix, as far as the caller may read it.
    pub(crate) fn new(caller: Caller, prefix: &str) -> Result<Self, Refused> {
        let prefixes = caller.narrow(Right::Read, prefix)?;
        Ok(Self { caller, prefixes })
    }

    /// Ready once the caller's rights end or change: then it must ask again.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let caller = self.caller.clone();
        async move { caller.over().await }
    }

    /// Whether every name passes.
    pub(crate) fn admits_all(&self) -> bool {
        self.prefixes.iter().any(String::is_empty)
    }

    pub(crate) fn admits(&self, name: &Name) -> bool {
        let mut prefixes = self.prefixes.iter();
        prefixes.any(|prefix| name.as_str().starts_with(prefix))
    }
}

/// A subscriber that counts under the limits, until this is dropped.
#[derive(Default)]
pub(crate) struct Counted {
    _by_address: Option<Subscription>,
    _by_token: Option<Waiting>,
}

impl Service {
    pub(crate) fn events(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&["prefix"])?;
        let prefix = call.query.get("prefix").unwrap_or_default();
        let filter = Filter::new(call.caller.clone(), prefix)?;
        // One that makes no sense is of another instance: the subscriber is told that it has missed some.
        let last = call.headers.get(&LAST_EVENT_ID);
        let last = last.map(|id| id.to_str().unwrap_or_default());
        let heartbeat = self.config.heartbeat;
        let stream = Hub::join(
            &self.events,
            filter,
            last,
            heartbeat,
            self.count_subscriber(call)?,
        );
        let mut answer = answer::streaming(stream);
        let no = HeaderValue::from_static("no");
        answer.headers.push((UNBUFFERED, no));
        Ok(answer)
    }

    /// Counts a subscriber by its address and by its token, because it keeps a connection for as long as it likes.
    fn count_subscriber(&self, call: &Call<'_>) -> Result<Counted, Refused> {
        let by_token = call.caller.wait(&self.config.limits)?;
        match self.connections.subscribe(call.client_address) {
            Some(by_address) => Ok(Counted {
                _by_address: Some(by_address),
                _by_token: by_token,
            }),
            None => {
                let detail = "the service, or this address, has as many subscribers as it may: try again later";
                let mut problem = Problem::new(Trouble::TooManyRequests, detail);
                problem.retry_after = Some(RETRY_MILLIS.into());
                Err(problem.into())
            }
        }
    }
}
