//! Repeated attempts to acquire a lease or to claim items.

use std::time::Duration;

use leasehold_core::BootTime;

use super::Client;
use crate::{Error, Result};

/// The number of grants that may arrive after their deadline before the ttl is reported as too short.
const MAX_LATE_GRANTS: u32 = 3;

/// Decides whether a request is repeated: if the [`Leases`](crate::Leases) limit the wait of one call and time is left,
/// or if a grant arrives after its deadline.
pub(super) struct Attempts<'c> {
    client: &'c Client,
    timeout_at: BootTime,
    ttl: Duration,
    /// The last call could not wait until the timeout.
    was_limited: bool,
    late_grants: u32,
}

impl<'c> Attempts<'c> {
    pub(super) fn new(client: &'c Client, wait: Duration, ttl: Duration) -> Self {
        Self {
            client,
            timeout_at: client.now() + wait,
            ttl,
            was_limited: false,
            late_grants: 0,
        }
    }

    /// Returns how long the next call may wait.
    pub(super) fn next_wait(&mut self) -> Duration {
        let (left, limit) = (self.time_left(), self.client.leases().max_wait());
        self.was_limited = limit < left;
        left.min(limit)
    }

    /// Returns whether time is left that the last call could not wait for.
    pub(super) fn can_wait_longer(&self) -> bool {
        self.was_limited && !self.time_left().is_zero()
    }

    /// Counts a grant that arrived after its deadline. Fails if there were too many.
    pub(super) fn count_late_grant(&mut self) -> Result<()> {
        self.late_grants += 1;
        if self.late_grants < MAX_LATE_GRANTS {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "cannot acquire: grants arrive later than the ttl of {:?}: use a longer ttl",
            self.ttl
        )))
    }

    fn time_left(&self) -> Duration {
        self.timeout_at.since(self.client.now())
    }
}
