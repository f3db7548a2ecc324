//! The calls of a history, prepared for the linearizability check: when each may have taken effect, and what it may
//! have written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::core::{Acquire, Fence, HolderRef, Operation, Outcome, Release, Time};

use super::history::{Entry, Request, Response};
use super::store::{Server, Version};

/// How far an engine's estimate of the store's time may lag behind.
const MAX_LAG: Duration = Duration::from_secs(4);

/// A call to be linearized.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) response: Response,
    /// The event after which it takes effect.
    pub(crate) not_before: u64,
    /// The event before which it takes effect; `None` for an optional call, which may never have taken effect.
    pub(crate) returned: Option<u64>,
    /// An optional call takes effect before every call that was invoked after this event.
    pub(crate) not_after: Option<u64>,
    /// Bounds of the store's time during the call, as an engine may estimate it.
    pub(crate) earliest: Time,
    pub(crate) latest: Time,
    pub(crate) margin: Duration,
    /// The lower bound of all fences: an engine starts a new record above every fence that it has granted.
    pub(crate) fence_start: Time,
    /// For an optional call: the engine's `latest`, according to the stored record.
    pub(crate) recorded_latest: Option<Time>,
}

impl Call {
    /// Returns an optional call with this request.
    fn optional(&self, request: Request, recorded_latest: Time) -> Self {
        Self {
            request,
            response: Response::Indeterminate,
            returned: None,
            recorded_latest: Some(recorded_latest),
            ..self.clone()
        }
    }

    /// Returns this call as an optional one whose effect was stored at this event.
    fn optional_at(&self, at: u64, recorded_latest: Time) -> Self {
        Self {
            not_before: at,
            not_after: Some(at),
            ..self.optional(self.request.clone(), recorded_latest)
        }
    }
}

/// Returns all calls of one name, in the order of their invocation.
pub(crate) fn from_history(
    entries: &[Entry],
    log: &[Version],
    server: &Server,
    margin: Duration,
) -> Vec<Call> {
    let evidence = Evidence::new(entries, log);
    let fence_start = find_fence_start(entries, log);
    let mut calls = Vec::new();
    for entry in entries {
        let returned = entry.returned.expect("every call has returned");
        let call = Call {
            request: entry.request.clone(),
            response: entry.response.clone(),
            not_before: entry.invoked.order,
            returned: Some(returned.order),
            not_after: None,
            earliest: server.store_time(entry.invoked.micros) - MAX_LAG,
            latest: server.store_time(returned.micros) + margin * 2,
            margin,
            fence_start,
            recorded_latest: None,
        };
        match &entry.response {
            // It had no effect.
            Response::Unavailable => {}
            Response::Outcome(_) | Response::Shown(_) => {
                // An engine that lost an answer retries the call, and its first attempt may have landed as well.
                calls.extend(evidence.possible_renewals(&call));
                calls.push(call);
            }
            Response::Indeterminate => calls.extend(evidence.possible_effects(&call)),
        }
    }
    calls.extend(evidence.unreported_grants(entries, log, &calls));
    calls.sort_by_key(|call| call.not_before);
    calls
}

/// Returns a time just below the lowest fence that was granted.
fn find_fence_start(entries: &[Entry], log: &[Version]) -> Time {
    let received = entries.iter().filter_map(|entry| match &entry.response {
        Response::Outcome(Outcome::Granted(grant)) => Some(grant.fence),
        _ => None,
    });
    let first = log.first().map(|version| &*version.record);
    let holders = first.map_or(&[][..], |record| &record.holders);
    let stored = holders.iter().map(|holder| holder.fence);
    let ended = first.and_then(|record| Some(record.last.as_ref()?.fence));
    let lowest = received
        .chain(stored)
        .chain(ended)
        .min()
        .unwrap_or_default();
    Time::from_micros(lowest.get().saturating_sub(1))
}

/// What was stored, and when: shows the effect of calls whose clients got no response.
struct Evidence {
    /// The event of each renewal and the time that its ttl counts from, by fence and `renewed_at`.
    renewals: BTreeMap<(Fence, Time), (u64, Time)>,
    bodies: BTreeMap<String, u64>,
    /// The fences that clients received.
    received: BTreeSet<Fence>,
}

impl Evidence {
    fn new(entries: &[Entry], log: &[Version]) -> Self {
        let (mut renewals, mut bodies) = (BTreeMap::new(), BTreeMap::new());
        for version in log {
            let body = version.record.body.to_string();
            bodies.entry(body).or_insert(version.at.order);
            for holder in &version.record.holders {
                if holder.renewed_at != holder.acquired_at {
                    let recorded_latest = holder.expires_at - holder.ttl;
                    renewals
                        .entry((holder.fence, holder.renewed_at))
                        .or_insert((version.at.order, recorded_latest));
                }
            }
        }
        let received = entries.iter().filter_map(|entry| match &entry.response {
            Response::Outcome(Outcome::Granted(grant)) => Some(grant.fence),
            _ => None,
        });
        Self {
            renewals,
            bodies,
            received: received.collect(),
        }
    }

    /// Returns the renewals that were stored during this call and may be its effect, as optional calls.
    fn possible_renewals(&self, call: &Call) -> Vec<Call> {
        let fence = match &call.request {
            Request::Perform(Operation::Renew(renew)) => renew.fence,
            Request::Perform(Operation::Update(update)) => update.fence,
            Request::Perform(Operation::Acquire(Acquire {
                fence: Some(fence), ..
            })) => *fence,
            _ => return Vec::new(),
        };
        let returned = call.returned.unwrap_or(u64::MAX);
        let of_fence = self.renewals.iter().filter(|((of, _), _)| *of == fence);
        of_fence
            .map(|(_, stored)| *stored)
            .filter(|(at, _)| call.not_before < *at && *at < returned)
            .map(|(at, recorded_latest)| call.optional_at(at, recorded_latest))
            .collect()
    }

    /// Returns the possible effects of an indeterminate call as optional calls, except for a new grant, which
    /// [`Self::unreported_grants`] finds.
    fn possible_effects(&self, call: &Call) -> Vec<Call> {
        let Request::Perform(operation) = &call.request else {
            return Vec::new();
        };
        let mut call = call.clone();
        call.returned = None;
        let mut effects = self.possible_renewals(&call);
        match operation {
            Operation::Renew(_) => {}
            Operation::Update(update) => {
                // It may have been written together with the end of its holder.
                let body = update.body.as_deref().unwrap_or_default();
                let at = self.bodies.get(body);
                effects.extend(at.map(|at| call.optional_at(*at, call.latest)));
            }
            Operation::Acquire(acquire) => {
                // The engine releases a grant that its client did not receive.
                let release = Operation::Release(Release {
                    holder: HolderRef::Nonce(acquire.nonce),
                    principal: None,
                });
                effects.push(call.optional(Request::Perform(release), call.latest));
            }
            _ => effects.push(call.optional(call.request.clone(), call.latest)),
        }
        effects
    }

    /// Returns grants that were stored but that no client received.
    fn unreported_grants(&self, entries: &[Entry], log: &[Version], calls: &[Call]) -> Vec<Call> {
        let mut known = self.received.clone();
        let mut grants = Vec::new();
        for version in log {
            for holder in &version.record.holders {
                if !known.insert(holder.fence) {
                    continue;
                }
                let acquisition = entries.iter().rev().find(|entry| {
                    let is_its_request = matches!(&entry.request, Request::Perform(Operation::Acquire(acquire)) if acquire.nonce == holder.nonce);
                    is_its_request && entry.invoked < version.at
                });
                // A grant that no client requested remains unexplained, and the check fails.
                let (Some(acquisition), Some(any)) = (acquisition, calls.first()) else {
                    continue;
                };
                let mut grant = any.optional(acquisition.request.clone(), holder.acquired_at);
                (grant.not_before, grant.not_after) = (version.at.order, Some(version.at.order));
                (grant.earliest, grant.latest) = (holder.acquired_at - MAX_LAG, holder.acquired_at);
                grants.push(grant);
            }
        }
        grants
    }
}
