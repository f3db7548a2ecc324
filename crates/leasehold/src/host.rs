//! What the library needs from the machine: a clock that never steps, and random numbers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::BootTime;

/// The environment of an engine or a client. Production uses [`Machine`]; simulations use their own implementation,
/// so that a run can be repeated exactly.
pub trait Host: Send + Sync + 'static {
    /// Returns the boot clock's time. The clock runs during suspend and never steps.
    fn boot_time(&self) -> BootTime;
    /// Returns an unpredictable random number.
    fn random(&self) -> u128;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Machine {
    /// Returns this machine as a shared host.
    pub fn shared() -> Arc<dyn Host> {
        Arc::new(Self)
    }
}

impl Host for Machine {
    fn boot_time(&self) -> BootTime {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
            .expect("every Linux has a boot clock");
        let (seconds, nanos) = (time.tv_sec().unsigned_abs(), time.tv_nsec().unsigned_abs());
        BootTime::from_micros(1_000_000 * seconds + nanos / 1_000)
    }

    fn random(&self) -> u128 {
        thread_local! {
            /// Unused random numbers. Reading many at once costs as little as reading one.
            static SPARE: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
        }
        SPARE.with_borrow_mut(|spare| {
            if spare.is_empty() {
                let mut bytes = [0; 512];
                getrandom::fill(&mut bytes).expect("the kernel gives random numbers");
                let numbers = bytes.as_chunks().0.iter();
                spare.extend(numbers.map(|number| u128::from_le_bytes(*number)));
            }
            spare.pop().expect("there are some now")
        })
    }
}

/// How often timers that end a lease check the boot clock: the runtime's own timers stop while the machine is
/// suspended.
const RECHECK: Duration = Duration::from_millis(100);

/// Sleeps until this time of the boot clock, including suspended time.
pub async fn sleep_until(host: &dyn Host, moment: BootTime) {
    loop {
        let left = moment.since(host.boot_time());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(RECHECK)).await;
    }
}

/// The maximum number of bytes that the kernel buffers for a peer that does not read.
#[cfg(all(
    target_os = "linux",
    any(feature = "etcd", feature = "http", feature = "redis")
))]
const MAX_UNSENT: u32 = 128 * 1024;

/// Configures the socket between a service and its client: small messages are sent at once, little is buffered for a
/// peer that does not read, and a dead peer is detected even on an idle connection.
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
pub fn tune(stream: &tokio::net::TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let socket = socket2::SockRef::from(stream);
    let tuned = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&keepalive));
    #[cfg(target_os = "linux")]
    let tuned = tuned.and_then(|()| socket.set_tcp_notsent_lowat(MAX_UNSENT));
    if let Err(error) = tuned {
        tracing::debug!(%error, "cannot set socket options");
    }
}
