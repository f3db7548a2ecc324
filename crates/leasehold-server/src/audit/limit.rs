//! Limits how many refusals of unknown callers are recorded: enough to notice an attack, too few to fill a disk.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use leasehold::core::BootTime;

use crate::connections::ClientAddress;

const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of lines of one address per window.
const PER_ADDRESS: u32 = 10;
/// The maximum number of lines of all addresses per window.
const TOTAL: u32 = 600;

/// Counts the lines of the present window.
#[derive(Default)]
pub(super) struct Limit {
    since: Option<BootTime>,
    recorded: HashMap<ClientAddress, u32>,
    total: u32,
    omitted: u64,
}

impl Limit {
    /// Returns whether another line about this address may be recorded. Counts it as recorded or as omitted.
    pub(super) fn admit(&mut self, address: &str, now: BootTime) -> bool {
        if self.has_ended(now) {
            self.since = Some(now);
            self.recorded.clear();
            self.total = 0;
        }
        let address = client_address(address);
        let recorded = self.recorded.get(&address).copied().unwrap_or(0);
        if self.total >= TOTAL || recorded >= PER_ADDRESS {
            self.omitted += 1;
            return false;
        }
        self.total += 1;
        self.recorded.insert(address, recorded + 1);
        true
    }

    /// Returns how many lines were omitted, once the window has ended.
    pub(super) fn take_omitted(&mut self, now: BootTime) -> Option<u64> {
        let is_due = self.omitted > 0 && self.has_ended(now);
        is_due.then(|| std::mem::take(&mut self.omitted))
    }

    fn has_ended(&self, now: BootTime) -> bool {
        self.since.is_none_or(|since| now.since(since) >= WINDOW)
    }
}

/// Returns the client address of a peer, which has a port.
fn client_address(peer: &str) -> ClientAddress {
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let peer = peer.parse().map(|peer: SocketAddr| peer.ip());
    peer.unwrap_or(unknown).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_micros(seconds * 1_000_000)
    }

    fn admitted(
        limit: &mut Limit,
        count: u32,
        now: BootTime,
        address: impl Fn(u32) -> String,
    ) -> u32 {
        let admitted = (0..count).filter(|number| limit.admit(&address(*number), now));
        u32::try_from(admitted.count()).unwrap()
    }

    #[test]
    fn lines_per_address_and_minute_are_limited_whatever_the_port() {
        let mut limit = Limit::default();
        let v4 = |number| format!("10.0.0.7:{number}");
        let v6 = |number| format!("[2001:db8::{number:x}]:80");
        assert_eq!(admitted(&mut limit, 100, at(1), v4), PER_ADDRESS);
        assert_eq!(admitted(&mut limit, 100, at(2), v6), PER_ADDRESS);
        assert!(limit.admit("10.0.0.8:1", at(3)));
        assert_eq!(limit.take_omitted(at(60)), None);
        assert_eq!(limit.take_omitted(at(61)), Some(180));
        assert_eq!(limit.take_omitted(at(61)), None);
        assert_eq!(admitted(&mut limit, 100, at(61), v4), PER_ADDRESS);
    }

    #[test]
    fn lines_of_all_addresses_are_limited() {
        let mut limit = Limit::default();
        let address = |number: u32| format!("{}:1", Ipv4Addr::from(number + 1));
        assert_eq!(admitted(&mut limit, 5_000, at(1), address), TOTAL);
        assert!(limit.recorded.len() <= TOTAL as usize);
    }
}
