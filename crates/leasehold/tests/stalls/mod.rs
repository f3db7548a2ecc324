//! Writes that land while their answers stall, for every store on a server.

use std::time::{Duration, Instant};

use leasehold::core::{Fence, Mode, Name, Nonce, Record};
use leasehold::engine::{Config, Engine};
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakRequest, Error, HolderKey, Leases as _, PutRequest,
    RenewRequest, Result, UpdateOutcome, UpdateRequest, store,
};
use leasehold_testbed::Proxy;

const TTL: Duration = Duration::from_secs(120);
/// How long a write may take to reach the server, even on a busy machine.
const LANDING_TIMEOUT: Duration = Duration::from_secs(30);

/// The store to test.
pub(crate) struct Target {
    pub(crate) scheme: &'static str,
    /// URL options of the engine whose answers stall.
    pub(crate) options: &'static str,
    /// Additional options that shorten the driver's timeouts, if it has any.
    pub(crate) short_timeouts: &'static str,
    /// URL options of the other engine, whose store tolerates a slow server.
    pub(crate) long_timeouts: &'static str,
}

/// Checks that a write that landed unanswered is neither repeated nor reported as refused.
pub(crate) async fn landed_writes_are_not_repeated(target: Target) {
    for stall in [Stall::UntilFailure, Stall::SevenSeconds] {
        tokio::join!(
            put_is_not_repeated(&target, stall),
            break_spares_the_next_holder(&target, stall),
            update_is_not_refused(&target, stall),
        );
    }
}

/// How long answers stall.
#[derive(Clone, Copy, Debug)]
enum Stall {
    /// Until a call to the store has failed, but before the engine answers its own caller.
    UntilFailure,
    /// Longer than the default timeouts of an engine.
    SevenSeconds,
}

/// Two engines on one server. The answers to the one behind the proxy can be stalled.
struct Setup {
    proxy: Proxy,
    proxied: Engine,
    other: Engine,
    stall: Stall,
    name: Name,
}

impl Setup {
    async fn new(target: &Target, stall: Stall, name: &str) -> Self {
        let server = leasehold_testbed::shared(target.scheme).await.unwrap();
        let proxy = Proxy::to(server.port()).await;
        let short_timeouts = match stall {
            Stall::UntilFailure => target.short_timeouts,
            Stall::SevenSeconds => "",
        };
        let url = server.url_at(proxy.port()) + target.options + short_timeouts;
        Self {
            proxy,
            proxied: engine(&url, Config::default()).await,
            other: engine(&(server.url() + target.long_timeouts), observer_config()).await,
            stall,
            name: Name::lock(format!("{name} {stall:?}")).unwrap(),
        }
    }

    /// Starts a call whose write lands unanswered, runs `meanwhile` on the written record, and lets answers through.
    /// Returns the answer of the call and the output of `meanwhile`.
    async fn run_unanswered<T: Send + 'static, M>(
        &self,
        call: impl Future<Output = Result<T>> + Send + 'static,
        meanwhile: impl Future<Output = M>,
    ) -> (Result<T>, M) {
        let before = self.current_record().await;
        self.proxy.stall_answers();
        let began = Instant::now();
        let calling = tokio::spawn(call);
        while self.current_record().await == before {
            assert!(began.elapsed() < LANDING_TIMEOUT, "nothing was written");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let done = meanwhile.await;
        match self.stall {
            Stall::UntilFailure => {
                let failures = || self.proxied.metrics().failures.iter();
                while failures().all(|counter| counter.get() == 0) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Stall::SevenSeconds => {
                tokio::time::sleep_until((began + Duration::from_secs(7)).into()).await;
            }
        }
        self.proxy.forward();
        let answer = calling.await.unwrap();
        // Closing completes the writes that the engine still has queued.
        self.proxied.close().await;
        (answer, done)
    }

    async fn current_record(&self) -> Option<Record> {
        let view = self.other.show(&self.name).await.unwrap();
        view.map(|view| view.record)
    }

    async fn state(&self) -> String {
        self.current_record()
            .await
            .unwrap()
            .state
            .unwrap()
            .label
            .to_string()
    }
}

/// Returns the configuration of the engine that only observes.
fn observer_config() -> Config {
    let mut config = Config::default();
    config.timeout = LANDING_TIMEOUT;
    config
}

async fn engine(url: &str, config: Config) -> Engine {
    let store = store::open(url).await.unwrap();
    let started = Engine::start_with(store, Machine::shared(), config).await;
    started.unwrap()
}

async fn acquire(engine: &Engine, name: &Name) -> Fence {
    let request = AcquireRequest {
        name: name.clone(),
        nonce: Nonce::new(format!("{:032x}", Machine.random())).unwrap(),
        owner: "test".into(),
        ttl: TTL,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    };
    match engine.acquire(request).await.unwrap() {
        AcquireOutcome::Granted(hold) => hold.grant.fence,
        AcquireOutcome::Held(held) => panic!("`{name}`: {held:?}"),
    }
}

fn update(name: &Name, fence: Fence, state: &str) -> UpdateRequest {
    UpdateRequest {
        name: name.clone(),
        fence,
        body: None,
        state: Some(Some(state.into())),
        then_release: true,
    }
}

#[track_caller]
fn assert_indeterminate<T: std::fmt::Debug>(answer: &Result<T>, stall: Stall) {
    assert!(
        matches!(answer, Err(Error::Indeterminate(_))),
        "{stall:?}: {answer:?}"
    );
}

async fn put_is_not_repeated(target: &Target, stall: Stall) {
    let setup = Setup::new(target, stall, "put").await;
    // A first write may take more than one round trip: Redis, for example, has to be sent the script.
    let first = Name::lock(format!("first write {stall:?}")).unwrap();
    acquire(&setup.proxied, &first).await;
    let (engine, name) = (setup.proxied.clone(), setup.name.clone());
    let put = async move {
        let request = PutRequest {
            name,
            state: "REQUESTED".into(),
            body: Some("order".into()),
            nonce: None,
        };
        engine.put(request).await
    };
    let finish = async {
        let fence = acquire(&setup.other, &setup.name).await;
        let finished = setup.other.update(update(&setup.name, fence, "DONE")).await;
        assert_eq!(finished, Ok(UpdateOutcome::Completed));
    };
    let (answer, ()) = setup.run_unanswered(put, finish).await;
    assert_eq!(setup.state().await, "DONE", "{stall:?}");
    assert_indeterminate(&answer, stall);
}

async fn break_spares_the_next_holder(target: &Target, stall: Stall) {
    let setup = Setup::new(target, stall, "break").await;
    // Acquired by the same engine, which therefore need not load the record.
    acquire(&setup.proxied, &setup.name).await;
    let (engine, name) = (setup.proxied.clone(), setup.name.clone());
    let break_now = async move {
        let force = BreakRequest::Force {
            fence: None,
            reason: "stuck".into(),
            now: true,
        };
        engine.break_lease(&name, force).await
    };
    let next = acquire(&setup.other, &setup.name);
    let (answer, fence) = setup.run_unanswered(break_now, next).await;
    let renewal = RenewRequest {
        name: setup.name.clone(),
        fence,
        ttl: None,
    };
    let renewed = setup.other.renew(vec![renewal], TTL).await;
    assert!(renewed[0].is_ok(), "{stall:?}: {renewed:?}");
    assert_indeterminate(&answer, stall);
}

async fn update_is_not_refused(target: &Target, stall: Stall) {
    let setup = Setup::new(target, stall, "update").await;
    let fence = acquire(&setup.proxied, &setup.name).await;
    let (engine, name) = (setup.proxied.clone(), setup.name.clone());
    let finish = async move { engine.update(update(&name, fence, "DONE")).await };
    // The record contains only the end of the next holder.
    let next = async {
        let fence = acquire(&setup.other, &setup.name).await;
        let released = setup
            .other
            .release(&setup.name, HolderKey::Fence(fence))
            .await;
        assert_eq!(released, Ok(true));
    };
    let (answer, ()) = setup.run_unanswered(finish, next).await;
    assert_eq!(setup.state().await, "DONE", "{stall:?}");
    assert_indeterminate(&answer, stall);
}
