//! Keeps the recent hold periods of each name.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use leasehold::core::{Fence, LastHolder, Name, Time};
use leasehold::wire::{EndKind, HoldPeriod, ModeKind};

/// The maximum number of hold periods: five megabytes with typical names and owners, fifteen with the longest.
const MAX_PERIODS: usize = 16_384;
const MAX_PERIODS_PER_NAME: usize = 64;
/// How many names one eviction examines at most.
const EVICTION_STEPS: usize = 8;

/// The recent hold periods of many names. Names are evicted by the CLOCK algorithm: those without a recent change first.
#[derive(Default)]
pub(super) struct HoldPeriodCache {
    names: IndexMap<Name, HoldPeriods, RandomState>,
    /// The index of the name that the next eviction examines.
    hand: usize,
    count: usize,
}

/// The hold periods of one name.
struct HoldPeriods {
    /// In the order of their fences.
    all: VecDeque<HoldPeriod>,
    /// Whether they have changed since the hand was here.
    is_recent: bool,
}

impl HoldPeriodCache {
    /// Returns the hold periods of a name.
    pub(super) fn of(&self, name: &Name) -> Vec<HoldPeriod> {
        let periods = self.names.get(name);
        periods.map_or(Vec::new(), |periods| periods.all.iter().cloned().collect())
    }

    /// Adds a hold period, which may have ended. Idempotent. `last` is the holder before it, if the record contains it.
    pub(super) fn add(&mut self, name: &Name, period: HoldPeriod, last: Option<&LastHolder>) {
        let index = match self.names.get_index_of(name) {
            Some(index) => index,
            None => self.names.insert_full(name.clone(), HoldPeriods::new()).0,
        };
        let periods = &mut self.names[index];
        let before = periods.all.len();
        periods.add(period, last);
        self.count += periods.all.len() - before;
        self.evict();
    }

    /// Ends the hold period with this fence; without a fence, all of the name.
    pub(super) fn end(
        &mut self,
        name: &Name,
        fence: Option<Fence>,
        at: Time,
        how: Option<EndKind>,
    ) {
        if let Some(periods) = self.names.get_mut(name) {
            periods.is_recent = true;
            // From the newest on, because it mostly is that one.
            let mut all = periods.all.iter_mut().rev();
            match fence {
                Some(fence) => {
                    if let Some(period) = all.find(|period| period.fence == fence) {
                        end(period, at, how);
                    }
                }
                None => all
                    .filter(|period| period.until.is_none())
                    .for_each(|period| end(period, at, how)),
            }
        }
    }

    /// Evicts names while there are too many hold periods. It examines few names at a time, so that no request waits for
    /// long; until it finds one without a recent change, the maximum may be exceeded a little.
    fn evict(&mut self) {
        for _ in 0..EVICTION_STEPS {
            if self.count <= MAX_PERIODS {
                return;
            }
            if self.hand >= self.names.len() {
                self.hand = 0;
            }
            let periods = &mut self.names[self.hand];
            if periods.is_recent {
                periods.is_recent = false;
                self.hand += 1;
            } else {
                self.count -= periods.all.len();
                self.names.swap_remove_index(self.hand);
            }
        }
    }
}

impl HoldPeriods {
    fn new() -> Self {
        Self {
            // Most names have one hold period for a long time, and the default capacity is four.
            all: VecDeque::with_capacity(1),
            is_recent: true,
        }
    }

    fn add(&mut self, mut period: HoldPeriod, last: Option<&LastHolder>) {
        self.is_recent = true;
        let is_full = self.all.len() >= MAX_PERIODS_PER_NAME;
        let mut index = self.all.len();
        let newest = self.all.back();
        if newest.is_some_and(|newest| newest.fence >= period.fence) {
            let found = self
                .all
                .binary_search_by_key(&period.fence, |other| other.fence);
            index = match found {
                Ok(index) => {
                    if let Some(at) = period.until {
                        end(&mut self.all[index], at, period.how);
                    }
                    return;
                }
                // Older than the evicted ones.
                Err(0) if is_full => return,
                Err(index) => index,
            };
        }
        if period.until.is_none() {
            self.end_before(index, &period, last);
            // Reported out of order: it had ended when the next conflicting one began.
            let mut later = self.all.range(index..);
            period.until = later
                .find(|next| !can_coexist(&period, next))
                .map(|next| next.from);
        }
        if is_full {
            self.all.pop_front();
            index -= 1;
        }
        self.all.insert(index, period);
    }

    /// Ends the hold periods before `index` that conflict with a new one.
    fn end_before(&mut self, index: usize, new: &HoldPeriod, last: Option<&LastHolder>) {
        for period in self.all.range_mut(..index).rev() {
            if period.until.is_none() && !can_coexist(period, new) {
                let last = last.filter(|last| last.fence == period.fence);
                period.until = Some(last.map_or(new.from, |last| last.at).max(period.from));
                period.how = last.map(|last| last.how.into());
            }
            // An exclusive one has ended all before it.
            if period.mode == ModeKind::Exclusive {
                return;
            }
        }
    }
}

fn can_coexist(one: &HoldPeriod, other: &HoldPeriod) -> bool {
    one.mode == ModeKind::Shared && other.mode == ModeKind::Shared
}

/// Sets the end of a hold period once, and the reason once it is known. The end is never before the beginning, although
/// times are only known within an interval.
fn end(period: &mut HoldPeriod, at: Time, how: Option<EndKind>) {
    if period.until.is_none() || (period.how.is_none() && how.is_some()) {
        period.until = Some(at.max(period.from));
        period.how = how;
    }
}

#[cfg(test)]
mod tests {
    use leasehold::core::EndReason;

    use super::*;

    fn name(text: &str) -> Name {
        Name::lock(text).unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn at(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    fn period(number: u64, mode: ModeKind) -> HoldPeriod {
        HoldPeriod {
            fence: fence(number),
            owner: "web-1".into(),
            mode,
            from: at(number * 10),
            until: None,
            how: None,
        }
    }

    fn exclusive(number: u64) -> HoldPeriod {
        period(number, ModeKind::Exclusive)
    }

    fn shared(number: u64) -> HoldPeriod {
        period(number, ModeKind::Shared)
    }

    /// Returns each hold period as its fence, its end, and the reason of its end.
    fn ends(cache: &HoldPeriodCache, name: &Name) -> Vec<(u64, Option<u64>, Option<EndKind>)> {
        let periods = cache.of(name).into_iter();
        let ends = periods.map(|period| {
            let until = period.until.map(Time::as_micros);
            (period.fence.get(), until, period.how)
        });
        ends.collect()
    }

    #[test]
    fn hold_period_ends_once_at_the_latest_with_the_next_one() {
        let (mut cache, job) = (HoldPeriodCache::default(), name("job"));
        cache.add(&job, exclusive(1), None);
        cache.add(&job, exclusive(1), None);
        cache.end(&job, Some(fence(1)), at(15), Some(EndKind::Released));
        cache.end(&job, Some(fence(1)), at(99), Some(EndKind::Broken));
        cache.add(&job, exclusive(2), None);
        let last = LastHolder {
            fence: fence(2),
            owner: "web-1".into(),
            how: EndReason::Expired,
            at: at(27),
        };
        cache.add(&job, exclusive(3), Some(&last));
        cache.add(&job, exclusive(4), Some(&last));
        let mut expected = [
            (1, Some(15), Some(EndKind::Released)),
            (2, Some(27), Some(EndKind::Expired)),
            (3, Some(40), None),
            (4, None, None),
        ];
        assert_eq!(ends(&cache, &job), expected);
        cache.end(&job, Some(fence(3)), at(38), Some(EndKind::Broken));
        expected[2] = (3, Some(38), Some(EndKind::Broken));
        assert_eq!(ends(&cache, &job), expected);
    }

    #[test]
    fn shared_hold_periods_end_one_by_one_or_all_at_once() {
        let (mut cache, job) = (HoldPeriodCache::default(), name("job"));
        for number in 1..=4 {
            cache.add(&job, shared(number), None);
        }
        cache.end(&job, Some(fence(2)), at(45), Some(EndKind::Released));
        let open = |number| (number, None, None);
        let released = (2, Some(45), Some(EndKind::Released));
        assert_eq!(ends(&cache, &job), [open(1), released, open(3), open(4)]);
        cache.end(&job, None, at(50), Some(EndKind::Broken));
        let broken = |number| (number, Some(50), Some(EndKind::Broken));
        assert_eq!(
            ends(&cache, &job),
            [broken(1), released, broken(3), broken(4)]
        );
        cache.add(&job, exclusive(5), None);
        cache.add(&job, shared(6), None);
        assert_eq!(ends(&cache, &job)[4..], [(5, Some(60), None), open(6)]);
    }

    #[test]
    fn hold_periods_reported_out_of_order_are_sorted_by_fence() {
        let (mut cache, job) = (HoldPeriodCache::default(), name("job"));
        cache.add(&job, exclusive(5), None);
        cache.add(&job, shared(2), None);
        let ended = HoldPeriod {
            until: Some(at(45)),
            how: Some(EndKind::Expired),
            ..exclusive(3)
        };
        cache.add(&job, ended.clone(), None);
        cache.add(&job, ended, None);
        let expected = [
            (2, Some(50), None),
            (3, Some(45), Some(EndKind::Expired)),
            (5, None, None),
        ];
        assert_eq!(ends(&cache, &job), expected);
    }

    #[test]
    fn cache_is_bounded_and_evicts_names_without_recent_changes_first() {
        let (mut cache, hot) = (HoldPeriodCache::default(), name("hot"));
        for number in 1..=1_000 {
            cache.add(&hot, exclusive(number), None);
        }
        let kept = ends(&cache, &hot);
        let last = kept[MAX_PERIODS_PER_NAME - 1].0;
        assert_eq!((kept.len(), last), (MAX_PERIODS_PER_NAME, 1_000));
        let cold = |number: usize| name(&number.to_string());
        for number in 0..3 * MAX_PERIODS {
            cache.add(&cold(number), shared(1), None);
            cache.end(&hot, Some(fence(1_000)), at(1), None);
        }
        assert!(
            cache.count <= MAX_PERIODS + EVICTION_STEPS,
            "{}",
            cache.count
        );
        let count: usize = cache.names.values().map(|periods| periods.all.len()).sum();
        assert_eq!(cache.count, count);
        assert_eq!(ends(&cache, &hot).len(), MAX_PERIODS_PER_NAME);
        assert!(ends(&cache, &cold(0)).is_empty());
        assert_eq!(ends(&cache, &cold(3 * MAX_PERIODS - 1)).len(), 1);
    }
}
