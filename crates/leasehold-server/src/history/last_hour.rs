//! Counts each minute of the last hour.

use std::collections::VecDeque;

use leasehold::wire::Minute;

/// How many minutes are kept beside the present one.
const PAST_MINUTES: usize = 59;

/// The counts of each minute of the last hour, computed as differences of counters.
#[derive(Default)]
pub(super) struct LastHour {
    past: VecDeque<Minute>,
    /// The counters at the beginning of the present minute.
    before: Minute,
}

impl LastHour {
    /// Ends the present minute. `counters` are those since the service started.
    pub(super) fn end_minute(&mut self, counters: Minute) {
        self.past.push_back(difference(self.before, counters));
        if self.past.len() > PAST_MINUTES {
            self.past.pop_front();
        }
        self.before = counters;
    }

    /// Returns all minutes. The present one is the last.
    pub(super) fn minutes(&self, counters: Minute) -> Vec<Minute> {
        let present = difference(self.before, counters);
        self.past.iter().copied().chain([present]).collect()
    }
}

fn difference(before: Minute, now: Minute) -> Minute {
    Minute {
        grants: now.grants - before.grants,
        refusals: now.refusals - before.refusals,
        waits: now.waits - before.waits,
        waited: now.waited.saturating_sub(before.waited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_the_present_minute_is_last() {
        let mut last_hour = LastHour::default();
        let grants = |grants| Minute {
            grants,
            ..Minute::default()
        };
        assert_eq!(last_hour.minutes(grants(3)), [grants(3)]);
        for number in 1..=100 {
            last_hour.end_minute(grants(number * number));
        }
        let minutes = last_hour.minutes(grants(100 * 100 + 7));
        assert_eq!(minutes.len(), 60);
        assert_eq!(minutes[58], grants(100 * 100 - 99 * 99));
        assert_eq!(minutes[59], grants(7));
    }
}
