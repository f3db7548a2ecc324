//! Free ports that stay reserved while a server is down.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// A port on loopback for one server, which no other test uses, even while the server is down.
pub(crate) struct Port {
    number: u16,
    /// A UDP socket with the same number keeps other tests from choosing the port, and leaves nothing behind.
    _reservation: UdpSocket,
}

impl Port {
    /// Reserves a free port.
    ///
    /// It is never an ephemeral port: a client that retries while the server is down could otherwise be given the
    /// server's port, and connect to itself.
    pub(crate) fn free() -> Self {
        let (low, high) = outside_ephemeral();
        loop {
            let random = RandomState::new().hash_one(());
            let number = low + (random % u64::from(high - low)) as u16;
            let at = (Ipv4Addr::LOCALHOST, number);
            if let Ok(reservation) = UdpSocket::bind(at)
                && TcpListener::bind(at).is_ok()
            {
                return Self {
                    number,
                    _reservation: reservation,
                };
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Returns a range of ports outside the kernel's ephemeral ones.
fn outside_ephemeral() -> (u16, u16) {
    const LOW: u16 = 15_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768);
    if first > LOW + 1_000 {
        (LOW, first)
    } else {
        (LOW, 32_768)
    }
}
