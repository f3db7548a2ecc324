//! Limits connections, and decides which ones are served when there are too many.
//!
//! | file | what it does |
//! |---|---|
//! | `slot.rs` | one connection's place in the limit: busy, or idle since when |
//! | `limiter.rs` | admits connections, and displaces idle ones when all slots are taken |
//!
//! A slot is busy only while a complete request is being answered. Otherwise it is idle (silence, half a request, an
//! answer or an event that the client does not read), and is freed when another connection requires it. So only waiting for
//! a lease and subscribing to events keep a slot for long. Both are limited by address and by token.

mod limiter;
mod slot;

pub(crate) use limiter::{ConnectionLimiter, ConnectionLimits, GRACE, Subscription};
pub(crate) use slot::{Connection, ConnectionSlot};

use std::net::{IpAddr, Ipv6Addr};

/// The paths that are answered on reserve connections, when all slots are busy.
pub(crate) const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The address by which a client's connections are counted: an IPv4 address, or the /64 network of an IPv6 address, because
/// a host usually has a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientAddress(IpAddr);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_are_counted_by_network() {
        let address = |text: &str| ClientAddress::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
    }
}
