//! Rules that are broken on purpose. Each must be caught: that is how we know that the checker can fail.

use std::time::Duration;

use leasehold_core::{
    BootTime, Break, Change, Clock, ClockChange, Decision, Fence, Interval, Mode, Now, Operation,
    Outcome, Record, apply, deadline,
};

use super::*;

/// Explores a configuration with these rules: they must break that property.
fn caught(config: Config, rules: Rules, property: &str) {
    match explore(&Leases::new(Config { rules, ..config })) {
        Ok(explored) => panic!("not caught: {explored:?}"),
        Err(found) => assert!(found.broken.contains(property), "{found:?}"),
    }
}

type Apply = fn(Option<&Record>, &Operation, &Now<'_>) -> Decision;

fn applying(apply: Apply) -> Rules {
    Rules { apply, ..RULES }
}

fn counting(deadline: fn(&Answered) -> BootTime) -> Rules {
    Rules { deadline, ..RULES }
}

/// What the record would become, changed.
fn rewritten(mut decision: Decision, change: impl FnOnce(&mut Record)) -> Decision {
    if let Change::Write(record) = &mut decision.change {
        change(record);
    }
    decision
}

const TWO_BELIEVE: &str = "two exclusive holders believe";

#[test]
fn expiry_judged_by_the_latest_time() {
    let hurried: Apply = |record, operation, now| {
        let interval = Interval::exactly(now.interval.latest);
        apply(record, operation, &Now { interval, ..*now })
    };
    caught(SLOW, applying(hurried), TWO_BELIEVE);
}

#[test]
fn expiry_counted_from_the_earliest_time() {
    let short: Apply = |record, operation, now| {
        let decision = apply(record, operation, now);
        let width = now.interval.latest.since(now.interval.earliest);
        rewritten(decision, |record| {
            if let Some(holder) = record.holders.last_mut() {
                holder.expires_at = holder.expires_at - width;
            }
        })
    };
    let trusting = |answered: &Answered| answered.sent + answered.ttl;
    let rules = Rules {
        apply: short,
        deadline: trusting,
        ..RULES
    };
    caught(SLOW, rules, TWO_BELIEVE);
}

#[test]
fn deadline_counted_from_the_receipt() {
    let late = |answered: &Answered| {
        let Answered { received, ttl, .. } = *answered;
        deadline(
            received,
            ttl,
            answered.expires_at,
            answered.stamp,
            answered.margin,
        )
    };
    caught(LOST, counting(late), TWO_BELIEVE);
}

#[test]
fn deadline_that_ignores_how_late_the_write_landed() {
    let trusting = |answered: &Answered| answered.sent + answered.ttl;
    caught(SENT_LATE, counting(trusting), TWO_BELIEVE);
}

#[test]
fn deadline_without_the_margin() {
    let greedy = |answered: &Answered| {
        let Answered { sent, ttl, .. } = *answered;
        deadline(
            sent,
            ttl,
            answered.expires_at,
            answered.stamp,
            Duration::ZERO,
        )
    };
    caught(AHEAD, counting(greedy), TWO_BELIEVE);
    caught(SMALL_STEP, counting(greedy), TWO_BELIEVE);
}

#[test]
fn steps_ignored() {
    let trusting: Apply = |record, operation, now| {
        let earlier = None;
        apply(record, operation, &Now { earlier, ..*now })
    };
    caught(BIG_STEP, applying(trusting), TWO_BELIEVE);
}

#[test]
fn restarts_ignored() {
    let trusting: Apply = |record, operation, now| {
        let restarted = None;
        apply(record, operation, &Now { restarted, ..*now })
    };
    caught(REBOOT, applying(trusting), TWO_BELIEVE);
}

#[test]
fn shifts_compared_with_the_last_answer_only() {
    let following = |clock: &mut Clock, sent, received, stamp| {
        let observed = clock.observe(sent, received, stamp);
        if observed == ClockChange::Widened {
            *clock = Clock::new(sent, received, stamp, SLEW.tick * SLEW.margin as u32);
        }
        observed
    };
    let rules = Rules {
        observe: following,
        ..RULES
    };
    caught(SLEW, rules, TWO_BELIEVE);
}

#[test]
fn renewals_that_leave_no_trace() {
    let silent: Apply = |record, operation, now| {
        let decision = apply(record, operation, now);
        let Operation::Renew(renew) = operation else {
            return decision;
        };
        let old = record.and_then(|old| old.holders.iter().find(|h| h.fence == renew.fence));
        rewritten(decision, |record| {
            for holder in record.holders.iter_mut().filter(|h| h.fence == renew.fence) {
                holder.renewed_at = old.map_or(holder.renewed_at, |old| old.renewed_at);
            }
        })
    };
    caught(BIG_STEP, applying(silent), TWO_BELIEVE);
}

#[test]
fn shorter_ttl_at_once() {
    let short: Apply = |record, operation, now| {
        let decision = apply(record, operation, now);
        let Operation::Renew(renew) = operation else {
            return decision;
        };
        rewritten(decision, |record| {
            for holder in record.holders.iter_mut().filter(|h| h.fence == renew.fence) {
                holder.ttl = renew.ttl.unwrap_or(holder.ttl);
                holder.expires_at = now.interval.latest + holder.ttl;
            }
        })
    };
    caught(SHORTER, applying(short), TWO_BELIEVE);
}

#[test]
fn broken_holders_removed_at_once() {
    let unsafe_break: Apply = |record, operation, now| match operation {
        Operation::Break(Break::Force { reason, .. }) => {
            let (fence, reason) = (None, reason.clone());
            let at_once = Break::Force {
                fence,
                reason,
                now: true,
            };
            apply(record, &Operation::Break(at_once), now)
        }
        _ => apply(record, operation, now),
    };
    caught(BREAK, applying(unsafe_break), TWO_BELIEVE);
}

#[test]
fn fence_not_incremented() {
    let same: Apply = |record, operation, now| {
        let mut decision = apply(record, operation, now);
        let before = record.map(|record| record.fence);
        if let (Outcome::Granted(grant), Some(before)) = (&mut decision.outcome, before) {
            grant.fence = before;
            return rewritten(decision, |record| {
                record.fence = before;
                if let Some(holder) = record.holders.last_mut() {
                    holder.fence = before;
                }
            });
        }
        decision
    };
    caught(CRASH, applying(same), "granted after");
}

#[test]
fn fences_that_start_from_one() {
    let counter: Apply = |record, operation, now| {
        let mut decision = apply(record, operation, now);
        if let (Outcome::Granted(grant), None) = (&mut decision.outcome, record) {
            let one = Fence::new(1).expect("a fence");
            grant.fence = one;
            return rewritten(decision, |record| {
                record.fence = one;
                record.holders[0].fence = one;
            });
        }
        decision
    };
    caught(PURGE, applying(counter), "granted after");
}

#[test]
fn purge_without_retention() {
    let hasty: Apply = |record, operation, now| match operation {
        Operation::Purge { .. } => {
            let retention = Duration::ZERO;
            apply(record, &Operation::Purge { retention }, now)
        }
        _ => apply(record, operation, now),
    };
    caught(PURGE, applying(hasty), "granted after");
}

#[test]
fn versions_that_count_from_one_again() {
    let rules = Rules {
        versions_return: true,
        ..RULES
    };
    let config = Config { begins: 4, ..PURGE };
    caught(config, rules, "granted after");
}

#[test]
fn limit_not_kept() {
    let generous: Apply = |record, operation, now| match operation {
        Operation::Acquire(acquire) => {
            let mut acquire = acquire.clone();
            acquire.mode = Mode::Shared { limit: Some(3) };
            apply(record, &Operation::Acquire(acquire), now)
        }
        _ => apply(record, operation, now),
    };
    caught(SHARED, applying(generous), "above the limit");
}

#[test]
fn sharers_ignored() {
    let pushy: Apply = |record, operation, now| {
        let mut alone = record.cloned();
        if let (Some(record), Operation::Acquire(acquire)) = (&mut alone, operation)
            && acquire.mode == Mode::Exclusive
        {
            record
                .holders
                .retain(|holder| holder.mode == Mode::Exclusive);
        }
        apply(alone.as_ref(), operation, now)
    };
    caught(
        READERS,
        applying(pushy),
        "an exclusive and a shared holder believe",
    );
}

#[test]
fn any_fence_writes() {
    let lax: Apply = |record, operation, now| match (record, operation) {
        (Some(record), Operation::Update(update)) => {
            let mut update = update.clone();
            update.fence = record.fence;
            apply(Some(record), &Operation::Update(update), now)
        }
        _ => apply(record, operation, now),
    };
    caught(ZOMBIE, applying(lax), "has written");
}

#[test]
fn reservations_ignored() {
    let rude: Apply = |record, operation, now| {
        let mut unreserved = record.cloned();
        if let (Some(record), Operation::Acquire(_)) = (&mut unreserved, operation) {
            record.next = None;
        }
        apply(unreserved.as_ref(), operation, now)
    };
    caught(RESERVE, applying(rude), "reserved");
}

#[test]
fn expired_holders_stay_in_the_way() {
    let stuck: Apply = |record, operation, now| {
        let mut immortal = record.cloned();
        for holder in immortal.iter_mut().flat_map(|record| &mut record.holders) {
            holder.expires_at = now.interval.latest;
        }
        apply(immortal.as_ref(), operation, now)
    };
    caught(CRASH, applying(stuck), "free");
}
