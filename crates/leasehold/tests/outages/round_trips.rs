//! Counts round trips with a proxy between an engine and its server.

use std::time::Duration;

use leasehold::core::{Fence, Name};
use leasehold::engine::Engine;
use leasehold::{Acquired, Leases as _, RenewRequest, UpdateRequest, Updated};
use leasehold_testbed::Proxy;

use super::{name, release};

const LONG: Duration = Duration::from_secs(600);

/// An engine behind a proxy, and another one with a direct connection to the same store.
pub(crate) struct Trips {
    counted: Engine,
    other: Engine,
    proxy: Proxy,
}

impl Trips {
    /// Opens the same store by two URLs: through the proxy, and directly. The store must not send anything by itself.
    pub(crate) async fn new(counted: &str, proxy: Proxy, other: &str) -> Self {
        let trips = Self {
            counted: super::engine(counted).await,
            other: super::engine(other).await,
            proxy,
        };
        // The first calls may open several connections.
        for _ in 0..2 {
            let fence = granted(&trips.counted, &name("warm")).await;
            release(&trips.counted, &name("warm"), fence).await;
        }
        trips
    }

    /// Checks the cost of single operations.
    pub(crate) async fn check_single_operations(&self) {
        let (new, foreign) = (name("new"), name("foreign"));
        let fence = self
            .cost("a new name", 1, granted(&self.counted, &new))
            .await;
        self.cost("renew", 1, renew(&self.counted, &[(new.clone(), fence)]))
            .await;
        self.cost("update", 1, update(&self.counted, &new, fence))
            .await;
        self.cost("release", 1, release(&self.counted, &new, fence))
            .await;
        let fence = self
            .cost("a name used before", 1, granted(&self.counted, &new))
            .await;
        release(&self.counted, &new, fence).await;

        let other_fence = granted(&self.other, &foreign).await;
        self.cost(
            "a refusal, of a new name",
            1,
            refused(&self.counted, &foreign),
        )
        .await;
        self.cost("a refusal", 1, refused(&self.counted, &foreign))
            .await;
        release(&self.other, &foreign, other_fence).await;
        let fence = self
            .cost(
                "a name used by another engine",
                2,
                granted(&self.counted, &foreign),
            )
            .await;
        release(&self.counted, &foreign, fence).await;
        let other_fence = granted(&self.other, &name("theirs")).await;
        release(&self.other, &name("theirs"), other_fence).await;
        self.cost(
            "a name used only by another engine",
            2,
            granted(&self.counted, &name("theirs")),
        )
        .await;
    }

    /// Checks the cost of a batch of 64.
    pub(crate) async fn check_batch(&self) {
        let mut batch = Vec::new();
        for number in 0..64 {
            let name = name(&format!("batch {number}"));
            let fence = granted(&self.counted, &name).await;
            batch.push((name, fence));
        }
        self.cost("64 renewals", 1, renew(&self.counted, &batch))
            .await;
    }

    async fn cost<T>(&self, what: &str, most: u64, act: impl Future<Output = T>) -> T {
        let before = self.proxy.traffic().round_trips;
        let done = act.await;
        let trips = self.proxy.traffic().round_trips - before;
        assert!(
            (1..=most).contains(&trips),
            "{what}: {trips} round trips, not {most}"
        );
        done
    }
}

async fn ask(engine: &Engine, name: &Name) -> Acquired {
    let answer = super::ask(engine, name, LONG, Duration::ZERO).await;
    answer.expect("the store answers")
}

async fn granted(engine: &Engine, name: &Name) -> Fence {
    match ask(engine, name).await {
        Acquired::Granted(hold) => hold.grant.fence,
        Acquired::Held(held) => panic!("`{name}`: {held:?}"),
    }
}

async fn refused(engine: &Engine, name: &Name) {
    let answer = ask(engine, name).await;
    assert!(matches!(answer, Acquired::Held(_)), "{answer:?}");
}

async fn renew(engine: &Engine, leases: &[(Name, Fence)]) {
    let requests = leases.iter().map(|(name, fence)| RenewRequest {
        name: name.clone(),
        fence: *fence,
        ttl: None,
    });
    for renewed in engine.renew(requests.collect(), LONG).await {
        renewed.expect("renewed");
    }
}

async fn update(engine: &Engine, name: &Name, fence: Fence) {
    let request = UpdateRequest {
        name: name.clone(),
        fence,
        body: Some("step 3".into()),
        state: None,
        then_release: false,
    };
    let updated = engine.update(request).await.expect("the store answers");
    assert!(matches!(updated, Updated::Renewed(_)), "{updated:?}");
}
