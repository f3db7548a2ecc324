//! Deletes what nobody needs any more, by itself and in the background.

use std::time::Duration;

use leasehold::engine::{Engine, Purged};

/// How long after the start, and after a failure, a purge begins.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How often a purge runs within the time for which records are kept.
const RUNS: u32 = 4;

/// Purges for as long as it is polled, one run at a time.
pub(crate) async fn keep_purging(engine: Engine, retention: Duration, soon: Duration) {
    let mut pause = soon;
    loop {
        tokio::time::sleep(jittered(&engine, pause)).await;
        pause = match engine.purge("", retention, |_| ()).await {
            Ok(Purged { seen, deleted: 0 }) => {
                tracing::debug!(seen, "nothing to purge");
                retention / RUNS
            }
            Ok(Purged { seen, deleted }) => {
                tracing::info!(seen, deleted, "purged");
                retention / RUNS
            }
            Err(error) => {
                tracing::warn!(%error, "purging failed: trying again later");
                soon
            }
        };
    }
}

/// Between half and one and a half of it: services that were started together must not purge together.
fn jittered(engine: &Engine, pause: Duration) -> Duration {
    let thousandths = u32::try_from(engine.host().random() % 1_000).unwrap_or_default();
    pause / 2 + pause / 1_000 * thousandths
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use leasehold::core::{Fence, Name, Record, limits};
    use leasehold::store::memory::Memory;
    use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write, WriteId};
    use leasehold::{Error, Result};

    use super::*;

    /// A store whose first search fails.
    struct Stumbling {
        memory: Memory,
        searches: AtomicU32,
    }

    #[async_trait]
    impl Store for Stumbling {
        fn facts(&self) -> Facts {
            self.memory.facts()
        }

        async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
            self.memory.load(names).await
        }

        async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
            self.memory.swap(writes).await
        }

        async fn find(&self, query: &Query) -> Result<Answer<Page>> {
            if self.searches.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err(Error::Unavailable("stumbled".into()));
            }
            self.memory.find(query).await
        }
    }

    /// A record whose last fence was granted long ago.
    fn old(body: &str) -> Record {
        Record {
            fence: Fence::new(1_000_000_000_000_001).unwrap(),
            holders: Vec::new(),
            last: None,
            next: None,
            body: body.into(),
            state: None,
            put: None,
        }
    }

    #[tokio::test]
    async fn what_is_old_and_empty_goes_also_after_a_failure() {
        let store = Arc::new(Stumbling {
            memory: Memory::new(),
            searches: AtomicU32::new(0),
        });
        let names = [
            Name::lock("empty").unwrap(),
            Name::gate("empty").unwrap(),
            Name::lock("full").unwrap(),
        ];
        let bodies = ["", "", "kept"];
        let writes = names.iter().zip(bodies).map(|(name, body)| Write {
            name: name.clone(),
            expect: None,
            put: Some((WriteId(1), old(body).into())),
            body_changed: true,
        });
        store.swap(writes.collect()).await.unwrap();
        let engine = Engine::start(store.clone()).await.unwrap();
        let soon = Duration::from_millis(1);
        let purging = tokio::spawn(keep_purging(engine, limits::MIN_RETENTION, soon));
        let left = async || {
            let left = store.load(&names).await.unwrap().value;
            left.iter().map(Option::is_some).collect::<Vec<_>>()
        };
        let gone = async {
            while left().await != [false, false, true] {
                tokio::time::sleep(soon).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone)
            .await
            .expect("purged in bounded time");
        purging.abort();
    }
}
