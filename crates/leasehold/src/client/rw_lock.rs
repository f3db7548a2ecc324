//! A lock for many readers or one writer.

use super::{Client, LeaseBuilder};

/// A lock that many readers share, or one writer has for itself. Nothing happens until one of its sides is
/// [acquired](LeaseBuilder::acquire).
///
/// Readers cannot keep a waiting writer out for ever: after a while the writer reserves the lock, and no more readers
/// are let in before it. Each holder has a fence of its own.
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

    /// The lease of a reader.
    pub fn read(&self) -> LeaseBuilder {
        self.client.lease(&self.name).shared(None)
    }

    /// The lease of a writer.
    pub fn write(&self) -> LeaseBuilder {
        self.client.lease(&self.name)
    }
}
