//! A store whose waiters rarely poll. A waiter that is served sooner was woken by a change notification.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::core::Name;
use leasehold::engine::Engine;
use leasehold::store::{self, Answer, Changes, Facts, Page, Query, Store, Stored, Swapped, Write};

/// The poll interval, which varies by half.
pub(crate) const POLL: Duration = Duration::from_secs(2);

/// A store that differs from the wrapped one only in its poll interval.
pub(crate) struct RarelyPolledStore(Arc<dyn Store>);

impl RarelyPolledStore {
    /// Starts an engine on the store of this URL, with the longer poll interval.
    pub(crate) async fn engine(url: &str) -> Engine {
        let store = store::open(url).await.expect("opens");
        let engine = Engine::start(Arc::new(Self(store))).await;
        engine.expect("starts")
    }
}

#[async_trait]
impl Store for RarelyPolledStore {
    fn facts(&self) -> Facts {
        Facts {
            poll: POLL,
            ..self.0.facts()
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.0.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.0.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.0.find(query).await
    }

    fn changes(&self) -> Option<Changes> {
        self.0.changes()
    }
}
