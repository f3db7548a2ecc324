//! The last hour, minute by minute.

use std::collections::VecDeque;

use leasehold::wire::Minute;

/// How many minutes are kept that are over.
const KEPT: usize = 59;

/// What happened in each minute of the last hour: differences of what is counted anyway.
#[derive(Default)]
pub(super) struct Minutes {
    over: VecDeque<Minute>,
    /// What was counted when the running minute began.
    before: Minute,
}

impl Minutes {
    /// A minute is over, with so much counted since the start.
    pub(super) fn end(&mut self, counted: Minute) {
        self.over.push_back(since(self.before, counted));
        if self.over.len() > KEPT {
            self.over.pop_front();
        }
        self.before = counted;
    }

    /// All of them, with the running one last.
    pub(super) fn all(&self, counted: Minute) -> Vec<Minute> {
        let running = since(self.before, counted);
        self.over.iter().copied().chain([running]).collect()
    }
}

fn since(before: Minute, now: Minute) -> Minute {
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
    fn an_hour_is_kept_and_the_running_minute_is_the_last() {
        let mut minutes = Minutes::default();
        let counted = |grants| Minute {
            grants,
            ..Minute::default()
        };
        assert_eq!(minutes.all(counted(3)), [counted(3)]);
        for number in 1..=100 {
            minutes.end(counted(number * number));
        }
        let all = minutes.all(counted(100 * 100 + 7));
        assert_eq!(all.len(), 60);
        assert_eq!(all[58], counted(100 * 100 - 99 * 99));
        assert_eq!(all[59], counted(7));
    }
}
