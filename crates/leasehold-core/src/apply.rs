//! The one place where leases are decided.

use std::time::Duration;

use crate::clock::Now;
use crate::limits;
use crate::operation::{
    Acquire, Break, Grant, Granted, Held, Operation, Outcome, Put, Release, Renew, Renewal,
    Reserve, Update, Who,
};
use crate::record::{Ended, Fence, Hash, Holder, How, Mode, Record, Reservation, State, Text};

/// What is to be done with the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it stays as it is.
    None,
    /// This is written in its place.
    Write(Record),
    /// It is deleted.
    Delete,
}

/// What [`apply`] decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done with the record. The outcome is true only once that is done.
    pub change: Change,
    /// What the caller is told then.
    pub outcome: Outcome,
}

/// Decides what an operation does to a record (`None`: there is none under this name) at this time.
///
/// Pure: the same arguments always give the same decision.
pub fn apply(record: Option<&Record>, operation: &Operation, now: &Now<'_>) -> Decision {
    match operation {
        Operation::Acquire(acquire) => apply_acquire(record, acquire, now),
        Operation::Reserve(reserve) => apply_reserve(record, reserve, now),
        Operation::Renew(renew) => apply_renew(record, renew, now),
        Operation::Update(update) => apply_update(record, update, now),
        Operation::Release(release) => apply_release(record, release, now),
        Operation::Break(Break::Own(release)) => apply_break_own(record, release, now),
        Operation::Break(Break::Force {
            fence,
            reason,
            now: at_once,
        }) => apply_break_force(record, *fence, reason, *at_once, now),
        Operation::Put(put) => apply_put(record, put, now),
        Operation::Remove => apply_remove(record, now),
        Operation::Purge { retention } => apply_purge(record, *retention, now),
    }
}

fn unchanged(outcome: Outcome) -> Decision {
    Decision {
        change: Change::None,
        outcome,
    }
}

fn write(record: Record, outcome: Outcome) -> Decision {
    Decision {
        change: Change::Write(record),
        outcome,
    }
}

// ---- taking it -------------------------------------------------------------------------------------------------

fn apply_acquire(record: Option<&Record>, acquire: &Acquire, now: &Now<'_>) -> Decision {
    let mine = record.and_then(|record| own_live_holder(record, acquire, now));
    if let (Some(record), Some(mine)) = (record, mine)
        && acquire.fence == Some(mine.fence)
        && acquire.mode == mine.mode
    {
        return keep(record, mine, acquire, now);
    }
    if let Some(obstacle) =
        record.and_then(|record| obstacle(record, acquire.nonce, acquire.mode, mine, now))
    {
        return unchanged(obstacle);
    }
    let granted = if mine.is_some() {
        Granted::Again
    } else {
        Granted::Fresh
    };
    let replaced = mine.map(|mine| mine.fence);
    grant(pruned(record, now), replaced, granted, acquire, now)
}

/// The caller's own live holder: same nonce, same principal, not broken.
fn own_live_holder<'r>(record: &'r Record, acquire: &Acquire, now: &Now<'_>) -> Option<&'r Holder> {
    record.holders.iter().find(|holder| {
        holder.nonce == acquire.nonce
            && holder.principal == acquire.principal
            && holder.broken.is_none()
            && !now.is_over(holder)
    })
}

/// What keeps a caller from this mode: a reservation, or live holders other than `mine`.
fn obstacle(
    record: &Record,
    nonce: Hash,
    mode: Mode,
    mine: Option<&Holder>,
    now: &Now<'_>,
) -> Option<Outcome> {
    let mut others = Others::default();
    for holder in &record.holders {
        if mine.is_some_and(|mine| mine.fence == holder.fence) {
            continue;
        }
        let Some(left) = now.left(holder) else {
            continue;
        };
        if let (Mode::Shared { limit: theirs }, Mode::Shared { limit: ours }) = (holder.mode, mode)
            && theirs != ours
        {
            return Some(Outcome::OtherLimit { limit: theirs });
        }
        others.add(holder, left);
    }
    if let Some(held) = others.obstruct(mode) {
        return Some(Outcome::Held(held));
    }
    if mine.is_some() {
        return None;
    }
    let (reservation, left) = live_reservation(record, now)?;
    (reservation.nonce != nonce).then(|| {
        Outcome::Held(Held {
            owner: Text::default(),
            since: reservation.since,
            retry_after: left,
        })
    })
}

/// The live holders other than the caller.
#[derive(Default)]
struct Others<'r> {
    count: usize,
    exclusive: bool,
    first: Option<&'r Holder>,
    soonest: Duration,
    last: Duration,
}

impl<'r> Others<'r> {
    fn add(&mut self, holder: &'r Holder, left: Duration) {
        self.soonest = if self.count == 0 {
            left
        } else {
            self.soonest.min(left)
        };
        self.last = self.last.max(left);
        self.exclusive |= holder.mode == Mode::Exclusive;
        self.first = self.first.or(Some(holder));
        self.count += 1;
    }

    fn obstruct(&self, mode: Mode) -> Option<Held> {
        let first = self.first?;
        let full = match mode {
            Mode::Exclusive => true,
            Mode::Shared { .. } => self.exclusive || self.count >= mode.capacity(),
        };
        // A place among sharers comes free with the first of them, everything else only with the last.
        let sharing = matches!(mode, Mode::Shared { .. }) && !self.exclusive;
        let retry_after = if sharing { self.soonest } else { self.last };
        full.then(|| Held {
            owner: first.owner.clone(),
            since: first.acquired_at,
            retry_after,
        })
    }
}

/// The reservation that stands, and for how long. One that reaches further ahead than any may was written by a
/// clock that has stepped since: it means nothing.
fn live_reservation<'r>(record: &'r Record, now: &Now<'_>) -> Option<(&'r Reservation, Duration)> {
    let reservation = record.next.as_ref()?;
    let furthest = now.interval.latest + limits::RESERVATION + now.margin;
    let left = now.until_past(reservation.until)?;
    (reservation.until <= furthest).then_some((reservation, left))
}

fn grant(
    mut record: Record,
    replaced: Option<Fence>,
    granted: Granted,
    acquire: &Acquire,
    now: &Now<'_>,
) -> Decision {
    let Some(fence) = record.fence.max(acquire.floor).next() else {
        return unchanged(Outcome::Exhausted);
    };
    record.fence = fence;
    record
        .holders
        .retain(|holder| Some(holder.fence) != replaced);
    if record
        .next
        .as_ref()
        .is_some_and(|next| next.nonce == acquire.nonce)
    {
        record.next = None;
    }
    let acquired_at = now.interval.latest;
    let expires_at = acquired_at + acquire.ttl;
    record.holders.push(Holder {
        fence,
        owner: acquire.owner.clone(),
        principal: acquire.principal.clone(),
        nonce: acquire.nonce,
        mode: acquire.mode,
        ttl: acquire.ttl,
        acquired_at,
        renewed_at: acquired_at,
        expires_at,
        broken: None,
    });
    let grant = Grant {
        fence,
        granted,
        ttl: acquire.ttl,
        acquired_at,
        expires_at,
        body: record.body.clone(),
        state: record.state.clone(),
        last: record.last.clone(),
    };
    write(record, Outcome::Granted(grant))
}

/// The caller holds it and shows its fence: a renewal that keeps the fence.
fn keep(record: &Record, mine: &Holder, acquire: &Acquire, now: &Now<'_>) -> Decision {
    let mut next = pruned(Some(record), now);
    let renewal = extend(&mut next, mine.fence, Some(acquire.ttl), now);
    let grant = Grant {
        fence: mine.fence,
        granted: Granted::Kept,
        ttl: renewal.ttl,
        acquired_at: renewal.acquired_at,
        expires_at: renewal.expires_at,
        body: next.body.clone(),
        state: next.state.clone(),
        last: next.last.clone(),
    };
    write(next, Outcome::Granted(grant))
}

fn apply_reserve(record: Option<&Record>, reserve: &Reserve, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return unchanged(Outcome::Free);
    };
    let mine = record
        .next
        .as_ref()
        .filter(|next| next.nonce == reserve.nonce);
    if reserve.span.is_zero() {
        let mut next = pruned(Some(record), now);
        next.next = None;
        return if mine.is_some() {
            write(next, Outcome::Free)
        } else {
            unchanged(Outcome::Free)
        };
    }
    let held = match obstacle(record, reserve.nonce, reserve.mode, None, now) {
        None => return unchanged(Outcome::Free),
        Some(Outcome::Held(held)) => held,
        Some(other) => return unchanged(other),
    };
    if live_reservation(record, now).is_some_and(|(theirs, _)| theirs.nonce != reserve.nonce) {
        return unchanged(Outcome::Held(held));
    }
    let latest = now.interval.latest;
    // A `since` that lies ahead was written by a clock that has stepped back: start anew.
    let mut since = mine.map_or(latest, |mine| {
        if mine.since > latest {
            latest
        } else {
            mine.since
        }
    });
    if now.interval.earliest > since + limits::RESERVATIONS * 2 {
        since = latest;
    }
    let until = (latest + reserve.span.min(limits::RESERVATION)).min(since + limits::RESERVATIONS);
    if until <= latest {
        return unchanged(Outcome::Held(held));
    }
    let mut next = pruned(Some(record), now);
    next.next = Some(Reservation {
        nonce: reserve.nonce,
        mode: reserve.mode,
        since,
        until,
    });
    write(next, Outcome::Reserved { until })
}

// ---- holding it ------------------------------------------------------------------------------------------------

fn apply_renew(record: Option<&Record>, renew: &Renew, now: &Now<'_>) -> Decision {
    match acting(record, renew.fence, renew.principal.as_ref(), now) {
        Err(refusal) => unchanged(refusal),
        Ok(record) => {
            let mut next = pruned(Some(record), now);
            let renewal = extend(&mut next, renew.fence, renew.ttl, now);
            write(next, Outcome::Renewed(renewal))
        }
    }
}

fn apply_update(record: Option<&Record>, update: &Update, now: &Now<'_>) -> Decision {
    let record = match acting(record, update.fence, update.principal.as_ref(), now) {
        Ok(record) => record,
        Err(refusal) => {
            let done = update.then_release.then(|| result_hash(update));
            let repeated = done.is_some_and(|hash| {
                record
                    .and_then(|record| record.last.as_ref())
                    .is_some_and(|last| {
                        last.fence == update.fence && last.how == How::Completed(hash)
                    })
            });
            return unchanged(if repeated {
                Outcome::Completed
            } else {
                refusal
            });
        }
    };
    let mut next = pruned(Some(record), now);
    if let Some(body) = &update.body {
        next.body = body.clone();
    }
    if let Some(label) = &update.state {
        next.state = label.clone().map(|label| State {
            label,
            since: now.interval.latest,
        });
    }
    if update.then_release {
        let how = How::Completed(result_hash(update));
        end(&mut next, update.fence, how, now);
        return write(next, Outcome::Completed);
    }
    let renewal = extend(&mut next, update.fence, None, now);
    write(next, Outcome::Renewed(renewal))
}

/// What an update wrote, in short, so that its repetition can be told from another one.
fn result_hash(update: &Update) -> Hash {
    let body = update.body.as_deref().map(str::as_bytes);
    let state = update
        .state
        .as_ref()
        .map(|state| state.as_deref().unwrap_or_default().as_bytes());
    let tags = [u8::from(body.is_some()), u8::from(state.is_some())];
    Hash::of(&[&tags, body.unwrap_or_default(), state.unwrap_or_default()])
}

/// The record, if this fence may act on it.
fn acting<'r>(
    record: Option<&'r Record>,
    fence: Fence,
    principal: Option<&Text>,
    now: &Now<'_>,
) -> Result<&'r Record, Outcome> {
    let record = record.ok_or(Outcome::Fenced)?;
    let Some(holder) = record.holders.iter().find(|holder| holder.fence == fence) else {
        let expired = record
            .last
            .as_ref()
            .is_some_and(|last| last.fence == fence && last.how == How::Expired);
        return Err(if expired {
            Outcome::Expired
        } else {
            Outcome::Fenced
        });
    };
    if holder.principal.as_ref() != principal {
        return Err(Outcome::Denied);
    }
    if holder.broken.is_some() {
        return Err(Outcome::Fenced);
    }
    if now.is_over(holder) {
        return Err(Outcome::Expired);
    }
    Ok(record)
}

/// Renews a holder that is there. Its expiry never moves back.
fn extend(record: &mut Record, fence: Fence, ttl: Option<Duration>, now: &Now<'_>) -> Renewal {
    let body = record.body.clone();
    let holder = record
        .holders
        .iter_mut()
        .find(|holder| holder.fence == fence)
        .expect("only a live holder renews");
    let latest = now.interval.latest;
    let ttl = ttl.unwrap_or(holder.ttl);
    let expires_at = latest + ttl;
    // After a step back the old expiry may lie far ahead: keeping it would lock the name for that long.
    let stepped = holder.expires_at > latest + holder.ttl + now.margin;
    if stepped || expires_at >= holder.expires_at {
        (holder.ttl, holder.renewed_at, holder.expires_at) = (ttl, latest, expires_at);
    }
    Renewal {
        fence,
        ttl: holder.ttl,
        acquired_at: holder.acquired_at,
        expires_at: holder.expires_at,
        body,
    }
}

// ---- letting go ------------------------------------------------------------------------------------------------

fn apply_release(record: Option<&Record>, release: &Release, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return unchanged(Outcome::NotHeld);
    };
    let Some(holder) = holder_of(record, release.who).filter(|holder| !now.is_over(holder)) else {
        return unchanged(if released_before(record, release.who) {
            Outcome::Released
        } else {
            Outcome::NotHeld
        });
    };
    if holder.principal != release.principal {
        return unchanged(Outcome::NotHeld);
    }
    let (fence, how) = (
        holder.fence,
        if holder.broken.is_some() {
            How::Broken
        } else {
            How::Released
        },
    );
    let mut next = pruned(Some(record), now);
    end(&mut next, fence, how, now);
    write(next, Outcome::Released)
}

fn apply_break_own(record: Option<&Record>, release: &Release, now: &Now<'_>) -> Decision {
    let decision = apply_release(record, release, now);
    if decision.outcome != Outcome::NotHeld {
        return decision;
    }
    // Not the caller's: an error while somebody else's, nothing to do when nobody's.
    let live = record
        .into_iter()
        .flat_map(|record| &record.holders)
        .find(|holder| !now.is_over(holder));
    unchanged(match live {
        None => Outcome::NotHeld,
        Some(theirs) if holds(theirs, release.who) => Outcome::Denied,
        Some(_) => Outcome::Fenced,
    })
}

fn apply_break_force(
    record: Option<&Record>,
    fence: Option<Fence>,
    reason: &Text,
    at_once: bool,
    now: &Now<'_>,
) -> Decision {
    let Some(record) = record else {
        return unchanged(Outcome::NotHeld);
    };
    let mut next = pruned(Some(record), now);
    let meant: Vec<_> = next
        .holders
        .iter()
        .map(|holder| holder.fence)
        .filter(|held| fence.is_none_or(|fence| fence == *held))
        .collect();
    if meant.is_empty() {
        return unchanged(Outcome::NotHeld);
    }
    for fence in meant {
        if at_once {
            end(&mut next, fence, How::Broken, now);
        } else if let Some(holder) = next.holders.iter_mut().find(|holder| holder.fence == fence) {
            holder.broken.get_or_insert_with(|| reason.clone());
        }
    }
    let until = next
        .holders
        .iter()
        .filter(|holder| holder.broken.is_some())
        .map(|holder| holder.expires_at)
        .max();
    write(next, Outcome::Broken { until })
}

fn holds(holder: &Holder, who: Who) -> bool {
    match who {
        Who::Fence(fence) => holder.fence == fence,
        Who::Nonce(nonce) => holder.nonce == nonce,
    }
}

fn holder_of(record: &Record, who: Who) -> Option<&Holder> {
    record.holders.iter().find(|holder| holds(holder, who))
}

/// Whether the last exclusive holder was this one, and let go by itself: then a repeated release had succeeded.
fn released_before(record: &Record, who: Who) -> bool {
    record.last.as_ref().is_some_and(|last| {
        Who::Fence(last.fence) == who && matches!(last.how, How::Released | How::Completed(_))
    })
}

/// Removes a holder, and remembers how it ended if it was exclusive.
fn end(record: &mut Record, fence: Fence, how: How, now: &Now<'_>) {
    let Some(index) = record
        .holders
        .iter()
        .position(|holder| holder.fence == fence)
    else {
        return;
    };
    let holder = record.holders.remove(index);
    if holder.mode == Mode::Exclusive {
        record.last = Some(Ended {
            fence,
            owner: holder.owner,
            how,
            at: now.interval.latest,
        });
    }
}

// ---- work items and purging ------------------------------------------------------------------------------------

fn apply_put(record: Option<&Record>, put: &Put, now: &Now<'_>) -> Decision {
    if put.nonce.is_some() && record.is_some_and(|record| record.put == put.nonce) {
        return unchanged(Outcome::Put);
    }
    if let Some(held) = record.and_then(|record| leased(record, now)) {
        return unchanged(Outcome::Held(held));
    }
    let mut next = pruned(record, now);
    next.body = put.body.clone();
    next.state = Some(State {
        label: put.state.clone(),
        since: now.interval.latest,
    });
    next.put = put.nonce;
    write(next, Outcome::Put)
}

fn apply_remove(record: Option<&Record>, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return unchanged(Outcome::Removed);
    };
    if let Some(held) = leased(record, now) {
        return unchanged(Outcome::Held(held));
    }
    if record.body.is_empty() && record.state.is_none() {
        return unchanged(Outcome::Removed);
    }
    let mut next = pruned(Some(record), now);
    next.body = Text::default();
    next.state = None;
    write(next, Outcome::Removed)
}

/// The live holders, as an obstacle to those who need none.
fn leased(record: &Record, now: &Now<'_>) -> Option<Held> {
    let mut others = Others::default();
    for holder in &record.holders {
        if let Some(left) = now.left(holder) {
            others.add(holder, left);
        }
    }
    others.obstruct(Mode::Exclusive)
}

fn apply_purge(record: Option<&Record>, retention: Duration, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return unchanged(Outcome::Purged);
    };
    let oldest = Fence::starting_at(now.interval.earliest - retention);
    let in_use = record.holders.iter().any(|holder| !now.is_over(holder))
        || live_reservation(record, now).is_some();
    let empty = record.body.is_empty() && record.state.is_none();
    if in_use || !empty || record.fence >= oldest {
        return unchanged(Outcome::Kept);
    }
    Decision {
        change: Change::Delete,
        outcome: Outcome::Purged,
    }
}

/// The record to write next: without the holders that are over and the reservation that is long past.
fn pruned(record: Option<&Record>, now: &Now<'_>) -> Record {
    let Some(record) = record else {
        return Record::created(now.interval.latest);
    };
    let mut next = record.clone();
    if let Some(over) = next
        .holders
        .iter()
        .rfind(|holder| holder.mode == Mode::Exclusive && now.is_over(holder))
    {
        let how = if over.broken.is_some() {
            How::Broken
        } else {
            How::Expired
        };
        next.last = Some(Ended {
            fence: over.fence,
            owner: over.owner.clone(),
            how,
            at: over.expires_at,
        });
    }
    next.holders.retain(|holder| !now.is_over(holder));
    let forgotten = next.next.as_ref().is_some_and(|reservation| {
        now.interval.earliest > reservation.since + limits::RESERVATIONS * 2
    });
    if forgotten {
        next.next = None;
    }
    next
}

// ---- looking at it ---------------------------------------------------------------------------------------------

/// A record as it stands at a moment: holders that are over do not show, except as how the last one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The record, pruned. It shows nonces' hashes: drop them before it leaves the process.
    pub record: Record,
    /// How long each of the holders still has, in the same order, if nobody renews it.
    pub left: Vec<Duration>,
    /// Whether a waiter has reserved it.
    pub reserved: bool,
}

/// Looks at a record.
pub fn view(record: &Record, now: &Now<'_>) -> View {
    let record = pruned(Some(record), now);
    let left = record
        .holders
        .iter()
        .map(|holder| now.left(holder).unwrap_or_default())
        .collect();
    let reserved = live_reservation(&record, now).is_some();
    View {
        record,
        left,
        reserved,
    }
}
