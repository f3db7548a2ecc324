//! The highest-fence register.

use leasehold_core::Fence;
use tokio::sync::{Mutex, MutexGuard};

use super::admit;
#[cfg(doc)]
use crate::Error;
use crate::Result;

/// A register of the highest fence, which admits only writers with that fence: the check for a resource that this
/// process owns, such as a file, a device, or data that it serves.
///
/// For **exclusive** leases, and one name each: of the holders of a shared lease it would refuse all but the newest.
/// It is lost with the process: store the highest fence with the data, and start [from](Self::since) it.
///
/// ```
/// use leasehold::{Error, fence::Register};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// # let lease = client.lease("printer").acquire().await?;
/// # let first = lease.fence();
/// # lease.release().await?;
/// # let second = client.lease("printer").acquire().await?.fence();
/// let register = Register::new();
///
/// let admitted = register.admit(first).await?;
/// // …write here, before any higher fence is admitted…
/// drop(admitted);
/// register.admit(first).await?; // repeatedly
/// register.admit(second).await?; // another holder was granted the lease
/// assert_eq!(register.admit(first).await.unwrap_err(), Error::Fenced);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Register {
    highest: Mutex<Fence>,
}

/// The permission to write while this value exists. No other writer is admitted meanwhile.
#[derive(Debug)]
#[must_use = "other writers are excluded only while this value exists"]
pub struct Admitted<'r> {
    _highest: MutexGuard<'r, Fence>,
}

impl Register {
    /// Creates a register that has seen no fence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a register that has seen this fence.
    pub fn since(highest: Fence) -> Self {
        Self {
            highest: Mutex::new(highest),
        }
    }

    /// Admits this fence after the current writer is done. Returns [`Error::Fenced`] if a higher fence was admitted
    /// before.
    ///
    /// A new holder calls this before it reads what it is going to write: from then on it is safe from its
    /// predecessors.
    pub async fn admit(&self, fence: Fence) -> Result<Admitted<'_>> {
        let mut highest = self.highest.lock().await;
        admit(fence, *highest)?;
        *highest = fence;
        Ok(Admitted { _highest: highest })
    }

    /// Returns the highest fence so far, to be stored with the data.
    pub async fn highest(&self) -> Fence {
        *self.highest.lock().await
    }
}
