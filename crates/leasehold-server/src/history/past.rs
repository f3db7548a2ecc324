//! Who held what, as much of it as fits.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use leasehold::core::{Fence, LastHolder, Name, Time};
use leasehold::wire::{EndedAs, Sharing, Tenure};

/// The most tenures that are kept: some five megabytes with ordinary names and owners, fifteen with the longest.
const MOST: usize = 16_384;
/// The most of one name.
const MOST_OF_ONE: usize = 64;
/// How many names are looked at in one go when there are too many.
const LOOKS: usize = 8;

/// The past of many names. Whichever nothing has happened to for longest is forgotten first.
#[derive(Default)]
pub(super) struct Past {
    names: IndexMap<Name, Tenures, RandomState>,
    /// The place of the name that is looked at next when there are too many.
    hand: usize,
    count: usize,
}

/// The past of one name.
struct Tenures {
    /// In the order of their fences.
    all: VecDeque<Tenure>,
    /// Whether something has happened since the hand was here.
    touched: bool,
}

impl Past {
    /// What is known of a name.
    pub(super) fn of(&self, name: &Name) -> Vec<Tenure> {
        let known = self.names.get(name);
        known.map_or(Vec::new(), |known| known.all.iter().cloned().collect())
    }

    /// Somebody got it, or is known to have had it. To be told twice changes nothing. `last` is how the one before ended,
    /// where the record tells.
    pub(super) fn held(&mut self, name: &Name, tenure: Tenure, last: Option<&LastHolder>) {
        let place = match self.names.get_index_of(name) {
            Some(place) => place,
            None => self.names.insert_full(name.clone(), Tenures::new()).0,
        };
        let known = &mut self.names[place];
        let before = known.all.len();
        known.add(tenure, last);
        self.count += known.all.len() - before;
        self.forget();
    }

    /// The holder with this fence is one no more; without a fence, none of them is.
    pub(super) fn ended(
        &mut self,
        name: &Name,
        fence: Option<Fence>,
        at: Time,
        how: Option<EndedAs>,
    ) {
        if let Some(known) = self.names.get_mut(name) {
            known.touched = true;
            // From the newest on: it mostly is that one.
            let mut all = known.all.iter_mut().rev();
            match fence {
                Some(fence) => {
                    if let Some(one) = all.find(|one| one.fence == fence) {
                        end(one, at, how);
                    }
                }
                None => all
                    .filter(|one| one.until.is_none())
                    .for_each(|one| end(one, at, how)),
            }
        }
    }

    /// Makes room, a few names at a time, so that nobody waits for long. A name that something has happened to since gets
    /// another round; until that is over there may be some more than the most.
    fn forget(&mut self) {
        for _ in 0..LOOKS {
            if self.count <= MOST {
                return;
            }
            if self.hand >= self.names.len() {
                self.hand = 0;
            }
            let known = &mut self.names[self.hand];
            if known.touched {
                known.touched = false;
                self.hand += 1;
            } else {
                self.count -= known.all.len();
                self.names.swap_remove_index(self.hand);
            }
        }
    }
}

impl Tenures {
    fn new() -> Self {
        Self {
            // Most names have one holder and then another, far apart; a queue would begin with room for four.
            all: VecDeque::with_capacity(1),
            touched: true,
        }
    }

    fn add(&mut self, mut tenure: Tenure, last: Option<&LastHolder>) {
        self.touched = true;
        let full = self.all.len() >= MOST_OF_ONE;
        let mut place = self.all.len();
        if self.all.back().is_some_and(|one| one.fence >= tenure.fence) {
            let known = self
                .all
                .binary_search_by_key(&tenure.fence, |one| one.fence);
            place = match known {
                Ok(place) => {
                    if let Some(at) = tenure.until {
                        end(&mut self.all[place], at, tenure.how);
                    }
                    return;
                }
                // Older than what was forgotten.
                Err(0) if full => return,
                Err(place) => place,
            };
        }
        if tenure.until.is_none() {
            self.end_before(place, &tenure, last);
            // Told late: it was over when the next one came.
            let mut later = self.all.range(place..);
            tenure.until = later
                .find(|next| !go_together(&tenure, next))
                .map(|next| next.from);
        }
        if full {
            self.all.pop_front();
            place -= 1;
        }
        self.all.insert(place, tenure);
    }

    /// Ends those that cannot go on beside a new one.
    fn end_before(&mut self, place: usize, new: &Tenure, last: Option<&LastHolder>) {
        for one in self.all.range_mut(..place).rev() {
            if one.until.is_none() && !go_together(one, new) {
                let last = last.filter(|last| last.fence == one.fence);
                one.until = Some(last.map_or(new.from, |last| last.at).max(one.from));
                one.how = last.map(|last| last.how.into());
            }
            // Whoever was alone has ended those before it.
            if one.mode == Sharing::Exclusive {
                return;
            }
        }
    }
}

fn go_together(one: &Tenure, other: &Tenure) -> bool {
    one.mode == Sharing::Shared && other.mode == Sharing::Shared
}

/// A tenure ends once; but how it ended may be told later than that it did. It never ends before it began, although the
/// time is only known within an interval.
fn end(one: &mut Tenure, at: Time, how: Option<EndedAs>) {
    if one.until.is_none() || (one.how.is_none() && how.is_some()) {
        one.until = Some(at.max(one.from));
        one.how = how;
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

    fn tenure(number: u64, mode: Sharing) -> Tenure {
        Tenure {
            fence: fence(number),
            owner: "web-1".into(),
            mode,
            from: at(number * 10),
            until: None,
            how: None,
        }
    }

    fn alone(number: u64) -> Tenure {
        tenure(number, Sharing::Exclusive)
    }

    fn sharing(number: u64) -> Tenure {
        tenure(number, Sharing::Shared)
    }

    /// Each tenure as its fence, its end, and how that came.
    fn told(past: &Past, name: &Name) -> Vec<(u64, Option<u64>, Option<EndedAs>)> {
        let told = past.of(name).into_iter().map(|one| {
            let until = one.until.map(Time::as_micros);
            (one.fence.get(), until, one.how)
        });
        told.collect()
    }

    #[test]
    fn a_tenure_ends_once_and_the_next_one_tells_of_an_end_that_nobody_saw() {
        let (mut past, job) = (Past::default(), name("job"));
        past.held(&job, alone(1), None);
        past.held(&job, alone(1), None);
        past.ended(&job, Some(fence(1)), at(15), Some(EndedAs::Released));
        past.ended(&job, Some(fence(1)), at(99), Some(EndedAs::Broken));
        past.held(&job, alone(2), None);
        let last = LastHolder {
            fence: fence(2),
            owner: "web-1".into(),
            how: EndReason::Expired,
            at: at(27),
        };
        past.held(&job, alone(3), Some(&last));
        past.held(&job, alone(4), Some(&last));
        let mut expected = [
            (1, Some(15), Some(EndedAs::Released)),
            (2, Some(27), Some(EndedAs::Expired)),
            (3, Some(40), None),
            (4, None, None),
        ];
        assert_eq!(told(&past, &job), expected);
        past.ended(&job, Some(fence(3)), at(38), Some(EndedAs::Broken));
        expected[2] = (3, Some(38), Some(EndedAs::Broken));
        assert_eq!(told(&past, &job), expected);
    }

    #[test]
    fn those_who_share_end_one_by_one_or_all_at_once() {
        let (mut past, job) = (Past::default(), name("job"));
        for number in 1..=4 {
            past.held(&job, sharing(number), None);
        }
        past.ended(&job, Some(fence(2)), at(45), Some(EndedAs::Released));
        let open = |number| (number, None, None);
        let released = (2, Some(45), Some(EndedAs::Released));
        assert_eq!(told(&past, &job), [open(1), released, open(3), open(4)]);
        past.ended(&job, None, at(50), Some(EndedAs::Broken));
        let broken = |number| (number, Some(50), Some(EndedAs::Broken));
        assert_eq!(
            told(&past, &job),
            [broken(1), released, broken(3), broken(4)]
        );
        past.held(&job, alone(5), None);
        past.held(&job, sharing(6), None);
        assert_eq!(told(&past, &job)[4..], [(5, Some(60), None), open(6)]);
    }

    #[test]
    fn what_is_told_late_is_put_where_it_belongs() {
        let (mut past, job) = (Past::default(), name("job"));
        past.held(&job, alone(5), None);
        past.held(&job, sharing(2), None);
        let over = Tenure {
            until: Some(at(45)),
            how: Some(EndedAs::Expired),
            ..alone(3)
        };
        past.held(&job, over.clone(), None);
        past.held(&job, over, None);
        let expected = [
            (2, Some(50), None),
            (3, Some(45), Some(EndedAs::Expired)),
            (5, None, None),
        ];
        assert_eq!(told(&past, &job), expected);
    }

    #[test]
    fn the_past_is_bounded_and_what_is_quiet_is_forgotten_first() {
        let (mut past, hot) = (Past::default(), name("hot"));
        for number in 1..=1_000 {
            past.held(&hot, alone(number), None);
        }
        let kept = told(&past, &hot);
        assert_eq!((kept.len(), kept[MOST_OF_ONE - 1].0), (MOST_OF_ONE, 1_000));
        let cold = |number: usize| name(&number.to_string());
        for number in 0..3 * MOST {
            past.held(&cold(number), sharing(1), None);
            past.ended(&hot, Some(fence(1_000)), at(1), None);
        }
        assert!(past.count <= MOST + LOOKS, "{}", past.count);
        let counted: usize = past.names.values().map(|known| known.all.len()).sum();
        assert_eq!(past.count, counted);
        assert_eq!(told(&past, &hot).len(), MOST_OF_ONE);
        assert!(told(&past, &cold(0)).is_empty());
        assert_eq!(told(&past, &cold(3 * MOST - 1)).len(), 1);
    }
}
