//! Counts round trips with a proxy between an engine and its server.

use std::time::Duration;

use leasehold::core::{Fence, Name};
use leasehold::engine::Engine;
use leasehold::{AcquireOutcome, Leases as _, RenewRequest, UpdateOutcome, UpdateRequest};
use leasehold_testbed::Proxy;

use super::{name, release};

const LONG: Duration = Duration::from_secs(600);

/// An engine behind a proxy, and another one with a direct connection to the same store.
pub(crate) struct RoundTrips {
    proxied: Engine,
    other: Engine,
    proxy: Proxy,
}

impl RoundTrips {
    /// Opens the same store by two URLs: through the proxy, and directly. The store must not send anything by itself.
    pub(crate) async fn new(proxied: &str, proxy: Proxy, other: &str) -> Self {
        let trips = Self {
            proxied: super::engine(proxied).await,
            other: super::engine(other).await,
            proxy,
        };
        // The first calls may open several connections.
        for _ in 0..2 {
            let fence = expect_granted(&trips.proxied, &name("warm")).await;
            release(&trips.proxied, &name("warm"), fence).await;
        }
        // The server may answer the first part of a long request before the second part is sent.
        trips.proxy.delay(Duration::from_millis(20));
        trips
    }

    /// Checks the cost of single operations.
    pub(crate) async fn check_single_operations(&self) {
        let (new, foreign) = (name("new"), name("foreign"));
        let fence = self
            .assert_cost("a new name", 1, expect_granted(&self.proxied, &new))
            .await;
        self.assert_cost("renew", 1, renew(&self.proxied, &[(new.clone(), fence)]))
            .await;
        self.assert_cost("update", 1, update(&self.proxied, &new, fence))
            .await;
        self.assert_cost("release", 1, release(&self.proxied, &new, fence))
            .await;
        let fence = self
            .assert_cost("a name used before", 1, expect_granted(&self.proxied, &new))
            .await;
        release(&self.proxied, &new, fence).await;

        let other_fence = expect_granted(&self.other, &foreign).await;
        self.assert_cost(
            "a refusal, of a new name",
            1,
            expect_refused(&self.proxied, &foreign),
        )
        .await;
        self.assert_cost("a refusal", 1, expect_refused(&self.proxied, &foreign))
            .await;
        release(&self.other, &foreign, other_fence).await;
        let fence = self
            .assert_cost(
                "a name used by another engine",
                2,
                expect_granted(&self.proxied, &foreign),
            )
            .await;
        release(&self.proxied, &foreign, fence).await;
        let other_fence = expect_granted(&self.other, &name("theirs")).await;
        release(&self.other, &name("theirs"), other_fence).await;
        self.assert_cost(
            "a name used only by another engine",
            2,
            expect_granted(&self.proxied, &name("theirs")),
        )
        .await;
    }

    /// Checks the cost of a batch of 64.
    pub(crate) async fn check_batch(&self) {
        let mut batch = Vec::new();
        for number in 0..64 {
            let name = name(&format!("batch {number}"));
            let fence = expect_granted(&self.proxied, &name).await;
            batch.push((name, fence));
        }
        self.assert_cost("64 renewals", 1, renew(&self.proxied, &batch))
            .await;
    }

    async fn assert_cost<T>(&self, operation: &str, max: u64, call: impl Future<Output = T>) -> T {
        let before = self.proxy.traffic().round_trips;
        let result = call.await;
        let trips = self.proxy.traffic().round_trips - before;
        assert!(
            (1..=max).contains(&trips),
            "{operation}: {trips} round trips, not {max}"
        );
        result
    }
}

async fn try_acquire(engine: &Engine, name: &Name) -> AcquireOutcome {
    let answer = super::try_acquire(engine, name, LONG, Duration::ZERO).await;
    answer.expect("the store answers")
}

async fn expect_granted(engine: &Engine, name: &Name) -> Fence {
    match try_acquire(engine, name).await {
        AcquireOutcome::Granted(hold) => hold.grant.fence,
        AcquireOutcome::Held(held) => panic!("`{name}`: {held:?}"),
    }
}

async fn expect_refused(engine: &Engine, name: &Name) {
    let answer = try_acquire(engine, name).await;
    assert!(matches!(answer, AcquireOutcome::Held(_)), "{answer:?}");
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
    assert!(matches!(updated, UpdateOutcome::Renewed(_)), "{updated:?}");
}
