//! Applies what is queued under one name, and says what the store must do for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Change, Fence, GrantKind, Held, Name, Now, Operation, Outcome, Record, Reserve, apply,
};

use super::pending::{Head, Pending};
use super::table::{Entry, Table};
use crate::host::Host;
use crate::store::{Write, WriteId};

/// The most operations that one write carries.
const CHAIN: usize = 1_024;
/// The clock is asked again when the store was not heard of for so long: its interval has grown wide.
const CLOCK_AGE: Duration = Duration::from_secs(30);
/// How long the first in line puts up with being passed over before it reserves.
const PASSED_OVER: Duration = Duration::from_millis(50);
/// After so many surprises in a row, names that were never seen are loaded before anything is planned.
const SURPRISED: u8 = 4;
/// For how long it reserves at a time.
const RESERVATION: Duration = Duration::from_secs(2);

/// What a name needs from the store.
#[allow(clippy::large_enum_variant, reason = "moved once, and mostly a write")]
pub(super) enum Plan {
    /// Nothing. These are confirmed, and can be answered.
    Answer(Vec<Planned>),
    /// To be loaded. These can be answered all the same.
    Load(Vec<Planned>),
    /// To be written; then these can be answered.
    Write(Write, Vec<Planned>),
}

/// An operation, and what its caller is told once the plan is carried out.
pub(super) struct Planned {
    pub(super) pending: Box<Pending>,
    pub(super) outcome: Outcome,
    /// It came out of the line, and goes back there if the plan fails.
    pub(super) from_line: bool,
}

impl Table {
    /// Whether a name that was never seen is in the store turns out. Where most are, guessing that it is not costs a
    /// write that loses.
    pub(super) fn turned_out(&mut self, there: bool) {
        self.surprises = match there {
            true => (self.surprises + 1).min(2 * SURPRISED),
            false => self.surprises.saturating_sub(1),
        };
    }

    /// Whether a name that was never seen is taken not to be in the store.
    pub(super) fn guesses(&self) -> bool {
        self.surprises < SURPRISED
    }

    /// Plans everything that is queued under a name, and for those in line. A name that is to be written is busy from
    /// then on.
    pub(super) fn plan(&mut self, name: &Name, boot: BootTime, host: &dyn Host) -> Plan {
        let stale = self.clock.age(boot) > CLOCK_AGE;
        let closed = self.is_closed();
        let Some(entry) = self.entries.get_mut(name) else {
            return Plan::Answer(Vec::new());
        };
        entry.listed = false;
        let asked = !(entry.queue.is_empty() && entry.line.is_empty());
        if entry.load_first || (stale && asked) {
            return Plan::Load(Vec::new());
        }
        self.counts.queued -= drop_gone(entry);
        let seen = self.observations.of(name);
        let Entry {
            cached,
            queue,
            line,
            held,
            recheck,
            busy,
            ..
        } = entry;
        let (stored, confirmed) = match &*cached {
            Some(cached) => (cached.stored.as_ref(), cached.confirmed),
            // Never seen: planned as if there were none. The store says so if that is wrong.
            None => (None, 0),
        };
        let base = stored.map(|stored| &stored.record);
        let mut chain = Chain {
            record: base.cloned(),
            changed: false,
            now: Now {
                high_water: self.high_water,
                ..self.clock.now(boot, seen).for_kind(name.kind())
            },
            // Mostly one: a list that grows by itself makes room for four.
            planned: Vec::with_capacity(queue.len().min(CHAIN)),
        };

        let waiting = line.len();
        chain.serve(line, held);
        while chain.planned.len() < CHAIN
            && let Some(mut pending) = queue.pop_front()
        {
            self.counts.queued -= 1;
            let frees = !matches!(
                pending.operation,
                Operation::Acquire(_) | Operation::Renew(_)
            );
            match chain.perform(&mut pending, line.is_empty(), held) {
                Outcome::Held(_) if !closed && pending.waits(boot) => {
                    // The first in line has the store asked, if nothing confirms that it has to wait.
                    *recheck |= line.is_empty() && confirmed <= pending.id;
                    line.insert(pending.id, pending);
                }
                outcome => chain.planned.push(Planned {
                    pending,
                    outcome,
                    from_line: false,
                }),
            }
            if frees {
                chain.serve(line, held);
            }
        }
        chain.reserve(line);
        self.counts.waiters = self.counts.waiters + line.len() as u64 - waiting as u64;

        let Chain {
            record,
            changed,
            planned,
            now,
        } = chain;
        self.high_water = now.high_water;
        if changed && (record.is_some() || stored.is_some()) {
            // Who would be in the way once this has landed is nothing to refuse anybody with before.
            *held = None;
            *busy = true;
            let body_changed = match (&record, base) {
                (Some(new), Some(old)) => new.body != old.body,
                _ => true,
            };
            let put = record.map(|record| (WriteId(host.random()), record));
            let expect = stored.map(|stored| stored.version.clone());
            return Plan::Write(
                Write {
                    name: name.clone(),
                    expect,
                    put,
                    body_changed,
                },
                planned,
            );
        }
        let (answered, unconfirmed): (Vec<_>, Vec<_>) = planned
            .into_iter()
            .partition(|planned| confirmed > planned.pending.id);
        let look = *recheck && !line.is_empty();
        if unconfirmed.is_empty() && !look {
            return Plan::Answer(answered);
        }
        self.put_back(name, unconfirmed, boot);
        Plan::Load(answered)
    }

    /// Puts operations back to where they came from, in their order; those who need not wait any more get an answer.
    pub(super) fn put_back(&mut self, name: &Name, planned: Vec<Planned>, boot: BootTime) {
        if planned.is_empty() {
            return;
        }
        let closed = self.is_closed();
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let mut turned_away = Vec::new();
        for Planned {
            pending, from_line, ..
        } in planned.into_iter().rev()
        {
            let waits = from_line && pending.waits(boot) && !pending.is_gone();
            if waits && closed {
                turned_away.push(pending);
            } else if waits {
                self.counts.waiters += 1;
                entry.line.insert(pending.id, pending);
            } else {
                self.counts.queued += 1;
                entry.queue.push_front(pending);
            }
        }
        for waiter in turned_away {
            self.turn_away(name, waiter);
        }
    }
}

/// Operations whose callers have gone are not performed any more: by now the caller may have asked for something else,
/// and must not be overtaken by its own past. One whose write was never answered is not run again either: had it
/// landed, the record that was loaded since would have told.
fn drop_gone(entry: &mut Entry) -> u64 {
    let before = entry.queue.len();
    entry.queue.retain(|pending| !pending.is_gone());
    (before - entry.queue.len()) as u64
}

/// A record, and the operations that have been applied to it one after another.
struct Chain<'a> {
    record: Option<Arc<Record>>,
    changed: bool,
    now: Now<'a>,
    planned: Vec<Planned>,
}

impl Chain<'_> {
    /// Applies an operation, unless it would overtake those in line.
    fn perform(
        &mut self,
        pending: &mut Pending,
        line_is_empty: bool,
        held: &Option<Held>,
    ) -> Outcome {
        let decision = apply(self.record.as_deref(), &pending.operation, &self.now);
        if let (Outcome::Granted(grant), Some(held), false) =
            (&decision.outcome, held, line_is_empty)
            && grant.granted == GrantKind::Fresh
        {
            return Outcome::Held(held.clone());
        }
        self.change(decision.change);
        decision.outcome
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::None => return,
            Change::Write(record) => {
                self.now.high_water = self.now.high_water_with(&record);
                self.record = Some(Arc::new(record));
            }
            Change::Delete => self.record = None,
        }
        self.changed = true;
    }

    /// Grants to as many in line as there is room for, in order.
    fn serve(&mut self, line: &mut BTreeMap<u64, Box<Pending>>, held: &mut Option<Held>) {
        *held = None;
        while let Some(first) = line.first_entry() {
            if first.get().is_gone() {
                // Its caller is about to take it out, and to have it looked up.
                if first.get().is_ambiguous() {
                    return;
                }
                first.remove();
                continue;
            }
            let decision = apply(self.record.as_deref(), &first.get().operation, &self.now);
            if let Outcome::Held(obstacle) = decision.outcome {
                *held = Some(obstacle);
                return;
            }
            self.change(decision.change);
            let pending = first.remove();
            self.planned.push(Planned {
                pending,
                outcome: decision.outcome,
                from_line: true,
            });
        }
    }

    /// Has the first in line reserve, if it has been passed over.
    fn reserve(&mut self, line: &mut BTreeMap<u64, Box<Pending>>) {
        let Some(mut first) = line.first_entry() else {
            return;
        };
        let Operation::Acquire(acquire) = &first.get().operation else {
            return;
        };
        let fence = self
            .record
            .as_ref()
            .map_or(Fence::default(), |record| record.fence);
        let boot = self.now.boot;
        let (nonce, mode) = (acquire.nonce, acquire.mode);
        let reserve = Operation::Reserve(Reserve {
            nonce,
            mode,
            span: RESERVATION,
        });
        let head = first.get_mut().head.get_or_insert(Head {
            since: boot,
            fence,
            refresh_at: None,
        });
        let passed_over = fence > head.fence && boot.since(head.since) >= PASSED_OVER;
        // What the record shows counts: a reservation that lost against another write is made again at once.
        let next = self.record.as_ref().and_then(|record| record.next.as_ref());
        let stands = next.is_some_and(|next| next.nonce == nonce);
        if !passed_over || (stands && head.refresh_at.is_some_and(|at| boot < at)) {
            return;
        }
        let decision = apply(self.record.as_deref(), &reserve, &self.now);
        head.refresh_at = Some(boot + RESERVATION / 2);
        self.change(decision.change);
    }
}
