//! The calls of a history as the checker needs them: when each may have taken effect, and what it may have done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::core::{Acquire, Fence, HolderRef, Operation, Outcome, Release, Time};

use super::history::{Asked, Entry, Told};
use super::store::{Server, Version};

/// By how much an engine's idea of the store's time may lag behind.
const LAG: Duration = Duration::from_secs(4);

/// One call, ready to be put in order.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) asked: Asked,
    pub(crate) told: Told,
    /// Its place in the order of events: it takes effect after this,
    pub(crate) from: u64,
    /// and before this, if it does for sure.
    pub(crate) until: Option<u64>,
    /// For one that need not take effect: not after a call that was made after this.
    pub(crate) gone: Option<u64>,
    /// The store's time at the same moments, as an engine may see it.
    pub(crate) earliest: Time,
    pub(crate) latest: Time,
    pub(crate) margin: Duration,
    /// Where the fences started: an engine starts those of a new record above all fences that it has granted.
    pub(crate) start: Time,
    /// What `latest` was, for a call that was not told.
    pub(crate) date: Option<Time>,
}

impl Call {
    /// A call that need not have taken effect.
    fn unsure(&self, asked: Asked, date: Time) -> Self {
        Self {
            asked,
            told: Told::Unknown,
            until: None,
            date: Some(date),
            ..self.clone()
        }
    }

    /// This call, if it was what was stored just then.
    fn stored(&self, at: u64, date: Time) -> Self {
        Self {
            from: at,
            gone: Some(at),
            ..self.unsure(self.asked.clone(), date)
        }
    }
}

/// All calls of one name, by when they were made.
pub(crate) fn from_history(
    entries: &[Entry],
    log: &[Version],
    server: &Server,
    margin: Duration,
) -> Vec<Call> {
    let evidence = Evidence::new(entries, log);
    let start = start_of_fences(entries, log);
    let mut calls = Vec::new();
    for entry in entries {
        let returned = entry.returned.expect("every client is told something");
        let call = Call {
            asked: entry.asked.clone(),
            told: entry.told.clone(),
            from: entry.invoked.order,
            until: Some(returned.order),
            gone: None,
            earliest: server.store_time(entry.invoked.micros) - LAG,
            latest: server.store_time(returned.micros) + margin * 2,
            margin,
            start,
            date: None,
        };
        match &entry.told {
            // Nothing happened: the history must be explained without it.
            Told::Unavailable => {}
            Told::Outcome(_) | Told::Shown(_) => {
                // An engine that lost an answer runs a call again: its first run may have landed, too.
                calls.extend(evidence.renewals(&call));
                calls.push(call);
            }
            Told::Unknown => calls.extend(evidence.effects(&call)),
        }
    }
    calls.extend(evidence.unreported_grants(entries, log, &calls));
    calls.sort_by_key(|call| call.from);
    calls
}

/// Just below the lowest fence that was granted.
fn start_of_fences(entries: &[Entry], log: &[Version]) -> Time {
    let told = entries.iter().filter_map(|entry| match &entry.told {
        Told::Outcome(Outcome::Granted(grant)) => Some(grant.fence),
        _ => None,
    });
    let first = log.first().map(|version| &*version.record);
    let holders = first.map_or(&[][..], |record| &record.holders);
    let stored = holders.iter().map(|holder| holder.fence);
    let ended = first.and_then(|record| Some(record.last.as_ref()?.fence));
    let lowest = told.chain(stored).chain(ended).min().unwrap_or_default();
    Time::from_micros(lowest.get().saturating_sub(1))
}

/// What was really stored, and when: for calls of which nobody was told what they did.
struct Evidence {
    /// Each renewal, by its fence and moment: its place in the order of events, and the date it counts from.
    renewals: BTreeMap<(Fence, Time), (u64, Time)>,
    bodies: BTreeMap<String, u64>,
    /// The fences that somebody was told of.
    told: BTreeSet<Fence>,
}

impl Evidence {
    fn new(entries: &[Entry], log: &[Version]) -> Self {
        let (mut renewals, mut bodies) = (BTreeMap::new(), BTreeMap::new());
        for version in log {
            let body = version.record.body.to_string();
            bodies.entry(body).or_insert(version.at.order);
            for holder in &version.record.holders {
                if holder.renewed_at != holder.acquired_at {
                    let date = holder.expires_at - holder.ttl;
                    renewals
                        .entry((holder.fence, holder.renewed_at))
                        .or_insert((version.at.order, date));
                }
            }
        }
        let told = entries.iter().filter_map(|entry| match &entry.told {
            Told::Outcome(Outcome::Granted(grant)) => Some(grant.fence),
            _ => None,
        });
        Self {
            renewals,
            bodies,
            told: told.collect(),
        }
    }

    /// What a call that renews may have stored while it was under way, each as a call that need not have happened.
    fn renewals(&self, call: &Call) -> Vec<Call> {
        let fence = match &call.asked {
            Asked::Perform(Operation::Renew(renew)) => renew.fence,
            Asked::Perform(Operation::Update(update)) => update.fence,
            Asked::Perform(Operation::Acquire(Acquire {
                fence: Some(fence), ..
            })) => *fence,
            _ => return Vec::new(),
        };
        let until = call.until.unwrap_or(u64::MAX);
        let of_fence = self.renewals.iter().filter(|((of, _), _)| *of == fence);
        of_fence
            .map(|(_, stored)| *stored)
            .filter(|(at, _)| call.from < *at && *at < until)
            .map(|(at, date)| call.stored(at, date))
            .collect()
    }

    /// What a call of unknown fate may have done. (A new grant is found by [`Self::unreported_grants`].)
    fn effects(&self, call: &Call) -> Vec<Call> {
        let Asked::Perform(operation) = &call.asked else {
            return Vec::new();
        };
        let mut call = call.clone();
        call.until = None;
        let mut effects = self.renewals(&call);
        match operation {
            Operation::Renew(_) => {}
            Operation::Update(update) => {
                // It may have been written together with its holder's end.
                let body = update.body.as_deref().unwrap_or_default();
                let at = self.bodies.get(body);
                effects.extend(at.map(|at| call.stored(*at, call.latest)));
            }
            Operation::Acquire(acquire) => {
                // What nobody took is released by the engine.
                let release = Operation::Release(Release {
                    holder: HolderRef::Nonce(acquire.nonce),
                    principal: None,
                });
                effects.push(call.unsure(Asked::Perform(release), call.latest));
            }
            _ => effects.push(call.unsure(call.asked.clone(), call.latest)),
        }
        effects
    }

    /// Grants that were stored, but that nobody was told of.
    fn unreported_grants(&self, entries: &[Entry], log: &[Version], calls: &[Call]) -> Vec<Call> {
        let mut known = self.told.clone();
        let mut grants = Vec::new();
        for version in log {
            for holder in &version.record.holders {
                if !known.insert(holder.fence) {
                    continue;
                }
                let asked = entries.iter().rev().find(|entry| {
                    let asked = matches!(&entry.asked, Asked::Perform(Operation::Acquire(acquire)) if acquire.nonce == holder.nonce);
                    asked && entry.invoked < version.at
                });
                // One that nobody asked for stays unexplained, and the search fails.
                let (Some(asked), Some(any)) = (asked, calls.first()) else {
                    continue;
                };
                let mut grant = any.unsure(asked.asked.clone(), holder.acquired_at);
                (grant.from, grant.gone) = (version.at.order, Some(version.at.order));
                (grant.earliest, grant.latest) = (holder.acquired_at - LAG, holder.acquired_at);
                grants.push(grant);
            }
        }
        grants
    }
}
