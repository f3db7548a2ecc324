//! Purges unused records in the background.

use std::time::Duration;

use leasehold::engine::{Engine, PurgeProgress};

/// The delay of a purge after the start, and after a failure.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(60);
/// The number of purges within the retention.
const RUNS_PER_RETENTION: u32 = 4;

/// Purges periodically while this future is polled.
pub(crate) async fn keep_purging(engine: Engine, retention: Duration, retry_delay: Duration) {
    let mut pause = retry_delay;
    loop {
        tokio::time::sleep(with_jitter(&engine, pause)).await;
        pause = match engine.purge("", retention, |_| ()).await {
            Ok(PurgeProgress { seen, deleted: 0 }) => {
                tracing::debug!(seen, "nothing to purge");
                retention / RUNS_PER_RETENTION
            }
            Ok(PurgeProgress { seen, deleted }) => {
                tracing::info!(seen, deleted, "purged");
                retention / RUNS_PER_RETENTION
            }
            Err(error) => {
                tracing::warn!(%error, "cannot purge: retrying later");
                retry_delay
            }
        };
    }
}

/// Returns between 50 and 150 % of a pause, so that services that started together do not purge together.
fn with_jitter(engine: &Engine, pause: Duration) -> Duration {
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
    struct FlakyStore {
        memory: Memory,
        searches: AtomicU32,
    }

    #[async_trait]
    impl Store for FlakyStore {
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
                return Err(Error::Unavailable("injected failure".into()));
            }
            self.memory.find(query).await
        }
    }

    /// A record whose last fence was granted long ago.
    fn old_record(body: &str) -> Record {
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
    async fn old_and_empty_records_are_purged_even_after_a_failure() {
        let store = Arc::new(FlakyStore {
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
            put: Some((WriteId(1), old_record(body).into())),
            body_changed: true,
        });
        store.swap(writes.collect()).await.unwrap();
        let engine = Engine::start(store.clone()).await.unwrap();
        let retry_delay = Duration::from_millis(1);
        let purging = tokio::spawn(keep_purging(engine, limits::MIN_RETENTION, retry_delay));
        let exist = async || {
            let stored = store.load(&names).await.unwrap().value;
            stored.iter().map(Option::is_some).collect::<Vec<_>>()
        };
        let purged = async {
            while exist().await != [false, false, true] {
                tokio::time::sleep(retry_delay).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), purged)
            .await
            .expect("purged in bounded time");
        purging.abort();
    }
}
