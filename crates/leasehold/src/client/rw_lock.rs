//! Reader-writer locks.

use super::{Client, LeaseBuilder};

/// A lock that many readers or one writer can hold. Nothing happens until the lease of a reader or a writer is
/// [acquired](LeaseBuilder::acquire).
///
/// Readers cannot starve a waiting writer: after a while the writer reserves the lock, and no further reader is granted
/// before it. Each holder has its own fence.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let index = client.rw_lock("index");
/// let (one, two) = (index.read().acquire().await?, index.read().acquire().await?);
/// assert!(index.write().acquire().await.is_err());
/// one.release().await?;
/// two.release().await?;
/// let writer = index.write().acquire().await?;
/// # assert!(index.read().acquire().await.is_err());
/// # drop(writer);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    name: String,
}

impl RwLock {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// Builds the lease of a reader.
    pub fn read(&self) -> LeaseBuilder {
        self.client.lease(&self.name).shared(None)
    }

    /// Builds the lease of a writer.
    pub fn write(&self) -> LeaseBuilder {
        self.client.lease(&self.name)
    }
}
