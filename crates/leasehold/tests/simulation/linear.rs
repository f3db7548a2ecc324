//! Is a history of one name linearizable? That is: can its calls be put into one order, each somewhere between its
//! invocation and its answer, so that the pure core, asked in that order, gives each the answer that it got?
//!
//! The search is that of Wing and Gong, with a memory of what was tried (Lowe). The core depends on time, which the
//! checker does not know exactly; it tries what can make a difference:
//!
//! - `latest` only dates things, and the answer (or, for a call without one, what was really stored) tells it;
//! - `earliest` only decides which holders are over: the store's time at the invocation (less what an engine may lag
//!   behind), and the moments after each holder's expiry up to the answer.
//!
//! Calls whose fate is unknown may take effect at any time after their invocation, or never. An engine that lost an
//! answer may run a call twice; what was really stored shows it, and such a first run is one more call of unknown
//! fate. A holder may be judged over by its expiry, or because it was seen unchanged for its whole ttl. An acquisition
//! may be refused although the core would grant it (others are in line, or have reserved), but never in the name of
//! somebody who does not hold the lease. A call that changes nothing, fits and rules nothing out is taken at once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use leasehold::core::{
    BootTime, Change, Fence, Holder, Interval, LastHolder, Now, Observations, Outcome, Record,
    Time, apply, view,
};

use super::calls::{self, Call};
use super::history::{Asked, Entry, Told};
use super::store::{Server, Version};
use super::unfollowed::{pruned_by_a_reservation, refused_for_others};

/// More attempts than an honest history ever takes.
const LIMIT: usize = 400_000;

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
        observed: observed(log, server),
        tried: HashSet::new(),
        furthest: (Done::new(calls.len()), None),
    };
    if search.explain(&mut Done::new(calls.len()), None) {
        return Ok(());
    }
    let (done, record) = &search.furthest;
    let stuck = search.enabled(done);
    let shown: Vec<_> = stuck
        .iter()
        .map(|index| format!("  {:?}", calls[*index]))
        .collect();
    Err(format!(
        "no order explains this history ({} attempts): {} of {} calls can be explained, which leaves\n  {record:?}\nand then none of\n{}",
        search.tried.len(),
        done.count(),
        calls.len(),
        shown.join("\n")
    ))
}

/// Which calls are in the order already.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn new(calls: usize) -> Self {
        Self(vec![0; calls.div_ceil(64)])
    }

    fn has(&self, index: usize) -> bool {
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
    observed: Observed,
    tried: HashSet<(Done, Option<Record>)>,
    furthest: (Done, Option<Record>),
}

impl Search<'_> {
    /// Whether the calls that are left can be put in order after this record.
    fn explain(&mut self, done: &mut Done, record: Option<Record>) -> bool {
        let mut taken = Vec::new();
        let explained = self.explain_rest(done, record, &mut taken);
        for index in taken {
            done.toggle(index);
        }
        explained
    }

    fn explain_rest(
        &mut self,
        done: &mut Done,
        record: Option<Record>,
        taken: &mut Vec<usize>,
    ) -> bool {
        let calls = self.calls;
        while let Some(index) = self.free_choice(done, &record) {
            done.toggle(index);
            taken.push(index);
        }
        if done.count() > self.furthest.0.count() {
            self.furthest = (done.clone(), record.clone());
        }
        let left = |(index, call): (usize, &Call)| call.until.is_some() && !done.has(index);
        if !calls.iter().enumerate().any(left) {
            return true;
        }
        if self.tried.len() > LIMIT || !self.tried.insert((done.clone(), record.clone())) {
            return false;
        }
        // First what was surely stored, then what was surely done, and only then what need never have happened.
        let mut enabled = self.enabled(done);
        enabled.sort_by_key(|index| (calls[*index].gone.is_none(), calls[*index].until.is_none()));
        for index in enabled {
            let call = &calls[index];
            let mut after: Vec<_> = results(call, &record, &self.observed)
                .into_iter()
                .map(Some)
                .collect();
            if fits_unchanged(call, &record, &self.observed) {
                after.push(record.clone());
            }
            for next in after {
                done.toggle(index);
                let explained = self.explain(done, next);
                done.toggle(index);
                if explained {
                    return true;
                }
            }
        }
        false
    }

    /// A call that fits, changes nothing, and is in nobody's way: it can be taken without looking back.
    fn free_choice(&self, done: &Done, record: &Option<Record>) -> Option<usize> {
        let (calls, enabled) = (self.calls, self.enabled(done));
        // Taking a call that was made after another was gone would rule that other one out.
        let gone = enabled.iter().filter_map(|index| calls[*index].gone).min();
        let in_the_way = |made: u64| gone.is_some_and(|gone| gone < made);
        let fits = |index: &usize| {
            fits_unchanged(&calls[*index], record, &self.observed)
                && !in_the_way(calls[*index].from)
        };
        enabled.iter().copied().find(fits)
    }

    /// The calls that may come next: nothing that is left was answered before they were made, and nothing that is in
    /// the order was made after they were gone.
    fn enabled(&self, done: &Done) -> Vec<usize> {
        let (mut first_answer, mut last_made) = (u64::MAX, 0);
        for (index, call) in self.calls.iter().enumerate() {
            match call.until {
                Some(_) if done.has(index) => last_made = last_made.max(call.from),
                Some(until) => first_answer = first_answer.min(until),
                None => {}
            }
        }
        let left = self
            .calls
            .iter()
            .enumerate()
            .filter(|(index, _)| !done.has(*index));
        left.filter(|(_, call)| call.from <= first_answer)
            .filter(|(_, call)| call.gone.is_none_or(|gone| last_made <= gone))
            .map(|(index, _)| index)
            .collect()
    }
}

/// When each holder may be judged over by whoever has seen it unchanged for its whole ttl: an engine that knew the time
/// badly may have written an expiry that is further ahead.
type Observed = BTreeMap<(Fence, Time), Time>;

fn observed(log: &[Version], server: &Server) -> Observed {
    let mut observed = Observed::new();
    for version in log {
        for holder in &version.record.holders {
            let entry = (holder.fence, holder.expires_at);
            let over = server.store_time(version.at.micros) + holder.ttl;
            observed.entry(entry).or_insert(over);
        }
    }
    observed
}

fn over_at(holder: &Holder, observed: &Observed) -> Time {
    let over = observed.get(&(holder.fence, holder.expires_at));
    over.map_or(holder.expires_at, |over| holder.expires_at.min(*over))
}

/// The record as engines may judge it at this time: each combination of holders whose expiry by observation, rather than
/// by the store's clock, has passed. An engine only expires a holder by observation if it has made that observation.
fn judgements(record: &Option<Record>, earliest: Time, observed: &Observed) -> Vec<Option<Record>> {
    let mut judgements = vec![record.clone()];
    let holders = record.as_ref().map_or(&[][..], |record| &record.holders);
    for (index, holder) in holders.iter().enumerate() {
        let over = over_at(holder, observed);
        if over >= earliest || holder.expires_at < earliest {
            continue;
        }
        let mut expired = judgements.clone();
        for record in expired.iter_mut().flatten() {
            record.holders[index].expires_at = over;
        }
        judgements.append(&mut expired);
    }
    judgements
}

/// Every moment that may make a difference to this call.
fn moments(call: &Call, record: Option<&Record>, observed: &Observed) -> Vec<Interval> {
    let mut latest = match &call.told {
        Told::Outcome(Outcome::Granted(grant)) => {
            vec![grant.acquired_at, grant.expires_at - grant.ttl]
        }
        Told::Outcome(Outcome::Renewed(renewal)) => vec![renewal.expires_at - renewal.ttl],
        Told::Unknown => call.date.into_iter().collect(),
        _ => Vec::new(),
    };
    if latest.is_empty() {
        latest.push(call.latest);
    }
    let holders = record.into_iter().flat_map(|record| &record.holders);
    let mut earliest: BTreeSet<_> = holders
        .flat_map(|holder| [holder.expires_at, over_at(holder, observed)])
        .map(|end| end + Duration::from_micros(1))
        .filter(|over| *over > call.earliest && *over <= call.latest)
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

fn at<'s>(interval: Interval, call: &Call, observations: &'s Observations) -> Now<'s> {
    Now {
        interval,
        boot: BootTime::from_micros(0),
        earlier: None,
        stepped_at: None,
        restarted: None,
        margin: call.margin,
        observations,
        high_water: call.start,
    }
}

/// Whether a call that surely took effect fits here without changing the record.
fn fits_unchanged(call: &Call, record: &Option<Record>, observed: &Observed) -> bool {
    if call.until.is_none() {
        return false;
    }
    let seen = Observations::none();
    moments(call, record.as_ref(), observed)
        .into_iter()
        .any(|interval| {
            let now = at(interval, call, &seen);
            judgements(record, interval.earliest, observed)
                .iter()
                .any(|record| agrees_unchanged(call, record, &now))
        })
}

/// Whether the core gives this answer for this record without changing it.
fn agrees_unchanged(call: &Call, record: &Option<Record>, now: &Now<'_>) -> bool {
    match (&call.asked, &call.told) {
        (Asked::Show, Told::Shown(shown)) => {
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
        (Asked::Perform(operation), Told::Outcome(outcome)) => {
            let decision = apply(record.as_ref(), operation, now);
            let same = decision.change == Change::None && agree(outcome, &decision.outcome);
            same || refused_for_others(outcome, record.as_ref(), now)
                || pruned_by_a_reservation(outcome, operation, record.as_ref(), now)
        }
        _ => false,
    }
}

/// The records that may come of a call that changes something.
fn results(call: &Call, record: &Option<Record>, observed: &Observed) -> Vec<Record> {
    let Asked::Perform(operation) = &call.asked else {
        return Vec::new();
    };
    let seen = Observations::none();
    let mut results: Vec<Record> = Vec::new();
    for interval in moments(call, record.as_ref(), observed) {
        let now = at(interval, call, &seen);
        for record in judgements(record, interval.earliest, observed) {
            let decision = apply(record.as_ref(), operation, &now);
            let agrees = match &call.told {
                Told::Outcome(outcome) => agree(outcome, &decision.outcome),
                _ => true,
            };
            if let (true, Change::Write(next)) = (agrees, decision.change) {
                let next = timeless(next);
                if !results.contains(&next) {
                    results.push(next);
                }
            }
        }
    }
    results
}

/// Without what the checker does not follow: reservations, and when things ended or were renewed.
fn timeless(mut record: Record) -> Record {
    record.next = None;
    for holder in &mut record.holders {
        holder.renewed_at = holder.acquired_at;
    }
    if let Some(last) = &mut record.last {
        last.at = Time::from_micros(0);
    }
    record
}

/// Whether a client was told what the core says, but for spans and for when things ended.
fn agree(told: &Outcome, core: &Outcome) -> bool {
    let ended = |last: &Option<LastHolder>| {
        last.as_ref()
            .map(|last: &LastHolder| (last.fence, last.how))
    };
    match (told, core) {
        (Outcome::Granted(told), Outcome::Granted(core)) => {
            (
                told.fence,
                told.ttl,
                told.acquired_at,
                told.expires_at,
                &told.body,
            ) == (
                core.fence,
                core.ttl,
                core.acquired_at,
                core.expires_at,
                &core.body,
            ) && told.granted == core.granted
                && ended(&told.last) == ended(&core.last)
        }
        (Outcome::Held(told), Outcome::Held(core)) => told.owner == core.owner,
        (Outcome::Broken { until: told }, Outcome::Broken { until: core }) => told == core,
        (told, core) => told == core,
    }
}

/// Fences are granted once, and only grow: in what was stored, and in what clients were told.
pub(crate) fn check_fences(entries: &[Entry], log: &[Version]) -> Result<(), String> {
    let mut highest = None;
    for version in log {
        if Some(version.record.fence) < highest {
            return Err(format!(
                "the fence went back from {highest:?} to {version:?}"
            ));
        }
        highest = Some(version.record.fence);
    }
    let mut granted = BTreeSet::new();
    for entry in entries {
        if let Told::Outcome(Outcome::Granted(grant)) = &entry.told
            && grant.granted != leasehold::core::GrantKind::Kept
            && !granted.insert(grant.fence)
        {
            return Err(format!("the fence {} was granted twice", grant.fence));
        }
    }
    Ok(())
}
