//! How long to go on asking.

use std::time::Duration;

use leasehold_core::BootTime;

use super::Client;
use crate::{Error, Result};

/// How often a grant may arrive with nothing left of it before the ttl is called too short.
const LATE_GRANTS: u32 = 3;

/// A question that is asked again: while there is time, when the [`Leases`](crate::Leases) do not let anybody wait
/// for so long in one call; and when a grant arrives after its time is over.
pub(super) struct Asking<'c> {
    client: &'c Client,
    give_up: BootTime,
    ttl: Duration,
    /// The last call was not allowed to wait for all the time that is left.
    cut: bool,
    late: u32,
}

impl<'c> Asking<'c> {
    pub(super) fn new(client: &'c Client, wait: Duration, ttl: Duration) -> Self {
        Self {
            client,
            give_up: client.now() + wait,
            ttl,
            cut: false,
            late: 0,
        }
    }

    /// How long the next call may wait.
    pub(super) fn next_wait(&mut self) -> Duration {
        let (left, longest) = (self.left(), self.client.leases().longest_wait());
        self.cut = longest < left;
        left.min(longest)
    }

    /// Whether there is time left that the last call was not allowed to wait for.
    pub(super) fn has_time(&self) -> bool {
        self.cut && !self.left().is_zero()
    }

    /// What was granted came too late. An error if that happens again and again.
    pub(super) fn late(&mut self) -> Result<()> {
        self.late += 1;
        if self.late < LATE_GRANTS {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "the grants arrive only after the ttl of {:?} is over: use a longer one",
            self.ttl
        )))
    }

    fn left(&self) -> Duration {
        self.give_up.since(self.client.now())
    }
}
