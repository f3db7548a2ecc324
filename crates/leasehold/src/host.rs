//! What this machine gives: a clock that never steps, and random numbers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::BootTime;

/// The surroundings of an engine or a client. One implementation for production, [`Machine`]; simulations bring
/// their own, so that a run can be repeated exactly.
pub trait Host: Send + Sync + 'static {
    /// The boot clock: runs during suspend, never steps.
    fn boot_time(&self) -> BootTime;
    /// A random number that nobody can guess or will see again.
    fn random(&self) -> u128;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Machine {
    /// As a shared host.
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
            /// Numbers that the kernel gave, and nobody has had yet: it takes as long to give one as to give many.
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

/// Timers that end a lease look at the boot clock at least this often: the runtime's own timers stand still while
/// the machine is suspended.
const RECHECK: Duration = Duration::from_millis(100);

/// Sleeps until this moment of the boot clock, suspended time included.
pub async fn sleep_until(host: &dyn Host, moment: BootTime) {
    loop {
        let left = moment.since(host.boot_time());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(RECHECK)).await;
    }
}

/// Bytes that the system keeps for a peer that does not read.
#[cfg(all(
    target_os = "linux",
    any(feature = "etcd", feature = "http", feature = "redis")
))]
const UNSENT: u32 = 128 * 1024;

/// Sets up a connection between a service and its client: small messages leave at once, a peer that does not read is
/// not sent megabytes, and one that has vanished is noticed although nobody says anything, as when one waits in line.
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
    let tuned = tuned.and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
    if let Err(error) = tuned {
        tracing::debug!(%error, "a connection could not be tuned");
    }
}
