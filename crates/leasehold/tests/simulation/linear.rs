//! Checks that the history of one name is linearizable: its calls can be put into one order, each between its
//! invocation and its response, in which the pure core gives each call the response that it got.
//!
//! The search is that of Wing and Gong, with a cache of failed attempts (Lowe). The core depends on time, which the
//! checker does not know exactly. It tries every time that can make a difference:
//!
//! - `latest` only determines timestamps. The response contains it; for an indeterminate call, the stored record does.
//! - `earliest` only decides which holders have expired. It is the store's time at the invocation, less the lag of an
//!   engine, or the moment after a holder's expiry, up to the response.
//!
//! The check allows for the following:
//!
//! - An indeterminate call may take effect at any time after its invocation, or never.
//! - An engine that lost an answer may retry a call. The stored records show the first attempt, which is one more
//!   indeterminate call.
//! - An engine may expire a holder by its `expires_at`, or because it observed it unchanged for its whole ttl.
//! - An acquisition may be refused although the core would grant it, because of waiters or a reservation. The refusal
//!   never names a client that does not hold the lease.
//!
//! A call that fits, changes nothing and rules no other call out is added without backtracking.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use leasehold::core::{
    BootTime, Change, Fence, Holder, Interval, LastHolder, Now, Observations, Outcome, Record,
    Time, apply, view,
};

use super::calls::{self, Call};
use super::history::{Entry, Request, Response};
use super::store::{Server, Version};
use super::untracked::{is_pruned_by_reservation, is_refused_for_waiters};

/// More attempts than the history of a correct store ever takes.
const MAX_ATTEMPTS: usize = 400_000;

/// Checks the history of one name.
pub(crate) fn check(
    entries: &[Entry],
    log: &[Version],
    server: &Server,
    margin: Duration,
) -> Result<(), String> {
    let calls = calls::from_history(entries, log, server, margin);
    let mut search = Search {
        calls: &calls,
        observed: observed_expiries(log, server),
        tried: HashSet::new(),
        furthest: (LinearizedCalls::new(calls.len()), None),
    };
    if search.linearize(&mut LinearizedCalls::new(calls.len()), None) {
        return Ok(());
    }
    let (linearized, record) = &search.furthest;
    let stuck = search.enabled(linearized);
    let shown: Vec<_> = stuck
        .iter()
        .map(|index| format!("  {:?}", calls[*index]))
        .collect();
    Err(format!(
        "the history is not linearizable ({} attempts): {} of {} calls can be ordered, which leads to\n  {record:?}\nand to none of\n{}",
        search.tried.len(),
        linearized.count(),
        calls.len(),
        shown.join("\n")
    ))
}

/// The set of calls that are already in the order.
#[derive(Clone, PartialEq, Eq, Hash)]
struct LinearizedCalls(Vec<u64>);

impl LinearizedCalls {
    fn new(calls: usize) -> Self {
        Self(vec![0; calls.div_ceil(64)])
    }

    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn toggle(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

struct Search<'c> {
    calls: &'c [Call],
    observed: ObservedExpiries,
    tried: HashSet<(LinearizedCalls, Option<Record>)>,
    furthest: (LinearizedCalls, Option<Record>),
}

impl Search<'_> {
    /// Returns whether the remaining calls can be ordered after this record.
    fn linearize(&mut self, linearized: &mut LinearizedCalls, record: Option<Record>) -> bool {
        let mut added = Vec::new();
        let is_linearizable = self.linearize_rest(linearized, record, &mut added);
        for index in added {
            linearized.toggle(index);
        }
        is_linearizable
    }

    fn linearize_rest(
        &mut self,
        linearized: &mut LinearizedCalls,
        record: Option<Record>,
        added: &mut Vec<usize>,
    ) -> bool {
        let calls = self.calls;
        while let Some(index) = self.find_safe_call(linearized, &record) {
            linearized.toggle(index);
            added.push(index);
        }
        if linearized.count() > self.furthest.0.count() {
            self.furthest = (linearized.clone(), record.clone());
        }
        let is_left =
            |(index, call): (usize, &Call)| call.returned.is_some() && !linearized.contains(index);
        if !calls.iter().enumerate().any(is_left) {
            return true;
        }
        if self.tried.len() > MAX_ATTEMPTS
            || !self.tried.insert((linearized.clone(), record.clone()))
        {
            return false;
        }
        // First the calls whose effect was stored, then the other required calls, and finally the optional ones.
        let mut enabled = self.enabled(linearized);
        enabled.sort_by_key(|index| {
            (
                calls[*index].not_after.is_none(),
                calls[*index].returned.is_none(),
            )
        });
        for index in enabled {
            let call = &calls[index];
            let mut after: Vec<_> = possible_results(call, &record, &self.observed)
                .into_iter()
                .map(Some)
                .collect();
            if fits_without_change(call, &record, &self.observed) {
                after.push(record.clone());
            }
            for next in after {
                linearized.toggle(index);
                let is_linearizable = self.linearize(linearized, next);
                linearized.toggle(index);
                if is_linearizable {
                    return true;
                }
            }
        }
        false
    }

    /// Returns a call that fits, changes nothing and rules no other call out, so that adding it needs no backtracking.
    fn find_safe_call(
        &self,
        linearized: &LinearizedCalls,
        record: &Option<Record>,
    ) -> Option<usize> {
        let (calls, enabled) = (self.calls, self.enabled(linearized));
        // Adding a call that was invoked after another one's `not_after` would rule that one out.
        let not_after = enabled
            .iter()
            .filter_map(|index| calls[*index].not_after)
            .min();
        let rules_out_another =
            |invoked: u64| not_after.is_some_and(|not_after| not_after < invoked);
        let fits = |index: &usize| {
            fits_without_change(&calls[*index], record, &self.observed)
                && !rules_out_another(calls[*index].not_before)
        };
        enabled.iter().copied().find(fits)
    }

    /// Returns the calls that may come next: no remaining call returned before their invocation, and no ordered call was
    /// invoked after their `not_after`.
    fn enabled(&self, linearized: &LinearizedCalls) -> Vec<usize> {
        let (mut first_return, mut last_invocation) = (u64::MAX, 0);
        for (index, call) in self.calls.iter().enumerate() {
            match call.returned {
                Some(_) if linearized.contains(index) => {
                    last_invocation = last_invocation.max(call.not_before)
                }
                Some(returned) => first_return = first_return.min(returned),
                None => {}
            }
        }
        let left = self
            .calls
            .iter()
            .enumerate()
            .filter(|(index, _)| !linearized.contains(*index));
        left.filter(|(_, call)| call.not_before <= first_return)
            .filter(|(_, call)| {
                call.not_after
                    .is_none_or(|not_after| last_invocation <= not_after)
            })
            .map(|(index, _)| index)
            .collect()
    }
}

/// When an engine may expire each holder by observation: once it has been unchanged for its whole ttl. An engine with an
/// inaccurate time may have written a later `expires_at`.
type ObservedExpiries = BTreeMap<(Fence, Time), Time>;

fn observed_expiries(log: &[Version], server: &Server) -> ObservedExpiries {
    let mut observed = ObservedExpiries::new();
    for version in log {
        for holder in &version.record.holders {
            let entry = (holder.fence, holder.expires_at);
            let expiry = server.store_time(version.at.micros) + holder.ttl;
            observed.entry(entry).or_insert(expiry);
        }
    }
    observed
}

fn earliest_expiry(holder: &Holder, observed: &ObservedExpiries) -> Time {
    let expiry = observed.get(&(holder.fence, holder.expires_at));
    expiry.map_or(holder.expires_at, |expiry| holder.expires_at.min(*expiry))
}

/// Returns the record as engines may judge it at this time: one for each combination of holders that have expired by
/// observation but not by the store's clock. An engine expires a holder by observation only if it made that observation.
fn judged_records(
    record: &Option<Record>,
    earliest: Time,
    observed: &ObservedExpiries,
) -> Vec<Option<Record>> {
    let mut judged = vec![record.clone()];
    let holders = record.as_ref().map_or(&[][..], |record| &record.holders);
    for (index, holder) in holders.iter().enumerate() {
        let expiry = earliest_expiry(holder, observed);
        if expiry >= earliest || holder.expires_at < earliest {
            continue;
        }
        let mut expired = judged.clone();
        for record in expired.iter_mut().flatten() {
            record.holders[index].expires_at = expiry;
        }
        judged.append(&mut expired);
    }
    judged
}

/// Returns every time interval that may make a difference to this call.
fn possible_intervals(
    call: &Call,
    record: Option<&Record>,
    observed: &ObservedExpiries,
) -> Vec<Interval> {
    let mut latest = match &call.response {
        Response::Outcome(Outcome::Granted(grant)) => {
            vec![grant.acquired_at, grant.expires_at - grant.ttl]
        }
        Response::Outcome(Outcome::Renewed(renewal)) => vec![renewal.expires_at - renewal.ttl],
        Response::Indeterminate => call.recorded_latest.into_iter().collect(),
        _ => Vec::new(),
    };
    if latest.is_empty() {
        latest.push(call.latest);
    }
    let holders = record.into_iter().flat_map(|record| &record.holders);
    let mut earliest: BTreeSet<_> = holders
        .flat_map(|holder| [holder.expires_at, earliest_expiry(holder, observed)])
        .map(|end| end + Duration::from_micros(1))
        .filter(|expiry| *expiry > call.earliest && *expiry <= call.latest)
        .collect();
    earliest.insert(call.earliest);
    let pair = |latest: &Time| {
        let latest = *latest;
        earliest
            .iter()
            .map(move |earliest| Interval {
                earliest: *earliest,
                latest,
            })
            .collect::<Vec<_>>()
    };
    latest.iter().flat_map(pair).collect()
}

fn now_at<'s>(interval: Interval, call: &Call, observations: &'s Observations) -> Now<'s> {
    Now {
        interval,
        boot: BootTime::from_micros(0),
        earlier: None,
        stepped_at: None,
        restarted: None,
        margin: call.margin,
        observations,
        high_water: call.fence_start,
    }
}

/// Returns whether a required call fits here without changing the record.
fn fits_without_change(call: &Call, record: &Option<Record>, observed: &ObservedExpiries) -> bool {
    if call.returned.is_none() {
        return false;
    }
    let observations = Observations::none();
    possible_intervals(call, record.as_ref(), observed)
        .into_iter()
        .any(|interval| {
            let now = now_at(interval, call, &observations);
            judged_records(record, interval.earliest, observed)
                .iter()
                .any(|record| matches_without_change(call, record, &now))
        })
}

/// Returns whether the core gives this response for this record without changing it.
fn matches_without_change(call: &Call, record: &Option<Record>, now: &Now<'_>) -> bool {
    match (&call.request, &call.response) {
        (Request::Show, Response::Shown(shown)) => {
            let expected = record.as_ref().map(|record| view(record, now));
            let facts = |record: &Record| {
                let fences: Vec<_> = record
                    .holders
                    .iter()
                    .map(|holder| (holder.fence, holder.broken.is_some()))
                    .collect();
                (record.fence, record.body.clone(), fences)
            };
            expected.map(|view| facts(&view.record))
                == shown.as_ref().map(|view| facts(&view.record))
        }
        (Request::Perform(operation), Response::Outcome(outcome)) => {
            let decision = apply(record.as_ref(), operation, now);
            let same =
                decision.change == Change::None && outcomes_match(outcome, &decision.outcome);
            same || is_refused_for_waiters(outcome, record.as_ref(), now)
                || is_pruned_by_reservation(outcome, operation, record.as_ref(), now)
        }
        _ => false,
    }
}

/// Returns the records that this call may write.
fn possible_results(
    call: &Call,
    record: &Option<Record>,
    observed: &ObservedExpiries,
) -> Vec<Record> {
    let Request::Perform(operation) = &call.request else {
        return Vec::new();
    };
    let observations = Observations::none();
    let mut results: Vec<Record> = Vec::new();
    for interval in possible_intervals(call, record.as_ref(), observed) {
        let now = now_at(interval, call, &observations);
        for record in judged_records(record, interval.earliest, observed) {
            let decision = apply(record.as_ref(), operation, &now);
            let agrees = match &call.response {
                Response::Outcome(outcome) => outcomes_match(outcome, &decision.outcome),
                _ => true,
            };
            if let (true, Change::Write(next)) = (agrees, decision.change) {
                let next = without_untracked(next);
                if !results.contains(&next) {
                    results.push(next);
                }
            }
        }
    }
    results
}

/// Removes what the checker does not track: reservations, and the times of ends and renewals.
fn without_untracked(mut record: Record) -> Record {
    record.next = None;
    for holder in &mut record.holders {
        holder.renewed_at = holder.acquired_at;
    }
    if let Some(last) = &mut record.last {
        last.at = Time::from_micros(0);
    }
    record
}

/// Returns whether a client's response matches that of the core, except for durations and the times of ends.
fn outcomes_match(response: &Outcome, core: &Outcome) -> bool {
    let ended = |last: &Option<LastHolder>| {
        last.as_ref()
            .map(|last: &LastHolder| (last.fence, last.how))
    };
    match (response, core) {
        (Outcome::Granted(response), Outcome::Granted(core)) => {
            (
                response.fence,
                response.ttl,
                response.acquired_at,
                response.expires_at,
                &response.body,
            ) == (
                core.fence,
                core.ttl,
                core.acquired_at,
                core.expires_at,
                &core.body,
            ) && response.granted == core.granted
                && ended(&response.last) == ended(&core.last)
        }
        (Outcome::Held(response), Outcome::Held(core)) => response.owner == core.owner,
        (Outcome::Broken { until: response }, Outcome::Broken { until: core }) => response == core,
        (response, core) => response == core,
    }
}

/// Checks that fences only increase in the stored versions, and that clients received each of them once.
pub(crate) fn check_fences(entries: &[Entry], log: &[Version]) -> Result<(), String> {
    let mut highest = None;
    for version in log {
        if Some(version.record.fence) < highest {
            return Err(format!(
                "the fence decreased from {highest:?} to {version:?}"
            ));
        }
        highest = Some(version.record.fence);
    }
    let mut granted = BTreeSet::new();
    for entry in entries {
        if let Response::Outcome(Outcome::Granted(grant)) = &entry.response
            && grant.granted != leasehold::core::GrantKind::Kept
            && !granted.insert(grant.fence)
        {
            return Err(format!("the fence {} was granted twice", grant.fence));
        }
    }
    Ok(())
}
